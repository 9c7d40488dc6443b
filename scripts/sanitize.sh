#!/usr/bin/env bash
# What the compiler and the kernel's answers cannot show: Miri, ThreadSanitizer and AddressSanitizer over the tests that each can run.
# Usage: scripts/sanitize.sh [miri|thread|address]...   (default: all)
set -euo pipefail
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$PWD/target/sanitize
export NEARSIDE_LEFT_OUT=$CARGO_TARGET_DIR/left-out.txt
mkdir -p "$CARGO_TARGET_DIR" && : > "$NEARSIDE_LEFT_OUT"
say() { printf '\n== %s\n' "$*"; }

# Undefined behaviour: raw memory, aliasing, uninitialised bytes. No system calls that Miri does not know (memfd, io_uring), so the parts
# of the crates that need none. The copies of shared memory are atomics here; a raw pointer out of a `&[u8]` is read through one, which
# the tree-borrows model allows.
miri() {
  say "Miri"
  MIRIFLAGS="-Zmiri-tree-borrows -Zmiri-disable-isolation" cargo +nightly miri test -p nearside-dma --lib -- copy::
}

# Data races. What a peer may write while it is copied is copied by `dma::copy`, where a race is the contract. A thread that a test lets
# go, and that has ended, is no race.
thread() {
  say "ThreadSanitizer"
  RUSTFLAGS=-Zsanitizer=thread TSAN_OPTIONS="report_thread_leaks=0 suppressions=$PWD/scripts/sanitize.supp" \
    cargo +nightly test -Zbuild-std --target "$host" --no-fail-fast --lib --test '*' -p nearside-dma -p nearside-device -p nearside-driver
}

# Memory errors, over the rest. The programs that tests start are left to `make test`.
address() (
  say "AddressSanitizer"
  export RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS=detect_leaks=1 LSAN_OPTIONS="suppressions=$PWD/scripts/leak.supp"
  # A test runs it.
  cargo +nightly build --target "$host" --example search -p nearside-fsrlib
  cargo +nightly test --target "$host" --no-fail-fast --lib --test '*' \
    -p nearside-dma -p nearside-device -p nearside-driver -p nearside-fsrlib -p nearside-front-tcp -p nearside-firmware \
    -p nearside-embedded -p nearside-store -p nearside-near-data -p nearside-ndp -p nearside-fsr -p nearside-fsview
  # Its other tests mount.
  cargo +nightly test --target "$host" --lib -p nearside-front-fuse
)

rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal -c miri -c rust-src
[ $# -gt 0 ] || set -- miri thread address
for way in "$@"; do "$way"; done
