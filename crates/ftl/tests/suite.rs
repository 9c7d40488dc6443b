//! What every store owes, of flash with real bytes.

mod common;

use nearside_conformance::store::suite;
use nearside_ftl::{Config, FlashStore};
use nearside_media::nand::{cosmos_plus, p3700, s3700};

const BYTES: u64 = 4 << 20;

#[test]
fn flash_is_a_store() {
    for block_size in [512, 4096] {
        for drive in [p3700(), s3700(), cosmos_plus()] {
            suite(3, 3000, || FlashStore::new(drive.sized(BYTES), Config::default(), block_size).unwrap());
        }
        suite(2, 3000, || FlashStore::new(p3700().sized(1 << 20), Config::default(), block_size).unwrap());
        suite(2, 2000, || FlashStore::new(p3700().sized(64 << 20), Config::default(), block_size).unwrap());
    }
    // Its last slot is not whole.
    suite(2, 2000, || FlashStore::new(cosmos_plus().sized(BYTES + 512), Config::default(), 512).unwrap());
}

#[test]
fn odd_sizes_are_refused_with_a_reason() {
    let error = FlashStore::new(p3700().sized(BYTES + 512), Config::default(), 4096).unwrap_err().to_string();
    assert!(error.contains("whole blocks of 4096"), "{error}");
    assert!(FlashStore::new(p3700().sized(0), Config::default(), 512).is_err());
    assert!(FlashStore::new(p3700().sized(100 << 40), Config::default(), 512).is_err());
}
