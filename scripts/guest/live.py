"""What writes in a guest while its drive is asked: /job/live.py DRIVE ROUNDS PARTITION:FOLDER...

Two writers for each folder of a mounted partition, each a process with files of its own, change them and make each change
durable (fsync). As soon as that has returned the drive is asked, by `nearside cksum`, what it takes the file for: another
answer than the writer's own is an error. Whoever asks the file `whole` of a writer at any moment, from wherever, must find one
version of it and nothing else: its lines are alike, and their number never is less than before."""

import hashlib
import os
import random
import subprocess
import sys
import time


def asked(drive, partition, path):
    """The drive's checksum of a path. A scan that a change of another file's meets may say so, and is repeated."""
    for _ in range(20):
        words = ["/job/nearside", "cksum", "-d", drive, "--partition", partition, path]
        begun = time.monotonic()
        ran = subprocess.run(words, capture_output=True, text=True)
        if ran.returncode == 0:
            return ran.stdout.split()[0]
        if "changed" not in ran.stderr:
            raise OSError(f"{path}, after {time.monotonic() - begun:.1f} s: {ran.stderr}")
    raise OSError(f"{path} changes for ever")


def synced(path, flags=os.O_RDONLY, change=None):
    """Opens, changes, and makes durable."""
    fd = os.open(path, flags, 0o644)
    if change:
        change(fd)
    os.fsync(fd)
    os.close(fd)


def write(drive, rounds, partition, folder, nr):
    rng = random.Random(f"{partition} {nr}")
    below = f"/live/{nr}"
    at = folder + below
    os.makedirs(at)
    synced(folder + "/live")
    for round in range(rounds):
        kind = rng.randrange(4) if round >= 4 else round
        name = ["whole", "log", "place", f"new-{round}"][kind]
        path = f"{at}/{name}"
        data = rng.randbytes(rng.choice([30, 900, 5000, 70_000]))
        if kind == 0:
            lines = f"{round:08}\n".encode() * rng.choice([10, 600, 20_000])
            synced(f"{at}/.whole", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, lambda fd: os.write(fd, lines))
            os.rename(f"{at}/.whole", path)
            synced(at)
        elif kind == 2 and os.path.exists(path):
            synced(path, os.O_RDWR, lambda fd: os.pwrite(fd, data, rng.randrange(40_000)))
        elif kind == 2:
            synced(path, os.O_WRONLY | os.O_CREAT, lambda fd: os.write(fd, rng.randbytes(100_000)))
        else:
            synced(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, lambda fd: os.write(fd, data))
        with open(path, "rb") as file:
            mine = hashlib.sha256(file.read()).hexdigest()
        there = asked(drive, partition, f"{below}/{name}")
        if there != mine:
            raise OSError(f"{partition}: {below}/{name}, round {round}: the drive has {there}, the writer {mine}")


def main(drive, rounds, *volumes):
    children = []
    for volume in volumes:
        partition, folder = volume.split(":")
        for nr in range(2):
            child = os.fork()
            if child == 0:
                write(drive, int(rounds), partition, folder, nr)
                os._exit(0)
            children.append(child)
    ended = [os.waitpid(child, 0)[1] for child in children]
    if any(ended):
        print(subprocess.run("dmesg | tail -n 20", shell=True, capture_output=True, text=True).stdout)
    print(len(children) * int(rounds), "answers")
    sys.exit(any(ended))


main(*sys.argv[1:])
