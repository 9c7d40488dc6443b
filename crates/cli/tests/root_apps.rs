//! Applications that people run, on drives that are attached: each checks its own data, and nothing of what
//! it was told to be done is lost. Small: `nearside app --help` has the sizes that show something.

#[path = "../../studies/tests/small/mod.rs"]
mod small;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nearside_apps::memcached::{Cache, Kept};
use nearside_apps::postgres::{self, Killed, Rounds, Workload};
use nearside_apps::redis::Redis;
use nearside_apps::rocksdb::{Beside, Database};
use nearside_apps::swap::{Load, Swap};
use nearside_apps::{Asked, Drive, Group, Kind, Volume, in_group};
use nearside_conformance::volume::install;
use nearside_conformance::{needs, today};
use nearside_studies::{Paper, Record};

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_nearside"))
}

/// Whether drives can be mounted here and those programs are; otherwise leaves the test out.
fn can(test: &str, programs: &[&str]) -> bool {
    needs::mounts(test, &["mount", "umount"]) && needs::tools(test, programs)
}

/// So too of a study, which takes a while: on each other day, when stock_linux has not its longer guest.
fn can_study(test: &str, programs: &[&str]) -> bool {
    can(test, programs) && today::takes(1, 2)
}

fn status_kib(process: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// One application at a time: each has the machine, and the kernel's paging, to itself.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn second() -> Command {
    let mut command = Command::new(program());
    command.args(["app", "second"]);
    command
}

#[test]
fn the_kernel_pages_to_a_drive_that_keeps_its_own_pages() {
    if !can("the_kernel_pages_to_a_drive_that_keeps_its_own_pages", &["mkswap", "swapon", "swapoff"]) {
        return;
    }
    let _alone = alone();
    let drive = Drive::attach(program(), "dram:256MiB", &["--lock-memory"]).unwrap();
    let cluster = || std::fs::read_to_string("/proc/sys/vm/page-cluster").unwrap();
    let before = cluster();
    let larger = Swap::on(&drive, 0, 256 << 20).map(drop).unwrap_err().to_string();
    assert_eq!(larger, "268435456 bytes of pages are to be kept, and the drive has 268431360 for them");
    let swap = Swap::on(&drive, 0, 96 << 20).unwrap();
    assert_eq!(cluster(), "0\n");
    let load =
        Load { memory: 32 << 20, bytes: 96 << 20, touches: 16_000, dirty: false, in_order: false, seed: 1 };
    let clean = swap.misses(&load, &second).unwrap();
    // Two of three pages are on the drive, whichever they are.
    assert!(clean.count > 8_000.0 && clean.count < 14_000.0, "{clean:?}");
    assert!(clean.pages_read >= clean.count && clean.p50_us > 0.0, "{clean:?}");
    // One after the other, each page that a group this small lets go is missed when its turn comes again.
    let in_order = swap.misses(&Load { in_order: true, touches: 40_000, ..load }, &second).unwrap();
    assert!(in_order.count > 20_000.0 && in_order.touch_us > 0.0, "{in_order:?}");
    let dirty = swap.misses(&Load { dirty: true, ..load }, &second).unwrap();
    let more = dirty.pages_written - clean.pages_written;
    assert!(more > dirty.count / 2.0, "what is written to is written out again: {dirty:?} beside {clean:?}");
    let process = drive.process();
    assert!(status_kib(process, "VmLck") > 0 && status_kib(process, "VmSwap") == 0);
    drop(swap);
    assert_eq!(cluster(), before);
    assert!(!std::fs::read_to_string("/proc/swaps").unwrap().contains("32767"));
}

/// Touches of the process's memory that had to wait for a drive (proc_pid_stat(5), majflt).
fn major_faults(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let behind_name = stat.rsplit_once(')').unwrap().1;
    behind_name.split_whitespace().nth(9).unwrap().parse().unwrap()
}

/// Pages that a drive missed of its own memory, in a group that another process fills.
fn missed_under_pressure(options: &[&str]) -> u64 {
    const PIECE: usize = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let (written, script) = (folder.path().join("script"), folder.path().join("nearside"));
    let content: Vec<u8> = (0..32 * PIECE).map(|at| (at / 512 % 251) as u8).collect();
    let missed = in_group(128 << 20, |group| {
        let inside = group.command(&Command::new(program()));
        let words: Vec<String> = inside.get_args().map(|word| format!("'{}'", word.display())).collect();
        std::fs::write(&written, format!("#!/bin/sh\nexec /bin/sh {} \"$@\"\n", words.join(" ")))?;
        install(&written, &script);
        let drive = Drive::attach(&script, "dram:32MiB", options)?;
        let device = std::fs::File::options().write(true).open(drive.device())?;
        content
            .chunks(PIECE)
            .zip(0..)
            .try_for_each(|(piece, nth)| device.write_all_at(piece, nth * PIECE as u64))?;
        device.sync_all()?;
        let before = major_faults(drive.process());
        // It fills a buffer.
        let mut other = Command::new("dd");
        other.args(["if=/dev/zero", "of=/dev/null", "bs=192M", "count=1", "status=none"]);
        let status = group.command(&other).status()?;
        if !status.success() {
            return Err(status.to_string().into());
        }
        let mut dd = Command::new("dd");
        let read =
            dd.arg(format!("if={}", drive.device().display())).args(["bs=1M", "iflag=direct"]).output()?;
        if !read.status.success() {
            return Err(String::from_utf8_lossy(&read.stderr).into());
        }
        assert!(read.stdout == content, "the drive has other bytes");
        Ok(major_faults(drive.process()) - before)
    });
    missed.unwrap()
}

#[test]
fn a_drive_waits_for_none_of_its_own_pages_in_a_group_that_is_full() {
    const NAME: &str = "a_drive_waits_for_none_of_its_own_pages_in_a_group_that_is_full";
    if !can(NAME, &["mkswap", "swapon", "swapoff", "dd"]) {
        return;
    }
    let _alone = alone();
    let drive = Drive::attach(program(), "dram:512MiB", &["--lock-memory"]).unwrap();
    let _swap = Swap::on(&drive, 0, 400 << 20).unwrap();
    assert_eq!(missed_under_pressure(&["--lock-memory"]), 0);
    // The pressure is there.
    assert!(missed_under_pressure(&[]) > 0);
}

#[test]
fn rocksdb_reads_what_it_wrote_and_the_drive_reads_its_files_meanwhile() {
    const NAME: &str = "rocksdb_reads_what_it_wrote_and_the_drive_reads_its_files_meanwhile";
    if !can(NAME, &["db_bench", "mkfs.ext4", "mkfs.xfs", "sha256sum"]) {
        return;
    }
    let _alone = alone();
    let drive = Drive::attach(program(), "model:optane-prototype:512MiB", &[]).unwrap();
    let volume = Volume::make(&drive, Kind::Ext4).unwrap();
    volume.fill(&drive, 0.1).unwrap();
    let database = Database::fill(&volume, 20_000).unwrap();
    let table = database.table().unwrap();
    let asked = Asked { program: program(), drive: &drive, volume: &volume, path: &table };
    let before = drive.counters().unwrap();
    let run = || database.gets(2, 2, Beside::Writer(1 << 20), 1);
    let (gets, commands) = asked.while_running(run).unwrap();
    assert!(commands > 0);
    assert!(gets.per_second > 0.0 && gets.p99_us >= gets.p50_us && gets.count > 0.0, "{gets:?}");
    let counted = drive.counters().unwrap().since(before);
    assert!(counted.reads as f64 > gets.count / 4.0, "Gets are reads of the drive: {counted:?}, {gets:?}");
    drop(volume);
    // As PIEEE'17 V-A has it.
    let volume = Volume::make(&drive, Kind::Xfs).unwrap();
    let gets = Database::fill(&volume, 2_000).unwrap().gets(1, 1, Beside::Nothing, 1).unwrap();
    assert!(gets.count > 0.0, "{gets:?}");
}

#[test]
fn memcached_gives_each_key_its_value_in_memory_paged_and_from_a_file() {
    const NAME: &str = "memcached_gives_each_key_its_value_in_memory_paged_and_from_a_file";
    const KEYS: u64 = 16_384;
    if !can(NAME, &["memcached", "mkswap", "swapon", "mkfs.ext4"]) {
        return;
    }
    let _alone = alone();
    let drive = Drive::attach(program(), "dram:512MiB", &["--lock-memory"]).unwrap();
    let written = |kept: &Kept<'_>| {
        let mut cache = Cache::filled(kept, KEYS)?;
        let before = drive.counters()?;
        let gets = cache.gets(2, 2_000, 1)?;
        assert_eq!(gets.response.count(), 4_000);
        assert!(gets.missed < 400, "{} of 4,000 gets missed", gets.missed);
        let counted = drive.counters()?.since(before);
        Ok((counted.reads, counted.written_bytes))
    };
    assert_eq!(written(&Kept::Memory).unwrap(), (0, 0));
    let half = KEYS * 4096 / 2;
    {
        let _swap = Swap::on(&drive, 0, KEYS * 4096 * 3 / 2).unwrap();
        let (reads, bytes) = in_group(half, |group| written(&Kept::Paged(group))).unwrap();
        // PIEEE'17 V-C: a get, which reads, dirties pages.
        assert!(reads > 1_000 && bytes > 1_000 * 4096, "{reads} reads, {bytes} bytes written");
    }
    let volume = Volume::make(&drive, Kind::Ext4).unwrap();
    let (reads, _) = in_group(half, |group| written(&Kept::File(&volume, group))).unwrap();
    assert!(reads > 500, "{reads} reads");
}

#[test]
fn redis_gives_each_key_its_value_with_half_of_its_memory() {
    const NAME: &str = "redis_gives_each_key_its_value_with_half_of_its_memory";
    const KEYS: u64 = 16_384;
    if !can(NAME, &["redis-server", "mkswap", "swapon"]) {
        return;
    }
    let _alone = alone();
    let drive = Drive::attach(program(), "dram:256MiB", &["--lock-memory"]).unwrap();
    let values = KEYS * 4096;
    // The device's reads by gets and by a walk. What is right is checked by either.
    let reads = |group: Option<&Group>| {
        let mut redis = Redis::filled(group, KEYS)?;
        // It takes more than its values, where it may.
        assert_eq!(redis.memory()? > values, group.is_none());
        let before = drive.counters()?;
        let gets = redis.gets(2, 1_000, 1)?;
        assert_eq!((gets.response.count(), gets.missed), (2_000, 0));
        let between = drive.counters()?;
        assert!(redis.walk()? > 0);
        Ok((between.since(before).reads, drive.counters()?.since(between).reads))
    };
    assert_eq!(reads(None).unwrap(), (0, 0));
    let _swap = Swap::on(&drive, 0, values * 2).unwrap();
    let (by_gets, by_walk) = in_group(values / 2, |group| reads(Some(group))).unwrap();
    // At the walk's begin a half of the values' pages is not there, and it comes by each.
    assert!(by_gets > 0 && by_walk > KEYS / 4, "{by_gets} and {by_walk} reads");
}

#[test]
fn postgres_keeps_every_commit_that_it_acknowledged() {
    const NAME: &str = "postgres_keeps_every_commit_that_it_acknowledged";
    if !can(NAME, &["mkfs.ext4"]) {
        return;
    }
    let _alone = alone();
    if let Some(lacks) = postgres::lacks() {
        return needs::left_out(NAME, &lacks);
    }
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 30).unwrap();
    let rounds = std::env::var("NEARSIDE_KILLS").map_or(2, |n| n.parse().unwrap());
    for workload in [Workload::TpcB, Workload::TpcC] {
        let crashes = Rounds {
            program: program(),
            store: &format!("file:{}", image.path().display()),
            kind: Kind::Ext4,
            rounds,
            load: postgres::Load { workload, scale: 1, clients: 4, seconds: 60 },
            seed: 1,
            say: &|crash| eprintln!("{workload:?}: {crash:?}"),
        }
        .run()
        .unwrap();
        assert_eq!(crashes.len(), rounds as usize);
        assert!(crashes.iter().any(|crash| crash.killed == Killed::Drive));
        assert!(crashes.iter().all(|crash| crash.acknowledged > 0), "{crashes:?}");
    }
}

/// A study of an application in small, this machine's column with it.
fn study(paper: Paper, number: &str) -> Record {
    let record = small::small_with(paper, number, &|| Command::new(program()), Some(program()));
    assert!(record.notes(number).all(|note| !note.contains("left out")), "{number} left something out");
    record
}

#[test]
fn a_page_miss_is_studied_layer_by_layer() {
    const NUMBER: &str = "Section III-B";
    if !can_study("a_page_miss_is_studied_layer_by_layer", &["mkswap", "swapon", "swapoff"]) {
        return;
    }
    let _alone = alone();
    let record = study(Paper::Pieee17, NUMBER);
    for drive in ["NAND", "Optane"] {
        for case in ["page-cluster 0, clean", "page-cluster 3, clean", "page-cluster 0, dirty"] {
            let name = format!("{drive}: a page miss, {case}");
            // What they take is no test's matter.
            for name in [&name, &format!("{drive}: a read of the drive by itself")] {
                assert!(small::measured(&record, name) > 0.0, "{name}");
            }
        }
        // With page-cluster 0 nothing comes that was not asked for.
        let read = |cluster: u32| {
            small::measured(
                &record,
                &format!("{drive}: a page miss, page-cluster {cluster}, clean: pages read for each"),
            )
        };
        assert!(read(3) > read(0), "{drive}: {} pages and {}", read(3), read(0));
    }
    assert!(
        record.claims(NUMBER).all(|claim| record.verdict(claim, nearside_studies::Column::Machine).is_some())
    );
}

#[test]
fn rocksdb_is_studied_by_threads() {
    if !can_study("rocksdb_is_studied_by_threads", &["db_bench", "mkfs.xfs"]) {
        return;
    }
    let _alone = alone();
    // Two figures of the same runs.
    let [throughput, tail] = ["Fig. 9", "Fig. 10"].map(|number| study(Paper::Pieee17, number));
    for drive in ["Optane", "NAND"] {
        for mode in ["Read", "Read/Write"] {
            for threads in [1, 4] {
                let name = format!("{drive}, {mode}, {threads} threads");
                let [rate, p99] = [&throughput, &tail].map(|record| small::measured(record, &name));
                assert!(rate > 0.0 && p99 > 0.0, "{name}: {rate} Gets/s, p99 {p99} us");
            }
        }
    }
}

#[test]
fn memcached_is_studied_where_its_values_are() {
    const NAME: &str = "memcached_is_studied_where_its_values_are";
    if !can_study(NAME, &["memcached", "mkswap", "swapon", "swapoff", "mkfs.ext4"]) {
        return;
    }
    let _alone = alone();
    let record = study(Paper::Pieee17, "Fig. 12");
    let value = |name: &str| record.get(name).unwrap().measured().unwrap();
    for connections in [1, 4] {
        for kept in ["DRAM", "paging", "extstore"] {
            small::measured(&record, &format!("{kept}, {connections} connections: a get, mean"));
        }
        let pages = |kept: &str, what: &str| {
            value(&format!("{kept}, {connections} connections: pages {what} for each get"))
        };
        // In memory nothing reaches the drive; half of the other two does, and gets dirty pages.
        assert_eq!((pages("DRAM", "read"), pages("DRAM", "written")), (0.0, 0.0));
        assert!(pages("paging", "read") > 0.1 && pages("paging", "written") > 0.1);
        assert!(pages("extstore", "read") > 0.1);
    }
}

#[test]
fn swap_in_clustering_is_studied_at_random_and_in_order() {
    const NAME: &str = "swap_in_clustering_is_studied_at_random_and_in_order";
    if !can_study(NAME, &["mkswap", "swapon", "swapoff"]) {
        return;
    }
    let _alone = alone();
    let record = study(Paper::Fast12, "Swap");
    for drive in ["the prototype", "a NAND drive"] {
        let of = |cluster: u32, order: &str, what: &str| {
            small::measured(&record, &format!("{drive}, page-cluster {cluster}, {order}: {what}"))
        };
        for order in ["at random", "in order"] {
            of(0, order, "a touch");
            assert!(
                of(3, order, "misses for each touch") <= of(0, order, "misses for each touch") * 1.05,
                "{drive}, {order}"
            );
        }
        // What comes beside a page is touched next.
        let [alone, around] = [0, 3].map(|cluster| of(cluster, "in order", "misses for each touch"));
        assert!(around < alone / 2.0, "{drive}: {around} and {alone}");
    }
}

#[test]
fn read_ahead_is_studied_by_each_way_through_the_page_cache() {
    const NUMBER: &str = "Read-ahead";
    if !can_study("read_ahead_is_studied_by_each_way_through_the_page_cache", &["mkfs.ext4"]) {
        return;
    }
    let _alone = alone();
    let record = study(Paper::Fast12, NUMBER);
    for drive in ["the prototype", "a NAND drive"] {
        let given = |way: &str, kib: u32| {
            let name = format!("{drive}, {way}, read-ahead {kib} KiB: pages from the drive for each");
            small::measured(&record, &name)
        };
        for way in ["read at random", "read in order", "mapped at random", "mapped in order"] {
            // What was asked for, and some of the file system's own.
            let alone = given(way, 0);
            assert!((0.5..1.2).contains(&alone), "{drive}, {way}: {alone} pages for each");
            assert!(small::measured(&record, &format!("{drive}, {way}, read-ahead 0 KiB: a page")) > 0.0);
        }
        // A mapping's miss brings its neighbours, wanted or not; read(2) at random brings none.
        let around = given("mapped at random", 128);
        assert!(around > given("mapped at random", 0) * 2.0, "{drive}: {around}");
        assert!(given("read at random", 128) < 1.5, "{drive}");
    }
    assert!(
        record.claims(NUMBER).all(|claim| record.verdict(claim, nearside_studies::Column::Machine).is_some())
    );
}

#[test]
fn what_the_kernel_ends_for_lack_of_memory_is_begun_anew() {
    const NAME: &str = "what_the_kernel_ends_for_lack_of_memory_is_begun_anew";
    if !can(NAME, &[]) {
        return;
    }
    let _alone = alone();
    if std::fs::read_to_string("/proc/swaps").unwrap().lines().count() > 1 {
        return needs::left_out(NAME, "this machine pages to something");
    }
    // 64 MiB do not fit into 16; the last time there is nothing that needs them.
    let run = |enough: u32| {
        let mut tries = 0;
        let done = in_group(16 << 20, |group| {
            tries += 1;
            let mut pages = second();
            pages.args(["pages", if tries < enough { "16384" } else { "16" }, "0", "0", "0", "1"]);
            let status = group.command(&pages).status()?;
            if status.success() { Ok(()) } else { Err(status.to_string().into()) }
        });
        (tries, done.is_ok())
    };
    assert_eq!((run(1), run(3), run(9)), ((1, true), (3, true), (4, false)));
}

/// By a signal in the middle, nothing stays: no swap area, no loop device, no mount, no process.
#[test]
fn a_run_that_is_ended_by_a_signal_leaves_nothing() {
    const NAME: &str = "a_run_that_is_ended_by_a_signal_leaves_nothing";
    if !can(NAME, &["mkswap", "swapon", "swapoff", "kill"]) {
        return;
    }
    let _alone = alone();
    // All that it makes is below a folder of its own.
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(program());
    // Touches for hours.
    command.args(["app", "swap", "--memory", "32MiB", "--bytes", "96MiB", "--touches", "100000000"]);
    command.args(["--store", "dram:256MiB"]).env("TMPDIR", folder.path());
    let quiet = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut run = quiet.spawn().unwrap();
    let reads = |path: &str| std::fs::read_to_string(path).unwrap();
    // More than the area's header: the application runs, and pages.
    let pages_to = |device: &String| {
        let stat = reads(&format!("/sys/block/{}/stat", device.trim_start_matches("/dev/")));
        stat.split_whitespace().nth(6).unwrap().parse::<u64>().unwrap() > 16_384
    };
    let is_swap = |device: &String| reads("/proc/swaps").contains(&format!("{device} "));
    let place = folder.path().to_str().unwrap();
    let device = loop {
        assert!(run.try_wait().unwrap().is_none(), "it ended by itself");
        if let Some(device) = loop_device(place).filter(is_swap).filter(pages_to) {
            break device;
        }
        std::thread::yield_now();
    };
    let kill = Command::new("kill").args(["-TERM", &run.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(run.wait().unwrap().code(), Some(130));
    assert!(loop_device(place).is_none() && !is_swap(&device), "{device}");
    assert!(!reads("/proc/mounts").contains(place));
    let attached = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(place)
    });
    assert!(!attached, "the drive's process is still there");
}

/// The loop device over a file in such a folder.
fn loop_device(folder: &str) -> Option<String> {
    std::fs::read_dir("/sys/block").unwrap().flatten().find_map(|entry| {
        let backing = std::fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        let name = entry.file_name();
        backing.contains(folder).then(|| format!("/dev/{}", name.to_string_lossy()))
    })
}
