#!/usr/bin/env python3
"""A fleet on this machine: so many drives, each served over NVMe/TCP by a process of its own, and a cluster, of Ray's or
of Ballista's, that asks all of them in one query.

    pip install nearside-drive ray
    python fleet.py --drives 32

    python fleet.py --drives 32 --engine ballista     # nearside-ballista from the path: `make ballista`

What it prints: the answers, and how long a query over all takes beside the same over the slowest drive alone.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import tempfile
import time


class Ray:
    """Ray Data over drives, in this process."""

    def __init__(self, args):
        import ray

        import nearside.ray

        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        ray.data.DataContext.get_current().enable_progress_bars = False
        self.ray, self.drives = ray, nearside.ray
        self.errors = nearside.ray.DriveError

    def count(self, drives):
        return self.drives.search(drives, "ERROR", "/var/log").count()

    def chosen(self, drives):
        from ray.data.expressions import col

        rows = self.drives.select(drives, "/var/trips.csv").filter(expr=col("price") > 99.9)
        return rows.select_columns(["drive", "city"]).to_pandas().to_dict("records")

    def groups(self, drives):
        made = self.drives.aggregate(drives, "/var/trips.csv", group_by=["city"], aggregate=["count(*)", "sum(price)"])
        return made.to_pandas().to_dict("records")

    def lost(self, drives):
        self.drives.search(drives, "ERROR", "/var/log", timeout=5, retries=0).count()

    def end(self):
        self.ray.shutdown()


class Ballista:
    """A scheduler, and executors, as processes of their own; queries are SQL."""

    errors = RuntimeError

    def __init__(self, args):
        self.program, self.processes = args.nearside_ballista, []
        try:
            self.scheduler = self.start("scheduler")
            for _ in range(args.executors):
                self.start("executor", "--scheduler", self.scheduler)
        except BaseException:
            self.end()
            raise

    def start(self, *words):
        """Starts a part of the cluster. Where it listens."""
        process = subprocess.Popen([self.program, *words, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process.stdout.readline().strip() or self.ended()

    def ended(self):
        raise RuntimeError("a part of the cluster has ended; its words are above")

    def sql(self, drives, query, *words):
        named = [word for drive in drives for word in ("-d", drive)]
        asked = [self.program, "sql", "--scheduler", self.scheduler, *words, "--output", "jsonl", *named, query]
        ran = subprocess.run(asked, capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(ran.stderr)
        return [json.loads(line) for line in ran.stdout.splitlines()]

    def count(self, drives):
        found = self.sql(drives, "select count(*) as n from lines('/var/log/**') where text like '%ERROR%'")
        return found[0]["n"]

    def chosen(self, drives):
        return self.sql(drives, "select drive, city from csv('/var/trips.csv') where price > 99.9")

    def groups(self, drives):
        return self.sql(drives, "select city, count(*) as n, sum(price) as price from csv('/var/trips.csv') group by city")

    def lost(self, drives):
        self.sql(drives, "select count(*) from lines('/var/log/**')", "--ctrl-loss-tmo", "0")

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()


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
    parser.add_argument("--engine", choices=["ray", "ballista"], default="ray", help="who asks all of them (default: ray)")
    parser.add_argument("--executors", type=int, default=4, help="of Ballista's (default: 4)")
    parser.add_argument("--nearside", default=shutil.which("nearside") or "nearside", help="the command")
    parser.add_argument(
        "--nearside-ballista", default=shutil.which("nearside-ballista") or "nearside-ballista", help="the cluster's program"
    )
    args = parser.parse_args()
    servers, engine = [], None
    with tempfile.TemporaryDirectory() as folder:
        try:
            images = [image(folder, nth, args.lines) for nth in range(args.drives)]
            for path in images:
                servers.append(serve(args.nearside, path))
            drives = [name for _, name in servers]
            engine = {"ray": Ray, "ballista": Ballista}[args.engine](args)
            engine.count(drives)
            found, took = timed(f"ERROR in the logs of {len(drives)} drives", lambda: engine.count(drives))
            slowest = max(timed(f"  ... of {drive}", lambda: engine.count([drive]))[1] for drive in drives[:3])
            print(f"  {found} lines; {took / slowest:.2f} of what the slowest of three takes alone")
            chosen, _ = timed("rows with a price above 99.9", lambda: engine.chosen(drives))
            print(f"  {len(chosen)} rows of {len({row.get('drive') for row in chosen})} drives")
            groups, _ = timed("how many and how much by city", lambda: engine.groups(drives))
            for group in sorted(groups, key=lambda group: group["city"]):
                print("  " + "  ".join(str(value) for value in group.values()))
            gone, name = servers[-1]
            gone.kill()
            try:
                engine.lost(drives)
            except engine.errors as error:
                print(f"a drive that has gone is said: {str(error).splitlines()[-1]}")
            else:
                raise SystemExit(f"{name} is gone, and nobody has said so")
        finally:
            if engine is not None:
                engine.end()
            for server, _ in servers:
                server.kill()
                server.wait()


if __name__ == "__main__":
    main()
