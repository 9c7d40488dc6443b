#!/usr/bin/env bash
# Every test that this machine allows. Left-out tests are listed at the end; where CI is set, one is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
export NEARSIDE_LEFT_OUT=$PWD/target/left-out.txt
mkdir -p target && : > "$NEARSIDE_LEFT_OUT"
step() { printf '\n== %s\n' "$*"; }

if cargo fmt --version >/dev/null 2>&1; then
  step "formatting"; cargo fmt --all --check
else echo "formatting: rustfmt is not installed" >> "$NEARSIDE_LEFT_OUT"; fi
if cargo clippy --version >/dev/null 2>&1; then
  step "lints"; cargo clippy --workspace --all-targets --locked -q -- -D warnings
else echo "lints: clippy is not installed" >> "$NEARSIDE_LEFT_OUT"; fi
scripts/check.sh

step "tests"
# Nobody changes a file and builds again there, or looks with a debugger: a failing test says its place by itself.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
# A test program that hangs is ended and named: none takes a tenth of this.
host=$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)
[ -t 0 ] && foreground=--foreground || foreground=
env "CARGO_TARGET_${host}_RUNNER=timeout $foreground --signal=ABRT --kill-after=10 1800" \
  cargo test --workspace --locked --no-fail-fast

if [ -s "$NEARSIDE_LEFT_OUT" ]; then
  step "left out on this machine"; sort -u "$NEARSIDE_LEFT_OUT"
  [ -z "${CI:-}" ] || { echo "in CI nothing may be left out"; exit 1; }
else
  step "nothing was left out"
fi
