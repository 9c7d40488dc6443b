"""One image, made of a tree by mke2fs, and drives over it."""

import contextlib
import os
import random
import shutil
import stat
import subprocess

import duckdb
import numpy
import pytest

import nearside

# A program that emits what it is told, and then the file, sixteen bytes at a time.
ECHO = bytes.fromhex(
    "0061736d01000000010f0360027f7f017f60027f7f00600000023703086e65617273696465046e6578740000086e6561"
    "727369646504656d69740001086e656172736964650a706172616d65746572730000030201020503010001071002066d"
    "656d6f727902000372756e00030a2c012a01017f4100410041e300100210010240034041004110100021002000450d01"
    "4100200010010c000b0b0b"
)
WORDS = "alpha beta gamma delta epsilon zeta eta theta".split()


def mke2fs(tree, image, mib):
    with open(image, "wb") as file:
        file.truncate(mib << 20)
    tool = shutil.which("mke2fs", path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
    subprocess.run([tool, "-q", "-F", "-t", "ext4", "-d", tree, image], check=True, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def command():
    """The command, where this build has it."""
    command = os.environ.get("NEARSIDE_COMMAND")
    if command is None:
        pytest.skip("no NEARSIDE_COMMAND: the command of this build")
    return command


@contextlib.contextmanager
def served(command, *words):
    """A server of this machine, by the name of its drive."""
    with subprocess.Popen([command, "serve", *words], stdout=subprocess.PIPE, text=True) as server:
        try:
            yield next(line for line in server.stdout if line.startswith("nvme+tcp://")).split(": ")[0]
        finally:
            server.kill()


def fill(tree):
    rng = random.Random(7)
    for folder in ("var/log/old", "var/data", "etc", "many", "shut"):
        (tree / folder).mkdir(parents=True)
    (tree / "etc/hostname").write_bytes(b"nearside\n")
    (tree / "etc/echo.wasm").write_bytes(ECHO)
    (tree / "var/log/app.log").write_bytes(b"INFO all is well\nERROR no room\nINFO all is well\n")
    (tree / "var/log/old/app.log.1").write_bytes(b"ERROR of old\n")
    os.symlink("app.log", tree / "var/log/now")
    (tree / "var/data/trips.csv").write_bytes(b"id,city,price\n1,Bern,12.5\n2,Basel,30\n3,Berlin,7\n")
    with open(tree / "var/data/big.csv", "w") as file:
        file.write("id,word,amount,rate\n")
        for n in range(20_000):
            amount = "" if rng.random() < 0.1 else rng.randrange(-1000, 1000)
            file.write(f"{n},{rng.choice(WORDS)},{amount},{rng.randrange(1000) / 8}\n")
    duckdb.sql(f"copy (from read_csv('{tree}/var/data/big.csv')) to '{tree}/var/data/big.parquet' (format parquet)")
    numpy.save(tree / "var/data/table.npy", numpy.arange(6, dtype="<f4").reshape(3, 2))
    table = numpy.random.default_rng(7).standard_normal((20_000, 8)).astype("<f4")
    numpy.save(tree / "var/data/large.npy", table)
    for n in range(300):
        (tree / f"many/{n:03}.txt").write_text(f"file {n}\n" * (n % 5))
    (tree / os.fsdecode(b"many/\xff\xfe")).write_bytes(b"no UTF-8: \xff\n")
    (tree / "empty").write_bytes(b"")
    (tree / "bytes").write_bytes(rng.randbytes(3 << 20))
    # A line longer than a reply, and answers longer than many.
    (tree / "long").write_bytes(b"short\n" + b"x" * (5 << 19) + b"y\n" + b"short\n")
    (tree / "lines").write_bytes(b"".join(b"line %07d of many\n" % n for n in range(400_000)))
    # Work that nobody waits for to end.
    with open(tree / "endless", "wb") as file:
        file.truncate(1 << 40)
    (tree / "secret").write_bytes(b"for its owner\n")
    (tree / "shut/within").write_bytes(b"nobody sees this\n")
    for path, mode in (("secret", 0o600), ("shut", 0o700)):
        os.chmod(tree / path, mode)
    for path in tree.rglob("*"):
        if not stat.S_ISLNK(path.lstat().st_mode):
            os.utime(path, ns=(1_600_000_000_123_456_789, 1_700_000_000_987_654_321))


@pytest.fixture(scope="session")
def tree(tmp_path_factory):
    tree = tmp_path_factory.mktemp("source") / "tree"
    tree.mkdir()
    fill(tree)
    return tree


@pytest.fixture(scope="session")
def image(tree):
    image = tree.parent / "disk.img"
    mke2fs(tree, image, 64)
    return image


@pytest.fixture()
def drive(image):
    with nearside.open(image, as_user=(0, 0)) as drive:
        yield drive


@pytest.fixture()
def other(image):
    """Who owns nothing there."""
    with nearside.open(image, as_user=(54321, 54321)) as drive:
        yield drive
