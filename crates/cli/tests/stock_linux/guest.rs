//! A stock Linux in QEMU that a test leads: Debian's own kernel, nvme-cli, fio, mkfs,
//! and this build's `nearside`.
//!
//! The guest connects back to the test (`scripts/guest/agent.py`) and runs the commands that it is told. It
//! reaches this machine's 127.0.0.1 as [`HOST`]. Software emulation: nothing in it is a measure of speed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nearside_conformance::needs;
use serde_json::{Value, json};

/// This machine, seen from the guest.
pub const HOST: &str = "10.0.2.2";
/// What runs this build in a guest that has other libraries.
pub const NEARSIDE: &str = "/job/ld-linux-x86-64.so.2 --library-path /job /job/nearside";
/// From power-on to the agent's first word, on a machine that does other things as well.
const BOOT: Duration = Duration::from_secs(600);
/// A command's time, where nothing else is said.
const COMMAND_S: u64 = 300;

/// What `build.sh` ends with where it could not fetch what it needs.
const UNFETCHED: i32 = 3;

/// A running guest; dropped, it is switched off.
pub struct Guest {
    qemu: Child,
    console: PathBuf,
    line: BufReader<TcpStream>,
}

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// What the guest has as `/job`.
fn job(folder: &Path) -> PathBuf {
    let job = folder.join("job");
    fs::create_dir_all(&job).unwrap();
    job
}

fn script(name: &str) -> PathBuf {
    root().join("scripts/guest").join(name)
}

/// What the guest boots, with its kernel.
pub fn built() -> PathBuf {
    root().join("target/guest")
}

/// Whether this machine can run a guest; otherwise leaves the test out.
pub fn possible(test: &str) -> bool {
    // The kernel's package is downloaded by apt and unpacked.
    let tools = [
        "qemu-system-x86_64",
        "qemu-img",
        "busybox",
        "cpio",
        "depmod",
        "apt-get",
        "nvme",
        "fio",
        "mke2fs",
        "mkfs.f2fs",
        "strip",
    ];
    needs::tools(test, &tools)
}

/// Runs a program that has to succeed.
pub fn must(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Guest {
    /// Builds what the guest boots, where it is not built yet, and boots it in a QEMU, whose machine has more
    /// than usual by these words. `folder` holds what belongs to this guest alone.
    pub fn boot_in(qemu: &Path, more: &[String], folder: &Path) -> Guest {
        Guest::boot_with(qemu, more, folder, &[])
    }

    /// The same, with more files in the guest's `/job`.
    pub fn boot_with(qemu: &Path, more: &[String], folder: &Path, files: &[&Path]) -> Guest {
        let built = built();
        // Always: the tools on this machine may have changed. Only the kernel is kept.
        must(Command::new(script("build.sh")).arg(&built));
        let nearside = job(folder).join("nearside");
        must(Command::new("strip").arg("-o").arg(nearside).arg(env!("CARGO_BIN_EXE_nearside")));
        Guest::boot_built(qemu, more, folder, &built, files)
    }

    /// A guest of the newest kernel that Debian has, with its newest nvme-cli, `tlshd` and `keyctl`; this
    /// build's `nearside`, with this machine's libraries, is there as [`NEARSIDE`]. Where they cannot be
    /// fetched the test is left out.
    pub fn boot_newest(test: &str, folder: &Path) -> Option<Guest> {
        let built = root().join("target/guest-newest");
        let mut build = Command::new(script("build.sh"));
        let build = build.arg("--newest").arg(&built).output().unwrap();
        let said = String::from_utf8_lossy(&build.stderr);
        if build.status.code() == Some(UNFETCHED) {
            let why = said.lines().find(|line| line.starts_with("E: ")).unwrap_or_default();
            needs::left_out(test, &format!("Debian's newest kernel could not be fetched: {why}"));
            return None;
        }
        assert!(build.status.success(), "{said}");
        let own = folder.join("own");
        fs::create_dir_all(&own).unwrap();
        let nearside = env!("CARGO_BIN_EXE_nearside");
        must(Command::new("strip").arg("-o").arg(own.join("nearside")).arg(nearside));
        let linked = |to: &Path| -> Vec<PathBuf> {
            let linked = Command::new("ldd").arg(to).output().unwrap().stdout;
            let linked = String::from_utf8(linked).unwrap();
            linked.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
        };
        // What it loads when it is to encrypt.
        let known = Command::new("/sbin/ldconfig").arg("-p").output().unwrap().stdout;
        let known = String::from_utf8(known).unwrap();
        let openssl = known.lines().find_map(|line| line.split_once("libssl.so.3 ")?.1.split_once(" => "));
        let openssl = PathBuf::from(openssl.expect("OpenSSL's library").1);
        let mut files: Vec<PathBuf> = [linked(nearside.as_ref()), linked(&openssl)].concat();
        files.extend([openssl, own.join("nearside")]);
        files.sort();
        files.dedup();
        let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
        Some(Guest::boot_built("qemu-system-x86_64".as_ref(), &[], folder, &built, &files))
    }

    /// Boots what was built in a folder, with files in its `/job`.
    fn boot_built(qemu: &Path, more: &[String], folder: &Path, built: &Path, files: &[&Path]) -> Guest {
        let job = job(folder);
        fs::copy(script("agent.py"), job.join("main.py")).unwrap();
        for file in files {
            fs::copy(file, job.join(file.file_name().unwrap())).unwrap();
        }
        let initrd = folder.join("initrd");
        let pack = format!(
            "cd '{}' && cp '{}' initrd && find job | cpio -o -H newc --quiet >> initrd",
            folder.display(),
            built.join("base.cpio").display()
        );
        must(Command::new("sh").args(["-c", &pack]));
        let start = |port: u16| {
            let kernel = [built.join("vmlinuz"), initrd].map(|path| path.display().to_string());
            let append = format!("console=ttyS0 quiet panic=-1 iomem=relaxed guest={HOST},{port}");
            let words = ["-kernel", &kernel[0], "-initrd", &kernel[1], "-append", &append];
            [more, &words.map(str::to_owned)].concat()
        };
        Guest::call(qemu, folder, start)
    }

    /// Boots what is on the machine's own disk, by its firmware: an installation of the guest's system,
    /// whose init finds whom to call where the machine has its serial number.
    pub fn boot_from_disk(qemu: &Path, more: &[String], folder: &Path) -> Guest {
        let serial = |port: u16| format!("type=1,serial=guest={HOST},,{port}");
        Guest::call(qemu, folder, |port| [more, &["-smbios".to_owned(), serial(port)]].concat())
    }

    /// Starts QEMU with what `start` gives it, and waits until the guest calls at a port.
    fn call(qemu: &Path, folder: &Path, start: impl FnOnce(u16) -> Vec<String>) -> Guest {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let console = folder.join("console");
        let qemu = Command::new(qemu)
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-machine", "q35", "-smp", "2", "-m", "1G"])
            .args(["-nographic", "-no-reboot", "-nic", "user,model=virtio-net-pci"])
            .args(start(port))
            .stdin(Stdio::null())
            .stdout(fs::File::create(&console).unwrap())
            .stderr(fs::File::create(folder.join("qemu")).unwrap())
            .spawn()
            .unwrap();
        let mut guest = Booting { qemu: Some(qemu), console };
        let line = guest.called(&listener);
        line.set_nodelay(true).unwrap();
        Guest {
            qemu: guest.qemu.take().unwrap(),
            console: std::mem::take(&mut guest.console),
            line: BufReader::new(line),
        }
    }

    /// Runs a line of shell; its status and what it wrote.
    pub fn ran(&mut self, run: &str, seconds: u64) -> (i64, String, String) {
        let ask = json!({"run": run, "seconds": seconds});
        writeln!(self.line.get_mut(), "{ask}").unwrap();
        self.line.get_ref().set_read_timeout(Some(Duration::from_secs(seconds + 60))).unwrap();
        let mut answer = String::new();
        let read = self.line.read_line(&mut answer);
        let Ok(answer) = serde_json::from_str::<Value>(&answer) else {
            panic!("{run}: {read:?}; the guest's console:\n{}", tail(&self.console));
        };
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        (answer["status"].as_i64().unwrap_or(-1), text("out"), text("err"))
    }

    /// What a line of shell writes; it has to succeed.
    pub fn sh(&mut self, run: &str) -> String {
        self.sh_within(run, COMMAND_S)
    }

    /// The same with more time.
    pub fn sh_within(&mut self, run: &str, seconds: u64) -> String {
        let (status, out, err) = self.ran(run, seconds);
        if status != 0 {
            let (_, kernel, _) = self.ran("dmesg | tail -n 30", 20);
            panic!("{run}: status {status}\n{out}{err}\nthe guest's kernel:\n{kernel}");
        }
        out
    }

    /// What a line of shell complains of; it has to fail.
    pub fn refused(&mut self, run: &str) -> String {
        let (status, out, err) = self.ran(run, COMMAND_S);
        assert!(status != 0 && status != 124, "{run} did not fail: {status} {out}{err}");
        format!("{out}{err}")
    }

    /// Ends with what the guest does at its own end, within so many seconds.
    pub fn powered_off(mut self, seconds: u64) {
        // The end of the connection is the guest's.
        self.line.get_ref().shutdown(std::net::Shutdown::Both).unwrap();
        let begun = Instant::now();
        while matches!(self.qemu.try_wait(), Ok(None)) {
            let late = begun.elapsed() > Duration::from_secs(seconds);
            assert!(!late, "the guest does not end:\n{}", tail(&self.console));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a line of shell succeeds.
    pub fn until(&mut self, run: &str) {
        self.sh(&format!("n=0; until {run}; do n=$((n+1)); [ $n -lt 1200 ] || exit 1; sleep 0.1; done"));
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Switches QEMU off where the boot fails.
struct Booting {
    qemu: Option<Child>,
    console: PathBuf,
}

impl Booting {
    fn called(&mut self, listener: &TcpListener) -> TcpStream {
        listener.set_nonblocking(true).unwrap();
        let begun = Instant::now();
        loop {
            if let Ok((line, _)) = listener.accept() {
                line.set_nonblocking(false).unwrap();
                return line;
            }
            let ended = self.qemu.as_mut().is_some_and(|qemu| !matches!(qemu.try_wait(), Ok(None)));
            assert!(!ended && begun.elapsed() < BOOT, "the guest did not come up:\n{}", tail(&self.console));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Booting {
    fn drop(&mut self) {
        if let Some(qemu) = &mut self.qemu {
            let _ = qemu.kill();
            let _ = qemu.wait();
        }
    }
}

fn tail(console: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(console).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
