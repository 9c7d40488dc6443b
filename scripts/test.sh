#!/usr/bin/env bash
# Every test that this machine allows. Left-out tests are listed at the end; where CI is set, one is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
export NEARSIDE_LEFT_OUT=$PWD/target/left-out.txt NEARSIDE_TIMES=$PWD/target/times.txt
mkdir -p target && : > "$NEARSIDE_LEFT_OUT" && : > "$NEARSIDE_TIMES"
# Of what takes long each day has its part (conformance/today.rs); NEARSIDE_DAY= has all of it.
export NEARSIDE_DAY=${NEARSIDE_DAY-$(date +%j)}
SECONDS=0
step() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS"; }
# In CI nobody changes a file and builds again, or looks with a debugger: a failing test says its place by itself. A crate in one piece is
# the least to compile, and there are crates enough for all cores.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_CODEGEN_UNITS=1

if cargo fmt --version >/dev/null 2>&1; then
  step "formatting"; cargo fmt --all --check
else echo "formatting: rustfmt is not installed" >> "$NEARSIDE_LEFT_OUT"; fi

step "tests"
cargo test --workspace --locked --no-run
host=$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)
export "CARGO_TARGET_${host}_RUNNER=scripts/run-test.sh"
[ ! -t 0 ] || export NEARSIDE_FOREGROUND=--foreground
# These mostly wait, for guests and for disks, and some change how the machine pages: one after another, beside all others.
beside=(root_apps root_dax root_live_monitor root_vfio stock_linux f2fs_recovery fast12 pieee17)
# A group of its own: what is begun behind an ordinary shell's back ignores the signals that tests send.
set -m
cargo test --workspace --locked --no-fail-fast "${beside[@]/#/--test=}" >target/beside.txt 2>&1 </dev/null &
lanes=($!)
trap 'kill -- "${lanes[@]/#/-}" 2>/dev/null || true' EXIT
# What is looked at without being run takes what the tests leave of the machine. It begins once they have: cargo builds for one at a time.
until grep -q Running target/beside.txt || ! kill -0 "${lanes[0]}" 2>/dev/null; do sleep 1; done
(until [ -s "$NEARSIDE_TIMES" ]; do sleep 1; done; exec nice -n 19 scripts/check.sh) >target/looked.txt 2>&1 </dev/null &
lanes+=($!)
set +m
failed=0
NEARSIDE_BESIDE="${beside[*]}" cargo test --workspace --locked --no-fail-fast 2>&1 | tee target/tests.txt || failed=1
wait "${lanes[0]}" || failed=1
step "tests that ran beside"; cat target/beside.txt
wait "${lanes[1]}" || { failed=1; echo "error: scripts/check.sh failed" >>target/looked.txt; }
trap - EXIT
step "what was looked at beside"; cat target/looked.txt
# Not by a pipe: whoever writes more than head reads may fail, and with it all of this.
step "the programs that took longest, and how long of a processor"; head -20 < <(sort -rn "$NEARSIDE_TIMES")
# Last, so that who sees only the end of a log sees them.
[ $failed = 0 ] || {
  step "what failed"
  grep -hE '^test .* FAILED$|panicked at|^error|^    `-p ' target/tests.txt target/beside.txt target/looked.txt | tail -60
  exit 1
}

if [ -s "$NEARSIDE_LEFT_OUT" ]; then
  step "left out on this machine"; sort -u "$NEARSIDE_LEFT_OUT"
  [ -z "${CI:-}" ] || { echo "in CI nothing may be left out"; exit 1; }
else
  step "nothing was left out"
fi
