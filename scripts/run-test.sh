#!/usr/bin/env bash
# What cargo starts a test program by: one that hangs is ended and named. None takes a quarter of this time.
# NEARSIDE_BESIDE names the programs that another run of cargo has (test.sh).
name=${1##*/}
case " ${NEARSIDE_BESIDE:-} " in *" ${name%-*} "*) echo "beside the others"; exit ;; esac
SECONDS=0 code=0
timeout ${NEARSIDE_FOREGROUND:-} --signal=ABRT --kill-after=10 1800 "$@" || code=$?
[ -z "${NEARSIDE_TIMES:-}" ] || printf '%5d s  %s\n' "$SECONDS" "${name%-*}" >> "$NEARSIDE_TIMES"
exit $code
