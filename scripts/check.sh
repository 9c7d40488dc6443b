#!/usr/bin/env bash
# What can be said of the workspace beside its tests: lints, documentation, packages, the oldest Rust, another processor, the dependencies, and a
# minute of fuzzing. A check whose tool is missing is left out with a word, in CI too: setup.sh does not install every tool.
set -euo pipefail
cd "$(dirname "$0")/.."
step() { printf '\n== %s\n' "$*"; }
without() { printf '\n== %s: left out, %s\n' "$1" "$2"; }
# What compiles hundreds of crates once more is for each third day where NEARSIDE_DAY says which it is (test.sh), and else for each time.
today() { [ -z "${NEARSIDE_DAY:-}" ] || [ $((10#$NEARSIDE_DAY % 3)) = "$1" ]; }

# SQL's planner, and who has it.
others=()
today 0 || { others=(nearside-sql nearside-python-sql nearside-ballista); step "${others[*]}: neither linted nor documented today"; }
others=("${others[@]/#/--exclude=}")

if cargo clippy --version >/dev/null 2>&1; then
  step "lints"; cargo clippy --workspace "${others[@]}" --all-targets --locked -q -- -D warnings
else
  without "lints" "clippy is not installed"
  [ -z "${NEARSIDE_LEFT_OUT:-}" ] || echo "lints: clippy is not installed" >> "$NEARSIDE_LEFT_OUT"
fi

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace "${others[@]}" --lib --no-deps --locked -q

# All at once, since each wants the others: from cargo 1.90 on.
if printf '1.90\n%s\n' "$(cargo --version | cut -d' ' -f2)" | sort -VC; then
  step "packages"
  mapfile -t private < <(grep -l '^publish = false' crates/*/Cargo.toml | cut -d/ -f2)
  cargo package --workspace --no-verify --allow-dirty --offline -q "${private[@]/#/--exclude=nearside-}"
  rm -rf "${CARGO_TARGET_DIR:-target}/package"
else without "packages" "cargo is older than 1.90"; fi

oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
installed=$(rustup toolchain list 2>/dev/null | sed -n "s/^\($oldest\(\.[0-9]*\)\?\)-.*/\1/p" | tail -1)
if ! today 2; then step "Rust $oldest: not today"
elif [ -n "$installed" ]; then
  step "Rust $installed"; cargo "+$installed" check --workspace --locked -q
else without "Rust $oldest" "that toolchain is not installed"; fi

# With the C library of the static program.
other=aarch64-unknown-linux-musl
if ! today 1; then step "$other: not today"
elif grep -qx "$other" < <(rustup target list --installed 2>/dev/null); then
  # Without TLS, programs and SQL: this machine has no OpenSSL of another processor's, and no compiler for C.
  step "$other"; RUSTFLAGS="-D warnings" cargo check --workspace --exclude nearside-tls --exclude nearside-openssl-loader --exclude nearside-wasm --exclude nearside-sql --exclude nearside-python-sql --exclude nearside-ballista --no-default-features --locked -q --target "$other"
else without "$other" "that target is not installed"; fi

if cargo deny --version >/dev/null 2>&1; then
  step "licences and sources of dependencies"; cargo deny --locked check --hide-inclusion-graph bans licenses sources
  cargo deny fetch db >/dev/null 2>&1 || true
  if compgen -G "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs/*/.git" >/dev/null; then
    step "advisories"; cargo deny --locked --offline check advisories
  else without "advisories" "their database cannot be fetched"; fi
else without "licences, sources and advisories of dependencies" "cargo-deny is not installed"; fi

# Three targets a day, 20 s each: all in a week.
if command -v cargo-fuzz >/dev/null && grep -q ^nightly < <(rustup toolchain list 2>/dev/null); then
  step "fuzzing"
  mapfile -t targets < <(cargo +nightly fuzz list)
  some=()
  for i in 0 1 2; do some+=("${targets[$(((10#$(date +%j) * 3 + i) % ${#targets[@]}))]}"); done
  scripts/fuzz.sh 20 "${some[@]}"
else without "fuzzing" "nightly or cargo-fuzz is not installed"; fi
