//! The rules of the house that a machine can hold, each with its reason where it fails: who
//! may know whom, under which lints all is built, what may stand unused (nothing), how long
//! things are, and who may ask for the time.

#[path = "house/manifests.rs"]
mod manifests;
#[path = "house/public.rs"]
mod public;
#[path = "house/sources.rs"]
mod sources;
#[path = "house/text.rs"]
mod text;
#[path = "house/time.rs"]
mod time;

/// Who may know whom, its tests aside: no more, and no fewer. A crate that is not here does not exist.
/// Programs and measurements come last: they may know all that stands above them, and nobody knows `cli` but
/// the program beside it (`sql`).
#[rustfmt::skip]
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("spec", &[]),
    ("dma", &[]),
    ("clock", &["dma"]),
    ("random", &[]),
    ("house", &[]),
    ("vfio-user", &["dma"]),
    ("media", &["random"]),
    ("store", &["dma", "clock", "random", "media"]),
    ("ftl", &["dma", "clock", "random", "media", "store"]),
    ("fsview", &[]),
    ("near-data", &[]),
    ("ndp", &["dma", "near-data"]),
    ("fsr", &["fsview", "near-data", "ndp"]),
    ("device", &["spec", "dma", "clock", "store", "near-data"]),
    ("firmware", &["spec", "dma", "clock", "store", "near-data", "ndp", "fsr", "device"]),
    ("auth", &["spec"]),
    ("channel", &["auth"]),
    ("openssl-loader", &[]),
    ("tls", &["auth", "channel"]),
    ("wasm", &["near-data", "ndp"]),
    ("yara", &["dma", "near-data", "ndp"]),
    ("driver", &["spec", "auth", "channel", "dma", "clock", "vfio-user"]),
    ("pager", &["dma", "clock", "driver"]),
    ("front-tcp", &["spec", "auth", "channel", "dma", "clock", "store", "device"]),
    ("front-fuse", &["spec", "dma", "clock", "near-data", "driver"]),
    ("front-vfio", &["spec", "dma", "clock", "store", "device", "vfio-user"]),
    // FSRLib's two other ways (the host locates; the host does it all) are the drive's own
    // retriever over a medium of reads: one walk, one permission check, one glob, so that
    // what is compared is where the work is done.
    ("fsrlib", &["spec", "dma", "clock", "near-data", "fsr", "driver"]),
    ("embedded", &[
        "spec", "dma", "clock", "media", "store", "ftl", "fsview", "device", "firmware", "driver", "fsrlib",
    ]),
    ("fsrlib-c", &["channel", "clock", "tls", "driver", "fsrlib", "embedded"]),
    ("python", &["channel", "clock", "ndp", "tls", "wasm", "yara", "fsrlib", "embedded"]),
    ("loadgen", &["spec", "dma", "clock", "random", "driver"]),
    ("sim", &[
        "dma", "clock", "random", "media", "store", "device", "firmware", "driver", "fsrlib", "embedded",
        "loadgen",
    ]),
    // A target is a whole drive with its driver: the instrument begins where `embedded` does.
    ("instrument", &[
        "dma", "clock", "random", "media", "store", "device", "firmware", "driver", "fsrlib", "embedded",
        "loadgen", "sim",
    ]),
    ("conformance", &[
        "dma", "clock", "random", "store", "fsview", "near-data", "ndp", "fsr", "firmware", "driver",
        "fsrlib", "embedded", "loadgen",
    ]),
    ("hostile", &[
        "spec", "auth", "dma", "clock", "media", "store", "fsview", "near-data", "ndp", "device", "firmware", "driver",
        "front-fuse", "fsrlib", "embedded", "loadgen", "conformance", "vfio-user",
    ]),
    ("apps", &["dma", "clock", "random", "loadgen", "instrument"]),
    ("bench", &[
        "auth", "channel", "tls", "dma", "clock", "random", "media", "store", "device", "firmware", "driver", "front-tcp",
        "fsrlib", "embedded", "loadgen", "instrument", "apps", "pager",
    ]),
    // The papers' applications are studied as they are run: one way to attach a drive below them.
    ("studies", &[
        "apps", "spec", "dma", "clock", "random", "media", "store", "ftl", "fsr", "device", "firmware", "driver",
        "fsrlib", "embedded", "loadgen", "sim", "instrument",
    ]),
    ("demo", &[
        "clock", "random", "store", "device", "firmware", "driver", "front-fuse", "fsrlib", "embedded",
        "loadgen", "instrument",
    ]),
    ("cli", &[
        "spec", "auth", "channel", "openssl-loader", "tls", "wasm", "yara", "dma", "clock", "random", "store", "ndp", "device", "firmware", "driver", "front-tcp",
        "front-fuse", "front-vfio", "fsrlib", "embedded", "loadgen", "instrument", "studies", "demo", "apps",
    ]),
    ("sql", &["near-data", "ndp", "fsrlib", "cli"]),
    ("python-sql", &["fsrlib", "python", "sql"]),
    ("ballista", &["cli", "sql"]),
    ("fuzz", &["hostile"]),
];

#[test]
fn knowledge_flows_one_way() {
    let manifests = manifests::manifests();
    let mut wrong = Vec::new();
    for manifest in &manifests {
        let (name, knows) = (manifest.short(), manifest.knows());
        let Some((_, may)) = MAY_KNOW.iter().find(|(n, _)| *n == name) else {
            wrong.push(format!("{name} has no line: say whom it may know"));
            continue;
        };
        wrong.extend(
            knows.iter().filter(|k| !may.contains(&k.as_str())).map(|k| format!("{name} may not know {k}")),
        );
        wrong.extend(
            may.iter().filter(|k| !knows.contains(**k)).map(|k| format!("{name} need not know {k} any more")),
        );
    }
    let gone = MAY_KNOW.iter().filter(|(name, _)| !manifests.iter().any(|m| m.short() == *name));
    wrong.extend(gone.map(|(name, _)| format!("{name} has a line, and does not exist")));
    assert!(
        wrong.is_empty(),
        "MAY_KNOW is the plan of the house, and the manifests follow it:\n{}",
        wrong.join("\n")
    );
}
