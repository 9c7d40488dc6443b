//! `nearside doctor`: what this machine offers and lacks, and what that costs.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use nearside_dma::persistent::WriteBack;
use nearside_instrument::calibrate::Calibration;
use nearside_loadgen::floor::Effort;
use nearside_loadgen::record::Record;
use serde_json::json;

use crate::bench::work::environment;
use crate::failure::{Failure, Outcome};
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  nearside doctor
  nearside doctor --json | jq 'select(.ok | not)'
  nearside doctor --calibrate host.json       # what this machine's host software costs, for the model of the host's CPUs

Nothing here needs to be there for the embedded drive; what is missing says what it costs.";

/// Say what this machine offers and lacks, and what that costs
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct DoctorArgs {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Measure what submission, completion, interrupts, wake-ups and switches cost here, and write it as the
    /// parameters of the model of the host's CPUs (crate nearside-sim)
    #[arg(long, value_name = "FILE")]
    calibrate: Option<PathBuf>,
}

/// Whether a calibration may be written there: where there is nothing, or an earlier one.
fn may_write(path: &Path) -> Result<(), Failure> {
    /// Far more than one has.
    const LONGEST: u64 = 1 << 20;
    let failed = |why: &dyn std::fmt::Display| Err(Failure::Message(format!("{}: {why}", path.display())));
    match fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => failed(&e),
        Ok(is) if is.is_file() && is.len() == 0 => Ok(()),
        Ok(is) if is.is_file() && is.len() <= LONGEST => match fs::read(path) {
            Ok(bytes) if serde_json::from_slice::<Calibration>(&bytes).is_ok() => Ok(()),
            Ok(_) => failed(&"it exists and is no calibration"),
            Err(e) => failed(&e),
        },
        Ok(_) => failed(&"it exists and is no calibration"),
    }
}

/// Measures the host's costs, writes them, and shows what they were made of.
fn calibrate(path: &Path, json: bool, out: &mut Out) -> Outcome {
    may_write(path)?;
    let calibration = nearside_instrument::calibrate::calibrate(Effort::FULL, environment())
        .map_err(|e| Failure::Message(format!("--calibrate: {e}")))?;
    let failed = |e: &dyn std::fmt::Display| Failure::Message(format!("{}: {e}", path.display()));
    let text = serde_json::to_string_pretty(&calibration).map_err(|e| failed(&e))?;
    fs::write(path, text + "\n").map_err(|e| failed(&e))?;
    if json {
        out.json(&json!({ "type": "calibration", "costs": calibration.costs }))?;
    } else {
        let figures = Record { environment: calibration.environment, figures: calibration.figures };
        writeln!(out, "{}the parameters: {}", figures.table(), path.display())?;
    }
    out.flush()?;
    Ok(0)
}

/// One thing looked at.
struct Finding {
    name: &'static str,
    ok: bool,
    found: String,
    /// What its lack costs; empty where nothing is lacking.
    costs: &'static str,
}

pub fn run(args: DoctorArgs) -> Outcome {
    let mut out = Out::new();
    if let Some(path) = &args.calibrate {
        return calibrate(path, args.json, &mut out);
    }
    let findings = findings(&Machine::look());
    if args.json {
        for f in &findings {
            let costs = (!f.costs.is_empty()).then_some(f.costs);
            out.json(
                &json!({ "type": "finding", "name": f.name, "ok": f.ok, "found": f.found, "costs": costs }),
            )?;
        }
    } else {
        let wide = findings.iter().map(|f| f.name.len()).max().unwrap_or(0);
        for f in &findings {
            writeln!(out, "{}  {:wide$}  {}", if f.ok { "ok     " } else { "lacking" }, f.name, f.found)?;
            if !f.costs.is_empty() {
                writeln!(out, "         {:wide$}  costs: {}", "", f.costs)?;
            }
        }
    }
    out.flush()?;
    Ok(0)
}

/// What the findings are made from.
struct Machine {
    cores: usize,
    cpu: String,
    flags: Vec<String>,
    clock: String,
    vendor: String,
    io_uring: Result<(), String>,
    fuse: Result<(), String>,
    fuse_uring: Result<(), String>,
    looped: Result<(), String>,
    kvm: Result<(), String>,
    vfio_user: Result<(), String>,
    huge_pages: u64,
    transparent: String,
    persistent: Vec<String>,
    root: bool,
    tools: Vec<(&'static str, bool)>,
}

/// Debian's names for what the tests, the demo and `attach` call.
const TOOLS: [&str; 9] =
    ["mke2fs", "e2fsck", "mkfs.f2fs", "sload.f2fs", "losetup", "mount", "rg", "fio", "qemu-system-x86_64"];

impl Machine {
    fn look() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|l| l.split(':').next().is_some_and(|k| k.trim() == name));
            line.and_then(|l| l.split(':').nth(1)).unwrap_or("").trim().to_owned()
        };
        let meminfo = read("/proc/meminfo");
        let huge = meminfo.lines().find_map(|l| l.strip_prefix("HugePages_Free:"));
        let transparent = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        let chosen =
            transparent.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(c, _)| c);
        Machine {
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            cpu: field("model name"),
            flags: field("flags").split_whitespace().map(str::to_owned).collect(),
            clock: read("/sys/devices/system/clocksource/clocksource0/current_clocksource").trim().to_owned(),
            vendor: read("/sys/class/dmi/id/sys_vendor").trim().to_owned(),
            io_uring: io_uring::IoUring::new(2).map(drop).map_err(|e| e.to_string()),
            fuse: openable("/dev/fuse"),
            fuse_uring: nearside_front_fuse::uring_offered(),
            looped: openable("/dev/loop-control"),
            kvm: openable("/dev/kvm"),
            vfio_user: knows_vfio_user("qemu-system-x86_64"),
            huge_pages: huge.and_then(|n| n.trim().parse().ok()).unwrap_or(0),
            transparent: chosen.to_owned(),
            persistent: persistent_memory(&read("/proc/mounts")),
            root: rustix::process::geteuid().is_root(),
            tools: TOOLS.map(|tool| (tool, in_path(tool))).to_vec(),
        }
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }
}

/// Persistent memory of this machine: devices, and file systems that are mounted with DAX.
fn persistent_memory(mounts: &str) -> Vec<String> {
    let names = ["/sys/block", "/sys/bus/dax/devices"].iter().filter_map(|folder| fs::read_dir(folder).ok());
    let names = names.flat_map(|all| all.flatten().map(|e| e.file_name().to_string_lossy().into_owned()));
    let is_one = |name: &String| name.starts_with("pmem") || name.starts_with("dax");
    let dax = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (place, options) = (fields.next()?, fields.nth(1)?);
        options.split(',').any(|o| o == "dax" || o == "dax=always").then(|| format!("DAX at {place}"))
    });
    let mut found: Vec<String> = names.filter(is_one).map(|name| format!("/dev/{name}")).collect();
    found.sort();
    found.extend(dax);
    found
}

fn openable(path: &str) -> Result<(), String> {
    fs::OpenOptions::new().read(true).write(true).open(path).map(drop).map_err(|e| format!("{path}: {e}"))
}

/// Whether this QEMU has the client of `nearside serve --vfio-user`.
fn knows_vfio_user(qemu: &str) -> Result<(), String> {
    // One that does not know the device ends well, too.
    let asked = Command::new(qemu).args(["-device", "vfio-user-pci,help"]).stdin(Stdio::null()).output();
    match asked {
        Ok(output) if has_options(&output.stdout) => Ok(()),
        Ok(_) => Err(format!("{qemu} has no vfio-user-pci: it is older than 10.1, or built without")),
        Err(e) => Err(format!("{qemu}: {e}")),
    }
}

/// Whether QEMU has answered with the device's options.
fn has_options(answer: &[u8]) -> bool {
    answer.starts_with(b"vfio-user-pci options:")
}

fn in_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    places.map(|dir| dir.join(tool)).any(|p| Path::new(&p).is_file())
}

fn findings(m: &Machine) -> Vec<Finding> {
    let mut all = of_processor(m);
    all.extend(of_kernel(m));
    all.push(of_memory(m));
    all.extend(of_surroundings(m));
    all.extend(of_tools(m));
    all
}

fn finding(name: &'static str, ok: bool, found: String, costs: &'static str) -> Finding {
    Finding { name, ok, found, costs: if ok { "" } else { costs } }
}

fn of_processor(m: &Machine) -> Vec<Finding> {
    let steady = m.has("constant_tsc") && m.has("nonstop_tsc");
    vec![
        finding(
            "cores",
            m.cores >= 4,
            format!("{} ({})", m.cores, if m.cpu.is_empty() { "unknown CPU" } else { &m.cpu }),
            "below four cores near-data work of an embedded drive runs on the reactor between polls, and a \
             polling driver takes its core from others; on one core drive and driver take turns on one thread",
        ),
        finding(
            "time-stamp counter",
            steady,
            format!("{}, kernel's clock source: {}", if steady { "steady" } else { "not steady" }, m.clock),
            "the system's clock is read instead: 20 to 50 ns for each look, more in a virtual machine",
        ),
        finding(
            "timed waits",
            m.has("waitpkg") || m.has("monitorx"),
            match (m.has("waitpkg"), m.has("monitorx")) {
                (true, _) => "umwait, tpause".into(),
                (_, true) => "mwaitx".into(),
                _ => "none; spinning pauses with the pause instruction".into(),
            },
            "a spinning driver draws more power and leaves less to the core's other thread",
        ),
    ]
}

fn of_kernel(m: &Machine) -> Vec<Finding> {
    let say = |result: &Result<(), String>, good: &str| match result {
        Ok(()) => good.to_owned(),
        Err(why) => why.clone(),
    };
    let transparent = matches!(m.transparent.as_str(), "always" | "advise" | "within_size");
    vec![
        finding(
            "io_uring",
            m.io_uring.is_ok(),
            say(&m.io_uring, "usable"),
            "a store in a file uses positioned reads and writes, one at a time: no parallel reads of a slow medium",
        ),
        finding(
            "FUSE",
            m.fuse.is_ok(),
            say(&m.fuse, "/dev/fuse can be opened"),
            "`nearside attach` cannot show the drive as a file; its socket and the embedded drive work",
        ),
        finding(
            "FUSE by io_uring",
            m.fuse_uring.is_ok(),
            say(&m.fuse_uring, "on; `nearside attach` takes it"),
            "`nearside attach` takes the kernel's requests by /dev/fuse: two system calls more for each, and less throughput",
        ),
        finding(
            "loop devices",
            m.looped.is_ok(),
            say(&m.looped, "/dev/loop-control can be opened"),
            "no `mount -o loop` of an attached drive; tests that compare with a mount are left out",
        ),
        finding(
            "KVM",
            m.kvm.is_ok(),
            say(&m.kvm, "/dev/kvm can be opened (under some hypervisors it fails only in use)"),
            "tests in a virtual machine run under emulation, ten to thirty times slower; nothing else",
        ),
        finding(
            "vfio-user",
            m.vfio_user.is_ok(),
            say(&m.vfio_user, "qemu-system-x86_64 has vfio-user-pci"),
            "no virtual machine of this QEMU has the drive of `nearside serve --vfio-user` in its slot; other clients do",
        ),
        finding(
            "huge pages",
            m.huge_pages > 0 || transparent,
            format!(
                "{} free, shared memory: {}",
                m.huge_pages,
                if m.transparent.is_empty() { "never" } else { &m.transparent }
            ),
            "a drive in memory takes more TLB misses on random access; none are needed",
        ),
    ]
}

fn of_memory(m: &Machine) -> Finding {
    let by = WriteBack::of_this_processor().map_or("no write-back of cache lines", WriteBack::name);
    let found = match m.persistent.is_empty() {
        true => format!("none; the processor has {by}"),
        false => format!("{}; durable by {by} and a fence", m.persistent.join(", ")),
    };
    finding(
        "persistent memory",
        !m.persistent.is_empty(),
        found,
        "a store pmem:PATH is durable by fdatasync and msync, as what its file lies on makes it (in /dev/shm until the machine ends)",
    )
}

fn of_surroundings(m: &Machine) -> Vec<Finding> {
    let hypervisor = m.has("hypervisor");
    vec![
        finding(
            "bare machine",
            !hypervisor,
            match (hypervisor, m.vendor.as_str()) {
                (false, _) => "no hypervisor".into(),
                (true, "") => "under a hypervisor".into(),
                (true, vendor) => format!("under a hypervisor ({vendor})"),
            },
            "wake-ups and interrupts cost several microseconds more, and tails show what other guests do",
        ),
        finding(
            "root",
            m.root,
            if m.root { "yes".into() } else { "no".into() },
            "no loop mounts, no block devices; the embedded drive on image files needs none",
        ),
    ]
}

fn of_tools(m: &Machine) -> Vec<Finding> {
    let costs = |tool: &str| match tool {
        "mke2fs" | "e2fsck" => "tests make no ext4 volumes; the demo uses the small ones that come with it",
        "mkfs.f2fs" | "sload.f2fs" => {
            "tests make no F2FS volumes; the demo uses the small ones that come with it"
        }
        "losetup" | "mount" => "no live host on an attached drive",
        "rg" => "searches are compared with grep only",
        "fio" => "no comparison with fio's load",
        _ => "tests with a kernel of their own (F2FS as Linux writes it) are left out",
    };
    let found = |there| String::from(if there { "found" } else { "not found" });
    m.tools.iter().map(|(tool, there)| finding(tool, *there, found(*there), costs(tool))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qemu_that_does_not_know_the_device_has_not_its_options() {
        assert!(has_options(b"vfio-user-pci options:\n  acpi-index=<uint32>    -  (default: 0)\n"));
        assert!(!has_options(b"") && !has_options(b"Device 'vfio-user-pci' not found\n"));
    }

    #[test]
    fn a_file_system_with_dax_is_persistent_memory() {
        let mounts = "/dev/pmem0 /mnt/a ext4 rw,relatime,dax=always 0 0\n/dev/sda / ext4 rw,dax=never 0 0\n\
                      /dev/pmem1 /mnt/b xfs rw,dax 0 0\nodd\n";
        let found = persistent_memory(mounts);
        let dax: Vec<&String> = found.iter().filter(|found| found.starts_with("DAX")).collect();
        assert_eq!(dax, ["DAX at /mnt/a", "DAX at /mnt/b"]);
    }

    #[test]
    fn whatever_is_lacking_says_what_it_costs() {
        let nothing = Machine {
            io_uring: Err("denied".into()),
            fuse: Err("none".into()),
            fuse_uring: Err("off".into()),
            looped: Err("none".into()),
            kvm: Err("none".into()),
            vfio_user: Err("none".into()),
            tools: TOOLS.map(|t| (t, false)).to_vec(),
            cores: 1,
            cpu: String::new(),
            flags: vec![],
            clock: "hpet".into(),
            vendor: String::new(),
            huge_pages: 0,
            transparent: String::new(),
            persistent: vec![],
            root: false,
        };
        for finding in findings(&nothing) {
            assert!(finding.ok || !finding.costs.is_empty(), "{}", finding.name);
        }
        for finding in findings(&Machine::look()) {
            assert_eq!(finding.ok, finding.costs.is_empty(), "{}", finding.name);
            assert!(!finding.found.is_empty(), "{}", finding.name);
        }
    }

    #[test]
    fn a_calibration_takes_the_place_of_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str, bytes: &str| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        assert!(may_write(&folder.path().join("new")).is_ok());
        assert!(may_write(&at("empty", "")).is_ok());
        assert!(may_write(&at("disk.img", "precious")).is_err());
        assert!(may_write(&at("other.json", "{\"a\": 1}")).is_err());
        assert!(may_write(Path::new("/dev/null")).is_err());
        assert!(may_write(folder.path()).is_err());
        let image = folder.path().join("large.img");
        fs::File::create(&image).unwrap().set_len(1 << 40).unwrap();
        assert!(may_write(&image).is_err());
    }
}
