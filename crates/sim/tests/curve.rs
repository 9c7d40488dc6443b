//! Curves in simulated time, small: the same configuration gives the same bytes, and the shapes are those of the devices.

use nearside_sim::curve::{CurveConfig, CurveError, CurveResult, Through, curve};

fn small(media: &str, seed: u64) -> CurveConfig {
    let mut config = CurveConfig::new(media, seed);
    config.workload.size = 256 << 20;
    (config.points, config.beyond) = (5, 1);
    config
}

fn text(result: &CurveResult) -> String {
    serde_json::to_string(result).unwrap()
}

#[test]
fn the_same_configuration_gives_the_same_bytes() {
    let config = CurveConfig { beyond: 0, ..small("nand-p3700", 7) };
    let first = text(&curve(&config).unwrap());
    assert!(first == text(&curve(&config).unwrap()));
    assert!(first != text(&curve(&CurveConfig { seed: 8, ..config }).unwrap()));
}

#[test]
fn the_drive_adds_nothing_to_the_medium() {
    let through = |through| {
        let config = CurveConfig { beyond: 0, through, ..small("optane-p4800x", 3) };
        let result = curve(&config).unwrap();
        let points = result.points.into_iter().map(|p| (p.rate.to_bits(), p.saturated, p.summary.all));
        points.collect::<Vec<_>>()
    };
    assert!(through(Through::Drive) == through(Through::Medium));
}

#[test]
fn what_is_no_medium_is_refused() {
    let error = curve(&small("optane", 1)).unwrap_err();
    assert!(matches!(error, CurveError::Media(_)) && error.to_string().contains("optane-p4800x"), "{error}");
}
