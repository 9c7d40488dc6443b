#!/usr/bin/env bash
# The figures, each measured beside the bare machine or a peer in one run; one record, its table and page. FAST=1: under two minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked -q -p nearside-bench -p nearside-cli -p nearside-sql
cargo bench --locked -q --no-run -p nearside-driver -p nearside-ndp
exec target/release/nearside-bench ${FAST:+--fast}
