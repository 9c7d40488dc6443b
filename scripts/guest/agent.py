"""What runs in a guest that a test leads: /job/main.py HOST PORT

Connects there and runs each command that comes, a JSON line {"run": SHELL WORDS, "seconds": N}; answers with a JSON line {"status":, "out":,
"err":}. Status 124: it took too long. The end of the connection is the guest's."""

import json
import socket
import subprocess
import sys


def run(ask):
    try:
        ran = subprocess.run(["/bin/sh", "-c", ask["run"]], capture_output=True, timeout=ask["seconds"], stdin=subprocess.DEVNULL)
        status, out, err = ran.returncode, ran.stdout, ran.stderr
    except subprocess.TimeoutExpired as late:
        status, out, err = 124, late.stdout or b"", late.stderr or b""
    text = {"out": out.decode(errors="replace"), "err": err.decode(errors="replace")}
    return {"status": status, **text}


subprocess.run("ifconfig lo up; ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up", shell=True, check=True)
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as line:
    with line.makefile("rw") as file:
        for ask in file:
            file.write(json.dumps(run(json.loads(ask))) + "\n")
            file.flush()
