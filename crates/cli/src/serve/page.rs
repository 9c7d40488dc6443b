//! The page of a server that runs: what it does and for whom. The page is one file, in the dress of the
//! reports; its script asks for [`state`] every two seconds and fills it in. Names that come from hosts reach
//! the page as text, never as markup, and no script runs but the page's own.

use std::sync::LazyLock;

use base64::Engine as _;
use nearside_device::traffic::{Kind, Tally};
use nearside_instrument::report::Page;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::control;
use super::drive::Seen;
use super::history::{Figures, History};
use crate::logs;

const ABOUT: &str = "What this server does, as it is now: the page asks every two seconds. Response times run from when the drive took \
                     a command to when it answered. A percentile is exact to within a quarter. Nothing can be changed from here.";

static PAGE: LazyLock<String> = LazyLock::new(|| {
    let mut page = Page::new("Nearside", ABOUT);
    page.live(include_str!("page/live.html"), include_str!("page/live.js"));
    page.finish()
});

/// What a browser lets the page do: its own style and scripts, and questions to this server.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let scripts = PAGE.split("<script>").skip(1).filter_map(|rest| rest.split("</script>").next());
    let hash = |script: &str| {
        let digest = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(script));
        format!(" 'sha256-{digest}'")
    };
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src{}; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        scripts.map(hash).collect::<String>()
    )
});

/// The page.
pub fn html() -> &'static str {
    &PAGE
}

/// Its Content-Security-Policy.
pub fn policy() -> &'static str {
    &POLICY
}

/// What the page is filled with.
pub fn state(seen: &Seen, history: &History) -> Value {
    let (now, past, up) = history.tell();
    let seconds = up.as_secs_f64().max(1e-3);
    let mut state = control::status(seen);
    withhold(&mut state);
    let (mut namespaces, mut hosts) = (Vec::new(), Vec::new());
    for offer in seen.target.offers() {
        let traffic = offer.subsystem.traffic();
        namespaces.extend(traffic.namespaces.iter().map(
            |(nsid, tally)| json!({ "subsystem": offer.nqn, "nsid": nsid, "asked": asked(tally, seconds) }),
        ));
        hosts.extend(traffic.hosts.iter().map(
            |(host, tally)| json!({ "subsystem": offer.nqn, "host": host, "asked": asked(tally, seconds) }),
        ));
    }
    state["traffic"] = json!({ "namespaces": namespaces, "hosts": hosts });
    state["now"] = json!(now);
    state["past"] = json!(past);
    state["up_s"] = json!(up.as_secs());
    state["recent"] = json!(logs::recent());
    state
}

/// Takes away what is for the server's own user alone: which hosts may connect or have limits, whose names
/// may be all the proof that there is, and hosts' identifiers.
fn withhold(state: &mut Value) {
    for (list, key) in [("subsystems", "hosts"), ("subsystems", "limits"), ("hosts", "host_id")] {
        for one in state[list].as_array_mut().into_iter().flatten() {
            if let Some(fields) = one.as_object_mut() {
                fields.remove(key);
            }
        }
    }
}

/// What was asked since the server began.
fn asked(tally: &Tally, seconds: f64) -> Value {
    let kinds = Kind::ALL.into_iter().zip(&tally.kinds).filter(|(_, timed)| timed.count() > 0);
    let operations: Vec<Figures> = kinds.map(|(kind, timed)| Figures::of(kind, timed, seconds)).collect();
    json!({ "operations": operations, "failed": tally.failed })
}
