#!/usr/bin/env bash
# What cargo starts a test program by: one that hangs is ended and named. None takes a quarter of this time.
# NEARSIDE_BESIDE names the programs that another run of cargo has (test.sh).
name=${1##*/}
case " ${NEARSIDE_BESIDE:-} " in *" ${name%-*} "*) echo "beside the others"; exit ;; esac
exec timeout ${NEARSIDE_FOREGROUND:-} --signal=ABRT --kill-after=10 1800 "$@"
