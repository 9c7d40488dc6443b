//! Keys that the kernel keeps, which keyctl (keyutils) puts there and shows.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use nearside_conformance::needs;

use crate::fixture::{Ran, nearside};
use crate::serve::{Served, told};

const WEB: &str = "nqn.2026-11.example:web";
const APP: &str = "nqn.2026-11.example:app";

/// Names in the user's keyring that are gone at the end.
struct Names([String; 3]);

impl Names {
    fn of(test: &str) -> Names {
        let process = std::process::id();
        Names(["key", "tls", "none"].map(|what| format!("nearside-test-{process}-{test}-{what}")))
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("keyctl").args(["purge", "user", name]).output();
        }
    }
}

#[track_caller]
fn keyctl(words: &[&str]) -> String {
    Ran::from(Command::new("keyctl").args(words).output().unwrap()).good().trim_end().to_owned()
}

/// In a session's keyring of its own, whose number keyctl says.
#[track_caller]
fn in_session(shell: &str) -> String {
    let ran = Ran::from(Command::new("keyctl").args(["session", "-", "sh", "-c", shell]).output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.text()
}

fn key(words: &[&str]) -> Ran {
    Ran::from(nearside().arg("key").args(words).output().unwrap())
}

fn is_there(test: &str) -> bool {
    if !needs::tools(test, &["keyctl"]) {
        return false;
    }
    let shown =
        Command::new("keyctl").args(["show", "@u"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let there = shown.is_ok_and(|status| status.success());
    if !there {
        needs::left_out(test, "this machine lets nobody have a keyring");
    }
    there
}

/// Made there, put there by another, found by a number, in a session that has not the user's; and what is
/// none.
#[test]
fn a_key_is_kept_by_the_kernel() {
    if !is_there("command::a_key_is_kept_by_the_kernel") {
        return;
    }
    let names = Names::of("one");
    let [own, tls, none] = names.0.each_ref().map(|name| format!("keyring:{name}"));
    let said = "a TLS key of 256 bits, with sha-256\n";
    assert_eq!(key(&["generate", "--tls", "--out", &tls]).good(), "");
    assert_eq!(key(&["check", &tls]).good(), said);
    let again = key(&["generate", "--tls", "--out", &tls]);
    assert!(again.code == 2 && again.err.contains(&format!("{tls}: ")), "{}", again.err);
    let number = keyctl(&["search", "@u", "user", &names.0[1]]);
    // Who may read it has it in a keyring of his.
    let shown = format!("keyctl link @u @s && keyctl print {number}");
    assert!(in_session(&shown).contains("NVMeTLSkey-1:01:"));
    let mut session = Command::new("keyctl");
    session.args(["session", "-", env!("CARGO_BIN_EXE_nearside"), "key", "check", &tls]);
    assert!(Ran::from(session.output().unwrap()).text().ends_with(said));

    let line = key(&["generate", "--hmac", "2"]).good();
    keyctl(&["add", "user", &names.0[0], line.trim_end(), "@u"]);
    assert_eq!(key(&["check", &own]).good(), "a key of 384 bits, with sha-384\n");

    let missing = key(&["check", &none]);
    assert!(
        missing.code == 2 && missing.err.contains("neither the user's keyring nor the session's"),
        "{}",
        missing.err
    );
    for wrong in ["no key", &"x".repeat(5000)] {
        let number = keyctl(&["add", "user", &names.0[2], wrong, "@u"]);
        assert!(key(&["check", &none]).err.contains("a key is DHHC-1:"), "{wrong}");
        keyctl(&["unlink", &number, "@u"]);
    }
    let number = keyctl(&["add", "user", &names.0[2], line.trim_end(), "@u"]);
    let once = "a key of 384 bits, with sha-384\n";
    assert_eq!(key(&["check", &none]).good(), once);
    // What a file's mode is: who else may have it. A look at it does no harm.
    let permits = |permissions: &str| {
        let shell = format!("keyctl link @u @s && keyctl setperm {number} {permissions}");
        in_session(&shell);
        key(&["check", &none])
    };
    assert_eq!(permits("0x3f010101").good(), once);
    for others in ["0x3f010200", "0x3f010002", "0x3f010004"] {
        assert!(permits(others).err.contains("others than its owner may have it"), "{others}");
    }
    // It is not made anew over one that is there, whoever may see that.
    assert_eq!(permits("0x3f050000").good(), once);
    let mut again = Command::new("keyctl");
    again.args(["session", "-", env!("CARGO_BIN_EXE_nearside"), "key", "generate", "--out", &none]);
    let again = Ran::from(again.output().unwrap());
    assert!(again.code == 2 && again.err.contains("already exists"), "{}", again.err);
    assert_eq!(key(&["check", &none]).good(), once);
    keyctl(&["revoke", &number]);
    let revoked = key(&["check", &none]);
    assert!(revoked.code == 2 && revoked.err.contains("it was revoked"), "{}", revoked.err);
    let long = format!("keyring:{}", "x".repeat(256));
    for wrong in ["keyring:", &long] {
        for ran in [key(&["check", wrong]), key(&["generate", "--out", wrong])] {
            assert!(ran.code == 2 && ran.err.contains("a name has 1 to 255 bytes"), "{}", ran.err);
        }
    }
}

/// Where a user's keyring has none, a session's is looked into; not for another user's key, nor before one's
/// own.
#[test]
fn a_session_has_no_say_over_its_users_keys() {
    const TEST: &str = "command::a_session_has_no_say_over_its_users_keys";
    if !needs::root(TEST) || !is_there(TEST) {
        return;
    }
    let names = Names::of("session");
    let [own, other, _] = names.0.each_ref().map(|name| format!("keyring:{name}"));
    let [short, long] = ["32", "48"].map(|bytes| key(&["generate", "--key-length", bytes]).good());
    keyctl(&["add", "user", &names.0[0], short.trim_end(), "@u"]);
    // A user's session, in which somebody becomes root.
    let check = |keyring: &str| {
        let script = format!(
            "import ctypes, os, sys\n\
             libc = ctypes.CDLL(None)\n\
             add = lambda name, text: libc.syscall(248, b'user', name, text, len(text), -3)\n\
             assert libc.syscall(250, 1, None) > 0\n\
             os.setresuid({user}, {user}, 0)\n\
             assert add(sys.argv[1].encode(), sys.argv[3].encode()) > 0\n\
             assert add(sys.argv[2].encode(), sys.argv[3].encode()) > 0\n\
             os.setresuid(0, 0, 0)\n\
             os.execv(sys.argv[4], ['nearside', 'key', 'check', sys.argv[5]])",
            user = if keyring == own { 1000 } else { 1001 },
        );
        let mut python = Command::new("python3");
        python.args(["-c", &script, &names.0[0], &names.0[1], long.trim_end()]);
        Ran::from(python.args([env!("CARGO_BIN_EXE_nearside"), keyring]).output().unwrap())
    };
    assert_eq!(check(&own).good(), "a key of 256 bits, with no hash\n");
    let others = check(&other);
    assert!(others.code == 2 && others.err.contains("1001"), "{}", others.err);
    // One's own.
    let mut session = Command::new("keyctl");
    let shell =
        format!("keyctl add user {0} \"$1\" @s >/dev/null && exec \"$2\" key check keyring:{0}", names.0[1]);
    session.args(["session", "-", "sh", "-c", &shell, "sh", long.trim_end(), env!("CARGO_BIN_EXE_nearside")]);
    assert!(Ran::from(session.output().unwrap()).text().ends_with("a key of 384 bits, with no hash\n"));
}

/// Both ends have their keys from there; also who is added while the server runs.
#[test]
fn both_ends_have_their_keys_from_the_kernel() {
    if !is_there("command::both_ends_have_their_keys_from_the_kernel") {
        return;
    }
    let names = Names::of("both");
    let [own, tls, none] = names.0.each_ref().map(|name| format!("keyring:{name}"));
    key(&["generate", "--out", &own]).good();
    key(&["generate", "--tls", "--out", &tls]).good();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("disk.img"), vec![0; 1 << 20]).unwrap();
    let manager = UnixDatagram::bind(at("notify")).unwrap();
    let file = |key: &str| {
        format!(
            "listen = ['127.0.0.1:0']\ncontrol = 'control.sock'\n[[subsystem]]\nnqn = 'nqn.2026-11.example:a'\n\
             identity = 'trust'\n[[subsystem.host]]\nnqn = '{WEB}'\nkey-file = '{key}'\n\
             [[subsystem.namespace]]\nnsid = 1\nstore = 'file:disk.img'\n"
        )
    };
    let config = at("serve.toml");
    fs::write(&config, file(&none)).unwrap();
    let check = nearside().args(["serve", "--check", "--config"]).arg(&config).output().unwrap();
    assert!(Ran::from(check).err.contains(&format!("key of {WEB} for nqn.2026-11.example:a: {none}: ")));
    fs::write(&config, file(&own)).unwrap();
    let notify = at("notify");
    let served =
        Served::start(folder.path(), &["--config", config.to_str().unwrap()], notify.to_str().unwrap());
    told(&manager);
    let mut add = nearside();
    add.current_dir(folder.path()).args(["control", "host", "add", APP, "--tls-key-file", &tls]);
    add.args(["--control", "control.sock"]);
    Ran::from(add.output().unwrap()).good();
    let drive = format!("nvme+tcp://{}/nqn.2026-11.example:a/1", served.address);
    let ran = |host: &str, words: [&str; 2]| runs(folder.path(), &drive, host, words);
    ran(WEB, ["--dhchap-key-file", &own]).good();
    ran(APP, ["--tls-key-file", &tls]).good();
    let refused = ran(WEB, ["--dhchap-key-file", &none]);
    assert!(refused.code == 2 && refused.err.contains(&none), "{}", refused.err);
    served.end();
}

fn runs(folder: &Path, drive: &str, host: &str, key: [&str; 2]) -> Ran {
    let mut run = nearside();
    run.current_dir(folder).args([
        "bench",
        "run",
        "-d",
        drive,
        "--iodepth=1",
        "--runtime=10ms",
        "--hostnqn",
        host,
    ]);
    Ran::from(run.args(key).output().unwrap())
}
