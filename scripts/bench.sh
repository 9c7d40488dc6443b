#!/usr/bin/env bash
# The figures, each measured beside its floor or peer in one run; one record, and its table. FAST=1: under two minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
export NEARSIDE_RECORD=${NEARSIDE_RECORD:-auto}
cargo build --release --locked -q -p nearside-cli
exec target/release/nearside record --name bench ${FAST:+--fast}
