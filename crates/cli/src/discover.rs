//! `nearside discover`: which subsystems a target over the network has for this host.

use std::io::Write;
use std::sync::Arc;

use clap::Args;
use nearside_clock::TscClock;
use nearside_driver::Error;
use nearside_driver::tcp::{Address, DiscoveryEntry, TCP, discover, nqn, subtype};
use serde_json::json;

use crate::args::HostArgs;
use crate::failure::{Failure, Outcome, complain};
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  nearside discover 127.0.0.1                      # a discovery service on port 8009
  nearside discover 127.0.0.1:4420
  nearside grep -d \"$(nearside discover 127.0.0.1 | head -1)\" -r ERROR /var/log

`nearside sql -d discover:HOST[:PORT]` asks all namespaces of these subsystems. Referrals to other services are not \
followed.

Exit status: 0 a subsystem was found, 1 none, 2 an error.";

/// List the subsystems that a target over the network has for this host
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct DiscoverArgs {
    /// HOST[:PORT] of a discovery service
    #[arg(value_name = "ADDR")]
    address: String,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

pub fn run(args: DiscoverArgs) -> Outcome {
    let failed = |e: Error| match e {
        Error::Address(why) => Failure::Message(why),
        e => Failure::Message(format!("{}: {e}", args.address)),
    };
    let at = Address::discovery(&args.address).map_err(failed)?;
    let options = args.host.options()?;
    let entries = discover(&at, options, Arc::new(TscClock::new())).map_err(failed)?;
    let mut out = Out::new();
    let mut none = true;
    for entry in &entries {
        let field = entry.subnqn();
        let subsystem = nqn::from_field(&field).unwrap_or("(no name)");
        let is_one = entry.subtype() == subtype::NVM && entry.trtype() == TCP;
        none &= !is_one;
        if args.json {
            out.json(&json!({
                "type": "subsystem",
                "nqn": subsystem,
                "kind": kind(entry),
                "transport": entry.trtype(),
                "address": entry.address(),
                "port": entry.port(),
                "port_id": entry.portid(),
            }))?;
        } else if is_one {
            match Address::of_entry(entry) {
                Ok(address) => {
                    out.name(address.to_string().as_bytes())?;
                    out.line(b"")?;
                }
                Err(error) => complain(&format!("{}: {error}", args.address)),
            }
        }
    }
    out.flush()?;
    if none {
        complain(&format!("{}: no subsystem for this host over TCP", args.address));
    }
    Ok(u8::from(none))
}

fn kind(entry: &DiscoveryEntry) -> &'static str {
    match entry.subtype() {
        subtype::REFERRAL => "referral",
        subtype::NVM => "nvm",
        subtype::CURRENT => "discovery",
        _ => "unknown",
    }
}
