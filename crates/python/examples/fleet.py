#!/usr/bin/env python3
"""A fleet on this machine: so many drives, each served over NVMe/TCP by a process of its own, and a cluster, of Ray's or
of Ballista's, that asks all of them in one query.

    pip install nearside-drive ray
    python fleet.py --drives 32

    python fleet.py --drives 32 --engine ballista     # nearside-ballista from the path: `make ballista`

What it prints: the answers, and how long a query over all takes beside the same over the slowest drive alone. With
--json it only measures that: in so many rounds the query over all, and over each drive by itself.

    python fleet.py --json --rounds 3 --delayed perkib=1ms,units=1     # drives that read a MiB/s: their time, not this machine's
"""

import argparse
import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time

LIBC = ctypes.CDLL(None)
#: Of so many lines a log or a table is made, again and again.
DISTINCT = 100_000
#: Queries before those that are measured: Ray starts processes for them.
WARM = 2
#: Seconds that a part of a cluster has to end by itself.
GRACE = 10


def with_parent():
    """Has this process end when the one that started it does, however that ends (prctl(2), PR_SET_PDEATHSIG)."""
    LIBC.prctl(1, signal.SIGTERM)


def start(*words, cores=None):
    """Starts a program whose first lines are read, on some cores."""

    def before():
        with_parent()
        os.sched_setaffinity(0, cores or os.sched_getaffinity(0))

    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=before)


class Ray:
    """Ray Data over drives, in this process."""

    def __init__(self, args):
        import ray

        import nearside.ray

        ray.init("local", include_dashboard=False, log_to_driver=False, logging_level="ERROR")
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
        asked = {"group_by": ["city"], "aggregate": ["count(*)", "sum(price)"]}
        made = self.drives.aggregate(drives, "/var/trips.csv", **asked)
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
        process = start(self.program, *words, "--listen", "127.0.0.1:0")
        self.processes.append(process)
        return process.stdout.readline().strip() or self.ended()

    def ended(self):
        raise RuntimeError("a part of the cluster has ended; its words are above")

    def sql(self, drives, query, *words):
        named = [word for drive in drives for word in ("-d", drive)]
        how = ["--scheduler", self.scheduler, "--output", "jsonl"]
        asked = [self.program, "sql", *how, *words, *named, query]
        ran = subprocess.run(asked, capture_output=True, text=True, preexec_fn=with_parent)
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
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def write(path, head, lines, line):
    """A file of so many lines."""
    text = [line(nth) for nth in range(min(lines, DISTINCT))]
    with open(path, "w") as file:
        file.write(head)
        for _ in range(lines // DISTINCT):
            file.writelines(text)
        file.writelines(text[: lines % DISTINCT])


def image(folder, nth, lines):
    """An ext4 volume with a log and a table."""
    tree = os.path.join(folder, "tree")
    os.makedirs(os.path.join(tree, "var/log"))
    seeded = random.Random(nth)
    log = lambda at: f"{at} {'ERROR disk' if seeded.random() < 0.001 else 'all is well'}\n"
    row = lambda _: f"{seeded.choice(['Bern', 'Basel'])},{seeded.random() * 100:.2f}\n"
    write(os.path.join(tree, "var/log/app.log"), "", lines, log)
    write(os.path.join(tree, "var/trips.csv"), "city,price\n", lines, row)
    path = os.path.join(folder, f"{nth}.img")
    with open(path, "wb") as file:
        file.truncate((16 << 20) + 100 * lines)
    mke2fs = shutil.which("mke2fs") or "/sbin/mke2fs"
    subprocess.run([mke2fs, "-q", "-F", "-t", "ext4", "-d", tree, path], check=True)
    shutil.rmtree(tree)
    return path


class Server:
    """An image that is served by a process of its own, on one core at a time, and the name by which its drive is asked.

    Where it is measured, that core is given: a system may leave two that work on one for as long as a query takes.
    """

    def __init__(self, args, path, cores=None):
        store = f"delayed:{args.delayed}:file:{path}" if args.delayed else f"file:{path}"
        words = ["--store", store, "--listen", "127.0.0.1:0", "--read-only", "--trust", "--near-data-threads", "0"]
        self.process = start(args.nearside, "serve", *words, cores=cores)
        try:
            said = (line for line in self.process.stdout if line.startswith("nvme+tcp://"))
            self.name = next(said, "").split(": ")[0] or self.ended()
        except BaseException:
            self.end()
            raise

    def ended(self):
        raise SystemExit("nearside serve has ended; its words are above")

    def busy(self):
        """Seconds of a core that it has used (proc_pid_stat(5), the fields behind its name)."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self):
        self.process.kill()
        self.process.wait()


def clock(ask):
    begun = time.monotonic()
    answer = ask()
    return answer, time.monotonic() - begun


def timed(what, ask):
    answer, took = clock(ask)
    print(f"{what}: {took:.2f} s")
    return answer, took


def measure(engine, servers, rounds):
    """Seconds that groups of the tables of all drives take, and of each alone, in turns; and seconds of a core that each drive
    uses when it is asked alone."""
    count = lambda groups: sum(list(group.values())[1] for group in groups)
    drives = [server.name for server in servers]
    for _ in range(WARM):
        engine.groups(drives)
    together, alone, busy = [], [[] for _ in servers], [0.0] * len(servers)
    for _ in range(rounds):
        groups, took = clock(lambda: engine.groups(drives))
        together.append(took)
        rows = 0
        for nth, server in enumerate(servers):
            before = server.busy()
            own, took = clock(lambda: engine.groups([server.name]))
            busy[nth] += server.busy() - before
            alone[nth].append(took)
            rows += count(own)
        if rows != count(groups) or not rows:
            raise SystemExit(f"all drives answer of {count(groups)} rows, each alone of {rows}")
    return {"together": together, "alone": alone, "busy": [used / rounds for used in busy]}


def show(engine, servers):
    """Asks all drives, and again when one of them has gone."""
    drives = [server.name for server in servers]
    engine.count(drives)
    found, took = timed(f"ERROR in the logs of {len(drives)} drives", lambda: engine.count(drives))
    slowest = max(timed(f"  ... of {drive}", lambda: engine.count([drive]))[1] for drive in drives[:3])
    print(f"  {found} lines; {took / slowest:.2f} of what the slowest of three takes alone")
    chosen, _ = timed("rows with a price above 99.9", lambda: engine.chosen(drives))
    print(f"  {len(chosen)} rows of {len({row.get('drive') for row in chosen})} drives")
    groups, _ = timed("how many and how much by city", lambda: engine.groups(drives))
    for group in sorted(groups, key=lambda group: group["city"]):
        print("  " + "  ".join(str(value) for value in group.values()))
    gone = servers[-1]
    gone.process.kill()
    try:
        engine.lost(drives)
    except engine.errors as error:
        print(f"a drive that has gone is said: {str(error).splitlines()[-1]}")
    else:
        raise SystemExit(f"{gone.name} is gone, and nobody has said so")


def told(number, _):
    """Ends, by way of what ends all that was started."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit("not done in the time that it has" if number == signal.SIGALRM else f"ended by signal {number}")


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
    parser.add_argument(
        "--delayed", help="what each drive's medium takes, in a store's words for that (perkib=1ms,units=1: a MiB/s; default: nothing)"
    )
    parser.add_argument("--json", action="store_true", help="measure only, and print seconds as a line of JSON")
    parser.add_argument("--rounds", type=int, default=5, help="of --json (default: 5)")
    parser.add_argument("--within", type=int, default=0, help="seconds after which all of it is ended (default: none)")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGALRM, told)
    signal.alarm(args.within)
    if args.json:
        with_parent()
    servers, engine = [], None
    with tempfile.TemporaryDirectory() as folder:
        try:
            images = [image(folder, nth, args.lines) for nth in range(args.drives)]
            cores = sorted(os.sched_getaffinity(0))
            for nth, path in enumerate(images):
                servers.append(Server(args, path, {cores[nth % len(cores)]} if args.json else None))
            engine = {"ray": Ray, "ballista": Ballista}[args.engine](args)
            if args.json:
                print(json.dumps(measure(engine, servers, args.rounds)))
            else:
                show(engine, servers)
        finally:
            if engine is not None:
                engine.end()
            for server in servers:
                server.end()


if __name__ == "__main__":
    main()
