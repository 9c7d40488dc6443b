#!/usr/bin/env bash
# What cargo starts a test program by: one that hangs is ended and named. None takes a quarter of this time.
# NEARSIDE_BESIDE names the programs that another run of cargo has (test.sh).
name=${1##*/}
case " ${NEARSIDE_BESIDE:-} " in *" ${name%-*} "*) echo "beside the others"; exit ;; esac
SECONDS=0 code=0
timeout ${NEARSIDE_FOREGROUND:-} --signal=ABRT --kill-after=10 1800 "$@" || code=$?
# How long it took, and how long it and what it started took of a processor.
[ -z "${NEARSIDE_TIMES:-}" ] || {
  times > "$NEARSIDE_TIMES.$$"
  awk -F '[ms ]+' -v wall="$SECONDS" -v name="${name%-*}" \
    'NR == 2 { printf "%5d s  %5.0f s  %s\n", wall, $1 * 60 + $2 + $3 * 60 + $4, name }' "$NEARSIDE_TIMES.$$" >> "$NEARSIDE_TIMES"
  rm "$NEARSIDE_TIMES.$$"
}
exit $code
