"""Many drives by Ray, against pandas over the same files."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time

import numpy
import pandas
import pyarrow
import pytest

ray = pytest.importorskip("ray")
import ray.data
from ray.data.expressions import col

import nearside.ray

from conftest import mke2fs, served

# Ray warns of itself.
pytestmark = pytest.mark.filterwarnings("default")
OPTIONS = {"as_user": (0, 0)}


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=128 << 20, logging_level="ERROR", log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Five images with a table of their own each, and all their rows."""
    folder = tmp_path_factory.mktemp("fleet")
    random, tables = numpy.random.default_rng(3), []
    for nth in range(5):
        tree = folder / "tree"
        (tree / "var/log").mkdir(parents=True)
        n = 4000 + 1000 * nth
        table = pandas.DataFrame(
            {
                "id": random.integers(0, 1000, n),
                "price": numpy.where(random.random(n) < 0.1, numpy.nan, random.random(n) * 100),
                "city": random.choice(["Bern", "Basel", "O'Hara", 'Q"x', None], n),
            }
        )
        # NaN is written as such, and is no null; a city that is none is one.
        written = table.assign(price=[repr(float(price)) for price in table.price])
        written.to_csv(tree / "var/trips.csv", index=False)
        (tree / "var/log/a.log").write_text("".join(f"line {i} of {nth} {'ERROR' if i % 7 == nth else ''}\n" for i in range(500)))
        mke2fs(tree, folder / f"{nth}.img", 16)
        shutil.rmtree(tree)
        table.insert(0, "drive", os.fspath(folder / f"{nth}.img"))
        tables.append(table)
    (folder / "no-image.txt").write_text("not one")
    drives = nearside.ray.images(folder)
    assert drives == [os.fspath(folder / f"{nth}.img") for nth in range(5)]
    return drives, pandas.concat(tables)


def same(got, want):
    order = list(want.columns)
    got, want = (frame.sort_values(order).reset_index(drop=True) for frame in (got[order], want))
    pandas.testing.assert_frame_equal(got, want, check_dtype=False, rtol=1e-12)


def pushed(dataset):
    """The condition that went into the drives, and the columns."""
    from ray.data._internal.logical.optimizers import LogicalOptimizer

    plan = LogicalOptimizer().optimize(dataset._logical_plan)
    operators = [plan.dag]
    while operators[-1].input_dependencies:
        operators.append(operators[-1].input_dependencies[0])
    source = operators[-1].datasource
    return source._condition, source._projection_map, [type(one).__name__ for one in operators]


def test_rows_of_all_drives(cluster, fleet):
    drives, whole = fleet
    same(nearside.ray.select(drives, "/var/trips.csv", options=OPTIONS).to_pandas(), whole)
    some = nearside.ray.select(drives, "/var", recursive=True, include=["*.csv"], format="csv", columns=["city"], where="id < 10", options=OPTIONS)
    same(some.to_pandas(), whole[whole.id < 10][["drive", "city"]])
    assert nearside.ray.select(drives, "/var/trips.csv", options=OPTIONS).count() == len(whole)
    assert len(nearside.ray.select(drives, "/var/trips.csv", options=OPTIONS).limit(17).to_pandas()) == 17


@pytest.mark.parametrize(
    "expression, mask, condition",
    [
        (col("id") > 500, lambda t: t.id > 500, '"id" > 500'),
        (col("price") >= 99.5, lambda t: t.price >= 99.5, '"price" >= 99.5'),
        # NaN is not greater for Arrow, and is for a drive.
        ((col("price") > 50) | (col("city") == "O'Hara"), lambda t: (t.price > 50) | (t.city == "O'Hara"), None),
        ((col("id") != 3) & ~(col("city") == 'Q"x'), lambda t: (t.id != 3) & (t.city != 'Q"x') & t.city.notna(), None),
        (col("city").is_in(["Bern", "Basel"]), lambda t: t.city.isin(["Bern", "Basel"]), "\"city\" is not null and \"city\" in ('Bern', 'Basel')"),
        (col("city").not_in(["Bern"]), lambda t: t.city != "Bern", "\"city\" is null or \"city\" not in ('Bern')"),
        (~col("city").is_in(["Bern"]), lambda t: t.city != "Bern", None),
        (col("id").is_not_null(), lambda t: t.id >= 0, '"id" is not null'),
    ],
)
def test_filters_are_pushed_into_the_drives(cluster, fleet, expression, mask, condition):
    drives, whole = fleet
    dataset = nearside.ray.select(drives, "/var/trips.csv", options=OPTIONS).filter(expr=expression)
    went, _, operators = pushed(dataset)
    assert went and "Filter" not in operators
    assert condition is None or went == condition
    same(dataset.to_pandas(), whole[mask(whole)])
    # Columns that only the filter asks for do not stay.
    chosen = dataset.select_columns(["drive", "city"])
    same(chosen.to_pandas(), whole[mask(whole)][["drive", "city"]])
    assert dataset.count() == int(mask(whole).sum())
    # The drive alone is a column, too, and the order is as it was said.
    assert dataset.select_columns(["drive"]).to_pandas().value_counts().to_dict() == chosen.to_pandas()[["drive"]].value_counts().to_dict()
    assert list(dataset.select_columns(["city", "drive"]).to_pandas().columns) == ["city", "drive"]


@pytest.mark.parametrize(
    "expression, mask",
    [
        # Of the drive's name the drive knows nothing; what is not less may be NaN for Arrow.
        (lambda drives: col("drive") == drives[2], lambda t, drives: t.drive == drives[2]),
        (lambda drives: ~(col("price") > 50), lambda t, drives: ~(t.price > 50)),
        (lambda drives: (col("id") % 2) == 0, lambda t, drives: t.id % 2 == 0),
    ],
)
def test_what_a_drive_cannot_say_rays_filter_says(cluster, fleet, expression, mask):
    drives, whole = fleet
    dataset = nearside.ray.select(drives, "/var/trips.csv", options=OPTIONS).filter(expr=expression(drives))
    went, _, operators = pushed(dataset)
    assert went is None and "Filter" in operators
    same(dataset.to_pandas(), whole[mask(whole, drives)])


def test_groups_over_all_drives(cluster, fleet):
    drives, whole = fleet
    got = nearside.ray.aggregate(
        drives, "/var/trips.csv", group_by=["city"], aggregate=["count(*)", "sum(id)", "min(id)", "max(id)"], where="id < 900", options=OPTIONS
    )
    want = whole[whole.id < 900].groupby("city", dropna=False).id.agg(["count", "sum", "min", "max"]).reset_index()
    got = got.to_pandas()
    got.columns = want.columns
    same(got, want)
    one = nearside.ray.aggregate(drives, "/var/trips.csv", aggregate=["count(*)", "max(id)"], options=OPTIONS)
    assert [column[0].as_py() for column in one.columns] == [len(whole), whole.id.max()]
    with pytest.raises(ValueError, match="avg"):
        nearside.ray.aggregate(drives, "/var/trips.csv", aggregate=["avg(id)"])


def test_the_greatest_of_what_is_no_number(cluster, tmp_path):
    """NaN is greater than all, in the drive that has one and in all of them."""
    drives = []
    for nth, rows in enumerate(["a,100\na,NaN\nb,NaN\nc,\n", "a,5\nb,NaN\nc,\n", "a,1\nd,7\n"]):
        tree = tmp_path / f"{nth}"
        tree.mkdir()
        (tree / "n.csv").write_text("k,n\n" + rows)
        mke2fs(tree, tmp_path / f"{nth}.img", 16)
        drives.append(os.fspath(tmp_path / f"{nth}.img"))
    got = nearside.ray.aggregate(
        drives, "/n.csv", group_by=["k"], aggregate=["max(n)", "min(n)"], schema={"k": "utf8", "n": "float64"}, options=OPTIONS
    )
    rows = {row["k"]: [repr(row["max(n)"]), repr(row["min(n)"])] for row in got.to_pylist()}
    assert rows == {"a": ["nan", "1.0"], "b": ["nan", "nan"], "c": ["None", "None"], "d": ["7.0", "7.0"]}


def test_a_sum_without_room_and_a_column_of_the_same_name_are_errors(cluster, tmp_path):
    drives = []
    for nth in range(2):
        tree = tmp_path / f"{nth}"
        tree.mkdir()
        (tree / "sums.csv").write_text(f"k,n\na,{2**62}\nb,{nth}\n")
        (tree / "named.csv").write_text("drive,n\nx,1\n")
        mke2fs(tree, tmp_path / f"{nth}.img", 16)
        drives.append(os.fspath(tmp_path / f"{nth}.img"))
    sums = lambda where: nearside.ray.aggregate(
        drives, "/sums.csv", group_by=["k"], aggregate=["sum(n)"], where=where, options=OPTIONS
    )
    # Each drive's own has room, and what both are has none.
    with pytest.raises(pyarrow.ArrowInvalid):
        sums("k = 'a'")
    assert sums("k = 'b'").to_pydict()["sum(n)"] == [1]
    with pytest.raises(nearside.ray.DriveError, match="a column of the table is called 'drive'"):
        nearside.ray.select(drives, "/named.csv", options=OPTIONS).to_pandas()


def test_lines_and_rules_of_all_drives(cluster, fleet):
    drives, _ = fleet
    found = nearside.ray.search(drives, "ERROR", "/var/log", options=OPTIONS).to_pandas()
    want = [(drives[nth], f"line {i} of {nth} ERROR") for nth in range(5) for i in range(500) if i % 7 == nth]
    assert sorted(zip(found.drive, found.text)) == sorted(want) and set(found.path) == {"/var/log/a.log"}
    rules = 'rule third : odd { strings: $a = " of 3 ERROR" condition: $a }'
    matched = nearside.ray.yara(drives, rules, options=OPTIONS).to_pandas()
    assert matched.to_dict("records")[0]["drive"] == drives[3]
    assert [(row.path, row.rule, list(row.tags)) for row in matched.itertuples()] == [("/var/log/a.log", "third", ["odd"])]


def test_a_drive_that_fails_is_named(cluster, fleet, tmp_path):
    drives, _ = fleet
    missing = os.fspath(tmp_path / "missing.img")
    with pytest.raises(nearside.ray.DriveError, match=re.escape(missing)):
        nearside.ray.search([*drives, missing], "ERROR", options=OPTIONS).to_pandas()
    with pytest.raises(nearside.ray.DriveError, match=re.escape(drives[0]) + ".*nowhere"):
        nearside.ray.select(drives[:1], "/nowhere.csv", options=OPTIONS).to_pandas()
    # One that takes connections and says nothing, by both of its addresses.
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = [server.getsockname()[1] for server in (first, second)]
        silent = "nvme+tcp://" + ",".join(f"127.0.0.1:{port}" for port in ports) + "/nqn.2026-11.example:silent/1"
        begun = time.monotonic()
        with pytest.raises(nearside.ray.DriveError, match=re.escape(silent)):
            nearside.ray.search([drives[0], silent], "ERROR", timeout=3, options=OPTIONS).to_pandas()
        assert time.monotonic() - begun < 60
    turned = [nearside.ray._turned(silent, nth) for nth in range(3)]
    assert turned[0] == turned[2] == silent and turned[1].startswith(f"nvme+tcp://127.0.0.1:{ports[1]},127.0.0.1:{ports[0]}/")


class Question:
    """One that fails, or does not end, before or behind its first answer, so often."""

    def __init__(self, fails, behind=False, hangs=False):
        self.fails, self.behind, self.hangs = fails, behind, hangs

    def tables(self, drive, path, limit):
        self.fails -= 1
        if self.behind or self.fails < 0:
            yield pyarrow.table({"name": [drive.read(path).decode()]})
        if self.fails >= 0:
            if self.hangs:
                time.sleep(30)
            raise OSError("on purpose")


def test_a_drive_is_asked_again_where_nothing_has_come(image, monkeypatch):
    opened = []
    real = nearside.open
    monkeypatch.setattr(nearside.ray._drive, "open", lambda name, **options: opened.append(name) or real(image, **options))
    both = "nvme+tcp://one:1,two:2/nqn.2026-11.example:a/1"

    def ask(question, retries, timeout=300):
        opened.clear()
        tables = list(nearside.ray._Asked(question, both, "/etc/hostname", timeout, retries, OPTIONS, None, None)())
        return pyarrow.concat_tables(tables).to_pydict()

    want = {"drive": [both], "name": ["nearside\n"]}
    turned = "nvme+tcp://two:2,one:1/nqn.2026-11.example:a/1"
    assert ask(Question(0), 0) == want and opened == [both]
    assert ask(Question(1), 1) == want and opened == [both, turned]
    assert ask(Question(2), 2) == want and opened == [both, turned, both]
    with pytest.raises(nearside.ray.DriveError, match="one:1.*OSError: on purpose"):
        ask(Question(2), 1)
    # What has been answered is not answered twice.
    with pytest.raises(nearside.ray.DriveError, match="on purpose"):
        ask(Question(1, behind=True), 5)
    assert opened == [both]
    begun = time.monotonic()
    with pytest.raises(nearside.ray.DriveError, match="TimeoutError: nothing came for 0.5 s"):
        ask(Question(1, behind=True, hangs=True), 1, timeout=0.5)
    assert time.monotonic() - begun < 20


class Together:
    """One that is answered when so many drives are asked; by some it is never, or for ever."""

    def __init__(self, drives, fails=(), endless=()):
        self.all, self.fails, self.endless = threading.Barrier(drives), fails, endless
        self.now, self.most, self.lock = 0, 0, threading.Lock()

    def tables(self, drive, path, limit):
        name = drive.asked
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.all.wait(20)
        if name in self.fails:
            raise OSError("on purpose")
        yield pyarrow.table({"asked": [name]})
        while name in self.endless:
            yield pyarrow.table({"asked": [name]})
        with self.lock:
            self.now -= 1


def test_drives_of_a_task_are_asked_together(monkeypatch):
    class Opened(contextlib.nullcontext):
        def __init__(self, name, **options):
            super().__init__(self)
            self.asked = name

    monkeypatch.setattr(nearside.ray._drive, "open", Opened)

    before = set(threading.enumerate())

    def ask(question, names):
        asked = [nearside.ray._Asked(question, name, "/x", 60, 0, OPTIONS, None, None) for name in names]
        return nearside.ray._Task(asked)()

    names = ["a", "b", "c", "d"]
    rows = pyarrow.concat_tables(ask(Together(4), names)).to_pylist()
    assert sorted(row["drive"] + row["asked"] for row in rows) == ["aa", "bb", "cc", "dd"]
    # Not more than a task may have threads for.
    monkeypatch.setattr(nearside.ray, "_AT_A_TIME", 2)
    question = Together(2)
    assert {row["drive"] for table in ask(question, names) for row in table.to_pylist()} == set(names) and question.most == 2
    # One that fails ends the others, as does who wants no more of them.
    with pytest.raises(nearside.ray.DriveError, match="b: OSError: on purpose"):
        list(ask(Together(2, fails="b", endless="a"), ["a", "b"]))
    some = ask(Together(2, endless="ab"), ["a", "b"])
    next(some)
    some.close()
    until = time.monotonic() + 20
    while left := [thread for thread in threading.enumerate() if thread not in before]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


def test_files_that_cannot_be_read(cluster, image):
    options = {"as_user": (54321, 54321)}
    with pytest.raises(nearside.ray.DriveError, match="secret|shut|lost"):
        nearside.ray.search([image], "near", "/", options=options).to_pandas()
    left = nearside.ray.search([image], "near", "/", unreadable="ignore", options=options).to_pandas()
    assert "/etc/hostname" in set(left.path)
    # A drive that answers nothing is no file that is left out.
    for nothing in (
        nearside.ray.search([image], "near", "/nowhere", unreadable="ignore", options=options),
        nearside.ray.search([image], "near", "/shut", unreadable="ignore", options=options),
        nearside.ray.yara([image], "rule x {", unreadable="ignore", options=options),
    ):
        with pytest.raises(nearside.ray.DriveError, match=re.escape(os.fspath(image))):
            nothing.to_pandas()


def test_ray_is_started_where_nobody_has(image):
    script = f"import nearside.ray; print(nearside.ray.search([{os.fspath(image)!r}], 'near', '/etc/hostname', options={OPTIONS!r}).count())"
    # The machine's, whatever it has; not the cluster of the other tests.
    alone = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    ran = subprocess.run([sys.executable, "-c", script], env=alone, capture_output=True, text=True, timeout=120)
    assert ran.stdout.split()[-1:] == ["1"], ran.stderr


def test_what_is_asked_wrong_is_said_at_once(fleet):
    with pytest.raises(TypeError, match="list of names"):
        nearside.ray.select("disk.img", "/x.csv")
    with pytest.raises(TypeError, match="limit="):
        nearside.ray.select(["disk.img"], "/x.csv", limit=3)
    with pytest.raises(TypeError, match="no path"):
        nearside.ray.select(["disk.img"])
    with pytest.raises(ValueError, match="retries=-1"):
        nearside.ray.search(["disk.img"], "x", retries=-1)
    with pytest.raises(ValueError, match="no drive"):
        nearside.ray.search([], "x")
    with pytest.raises(ValueError, match="unreadable"):
        nearside.ray.search(["disk.img"], "x", unreadable="maybe")


def test_a_drive_is_reached_by_another_of_its_addresses(cluster, fleet, command):
    drives, whole = fleet
    with served(command, "--store", f"file:{drives[1]}", "--listen", "127.0.0.1:0", "--read-only", "--trust") as name:
        # The first takes connections and says nothing.
        with socket.create_server(("127.0.0.1", 0)) as silent:
            both = name.replace("nvme+tcp://", f"nvme+tcp://127.0.0.1:{silent.getsockname()[1]},")
            got = nearside.ray.select([drives[0], both], "/var/trips.csv", where="id < 100", timeout=20).to_pandas()
        want = whole[(whole.id < 100) & whole.drive.isin(drives[:2])].replace({"drive": {drives[1]: both}})
        same(got, want)


def test_drives_that_a_discovery_service_lists(cluster, fleet, command, tmp_path):
    drives, whole = fleet
    nqn = "nqn.2026-11.example"
    space = lambda nsid, drive: f"[[subsystem.namespace]]\nnsid = {nsid}\nstore = 'file:{drive}'\nread-only = true\n"
    system = lambda name: f"[[subsystem]]\nnqn = '{nqn}:{name}'\nidentity = 'trust'\n"
    config = [system("a"), space(1, drives[0]), space(3, drives[1]), system("b"), space(1, drives[2])]
    (tmp_path / "serve.toml").write_text("listen = ['127.0.0.1:0']\n" + "".join(config))
    with served(command, "--config", tmp_path / "serve.toml") as name:
        at = name.split("/")[2]
        names = [f"nvme+tcp://{at}/{nqn}:{one}" for one in ("a/1", "a/3", "b/1")]
        assert nearside.drives(f"discover:{at}") == names
        asked = [f"discover:{at}", drives[3]]
        got = nearside.ray.select(asked, "/var/trips.csv", where="id < 100", options=OPTIONS).to_pandas()
        want = whole[(whole.id < 100) & whole.drive.isin(drives[:4])].replace({"drive": dict(zip(drives, names))})
        same(got, want)
        # A folder is all images in it, of which one is named as well.
        folder = [os.path.dirname(drives[0]), drives[3]]
        found = nearside.ray.search(folder, "ERROR", "/var/log", options=OPTIONS).count()
        assert found == sum(i % 7 == nth for nth in range(5) for i in range(500))
    with pytest.raises(nearside.Error, match=f"discover:{at}: connecting: "):
        nearside.ray.search([f"discover:{at}"], "ERROR")


def the_example(command, *words):
    example = os.path.join(os.path.dirname(__file__), "../examples/fleet.py")
    ran = subprocess.run([sys.executable, example, *words, "--nearside", command], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_example_of_a_fleet(command):
    said = the_example(command, "--drives", "3", "--lines", "5000")
    assert "of 3 drives" in said and "a drive that has gone is said: " in said and "nvme+tcp://" in said


def test_the_example_measures_a_fleet(command):
    said = the_example(command, "--drives", "2", "--lines", "2000", "--json", "--rounds", "1", "--delayed", "perkib=10ms,units=1")
    measured = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert [len(measured[what]) for what in ("together", "alone", "busy")] == [1, 2, 2]
    # A table of 2,000 lines has over 20 KiB, of which each takes a drive's medium 10 ms.
    assert min(measured["together"] + [took for [took] in measured["alone"]]) > 0.2
