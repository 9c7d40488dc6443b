#!/usr/bin/env bash
# Fuzz targets for SECONDS each (default 300), JOBS at a time (default 1): usage: scripts/fuzz.sh [SECONDS [TARGET...]]
# Writes seeds from real volumes to fuzz/corpus, which grows; prints a line per target; findings land in fuzz/artifacts.
# With NEARSIDE_RECORD (the full path of studies/record) each target leaves a line in MACHINE/DATE-fuzz.jsonl there.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-300}
shift || true
cargo +nightly --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
cargo run -q -p nearside-hostile --example seeds -- fuzz/corpus
cargo +nightly fuzz build -O
binaries=fuzz/target/$(rustc +nightly -vV | sed -n 's/^host: //p')/release
mkdir -p target/fuzz
one() { # seconds, folder of the binaries, target
    mkdir -p "fuzz/artifacts/$3"
    log=target/fuzz/$3.log
    nice "$2/$3" -max_total_time="$1" -timeout=10 -rss_limit_mb=2048 -max_len=8192 -len_control=0 -print_final_stats=1 \
        -artifact_prefix="fuzz/artifacts/$3/" "fuzz/corpus/$3" > "$log" 2>&1 && what=ok || what="FOUND SOMETHING, see $log"
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
    echo "$3: $what; ${runs:-?} runs, ${rate:-?} a second, $(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -1)"
    [ "$what" = ok ]
}
export -f one
if [ $# = 0 ]; then
    list=$(cargo +nightly fuzz list)
    # shellcheck disable=SC2086 # a word is a target
    set -- $list
    [ $# -gt 0 ] || { echo "fuzz.sh: no targets"; exit 1; }
fi
failed=0
printf '%s\n' "$@" | xargs -P "${JOBS:-1}" -I{} bash -c "one $seconds $binaries {}" || failed=1
[ -z "${NEARSIDE_RECORD:-}" ] || printf 'target/fuzz/%s.log\0' "$@" |
    xargs -0 cargo run -q -p nearside-hostile --example record --
exit $failed
