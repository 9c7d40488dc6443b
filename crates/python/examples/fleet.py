#!/usr/bin/env python3
"""A fleet on this machine: so many drives, each served over NVMe/TCP by a process of its own, and a Ray cluster that
asks all of them in one query.

    pip install nearside-drive ray
    python fleet.py --drives 32

What it prints: the answers, and how long a query over all takes beside the same over the slowest drive alone.
"""

import argparse
import os
import random
import shutil
import subprocess
import tempfile
import time

import ray
from ray.data.expressions import col

import nearside.ray


def image(folder, nth, lines):
    """An ext4 volume with a log and a table."""
    tree = os.path.join(folder, "tree")
    os.makedirs(os.path.join(tree, "var/log"))
    seeded = random.Random(nth)
    with open(os.path.join(tree, "var/log/app.log"), "w") as log:
        log.writelines(f"{i} {'ERROR disk' if seeded.random() < 0.001 else 'all is well'}\n" for i in range(lines))
    with open(os.path.join(tree, "var/trips.csv"), "w") as table:
        table.write("city,price\n")
        table.writelines(f"{seeded.choice(['Bern', 'Basel'])},{seeded.random() * 100:.2f}\n" for _ in range(lines))
    path = os.path.join(folder, f"{nth}.img")
    with open(path, "wb") as file:
        file.truncate((16 << 20) + 100 * lines)
    mke2fs = shutil.which("mke2fs") or "/sbin/mke2fs"
    subprocess.run([mke2fs, "-q", "-F", "-t", "ext4", "-d", tree, path], check=True)
    shutil.rmtree(tree)
    return path


def serve(nearside, path):
    """A server of an image, and the name by which its drive is asked."""
    words = ["serve", "--store", f"file:{path}", "--listen", "127.0.0.1:0", "--read-only", "--trust"]
    server = subprocess.Popen([nearside, *words], stdout=subprocess.PIPE, text=True)
    for line in server.stdout:
        if line.startswith("nvme+tcp://"):
            return server, line.split(": ")[0]
    raise SystemExit("nearside serve has ended; its words are above")


def timed(what, ask):
    begun = time.monotonic()
    answer = ask()
    took = time.monotonic() - begun
    print(f"{what}: {took:.2f} s")
    return answer, took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drives", type=int, default=32, help="how many (default: 32)")
    parser.add_argument("--lines", type=int, default=100_000, help="of each log and table (default: 100,000)")
    parser.add_argument("--nearside", default=shutil.which("nearside") or "nearside", help="the command")
    args = parser.parse_args()
    servers = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            images = [image(folder, nth, args.lines) for nth in range(args.drives)]
            for path in images:
                servers.append(serve(args.nearside, path))
            drives = [name for _, name in servers]
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
            ray.data.DataContext.get_current().enable_progress_bars = False
            search = lambda some: nearside.ray.search(some, "ERROR", "/var/log").count()
            search(drives)
            found, took = timed(f"ERROR in the logs of {len(drives)} drives", lambda: search(drives))
            slowest = max(timed(f"  ... of {drive}", lambda: search([drive]))[1] for drive in drives[:3])
            print(f"  {found} lines; {took / slowest:.2f} of what the slowest of three takes alone")
            rows = nearside.ray.select(drives, "/var/trips.csv").filter(expr=col("price") > 99.9)
            chosen, _ = timed("rows with a price above 99.9", lambda: rows.select_columns(["drive", "city"]).to_pandas())
            print(f"  {len(chosen)} rows of {chosen.drive.nunique()} drives")
            groups, _ = timed(
                "how many and how much by city",
                lambda: nearside.ray.aggregate(drives, "/var/trips.csv", group_by=["city"], aggregate=["count(*)", "sum(price)"]),
            )
            print(groups.to_pandas().to_string(index=False))
            gone, name = servers[-1]
            gone.kill()
            try:
                nearside.ray.search(drives, "ERROR", "/var/log", timeout=5, retries=0).count()
                raise SystemExit(f"{name} is gone, and nobody has said so")
            except nearside.ray.DriveError as error:
                print(f"a drive that has gone is said: {str(error).splitlines()[-1]}")
        finally:
            for server, _ in servers:
                server.kill()
                server.wait()
            ray.shutdown()


if __name__ == "__main__":
    main()
