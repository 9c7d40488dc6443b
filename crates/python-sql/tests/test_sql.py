"""Queries against DuckDB, by the package's own DataFusion and by Python's; what fails, signals and threads."""

import doctest
import gc
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time

import datafusion
import duckdb
import pyarrow
import pytest

import nearside
import nearside_sql

from conftest import mke2fs, served

ROOT = (0, 0)

#: Of `t`: what is answered alike by every engine.
QUERIES = [
    "select * from t",
    "select word, id from t where amount > 900 or word like 'e%'",
    "select count(*) as n from t",
    "select count(*) as n from t where amount is null",
    "select word, count(*) as n, sum(amount) as s, min(rate) as low, max(id) as high from t group by word",
    "select count(distinct word) as n from t where rate between 10 and 20",
    "select a.id from t a join t b on a.id = b.amount where b.id < 500",
    "select id, amount from t where amount in (1, 2, 3) order by id limit 5",
    "select id from t where upper(word) = 'BETA' and id < 100",
    "select word from t where rate > (select avg(rate) from t) and id % 1000 = 7",
]


@pytest.fixture(scope="module")
def drives(image):
    return nearside_sql.open(image, as_user=ROOT)


@pytest.fixture()
def session():
    return datafusion.SessionContext()


def rows(table):
    """Rows as they are, with numbers that nearly are the same made the same."""
    cell = lambda value: round(value, 6) if isinstance(value, float) else value
    key = lambda row: [(value is not None, value) for value in row]
    return sorted((tuple(cell(value) for value in row.values()) for row in table.to_pylist()), key=key)


def collected(frame):
    return pyarrow.Table.from_batches(frame.collect(), schema=pyarrow.schema(frame.schema()))


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("query", QUERIES)
def test_every_engine_answers_the_same(drives, image, tree, session, query, form):
    path = f"/var/data/big.{form}"
    duck = duckdb.connect()
    duck.sql(f"create view t as from read_{form}('{tree}{path}')")
    want = rows(duck.sql(query.replace("sum(amount)", "sum(amount)::bigint")).to_arrow_table())
    ours = f"with t as (select * from {form}('{path}')) {query}"
    assert rows(drives.sql(ours).read_all()) == want
    slow = nearside_sql.open(image, as_user=ROOT, push_down=False)
    assert rows(slow.sql(ours).read_all()) == want
    session.register_table("t", getattr(drives, form)(path))
    assert rows(collected(session.sql(query))) == want
    drives.register(session, "on_")
    theirs = f"with t as (select * from on_{form}('{path}')) {query}"
    assert rows(collected(session.sql(theirs))) == want


def explained(answer):
    return "\n".join(answer["plan"])


def test_what_a_drive_can_do_it_does(drives, session):
    query = "select word, count(*) from csv('/var/data/big.csv') where id < 10 group by word"
    plan = explained(drives.sql(f"explain {query}").read_all().to_pydict())
    assert "InDrive" in plan and "group-by=[word]" in plan and "FilterExec" not in plan, plan
    analyzed = explained(drives.sql("explain analyze select id from csv('/var/data/big.csv')").read_all().to_pydict())
    assert re.search(r"InDrive.*output_rows=20.*output_batches=[1-9]", analyzed), analyzed
    # A session's own groups are its own; of a table its conditions are not.
    session.register_table("t", drives.csv("/var/data/big.csv"))
    query = query.replace("csv('/var/data/big.csv')", "t")
    plan = explained(session.sql(f"explain {query}").to_pydict())
    assert "InDrive" in plan and "FilterExec" not in plan and "AggregateExec" in plan, plan
    # What a drive finds true of more is asked once more, here, and no third time.
    session.register_table("z", drives.csv("/var/data/big.csv"))
    for plan in (
        explained(drives.sql("explain select id from csv('/var/data/big.csv') where rate = 0").read_all().to_pydict()),
        explained(session.sql("explain select id from z where rate = 0").to_pydict()),
    ):
        assert plan.count("FilterExec") == 1 and "AND" not in plan, plan
    # A function's table is asked for columns, and not for conditions (datafusion-ffi).
    drives.register(session)
    plan = explained(session.sql("explain select id from csv('/var/data/big.csv') where id < 10").to_pydict())
    assert "InDrive" in plan and "FilterExec" in plan, plan


def test_functions_of_the_session_are_in_its_filters(drives, session):
    length = lambda texts: pyarrow.array([len(text) for text in texts.to_pylist()], pyarrow.int64())
    session.register_udf(datafusion.udf(length, [pyarrow.string()], pyarrow.int64(), "immutable", "length_of"))
    session.register_table("t", drives.csv("/var/data/trips.csv"))
    frame = session.sql("select city from t where length_of(city) > 4 and price > 8 and md5(city) <> ''")
    assert frame.to_pydict() == {"city": ["Basel"]}
    # Where a function's name is one that nobody knows, that is said.
    with pytest.raises(Exception, match="unheard_of"):
        session.sql("select city from t where unheard_of(city)").collect()


def test_a_session_joins_drives_with_what_else_it_has(drives, session):
    session.register_record_batches("own", [pyarrow.table({"city": ["Bern", "Berlin"], "people": [1, 2]}).to_batches()])
    drives.register(session)
    frame = session.sql(
        "select people, price, size from own join csv('/var/data/trips.csv') t on own.city = t.city, files f "
        "where f.path = '/var/data/trips.csv' order by people"
    )
    assert frame.to_pydict() == {"people": [1, 2], "price": [12.5, 7.0], "size": [48, 48]}
    lines = session.sql("select path, line from lines('/var/log/**') where text like 'ERROR%' order by path")
    assert lines.to_pydict() == {"path": ["/var/log/app.log", "/var/log/old/app.log.1"], "line": [2, 1]}


@pytest.fixture(scope="module")
def two(image, tmp_path_factory):
    """Two drives, of which the other has a file more."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "tree/var/data").mkdir(parents=True)
    (folder / "tree/var/data/trips.csv").write_bytes(b"id,city,price\n7,Biel,1.5\n")
    mke2fs(folder / "tree", folder / "other.img", 16)
    os.symlink(image, folder / "disk.img")
    (folder / "notes.txt").write_text("no image")
    return folder


def test_many_drives_are_one_table(two, session):
    names = nearside.images(two)
    assert names == [f"{two}/disk.img", f"{two}/other.img"]
    drives = nearside_sql.open(*names, as_user=ROOT)
    query = "select drive, city from csv('/var/data/trips.csv') where price < 20 order by city"
    want = {"drive": [names[0], names[0], names[1]], "city": ["Berlin", "Bern", "Biel"]}
    assert drives.sql(query).read_all().to_pydict() == want
    drives.register(session)
    assert session.sql(query).to_pydict() == want
    # As a folder of images.
    folder = nearside_sql.open(two, as_user=ROOT)
    assert folder.names == names and folder.sql(query).read_all().to_pydict() == want
    with pytest.raises(ValueError, match="named twice"):
        nearside_sql.open(names[0], names[0])
    with pytest.raises(TypeError, match="which drive"):
        nearside_sql.open()


def test_drives_that_a_discovery_service_lists_are_one_table(two, command):
    stores = [word for image in nearside.images(two) for word in ("--store", f"file:{image}")]
    with served(command, *stores, "--read-only", "--trust", "--listen", "127.0.0.1:0") as name:
        assert name.endswith("/1")
        drives = nearside_sql.open(f"discover:{name.split('/')[2]}", as_user=ROOT)
        other = name[:-1] + "2"
        assert drives.names == [name, other]
        answer = drives.sql("select drive, city from csv('/var/data/trips.csv') where price < 20 order by city")
        assert answer.read_all().to_pydict() == {"drive": [name, name, other], "city": ["Berlin", "Bern", "Biel"]}


def test_drives_are_asked_as_they_were_opened(image, tmp_path, session):
    with open(tmp_path / "disk.img", "wb") as disk:
        for number in (1, 2):
            tree = tmp_path / f"tree{number}"
            tree.mkdir()
            (tree / f"of-{number}").write_bytes(b"x\n")
            mke2fs(tree, tmp_path / "volume.img", 16)
            disk.seek(number * 17 << 20)
            disk.write((tmp_path / "volume.img").read_bytes())
        disk.truncate(64 << 20)
    table = "label: gpt\nstart=34816,size=32768,name=one\nstart=69632,size=32768,name=two\n"
    tool = shutil.which("sfdisk", path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
    subprocess.run([tool, "-q", tmp_path / "disk.img"], input=table, text=True, check=True, stdout=subprocess.DEVNULL)
    query = "select path from files where path like '/of%'"
    for partition, name in ((1, "/of-1"), ("two", "/of-2"), (2, "/of-2")):
        drives = nearside_sql.open(tmp_path / "disk.img", partition=partition, as_user=ROOT)
        assert drives.sql(query).read_all().to_pydict() == {"path": [name]}
        drives.register(session)
        assert session.sql(query).to_pydict() == {"path": [name]}
        session = datafusion.SessionContext()
    with pytest.raises(Exception, match="partition"):
        nearside_sql.open(tmp_path / "disk.img", as_user=ROOT).sql(query).read_all()


def test_what_cannot_be_read_ends_a_query_or_is_left_out(image):
    query = "select count(*) as n from lines('/many/**')"
    whose = dict(as_user=(54321, 54321))
    assert nearside_sql.open(image, **whose).sql(query).read_all().to_pydict() == {"n": [601]}
    query = "select count(*) as n from lines('/{secret,lines}')"
    for ask in (
        lambda drives: drives.sql(query).read_all(),
        lambda drives: (session := datafusion.SessionContext(), drives.register(session), collected(session.sql(query)))[2],
    ):
        with pytest.raises(Exception, match="/secret: .*[Pp]ermission denied"):
            ask(nearside_sql.open(image, **whose))
        with pytest.warns(nearside.DriveWarning, match="/secret: .*[Pp]ermission denied"):
            left = ask(nearside_sql.open(image, unreadable="ignore", **whose))
        assert left.to_pydict() == {"n": [400_000]}
    # Each time that it is so.
    drives = nearside_sql.open(image, unreadable="ignore", **whose)
    passed = "select count(id) as n from csv('/var/data/trips.csv', 'schema=id int64, city int64, price float64', 'skip-bad') where city > 0"
    for _ in range(2):
        with pytest.warns(nearside.DriveWarning, match="/secret"):
            drives.sql(query).read_all()
        with pytest.warns(nearside.DriveWarning, match="passed over 3 rows"):
            drives.sql(passed).read_all()
    with pytest.raises(ValueError, match="unreadable"):
        nearside_sql.open(image, unreadable="perhaps")


def test_what_is_wrong_is_said(drives, image, session):
    for query, said in (
        ("select", "SQL error|ParserError"),
        ("select nothing from files", "nothing"),
        ("select * from csv('/none.csv')", "/none.csv: no such file"),
        ("create table x (a int)", "DDL not supported"),
        ("copy (select 1) to '/tmp/x.csv'", "not supported"),
        ("select * from '/etc/passwd'", "not found"),
    ):
        with pytest.raises(nearside.Error, match=said):
            drives.sql(query)
    with pytest.raises(nearside.RequestError, match="not an absolute path"):
        drives.csv("data.csv")
    with pytest.raises(nearside.RequestError, match="perhaps"):
        drives.csv("/var/data/trips.csv", "perhaps")
    # Drives are opened by those who ask.
    none = nearside_sql.open("/none.img")
    with pytest.raises(nearside.Error, match="/none.img: No such file"):
        none.csv("/var/data/trips.csv")
    none.register(session)
    with pytest.raises(Exception, match="/none.img: No such file"):
        session.sql("select count(*) from files").collect()
    with pytest.raises(Exception, match="/none.img: No such file"):
        none.sql("select count(*) from files").read_all()
    with pytest.raises(TypeError, match="no option of a drive: colour"):
        nearside_sql.open(image, colour="red")
    answer = nearside_sql.open(image)._native.sql("select 1 as one", 1 << 20)
    assert pyarrow.table(answer).to_pydict() == {"one": [1]}
    with pytest.raises(nearside.RequestError, match="has been taken"):
        pyarrow.table(answer)
    # A panic, of Arrow's here, is no end of an answer.
    many = "select id, repeat(word, case when id > 15000 then 300000 else 1 end) from csv('/var/data/big.csv')"
    with pytest.raises(nearside.Error, match="ended in the middle"):
        drives.sql(many).read_all()
    # As many parts as nobody writes by hand.
    parts = " and ".join(f"word <> 'w{n}'" for n in range(900))
    query = f"select count(*) as n from csv('/var/data/big.csv') where {parts}"
    assert drives.sql(query).read_all().to_pydict() == {"n": [20_000]}


def test_conditions_that_are_not_as_they_were_are_held_to(drives, session):
    """What DataFusion finds simpler words for after the drive has been asked what it takes."""
    session.register_table("t", drives.csv("/var/data/big.csv"))
    of = {
        "select count(*) as n from (select amount, amount as b from t) where amount = b": "amount is not null",
        "select count(*) as n from t where id in (0, id)": "true",
        "select count(*) as n from (select amount, amount as b from t) where amount = b or amount > 5": "amount is not null",
    }
    for query, same in of.items():
        want = drives.sql(f"select count(*) as n from csv('/var/data/big.csv') where {same}").read_all().to_pydict()
        assert 0 < want["n"][0] <= 20_000
        assert session.sql(query).to_pydict() == want, query
        assert drives.sql(query.replace("from t", "from csv('/var/data/big.csv')")).read_all().to_pydict() == want, query
    # A table that has been asked often is asked as it was at first.
    for n in range(300):
        assert session.sql(f"select id from t where id = {n}").to_pydict() == {"id": [n]}
    plan = explained(session.sql("explain select word from t where id = 5000").to_pydict())
    assert "FilterExec" not in plan, plan


def test_a_name_may_be_no_text(image, tmp_path):
    name = os.fsencode(tmp_path) + b"/\xff.img"
    os.symlink(image, name)
    os.symlink(image, os.fsencode(tmp_path) + b"/\xfe.img")
    drives = nearside_sql.open(*nearside.images(tmp_path), as_user=ROOT)
    found = drives.sql("select distinct drive from files order by drive").read_all().to_pydict()
    assert found == {"drive": [f"{tmp_path}/\\xfe.img", f"{tmp_path}/\\xff.img"]}
    for names in ([name], nearside.images(tmp_path)[:1]):
        drives = nearside_sql.open(*names, as_user=ROOT)
        assert drives.sql("select count(*) as n from csv('/var/data/trips.csv')").read_all().to_pydict() == {"n": [3]}


def test_the_interpreter_may_end_while_a_query_warns(tmp_path):
    tree = tmp_path / "tree"
    (tree / "m").mkdir(parents=True)
    for n in range(1000):
        (tree / f"m/{n}").write_bytes(b"x\n")
        os.chmod(tree / f"m/{n}", 0o600)
    mke2fs(tree, tmp_path / "disk.img", 16)
    code = f"""
        import random, time, warnings, nearside_sql
        drives = nearside_sql.open({os.fspath(tmp_path / "disk.img")!r}, unreadable="ignore", as_user=(54321, 54321))
        answer = drives.sql("select line from lines('/m/*')")
        time.sleep(random.random() * 0.06)
    """
    for _ in range(12):
        ran = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=30)
        assert ran.returncode == 0, ran.stderr[-2000:]


def test_another_datafusion_is_refused(drives, session, monkeypatch):
    monkeypatch.setattr(datafusion, "__version__", "54.1.0")
    with pytest.raises(Exception, match="tables are for datafusion 53, and 54.1.0 is installed"):
        session.register_table("t", drives.files())
    monkeypatch.undo()

    class Session:
        def __init__(self, method):
            self.__datafusion_logical_extension_codec__ = method

    other = session.__datafusion_task_context_provider__()
    for wrong in (object(), Session(lambda: 7), Session(lambda: other)):
        with pytest.raises((AttributeError, TypeError, ValueError)):
            drives.files().__datafusion_table_provider__(wrong)
        with pytest.raises((AttributeError, TypeError, ValueError)):
            drives.functions()["csv"].__datafusion_table_function__(wrong)


def settled(begin):
    """Threads and open files, once they are hardly more than at the beginning."""
    count = lambda: (len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")))
    until = time.monotonic() + 20
    while begin is not None and time.monotonic() < until and any(now > then + 4 for now, then in zip(count(), begin)):
        time.sleep(0.01)
    return count()


def test_what_is_dropped_leaves_nothing(image):
    session = datafusion.SessionContext()
    nearside_sql.open(image, as_user=ROOT).register(session)
    gc.collect()
    assert session.sql("select count(*) as n from csv('/var/data/big.csv')").to_pydict() == {"n": [20_000]}
    drives = nearside_sql.open(image, as_user=ROOT)
    assert len(drives.sql("select 1").read_all()) == 1
    begin = settled(None)
    # Work that nobody waits for to end.
    for _ in range(20):
        answer = drives.sql("select line from lines('/lines')")
        assert next(answer).num_rows > 0
        unread = drives.sql("select line from lines('/lines')")
    stream = session.sql("select line from lines('/lines')").execute_stream()
    assert next(iter(stream)).to_pyarrow().num_rows > 0
    del answer, unread, stream
    gc.collect()
    # Threads of a session's own stay with it.
    threads, files = settled(begin)
    assert threads <= begin[0] + 4 and files <= begin[1] + 4, (threads, files, begin)


def test_threads_ask_at_once(drives):
    meet, answers = threading.Barrier(6), []

    def ask():
        meet.wait()
        answers.append(drives.sql("select count(*) as n from csv('/var/data/big.csv') where id < 50").read_all().to_pydict())

    threads = [threading.Thread(target=ask) for _ in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert answers == [{"n": [50]}] * 6


def test_a_fork_asks_with_threads_of_its_own(image):
    code = f"""
        import os, nearside_sql
        drives = nearside_sql.open({os.fspath(image)!r})
        query = "select count(*) as n from csv('/var/data/trips.csv')"
        ask = lambda: drives.csv("/var/data/trips.csv") and drives.sql(query).read_all().to_pydict()
        assert ask() == {{"n": [3]}}
        begun = drives.sql("select line from lines('/lines')")
        next(begun)
        child = os.fork()
        if child == 0:
            try:
                next(begun)
            except nearside_sql.nearside.Error as error:
                assert "before a fork" in str(error)
                os._exit(0 if ask() == {{"n": [3]}} else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert ask() == {{"n": [3]}}
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)], check=True, timeout=30)


@pytest.mark.parametrize(
    "work",
    [
        "drives.sql(endless).read_all()",
        "__import__('collections').deque(drives.sql(lines), maxlen=0)",
        "(drives.register(session), session.sql(\"select count(*) from lines('/lines') a, lines('/lines') b\").collect())",
    ],
)
def test_ctrl_c_ends_a_query(image, work):
    code = f"""
        import signal, datafusion, nearside_sql
        signal.signal(signal.SIGINT, signal.default_int_handler)
        session = datafusion.SessionContext()
        drives = nearside_sql.open({os.fspath(image)!r}, as_user=(0, 0))
        endless = "select count(*) from lines('/lines') a, lines('/lines') b where a.text < b.text"
        lines = "select a.line from lines('/lines') a, lines('/lines') b"
        print("begun", flush=True)
        try:
            {work}
        except KeyboardInterrupt:
            print(drives.sql("select count(*) as n from csv('/var/data/trips.csv')").read_all().to_pydict(), flush=True)
        # What is under way for nobody is not waited for.
        __import__("os")._exit(0)
    """
    code = textwrap.dedent(code)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout.readline() == "begun\n"
            time.sleep(1.5)
            assert program.poll() is None, program.communicate()
            begin = time.monotonic()
            program.send_signal(signal.SIGINT)
            out, err = program.communicate(timeout=20)
            assert (program.returncode, out) == (0, "{'n': [3]}\n"), err
            assert time.monotonic() - begin < 10
        finally:
            program.kill()


def test_a_served_drive_is_asked_and_its_end_is_told(command, image, session):
    with served(command, "--store", f"file:{image}", "--listen", "127.0.0.1:0", "--read-only", "--trust") as name:
        drives = nearside_sql.open(name, as_user=ROOT, ctrl_loss_tmo=0)
        query = "select word, count(*) as n from csv('/var/data/big.csv') where id < 800 group by word order by word"
        want = nearside_sql.open(image, as_user=ROOT).sql(query).read_all()
        assert drives.sql(query).read_all() == want
        drives.register(session)
        assert session.sql(query).to_pydict() == want.to_pydict()
    with pytest.raises(nearside.Error, match=re.escape(name)):
        drives.sql(query).read_all()
    with pytest.raises(Exception, match=re.escape(name)):
        session.sql("select count(*) from files").collect()


def test_examples_are_true(image, monkeypatch, tmp_path):
    os.symlink(image, tmp_path / "disk.img")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nearside_sql, "open", lambda *names, **options: nearside_sql.Drives(*names, as_user=ROOT, **options))
    readme = (pathlib.Path(__file__).parent.parent / "README.md").read_text()
    parser, tried = doctest.DocTestParser(), 0
    for text in (nearside_sql.__doc__, readme.replace("```", "")):
        one = parser.get_doctest(text, {}, "examples", None, 0)
        result = doctest.DocTestRunner().run(one)
        assert result.failed == 0
        tried += result.attempted
    assert tried > 10
