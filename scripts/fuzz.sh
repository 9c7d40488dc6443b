#!/usr/bin/env bash
# Every fuzz target for SECONDS each, two at a time, from the seeds in fuzz/seeds. Findings land in fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-300}
cargo +nightly --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
cargo +nightly fuzz build -O
cargo +nightly fuzz list | xargs -P 2 -I{} sh -c '
  mkdir -p fuzz/corpus/{} fuzz/seeds/{}
  cargo +nightly fuzz run -O {} fuzz/corpus/{} fuzz/seeds/{} -- -max_total_time='"$seconds"' -timeout=20 -len_control=0 -rss_limit_mb=2048 -print_final_stats=1 \
    > target/fuzz-{}.log 2>&1 && echo "{}: ok, $(grep -c "^#" target/fuzz-{}.log) reports, $(sed -n "s/stat::number_of_executed_units: *//p" target/fuzz-{}.log) runs" \
    || { echo "{}: FOUND SOMETHING, see target/fuzz-{}.log"; exit 255; }'
