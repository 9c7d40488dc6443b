#!/usr/bin/env bash
# The figures, each measured beside the bare machine or a peer in one run; one record, its table and page. FAST=1: under two minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked -q -p nearside-bench -p nearside-cli -p nearside-sql
# By itself, as `make ballista` has it.
cargo build --release --locked -q -p nearside-ballista
cargo bench --locked -q --no-run -p nearside-driver -p nearside-ndp
# The package for Python, by which Ray asks drives, beside what it needs.
oracles=$PWD/target/oracles
if "$oracles/bin/python" -c 'import maturin, pandas, pyarrow, ray.data' 2>/dev/null; then
  rm -rf "$oracles/wheel" "$oracles/nearside"
  (cd crates/python && "$oracles/bin/python" -m maturin build -q --release --locked --out "$oracles/wheel")
  "$oracles/bin/python" -m pip install -q --disable-pip-version-check --no-index --no-deps --target "$oracles/nearside" "$oracles"/wheel/*.whl
fi
exec target/release/nearside-bench ${FAST:+--fast}
