//! A drive over a modelled device answers right, and takes the device's time.

use std::time::{Duration, Instant};

use nearside_clock::TscClock;
use nearside_conformance::store::suite;
use nearside_device::Config;
use nearside_driver::{Command, DriverConfig, Initiator, InitiatorConfig};
use nearside_embedded::{AnyStore, Loopback, Model};
use nearside_media::{Medium, Request};
use nearside_store::FileOptions;

fn open(word: &str) -> AnyStore {
    AnyStore::open(word, FileOptions::serve()).unwrap()
}

#[test]
fn modelled_devices_are_stores() {
    for word in
        ["optane-p4800x", "nand-p3700", "nand-cosmos-plus,suspend=10us", "ahci/nand-s3700", "dram-gen2"]
    {
        suite(1, 1000, || open(&format!("model:{word}:4MiB")));
    }
}

/// Writes and reads back through controller and driver on this thread; the median time of a read.
fn median_read(word: &str) -> Duration {
    const PAGES: u64 = 200;
    let clock = TscClock::new();
    let config = Config { lba_size: 512, ..Config::default() };
    let mut drive = Loopback::inline(open(word), (), config).unwrap();
    let driver = drive.driver(DriverConfig::default(), &clock).unwrap();
    let mut initiator =
        Initiator::new(&driver, InitiatorConfig::default(), clock, &mut drive.peer, None).unwrap();
    for page in 0..PAGES {
        let mut buffer = initiator.buffer(4096).unwrap();
        buffer.write(0, &page.to_le_bytes().repeat(512));
        initiator.execute(&Command::write(1, page * 8, 8), Some(buffer)).unwrap().outcome.unwrap();
    }
    // Until the last of them is on the flash.
    initiator.execute(&Command::flush(1), None).unwrap().outcome.unwrap();
    let quiet = Instant::now();
    while quiet.elapsed() < Duration::from_millis(20) {
        std::hint::spin_loop();
    }
    let mut times = Vec::new();
    for page in 0..PAGES {
        let buffer = initiator.buffer(4096).unwrap();
        let begun = Instant::now();
        let done = initiator.execute(&Command::read(1, page * 8, 8), Some(buffer)).unwrap();
        times.push(begun.elapsed());
        done.outcome.unwrap();
        let mut bytes = [0; 4096];
        done.buffer.unwrap().read(0, &mut bytes);
        assert_eq!(bytes.to_vec(), page.to_le_bytes().repeat(512), "page {page} of {word}");
    }
    times.sort();
    times[times.len() / 2]
}

#[test]
fn drives_take_their_devices_time() {
    for (word, device_us) in [("model:optane-p4800x:64MiB", 7), ("model:nand-p3700:64MiB", 112)] {
        let median = median_read(word);
        println!("{word}: {median:?}");
        // No earlier than the device; how much later is the machine's affair.
        let device = Duration::from_micros(device_us);
        assert!(median > device * 3 / 4, "{word}: {median:?}");
    }
}

/// A file's numbers at their bounds, all at once, and a size that is not the file's: no sum leaves its type.
#[test]
fn a_file_of_the_largest_numbers_is_a_drive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slow.toml");
    let (text, _) = nearside_embedded::model_file("nand-p3700").unwrap();
    let device = &text[..text.find("[[figures]]").unwrap()];
    let lines = device.lines().map(|line| {
        let key = line.split(' ').next().unwrap_or_default();
        let value = match key {
            "patience_ns" => "3_600_000_000_000",
            "read_ns" | "program_ns" if line.contains('[') => "[1_000_000_000, 1_000_000_000]",
            _ if key.ends_with("_per_kib") || key == "retry_per_million" => "1_000_000",
            _ if key.ends_with("_ns") => "1_000_000_000",
            "spread_permille" => "1000",
            "channels" | "ways" => "64",
            _ => return line.to_owned(),
        };
        format!("{key} = {value}")
    });
    std::fs::write(&path, lines.collect::<Vec<_>>().join("\n") + "\n").unwrap();
    let word = path.to_str().unwrap();
    for (word, capacity) in [(word.to_owned(), 4 << 20), (format!("sas/{word},suspend=1s"), 64 << 20)] {
        let mut model = Model::parse(&word, capacity).unwrap();
        let mut now = 0;
        for nth in 0..4_000u64 {
            let request = match nth % 8 {
                0 => Request::read(nth << 13, u64::MAX >> (nth % 60)),
                1 => Request::FLUSH,
                _ => Request::write((nth << 12) % capacity, nth * 512 % 100_000),
            };
            now = model.finish(request, now).max(now);
        }
        assert!(now > 1_000_000_000_000, "a thousand seconds and more: {now}");
    }
    // Beyond what any number of slots can name.
    assert!(Model::parse(word, u64::MAX).is_err() && Model::parse(word, 0).is_err());
}
