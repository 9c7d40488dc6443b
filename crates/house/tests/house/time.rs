//! Who may ask the machine's clock, and who may sleep. Logic gets its time as a parameter, so that a
//! test on simulated time says the same every time, and no test waits. Found by name:
//! `Instant::now`, `SystemTime::now`, `thread::sleep`.

use proc_macro2::TokenTree;

use crate::sources::{is_mark, sources, word};

/// Files, and folders of which every file may. Each is needed: one that asks no more fails.
const MAY_ASK_THE_TIME: &[(&str, &[&str])] = &[
    ("it is the clock", &["crates/clock/src/tsc.rs"]),
    (
        "measures this machine",
        &[
            "crates/bench/",
            "crates/demo/",
            "crates/driver/benches/vfio_user.rs",
            "crates/fsr/benches/",
            "crates/ftl/benches/",
            "crates/instrument/examples/",
            "crates/instrument/src/kernel.rs",
            "crates/media/benches/",
            "crates/ndp/benches/",
        ],
    ),
    (
        "lets another program or thread run for a while that it measures",
        &[
            "crates/studies/src/fast12/figure3.rs",
            "crates/studies/src/fast12/pollution.rs",
            "crates/studies/src/fast12/section4.rs",
            "crates/studies/src/pieee17/gauge.rs",
        ],
    ),
    (
        "sleeps because that is what is asked of it: a completion path, or a load before its next operation",
        &[
            "crates/driver/src/initiator.rs",
            "crates/driver/src/queue.rs",
            "crates/driver/src/service.rs",
            "crates/loadgen/src/engine/mod.rs",
        ],
    ),
    (
        "asks again for what tells nobody when it changes: another process, a peer, the kernel",
        &[
            "crates/apps/src/wait.rs",
            "crates/cli/src/serve/sizes.rs",
            "crates/dma/src/in_use.rs",
            "crates/dma/src/patience.rs",
            "crates/driver/src/tcp/association.rs",
            "crates/fsrlib/src/reconnecting.rs",
            "crates/front-fuse/src/looped.rs",
            "crates/front-fuse/src/socket.rs",
            "crates/front-tcp/src/thread.rs",
            "crates/front-vfio/src/",
            "crates/python-sql/src/way.rs",
        ],
    ),
    ("looks at counters from time to time, to tell what came between", &["crates/cli/src/serve/history.rs"]),
    (
        "gives a peer, or a user who pressed ^C, so much time and no more",
        &["crates/cli/src/cp/folder.rs", "crates/cli/src/interrupt.rs", "crates/cli/src/serve/listener.rs"],
    ),
    (
        "the date: of a record, of a file, or that from which ages of files are counted",
        &[
            "crates/cli/src/bench/report.rs",
            "crates/cli/src/bench/work.rs",
            "crates/cli/src/format.rs",
            "crates/cli/src/study.rs",
            "crates/front-fuse/src/lib.rs",
        ],
    ),
    (
        "a deadline, after which a test has hung; or that a wait ends long before one",
        &[
            "crates/ballista/tests/cluster.rs",
            "crates/cli/tests/command/control.rs",
            "crates/cli/tests/command/dashboard.rs",
            "crates/cli/tests/command/network.rs",
            "crates/cli/tests/command/serve.rs",
            "crates/cli/tests/stock_linux/",
            "crates/conformance/src/parquet.rs",
            "crates/conformance/src/volume.rs",
            "crates/driver/tests/driver/tcp.rs",
            "crates/firmware/src/helper.rs",
            "crates/front-fuse/tests/shares.rs",
            "crates/front-tcp/tests/front_tcp/abandoned.rs",
            "crates/front-tcp/tests/front_tcp/controller.rs",
            "crates/front-tcp/tests/front_tcp/encryption.rs",
            "crates/front-tcp/tests/front_tcp/nonsense.rs",
            "crates/front-tcp/tests/front_tcp/raw/",
            "crates/front-tcp/tests/sleeping.rs",
            "crates/front-tcp/tests/front_tcp/target.rs",
            "crates/tls/tests/handshake.rs",
        ],
    ),
    (
        "a test of what happens while time passes: load for a while, a kill at some time, a timer that runs out, a quiet medium",
        &[
            "crates/cli/tests/root_attach.rs",
            "crates/cli/tests/root_server/killed.rs",
            "crates/cli/tests/soak/",
            "crates/fsrlib/tests/tcp.rs",
            "crates/fsrlib/tests/tcp/remote.rs",
            "crates/embedded/tests/modelled.rs",
        ],
    ),
];

#[test]
fn time_is_a_parameter() {
    let mut wrong = Vec::new();
    let mut needed = vec![];
    for source in sources() {
        let mut asks = Vec::new();
        source.levels(|_, tokens| {
            let calls = (0..tokens.len()).filter(|at| asks_the_time(&tokens[*at..]));
            asks.extend(calls.map(|at| tokens[at].span().start().line));
        });
        if asks.is_empty() {
            continue;
        }
        let places = MAY_ASK_THE_TIME.iter().flat_map(|(_, places)| *places);
        let place =
            places.copied().find(|p| source.path == *p || p.ends_with('/') && source.path.starts_with(p));
        match place {
            Some(place) => needed.push(place),
            None => wrong.push(format!("{} asks for the time or sleeps, in lines {asks:?}", source.path)),
        }
    }
    let idle = MAY_ASK_THE_TIME.iter().flat_map(|(_, places)| *places).filter(|p| !needed.contains(p));
    wrong.extend(idle.map(|place| format!("{place} need not be listed any more")));
    assert!(
        wrong.is_empty(),
        "time is a parameter (`Clock`), except where a reason is listed:\n{}",
        wrong.join("\n")
    );
}

fn asks_the_time(tokens: &[TokenTree]) -> bool {
    let path = word(tokens.first()).zip(word(tokens.get(3)));
    let one = is_mark(tokens.get(1), ':') && is_mark(tokens.get(2), ':');
    let path = path.filter(|_| one);
    path.is_some_and(|(a, b)| {
        matches!((a.as_str(), b.as_str()), ("Instant" | "SystemTime", "now") | ("thread", "sleep"))
    })
}
