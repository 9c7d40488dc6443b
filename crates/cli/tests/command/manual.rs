//! What is made of the command's own definitions: completions and manual pages, as their readers take them.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use nearside_conformance::needs;
use nearside_conformance::volume::{must, tool};

use crate::fixture::{Ran, nearside, small};

fn printed(words: &[&str]) -> Vec<u8> {
    let ran = Ran::from(nearside().args(words).output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    ran.out
}

#[test]
fn bash_completes() {
    if !needs::tools("bash_completes", &["bash"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("nearside.bash");
    fs::write(&script, printed(&["completions", "bash"])).unwrap();
    must(tool("bash").arg("-n").arg(&script));
    let completed = |words: &[&str]| -> Vec<String> {
        let line = format!(
            "source '{}'; COMP_WORDS=({}); COMP_CWORD={}; _nearside nearside '{}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display(),
            words.join(" "),
            words.len() - 1,
            words.last().unwrap(),
        );
        let out = must(tool("bash").args(["--norc", "-c", &line])).stdout;
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    };
    assert_eq!(completed(&["nearside", "gr"]), ["grep"]);
    assert_eq!(completed(&["nearside", "cp", "--targ"]), ["--target-directory"]);
    assert_eq!(completed(&["nearside", "bench", "cur"]), ["curve"]);
}

/// An interactive zsh that types by itself: a line, Tab, and a key that writes down what then stands there.
const ZSHRC: &str = r#"
fpath=($ZDOTDIR $fpath)
autoload -Uz compinit
compinit -u -D
setopt noautolist noautomenu
lines=("${(@f)$(<$ZDOTDIR/lines)}")
type_next() { (( $#lines )) || exit; zle -U "$lines[1]"$'\t\r'; shift lines }
write_down() { print -r -- "$BUFFER" >>$ZDOTDIR/completed; BUFFER=; type_next }
zle -N zle-line-init type_next
zle -N write_down
bindkey '^M' write_down
"#;

#[test]
fn zsh_completes() {
    let Some(folder) = needs::folder("zsh_completes", &["zsh", "timeout"]) else { return };
    let at = |name: &str| folder.path().join(name);
    let typed = [
        ("nearside gr", "nearside grep "),
        ("nearside bench cur", "nearside bench curve "),
        ("nearside grep --max-d", "nearside grep --max-depth="),
        ("nearside cp --targ", "nearside cp --target-directory="),
        ("nearside info --completion p", "nearside info --completion polled "),
        ("nearside info --completion i", "nearside info --completion interrupt "),
        ("nearside info --completion=h", "nearside info --completion=hybrid "),
        ("nearside info -d dis", "nearside info -d disk.img "),
    ];
    let lines: String = typed.iter().map(|(line, _)| format!("{line}\n")).collect();
    let files: [(&str, &[u8]); 4] = [
        ("_nearside", &printed(&["completions", "zsh"])),
        (".zshrc", ZSHRC.as_bytes()),
        ("lines", lines.as_bytes()),
        ("disk.img", b""),
    ];
    for (name, bytes) in files {
        fs::write(at(name), bytes).unwrap();
    }
    // It completes on a terminal alone, of which it has one of its own (zpty), and ends with the last line.
    let script = "zmodload zsh/zpty; zpty shell zsh -di; while zpty -r shell; do :; done";
    let mut zsh = tool("timeout");
    zsh.args(["120", "zsh", "-fc", script]).env("ZDOTDIR", folder.path()).env("TERM", "dumb");
    must(zsh.current_dir(folder.path()));
    let completed = fs::read_to_string(at("completed")).unwrap();
    let expected: Vec<&str> = typed.iter().map(|(_, completed)| *completed).collect();
    assert_eq!(completed.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn fish_completes() {
    let Some(folder) = needs::folder("fish_completes", &["fish"]) else { return };
    let at = |name: &str| folder.path().join(name);
    fs::write(at("nearside.fish"), printed(&["completions", "fish"])).unwrap();
    fs::write(at("disk.img"), "").unwrap();
    let completed = |line: &str| -> Vec<String> {
        let mut fish = tool("fish");
        fish.args(["--no-config", "-c", "source nearside.fish; complete -C $argv", line]);
        let out = must(fish.current_dir(folder.path()).env("HOME", folder.path())).stdout;
        // What it is stands behind it.
        let word = |line: &str| line.split('\t').next().unwrap().to_owned();
        String::from_utf8(out).unwrap().lines().map(word).collect()
    };
    assert_eq!(completed("nearside gr"), ["grep"]);
    assert_eq!(completed("nearside bench cur"), ["curve"]);
    assert_eq!(completed("nearside grep --max-d"), ["--max-depth"]);
    assert_eq!(completed("nearside cp --targ"), ["--target-directory"]);
    let mut values = completed("nearside info --completion ");
    values.sort();
    assert_eq!(values, ["hybrid", "interrupt", "polled"]);
    assert_eq!(completed("nearside info -d dis"), ["disk.img"]);
}

#[test]
fn manual_pages_are_without_fault() {
    if !needs::tools("manual_pages_are_without_fault", &["groff"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    printed(&["man", "--out", folder.path().to_str().unwrap()]);
    let pages: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(pages.len() > 25, "{pages:?}");
    for page in &pages {
        let set = must(tool("groff").args(["-man", "-Tutf8", "-ww", "-K", "utf8"]).arg(page));
        assert_eq!(String::from_utf8_lossy(&set.stderr), "", "{page:?}");
    }
    let set = must(
        tool("groff")
            .args(["-man", "-Tascii", "-P-cbou", "-rLL=200n"])
            .arg(folder.path().join("nearside-cp.1")),
    );
    let text = String::from_utf8(set.stdout).unwrap();
    for line in ["nearside cp -d disk.img --tar - /etc | tar -tf -", "-a, --archive", "EXAMPLES"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(printed(&["man"]), fs::read(folder.path().join("nearside.1")).unwrap());
}

/// `make install`, of what is built here; and the C library's example, built and run with what was installed.
#[test]
fn each_file_is_installed_where_it_is_looked_for() {
    let test = "each_file_is_installed_where_it_is_looked_for";
    if !needs::tools(test, &["install", "pkg-config", "strip", "readelf", "cc", "mke2fs"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let built = folder.path().join("built");
    fs::create_dir(&built).unwrap();
    symlink(env!("CARGO_BIN_EXE_nearside"), built.join("nearside")).unwrap();
    for library in ["libnearside.a", "libnearside.so"] {
        symlink(crate::library::built(library), built.join(library)).unwrap();
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install.sh");
    must(tool("sh").arg(script).arg("").arg(folder.path().join("usr")).arg(&built));
    let at = |path: &str| folder.path().join("usr").join(path);
    for file in [
        "bin/nearside",
        "include/nearside.h",
        "lib/libnearside.a",
        "lib/libnearside.so",
        "lib/libnearside.so.0",
        "lib/libnearside.so.0.1.0",
        "share/bash-completion/completions/nearside",
        "share/zsh/site-functions/_nearside",
        "share/fish/vendor_completions.d/nearside.fish",
        "lib/systemd/system/nearside.service",
        "lib/systemd/system/nearside.socket",
        "share/doc/nearside/SERVE.md",
        "share/doc/nearside/serve.example.toml",
        "share/doc/nearside/serve.schema.json",
        "share/doc/nearside/grafana.dashboard.json",
        "share/man/man1/nearside.1",
        "share/man/man1/nearside-cp.1",
    ] {
        assert!(fs::metadata(at(file)).is_ok_and(|file| file.len() > 0), "{file}");
    }
    for (file, kept) in [("bin/nearside", false), ("lib/libnearside.so", false), ("lib/libnearside.so", true)]
    {
        let (flag, what) = if kept { ("-d", "SONAME") } else { ("-S", ".debug_line") };
        let said = must(tool("readelf").arg(flag).arg(at(file))).stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        assert_eq!(said.contains(what), kept, "{file}: {said}");
        assert!(!kept || said.contains("Library soname: [libnearside.so.0]"), "{said}");
    }

    let volume = small(test).unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../fsrlib-c/examples/search.c");
    for (name, flags) in
        [("shared", &["--cflags", "--libs"][..]), ("static", &["--static", "--cflags", "--libs"])]
    {
        let mut known = tool("pkg-config");
        known.env("PKG_CONFIG_PATH", at("lib/pkgconfig"));
        let known = must(known.args(flags).arg("nearside")).stdout;
        let known = String::from_utf8(known).unwrap();
        let program = folder.path().join(name);
        let mut compile = tool("cc");
        compile.args((name == "static").then_some("-static")).arg(example).args(known.split_whitespace());
        must(compile.arg("-o").arg(&program));
        let mut run = Command::new(&program);
        run.env("LD_LIBRARY_PATH", at(if name == "shared" { "lib" } else { "none" }));
        let ran = Ran::from(run.arg(&volume.image).args(["/hello.txt", "goodbye"]).output().unwrap());
        assert_eq!((ran.code, ran.text().as_str()), (0, "/hello.txt:4:goodbye\n"), "{name}: {}", ran.err);
    }
    let linked = must(tool("readelf").arg("-d").arg(folder.path().join("shared"))).stdout;
    assert!(String::from_utf8_lossy(&linked).contains("Shared library: [libnearside.so.0]"));
}

/// The file that the package for Debian brings.
#[test]
fn the_packages_own_configuration_is_without_fault() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packages/debian/serve.toml");
    let said = String::from_utf8(printed(&["serve", "--config", file, "--check"])).unwrap();
    assert!(said.ends_with(": no fault\n"), "{said}");
}

/// The units by systemd's own word, with the command that is built here; and their words by the command's.
#[test]
fn the_units_of_systemd_are_without_fault() {
    let read =
        |path: &str| fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (text, socket) = (read("scripts/nearside.service.in"), read("scripts/nearside.socket"));
    let address = socket.lines().find_map(|line| line.strip_prefix("ListenStream=")).unwrap();
    let listen = format!("\nlisten = [\"{address}\"]\n");
    assert!(read("packages/debian/serve.toml").contains(&listen), "{address} is not listened at");
    let starts = text.lines().find_map(|line| line.strip_prefix("ExecStart=@PREFIX@/bin/")).unwrap();
    nearside_cli::understands(starts.split(' ')).unwrap_or_else(|why| panic!("{starts}: {why}"));
    if !needs::tools("the_units_of_systemd_are_without_fault", &["systemd-analyze"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_nearside"), folder.path().join("bin/nearside")).unwrap();
    let verify = |text: String| {
        let units = ["nearside.service", "nearside.socket"].map(|name| folder.path().join(name));
        fs::write(&units[0], text).unwrap();
        fs::write(&units[1], &socket).unwrap();
        Ran::from(tool("systemd-analyze").args(["verify", "--man=no"]).args(units).output().unwrap())
    };
    let text = text.replace("@PREFIX@", folder.path().to_str().unwrap());
    let ran = verify(text.clone());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    // What it does not know it says.
    let ran = verify(text.replace("ProtectHome", "ProtectHouse"));
    assert!(ran.err.contains("ProtectHouse"), "{}", ran.err);
}

#[test]
fn help_in_short_and_whole() {
    let [short, whole] = ["-h", "--help"].map(|flag| String::from_utf8(printed(&[flag])).unwrap());
    assert!(short.contains("grep") && !short.contains("DRIVE is an image file"), "{short}");
    assert!(whole.contains("grep") && whole.contains("DRIVE is an image file"), "{whole}");
}

/// The lines of a command's help at a width.
fn help(command: &str, flag: &str, columns: usize) -> Vec<String> {
    let words = command.split(' ').chain([flag]);
    let output = nearside().args(words).env("COLUMNS", columns.to_string()).output().unwrap();
    assert!(output.status.success(), "{command} {flag}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn help_wraps_at_any_width_and_the_drive_and_the_network_stand_apart() {
    for command in ["grep", "du", "find", "cksum", "info"] {
        for columns in [50, 72, 100] {
            let lines = help(command, "--help", columns);
            for (line, next) in lines.iter().zip(&lines[1..]) {
                // What is one word, or stands as it is typed, is as long as it is.
                let word = |line: &str| line.split_whitespace().next().unwrap_or_default().chars().count();
                let room = columns.saturating_sub(line.chars().count());
                let text = |line: &str| {
                    !line.starts_with(' ')
                        && !line.starts_with("Usage: ")
                        && !line.is_empty()
                        && !line.ends_with(':')
                };
                if text(line) {
                    assert!(line.chars().count() <= columns, "{command} at {columns}: {line}");
                }
                if text(line) && text(next) {
                    assert!(room <= word(next), "{command} at {columns} ends early: {line}\n{next}");
                }
            }
            for heading in ["Drive:", "Network:"] {
                assert!(lines.iter().any(|line| line == heading), "{command}: {heading}");
            }
        }
        let short =
            help(command, if ["grep", "du"].contains(&command) { "--help-in-short" } else { "-h" }, 100);
        assert!(short.iter().any(|line| line.contains("--drive")), "{short:?}");
        assert!(!short.iter().any(|line| line == "Examples:"), "{short:?}");
    }
    let grep = help("grep", "--help", 100);
    let place = |what: &str| grep.iter().position(|line| line.contains(what)).unwrap();
    assert!(place("Which files:") < place("--exclude-dir") && place("--type-list") < place("Drive:"));
    assert!(place("Drive:") < place("--partition") && place("Network:") < place("--hostnqn"));
}

/// The lines below "Examples:" in the help of this command and of those below it are at each width what the
/// source has; how many there are.
fn examples_are_whole(command: &clap::Command, path: &str) -> usize {
    let of = |lines: &[String]| -> Vec<String> {
        let below = lines.iter().skip_while(|line| *line != "Examples:").skip(1);
        below.take_while(|line| !line.is_empty()).cloned().collect()
    };
    let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let source = of(&text.lines().map(str::to_owned).collect::<Vec<_>>());
    // Its help is another program's, which need not be there.
    let other = path == "sql";
    for columns in [40, 80, 120].into_iter().filter(|_| !source.is_empty() && !other) {
        assert_eq!(of(&help(path, "--help", columns)), source, "{path} --help at {columns}");
    }
    let below = command.get_subcommands().filter(|below| below.get_name() != "help");
    let path = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path} {name}") };
    source.len() + below.map(|below| examples_are_whole(below, &path(below.get_name()))).sum::<usize>()
}

#[test]
fn examples_are_whole_at_any_width() {
    let examples = examples_are_whole(&nearside_cli::definitions(), "");
    assert!(examples > 150, "{examples}");
    let grep = help("grep", "--help", 40);
    for example in [
        "  nearside grep -d disk.img -r ERROR /var/log                 # every line with ERROR below /var/log",
        "  nearside grep -d disk.img -c -e WARN -e ERROR --glob '/var/log/*.log'",
    ] {
        assert!(grep.iter().any(|line| line == example), "{example}: {grep:?}");
    }
}
