"""Tables against pyarrow, DuckDB, pandas and NumPy, and files by fsspec."""

import gzip
import io
import os
import re
import typing

import duckdb
import fsspec
import numpy
import pandas
import pyarrow
import pyarrow.csv
import pyarrow.fs
import pytest

import nearside
from nearside.fsspec import NearsideFileSystem

from conftest import ECHO, mke2fs


def rows(table):
    """Rows as they are, with numbers that nearly are the same made the same."""
    key = lambda row: [(value is not None, value) for value in row]
    cells = lambda row: tuple(round(value, 6) if isinstance(value, float) else value for value in row.values())
    return sorted((cells(row) for row in table.to_pylist()), key=key)


@pytest.mark.parametrize(
    "options, query",
    [
        (dict(), "select * from t"),
        (dict(columns="word,id"), "select word, id from t"),
        (dict(where="amount > 900 or word like 'e%'"), "select * from t where amount > 900 or word like 'e%'"),
        (dict(columns=["rate"], where="amount is null"), "select rate from t where amount is null"),
        (
            dict(group_by="word", aggregate="count(*), sum(amount), min(rate), avg(rate)"),
            "select word, count(*), sum(amount)::bigint, min(rate), avg(rate) from t group by word",
        ),
        (dict(aggregate=["count(amount)", "max(id)"]), "select count(amount), max(id) from t"),
        (dict(where="id < 0"), "select * from t where id < 0"),
    ],
)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_select_is_duckdbs(drive, tree, form, options, query):
    answer = drive.select(f"/var/data/big.{form}", **options).to_arrow()
    source = os.fspath(tree / f"var/data/big.{form}")
    table = duckdb.sql(query.replace("from t", f"from read_{form}('{source}')")).to_arrow_table()
    assert rows(answer) == rows(table) and answer.num_columns == table.num_columns


def test_select_is_pyarrows(drive, tree):
    want = pyarrow.csv.read_csv(
        tree / "var/data/big.csv", convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True)
    )
    selection = drive.select("/var/data/big.csv")
    batches = list(selection)
    assert len(batches) > 1 and all(isinstance(batch, pyarrow.RecordBatch) for batch in batches)
    assert pyarrow.Table.from_batches(batches).equals(want) and selection.skipped == 0
    limited = drive.select("/var/data/big.csv", "/var/data/big.csv", limit=20_007).to_arrow()
    assert limited.num_rows == 20_007 and limited.slice(20_000).equals(want.slice(0, 7))
    # Without pyarrow: bytes, each a stream by itself. Over them nothing is copied.
    for stream in drive.select("/var/data/trips.csv").streams():
        table = pyarrow.ipc.open_stream(pyarrow.py_buffer(stream)).read_all()
        assert table.column("city").to_pylist() == ["Bern", "Basel", "Berlin"]
    stream = next(drive.select("/var/data/big.csv", columns=["id"]).streams())
    (batch,) = pyarrow.ipc.open_stream(pyarrow.py_buffer(stream))
    whole = pyarrow.py_buffer(stream)
    data = batch.column(0).buffers()[1]
    assert whole.address <= data.address and data.address + data.size <= whole.address + whole.size


def test_selections_of_several_files(tmp_path):
    files = {
        "a.csv": "x,y\n1,\n2,\n",
        "b.csv": "x,y\n3,text\n4.5,more\n",
        "c.csv": "other,columns\n1,2\n",
        "bad.csv": "x,y\n1,a\n2\n3,b\n",
        "d.tsv": "x\ty\n6\tz\n",
        "e.jsonl": '{"x": 1, "y": "q"}\n',
    }
    (tmp_path / "tree").mkdir()
    for name, text in files.items():
        (tmp_path / "tree" / name).write_text(text)
    mke2fs(tmp_path / "tree", tmp_path / "disk.img", 8)
    with nearside.open(tmp_path / "disk.img") as drive:
        both = drive.select("/a.csv", "/b.csv").to_arrow()
        assert both.schema == pyarrow.schema([("x", pyarrow.float64()), ("y", pyarrow.string())])
        assert both.to_pydict() == {"x": [1.0, 2.0, 3.0, 4.5], "y": [None, None, "text", "more"]}
        with pytest.raises(nearside.TableError) as raised:
            drive.select("/a.csv", "/c.csv").to_arrow()
        assert raised.value.filename == "/c.csv"
        failed = []
        some = drive.select("/", recursive=True, include=["[a-c].csv"], onerror=failed.append).to_arrow()
        assert some.num_rows == 4 and [error.filename for error in failed] == ["/c.csv"]
        with pytest.raises(nearside.DamagedError, match="row 2"):
            drive.select("/bad.csv").to_arrow()
        selection = drive.select("/bad.csv", skip_bad=True)
        assert selection.to_arrow().num_rows == 2 and selection.skipped == 1
        assert drive.select("/d.tsv").to_arrow().to_pydict() == {"x": [6], "y": ["z"]}
        assert drive.select("/e.jsonl").to_arrow().to_pydict() == {"x": [1], "y": ["q"]}
        typed = drive.select("/a.csv", schema={"x": "utf8"}).to_arrow()
        assert typed.column("x").to_pylist() == ["1", "2"]
        wrongs = (dict(where="x >"), dict(columns="x", group_by="y"), dict(format="xml"), dict(delimiter="ab"))
        for wrong in wrongs:
            with pytest.raises(ValueError):
                drive.select("/a.csv", **wrong)


def test_gather_is_numpys(drive, tree):
    table = numpy.load(tree / "var/data/large.npy")
    chosen = numpy.random.default_rng(1).integers(0, len(table), 20_000)
    assert numpy.array_equal(drive.gather("/var/data/large.npy", chosen), table[chosen])
    bags = [3, 0, 7_000, 5_000, 7_997]
    parts = numpy.split(chosen, numpy.cumsum(bags)[:-1])
    sums = drive.gather("/var/data/large.npy", chosen, pooling="sum", bags=bags)
    assert numpy.allclose(sums, [table[part].sum(0) for part in parts], atol=1e-2)
    weights = numpy.linspace(0, 1, 10, dtype="f4")
    weighted = drive.gather("/var/data/large.npy", chosen[:10], pooling="weighted", weights=weights)
    assert numpy.allclose(weighted, [weights @ table[chosen[:10]]], atol=1e-4)
    assert drive.gather("/var/data/table.npy", [1], raw=True) == numpy.array([2, 3], "<f4").tobytes()
    with pytest.raises(nearside.TableError):
        drive.gather("/var/data/table.npy", [3])
    with pytest.raises(nearside.TableError):
        drive.gather("/etc/hostname", [0])
    query = table[17]
    near = drive.nearest("/var/data/large.npy", query, 5, measure="l2")
    distance = ((table - query) ** 2).sum(1)
    assert [row for row, _ in near] == list(numpy.argsort(distance)[:5])


def test_a_program_is_run_in_the_drive(drive, other, tree):
    for program in (ECHO, "/etc/echo.wasm"):
        records = list(drive.run(program, "/bytes", parameters=b"told"))
        assert {path for path, _ in records} == {"/bytes"} and records[0][1] == b"told"
        assert b"".join(record for _, record in records[1:]) == (tree / "bytes").read_bytes()
    # Of a tree each file, and of those that cannot be read why.
    of_each: dict[str, bytes] = {}
    for path, record in drive.run(ECHO, "/many", recursive=True, include=["*.txt"]):
        of_each[path] = of_each.get(path, b"") + record
    assert of_each == {f"/many/{n:03}.txt": (tree / f"many/{n:03}.txt").read_bytes() for n in range(300)}
    errors: list[OSError] = []
    seen = {path for path, _ in other.run(ECHO, "/", recursive=True, include=["secret", "hostname"], onerror=errors.append)}
    assert seen == {"/etc/hostname"}
    assert {error.filename for error in errors} == {"/secret", "/shut", "/lost+found"}
    with pytest.raises(nearside.RequestError, match="not a WebAssembly module"):
        list(drive.run(b"no program", "/etc/hostname"))
    with pytest.raises(nearside.Error, match="used up its fuel"):
        list(drive.run(ECHO, "/bytes", fuel=1000))


def test_rules_are_matched_in_the_drive(drive, other, tree):
    rules = """
    rule numbered : tag { meta: a = "b" n = 1 strings: $d = /[0-9]{3}/ condition: $d and filesize < 1MB }
    rule never { condition: filesize > 900MB }
    """
    want = re.search(rb"[0-9]{3}", (tree / "many/107.txt").read_bytes())
    found, = drive.yara(rules, "/many/107.txt", strings=True)
    assert found[:5] == ("/many/107.txt", "numbered", "default", ("tag",), (("a", "b"), ("n", 1)))
    assert found.strings[0] == nearside.Place("$d", want.start(), 3, want[0])
    matching = {f"/many/{n}.txt" for n in range(100, 300) if n % 5}
    packed = gzip.compress(rules.encode())
    assert {rule.path for rule in drive.yara(packed, "/many", recursive=True, include=["*.txt"])} == matching
    assert {rule.strings for rule in drive.yara(rules, "/many", recursive=True)} == {()}
    errors: list[OSError] = []
    always = "rule always { condition: true }"
    seen = {rule.path for rule in other.yara(always, "/", recursive=True, include=["secret", "hostname"], onerror=errors.append)}
    assert seen == {"/etc/hostname"} and "/secret" in {error.filename for error in errors}
    with pytest.raises(nearside.RequestError, match="line 1:"):
        list(drive.yara("rule a { condition: foo }", "/etc/hostname"))
    # As their types are, not as they look.
    told = 'rule told { condition: n == 7 and f > 0.5 and is and text == "7" and bytes == "\\xff" }'
    variables: dict[str, typing.Any] = {"n": 7, "f": 0.75, "is": True, "text": "7", "bytes": b"\xff"}
    assert [rule.name for rule in drive.yara(told, "/etc/hostname", variables=variables)] == ["told"]
    assert not list(drive.yara(told, "/etc/hostname", variables={**variables, "is": False}))
    for wrong in [{"not a name": 1}, {"nul": "\0"}]:
        with pytest.raises(nearside.RequestError, match="not a name|a NUL"):
            drive.yara(told, "/etc/hostname", variables=wrong)
    for wrong in [{"n": [1]}, {"n": 1 << 64}, {"n": None}]:
        with pytest.raises((TypeError, OverflowError)):
            drive.yara(told, "/etc/hostname", variables=wrong)


def test_pandas_reads_within_a_volume(image, tree, monkeypatch):
    want = pandas.read_csv(tree / "var/data/big.csv")
    options = {"drive": os.fspath(image)}
    assert pandas.read_csv("nearside:///var/data/big.csv", storage_options=options).equals(want)
    assert pandas.read_csv(f"nearside:///var/data/big.csv::{image}").equals(want)
    monkeypatch.setenv("NEARSIDE_DRIVE", os.fspath(image))
    assert pandas.read_csv("nearside://var/data/big.csv").equals(want)
    with pytest.raises(FileNotFoundError):
        pandas.read_csv("nearside:///nothing.csv", storage_options=options)
    with pytest.raises(PermissionError):
        other = dict(options, as_user=(54321, 54321))
        pandas.read_csv("nearside:///secret", storage_options=other)


def test_pyarrow_reads_within_a_volume(image, tree):
    system = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fsspec.filesystem("nearside", drive=image)))
    with system.open_input_file("/var/data/big.csv") as file:
        assert pyarrow.csv.read_csv(file).equals(pyarrow.csv.read_csv(tree / "var/data/big.csv"))
    found = system.get_file_info(pyarrow.fs.FileSelector("/var", recursive=True))
    assert {info.path for info in found} >= {"/var/data", "/var/data/big.csv"}


def test_fsspec_is_the_local_file_system(image, tree, tmp_path):
    ours, local = fsspec.filesystem("nearside", drive=image), fsspec.filesystem("file")
    assert isinstance(ours, NearsideFileSystem)
    base = os.fspath(tree)
    relative = lambda names: sorted(name[len(base) :] for name in names)
    for pattern in ("/var/**", "/many/00*.txt", "/*", "/var/*/*.log", "/etc/hostname", "/nothing*"):
        names = [name for name in ours.glob(pattern) if not name.startswith("/lost+found")]
        assert sorted(names) == relative(local.glob(base + pattern)), pattern
    assert ours.find("/var") == relative(local.find(base + "/var"))
    shallow = dict(maxdepth=1, withdirs=True)
    assert ours.find("/var", **shallow) == relative(local.find(base + "/var", **shallow))
    assert ours.find("/nothing") == [] == local.find(base + "/nothing")
    for path in ("/var/data/trips.csv", "/var/log/now", "/var", "/empty"):
        a, b = ours.info(path), local.info(base + path)
        assert (a["type"], a["islink"]) == (b["type"], b["islink"]), path
        assert a["type"] == "directory" or a["size"] == b["size"]
        assert ours.isfile(path) == local.isfile(base + path) and ours.exists(path)
    assert ours.du("/many") == local.du(base + "/many")
    data = (tree / "bytes").read_bytes()
    assert ours.cat_file("/bytes") == data
    assert ours.cat_file("/bytes", 5, 100) == data[5:100] == ours.cat_file("nearside:///bytes", 5 - len(data), 100)
    ranges = ours.cat_ranges(["/bytes"] * 3, [0, 100, len(data) - 5], [5, 1_000_000, len(data)])
    assert ranges == [data[:5], data[100:1_000_000], data[-5:]]
    assert ours.cat(["/empty", "/etc/hostname"]) == {"/empty": b"", "/etc/hostname": b"nearside\n"}
    with ours.open("/bytes", block_size=1 << 16) as file:
        file.seek(-10, io.SEEK_END)
        assert file.read() == data[-10:]
        file.seek(1 << 20)
        assert file.read(1 << 18) == data[1 << 20 : (1 << 20) + (1 << 18)]
    with ours.open("/var/log/app.log", "r") as file:
        assert file.readline() == "INFO all is well\n"
    ours.get("/many", os.fspath(tmp_path / "copied"), recursive=True)
    assert sorted(os.listdir(tmp_path / "copied")) == sorted(os.listdir(tree / "many"))
    assert ours.modified("/empty").timestamp() // 1 == local.modified(base + "/empty").timestamp() // 1
    for write in (lambda: ours.open("/new", "wb"), lambda: ours.rm("/empty")):
        with pytest.raises((NotImplementedError, OSError)):
            write()
    with pytest.raises(ValueError):
        NearsideFileSystem(skip_instance_cache=True)
