"""Files and directories against the tree that they were made of; what fails; threads, signals and memory."""

import concurrent.futures
import contextlib
import doctest
import errno
import gzip
import hashlib
import io
import os
import pathlib
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import textwrap
import threading
import time

import fsspec
import pytest

import nearside
import nearside._drive

from conftest import mke2fs


def small(tree):
    """Every file that is read in no time."""
    for path in sorted(tree.rglob("*")):
        if stat.S_ISREG(path.lstat().st_mode) and path.name != "endless":
            yield path, "/" + os.fspath(path.relative_to(tree))


@contextlib.contextmanager
def running(image, code):
    """A program of its own, with its standard output a pipe. It ends with the test."""
    head = "import nearside, os, sys, time\ndrive = nearside.open(sys.argv[1], as_user=(0, 0))\n"
    code = head + textwrap.dedent(code)
    command = [sys.executable, "-c", code, os.fspath(image)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        try:
            yield program
        finally:
            program.kill()


def test_every_file_has_its_bytes(drive, tree):
    for path, name in small(tree):
        data = path.read_bytes()
        assert drive.read(name) == data, name
        assert drive.cksum(name) == hashlib.sha256(data).digest(), name
        count = drive.count(name)
        words = data.split()
        if not data.isascii():
            # A word has something to print in it, as wc has it.
            words = [word for word in words if re.search(rb"[!-~]", word)]
        assert count == (data.count(b"\n"), len(words), len(data)), name
    data = (tree / "bytes").read_bytes()
    assert drive.read("/bytes", 12345, 1 << 21) == data[12345 : 12345 + (1 << 21)]
    assert drive.read("/bytes", len(data) - 3) == data[-3:]
    assert drive.read("/bytes", len(data) + 3, 5) == b"" == drive.read("/bytes", 7, 0)
    assert drive.read("/var/log/now") == (tree / "var/log/app.log").read_bytes()
    assert drive.read("/endless", (1 << 40) - 5) == b"\0" * 5


def test_entries_are_those_of_the_tree(drive, tree):
    found = {entry.path: entry for entry in drive.find("/") if not entry.path.startswith("/lost+found")}
    there = {"/": tree, **{"/" + os.fspath(path.relative_to(tree)): path for path in tree.rglob("*")}}
    assert found.keys() == there.keys()
    for name, path in there.items():
        entry, known = found[name], path.lstat()
        if name == "/":
            continue
        assert (entry.mode, entry.uid, entry.gid) == (known.st_mode, known.st_uid, known.st_gid), name
        if entry.kind == "file":
            assert (entry.size, entry.nlink) == (known.st_size, known.st_nlink), name
            assert entry.mtime_ns // 10**9 == known.st_mtime_ns // 10**9, name
        assert entry.target == (os.readlink(path) if entry.kind == "link" else None)
        again = drive.stat(name)
        assert (again.ino, again.path, again.name) == (entry.ino, name, path.name)
    assert [entry.name for entry in drive.ls("/many")] == sorted(os.listdir(tree / "many"), key=os.fsencode)
    assert drive.stat("/var/log/now").kind == "link"
    assert drive.stat("/var/log/now", follow=True).kind == "file"
    assert drive.exists("/etc") and not drive.exists("/nothing") and not drive.exists("/empty/x")


def test_walk_is_that_of_os(drive, tree):
    ours = {path: (sorted(folders), sorted(files)) for path, folders, files in drive.walk("/")}
    ours.pop("/lost+found")
    ours["/"][0].remove("lost+found")
    theirs = {}
    for path, folders, files in os.walk(tree):
        name = "/" + os.path.relpath(path, tree) if path != os.fspath(tree) else "/"
        theirs[name] = (sorted(folders), sorted(files))
    assert ours == theirs
    pruned = []
    for path, folders, _ in drive.walk("/"):
        folders[:] = [name for name in folders if name == "var"]
        pruned.append(path)
    assert pruned == ["/", "/var"]


def test_a_search_finds_what_re_finds(drive, tree):
    for pattern in ("ERROR", "file [23]$", "^[0-9]+,e.*5$"):
        want = []
        for path, name in small(tree):
            if name in ("/bytes", "/lines"):
                continue
            at = 0
            for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
                line, offset, at = line.rstrip(b"\n"), at, at + len(line)
                if re.search(pattern.encode(), line):
                    want.append((name, number, offset, line))
        found = drive.search(pattern, "/", exclude=["bytes", "endless", "lines"])
        assert sorted((m.path, m.number, m.offset, m.line) for m in found) == sorted(want), pattern
    assert [m.number for m in drive.search("000 of", "/lines")] == list(range(1, 400_000, 1000))
    (long,) = drive.search("y$", "/long")
    assert (long.number, long.offset, len(long.line)) == (2, 6, (5 << 19) + 1)
    shown = [(m.number, m.context, m.text) for m in drive.search("ERROR", "/var/log/app.log", before=1)]
    assert shown == [(1, True, "INFO all is well"), (2, False, "ERROR no room")]
    parts = [m.text for m in drive.search(["a.l", b"w\\w+"], "/var/log/app.log", only_matching=True, max_count=1)]
    assert parts == ["all", "well"]
    assert [m.text for m in drive.search("FF", "/many", ignore_case=True, fixed=True)] == []
    (odd,) = drive.search("no UTF-8", "/many")
    assert (os.fsencode(odd.path), odd.text) == (b"/many/\xff\xfe", "no UTF-8: \ufffd")


def test_values_of_trees(drive, tree):
    counts = dict(drive.counts("/many"))
    assert counts["/many/004.txt"] == nearside.Count(4, 8, 28) and len(counts) == 301
    sums = dict(drive.cksums("/var", include=["*.log"]))
    assert sums == {"/var/log/app.log": hashlib.sha256((tree / "var/log/app.log").read_bytes()).digest()}


def test_files_are_as_pythons_own(drive, tree):
    with drive.open("/bytes") as ours, open(tree / "bytes", "rb") as theirs:
        for file in (ours, theirs):
            assert file.seekable() and file.readable() and not file.writable()
        assert ours.read(10) == theirs.read(10)
        for at, whence in ((1 << 20, io.SEEK_SET), (-7, io.SEEK_END), (-100, io.SEEK_CUR)):
            assert ours.seek(at, whence) == theirs.seek(at, whence)
            assert ours.tell() == theirs.tell()
            assert ours.read(5000) == theirs.read(5000)
        ours.seek(0), theirs.seek(0)
        assert ours.read() == theirs.read()
    with pytest.raises(ValueError):
        ours.read(1)
    with drive.open("/many/004.txt", "r") as file:
        assert list(file) == ["file 4\n"] * 4
    with pytest.raises(ValueError):
        drive.open("/empty", "wb")
    with drive.open(b"/many/\xff\xfe", buffering=0) as file:
        assert file.readall() == b"no UTF-8: \xff\n"


def refused(kind, number, path, call, *arguments, **options):
    with pytest.raises(kind) as raised:
        result = call(*arguments, **options)
        list(result if hasattr(result, "__next__") else ())
    error = raised.value
    assert isinstance(error, nearside.Error) and (error.errno, error.filename) == (number, path), error
    return error


def test_what_fails_is_an_error_of_its_kind(drive):
    error = refused(FileNotFoundError, errno.ENOENT, "/nothing", drive.read, "/nothing")
    assert str(error) == "[Errno 2] No such file or directory: '/nothing'"
    refused(nearside.NotFoundError, errno.ENOENT, "/nothing", drive.search, "x", "/nothing")
    refused(IsADirectoryError, errno.EISDIR, "/etc", drive.read, "/etc")
    refused(IsADirectoryError, errno.EISDIR, "/etc", drive.open, "/etc")
    refused(NotADirectoryError, errno.ENOTDIR, "/empty", drive.ls, "/empty")
    refused(NotADirectoryError, errno.ENOTDIR, "/empty/x", drive.stat, "/empty/x")
    refused(ValueError, errno.EINVAL, "/etc", drive.search, "(", "/etc")
    refused(nearside.RequestError, errno.EINVAL, "etc", drive.read, "etc")
    for wrong in (dict(pattern="x", binary="what"), dict(pattern="x", include="*.log")):
        with pytest.raises((ValueError, TypeError)):
            drive.search(**wrong)


def test_who_may_not_is_told_so(other, drive):
    assert drive.read("/secret") == b"for its owner\n"
    refused(PermissionError, errno.EACCES, "/secret", other.read, "/secret")
    refused(nearside.DeniedError, errno.EACCES, "/secret", other.open, "/secret")
    refused(PermissionError, errno.EACCES, "/shut", other.ls, "/shut")
    assert other.stat("/secret").size == 14
    failed = []
    found = list(other.search("o", "/", exclude=["endless", "bytes", "lines"], onerror=failed.append))
    assert {"/secret", "/shut"} <= {error.filename for error in failed} and len(found) > 3
    assert all(isinstance(error, PermissionError) for error in failed)
    # Without it the first is raised; and whoever asks once more has the rest.
    answer, raised = other.search("o", "/", exclude=["endless", "bytes", "lines"]), 0
    lines = []
    while True:
        try:
            lines.append(next(answer))
        except PermissionError:
            raised += 1
        except StopIteration:
            break
    assert raised == len(failed) and len(lines) == len(found)


def test_drives_that_are_not_opened(tmp_path, image):
    with pytest.raises(FileNotFoundError):
        nearside.open(tmp_path / "missing.img")
    with pytest.raises(nearside.Error):
        nearside.open(f"unix:{tmp_path}/missing.sock")
    with pytest.raises(nearside.RequestError):
        nearside.open("nvme+tcp://nowhere")
    for wrong in (dict(partition="LABEL="), dict(volume="vg"), dict(partition="none")):
        with pytest.raises(nearside.RequestError):
            nearside.open(image, **wrong)
    with pytest.raises(TypeError):
        nearside.Drive(image, partitoin=1)
    (tmp_path / "zeros").write_bytes(b"\0" * (1 << 20))
    with pytest.raises(nearside.NotDirectoryError):
        nearside.open(tmp_path / "zeros" / "disk.img")
    with nearside.open(tmp_path / "zeros") as drive, pytest.raises(nearside.VolumeError):
        drive.ls("/")


def test_a_folders_images_are_the_drives_that_it_stands_for(tmp_path):
    assert nearside.images(tmp_path) == []
    images = ["a.img", "b.raw", "c.qcow2", "d.img.gz", "e.zst", "link.img", os.fsdecode(b"\xff.img")]
    for name in ["notes.txt", "img", *images]:
        if name != "link.img":
            (tmp_path / name).write_bytes(b"")
    (tmp_path / "folder.img").mkdir()
    os.symlink("a.img", tmp_path / "link.img")
    os.symlink("nowhere", tmp_path / "nowhere.img")
    found = nearside.images(tmp_path)
    assert found == [os.path.join(tmp_path, name) for name in images]
    assert nearside.images(os.fsencode(tmp_path)) == found
    # A link to one of them is that one.
    assert nearside.drives(tmp_path) == [name for name in found if not name.endswith("/link.img")]
    for name, kind in (("missing", FileNotFoundError), ("notes.txt", NotADirectoryError)):
        with pytest.raises(nearside.Error, match=name) as raised:
            nearside.images(tmp_path / name)
        assert isinstance(raised.value, kind)


def test_a_damaged_directory_is_that(image, tmp_path):
    damaged = tmp_path / "damaged.img"
    shutil.copyfile(image, damaged)
    with open(damaged, "r+b") as file:
        at = file.read().index(b"app.log.1")
        file.seek(at)
        file.write(b"APP")
    with nearside.open(damaged) as drive:
        error = refused(nearside.DamagedError, errno.EUCLEAN, "/var/log/old", drive.ls, "/var/log/old")
        assert "orrupt" in str(error)
        assert drive.read("/etc/hostname") == b"nearside\n"
        # By fsspec too it is no smaller tree; what its user may not read is passed over there.
        with pytest.raises(nearside.DamagedError):
            fsspec.filesystem("nearside", drive=drive).find("/var")


def test_what_a_user_should_know_is_a_warning(image, tmp_path):
    # Without a journal and not unmounted: blocks may be another's.
    unclean = tmp_path / "unclean.img"
    shutil.copyfile(image, unclean)
    tool = shutil.which("debugfs", path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
    for change in ("feature -has_journal", "set_super_value state 0"):
        subprocess.run([tool, "-w", "-R", change, unclean], check=True, capture_output=True)
    with nearside.open(unclean, as_user=(0, 0)) as drive:
        with pytest.warns(nearside.DriveWarning):
            assert drive.read("/etc/hostname") == b"nearside\n"


def physical(volume):
    """A physical volume by lvm2 (``fuzz/images/make-volumes``) whose ``vg0/root`` is this, in its three runs."""
    packed = pathlib.Path(__file__).parents[3] / "fuzz/images/lvm.img.gz"
    disk, extent = bytearray(gzip.decompress(packed.read_bytes())), 512 << 10
    for nth, place in enumerate([*range(4), *range(6, 11), 12, 13]):
        piece, at = volume[nth * extent : (nth + 1) * extent], (128 << 10) + place * extent
        disk[at : at + len(piece)] = piece
    return bytes(disk)


def member(array, event):
    """A member of a RAID 1 that was not stopped (metadata 1.2), of these bytes, as of an event."""
    block, sectors = bytearray(512), len(array) // 512
    fields = {0: 0xA92B4EFC, 4: 1, 72: 1, 80: sectors, 92: 2, 128: 128, 136: sectors, 144: 8, 200: event, 220: 128}
    for at, value in fields.items():
        struct.pack_into("<I", block, at, value)
    block[256:] = b"\0\0\1\0" + b"\xff" * 252
    total = sum(struct.unpack("<128I", block))
    struct.pack_into("<I", block, 216, (total + (total >> 32)) & 0xFFFFFFFF)
    return bytes(4096) + block + bytes((60 << 10) - 512) + array + bytes(256 << 10)


def test_a_volume_in_a_member_of_a_mirror_says_how_old_it_is(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/which").write_bytes(b"a mirror\n")
    mke2fs(tmp_path / "tree", tmp_path / "volume", 5)
    (tmp_path / "member").write_bytes(member(physical((tmp_path / "volume").read_bytes()), 41))
    with nearside.open(tmp_path / "member", volume="vg0/root") as drive:
        with pytest.warns(nearside.DriveWarning, match="a member of a RAID 1 that was not stopped"):
            assert drive.read("/which") == b"a mirror\n"
        running, known = drive.volumes()[0]["warnings"]
    assert "that was not stopped" in running and "as of event 41:" in known


def test_closed_is_closed(image):
    drive = nearside.open(image)
    answer = drive.search("of many", "/lines")
    next(answer)
    drive.close()
    drive.close()
    assert drive.closed and "closed" in repr(drive)
    with pytest.raises(nearside.ClosedError):
        drive.read("/empty")
    with pytest.raises(nearside.ClosedError):
        list(answer)


def test_a_dropped_answer_leaves_no_work(image):
    """What of it was not asked for is not begun: the drive is there at once, and closed at once."""
    with nearside.open(image) as drive:
        for _ in range(50):
            answer = drive.search("of many", "/lines")
            assert next(answer).number == 1
            del answer
        begin = time.monotonic()
        assert drive.read("/etc/hostname") == b"nearside\n"
        drive.close()
        assert time.monotonic() - begin < 5


def test_an_answer_takes_the_memory_of_a_reply(image):
    code = """
        import resource
        used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        def lines(pattern):
            return sum(1 for _ in drive.search(pattern, "/lines"))
        lines("line 00000")
        before = used()
        assert lines("many") == 400_000
        print(used() - before)
    """
    with running(image, code) as program:
        out, err = program.communicate(timeout=60)
    assert program.returncode == 0, err
    # In MiB. The answer has 8 MB, and as objects 80 MB.
    assert int(out) < 24, out


@pytest.mark.parametrize(
    "work",
    [
        'list(drive.search("needle", "/endless", null_data=True))',
        'drive.cksum("/endless")',
        'list(drive.search("needle", "/", null_data=True, exclude=["bytes"]))',
        # Answers come, and no code of Python's runs between them.
        '__import__("collections").deque(drive.search("^", "/endless", null_data=True), maxlen=0)',
    ],
)
def test_ctrl_c_ends_it_and_the_drive_goes_on(image, work):
    # What is begun behind a shell's back ignores the signal otherwise.
    code = f"""
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print("begun", flush=True)
        try:
            {work}
        except KeyboardInterrupt:
            print(drive.read("/etc/hostname").decode(), end="", flush=True)
    """
    with running(image, code) as program:
        assert program.stdout.readline() == "begun\n"
        time.sleep(0.5)
        assert program.poll() is None, "it is at work"
        begin = time.monotonic()
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=10)
        assert (program.returncode, out) == (0, "nearside\n"), err
        assert time.monotonic() - begin < 5


def test_threads_work_at_once(drive, tree):
    want = sorted((m.path, m.number) for m in drive.search("ERROR|file 4", "/var"))
    meet = threading.Barrier(6)

    def search():
        meet.wait()
        return sorted((m.path, m.number) for m in drive.search("ERROR|file 4", "/var"))

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert [future.result() for future in [pool.submit(search) for _ in range(6)]] == [want] * 6
    # One is at work for minutes, and others are answered meanwhile; to close the drive ends it.
    ended = []

    def endless():
        try:
            drive.cksum("/endless")
        except nearside.ClosedError as error:
            ended.append(error)

    thread = threading.Thread(target=endless)
    thread.start()
    begin = time.monotonic()
    for _ in range(20):
        assert drive.read("/bytes", 0, 10) == (tree / "bytes").read_bytes()[:10]
    assert thread.is_alive() and time.monotonic() - begin < 30
    drive.close()
    thread.join(5)
    assert len(ended) == 1


def test_after_a_fork_a_drive_is_opened_anew(image):
    code = """
        drive.read("/etc/hostname")
        child = os.fork()
        if child == 0:
            try:
                drive.read("/etc/hostname")
            except nearside.Error as error:
                assert "fork" in str(error)
                assert nearside.open(sys.argv[1]).read("/etc/hostname") == b"nearside\\n"
                os._exit(7)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), drive.read("/etc/hostname").decode())
    """
    with running(image, code) as program:
        out, err = program.communicate(timeout=20)
    assert out.split() == ["7", "nearside"], err


def test_the_examples_are_true(image, monkeypatch):
    monkeypatch.chdir(image.parent)
    with nearside.open("disk.img") as drive:
        names = {"nearside": nearside, "drive": drive}
        failed, ran = 0, 0
        for one in doctest.DocTestFinder().find(nearside._drive.Drive, globs=dict(names)):
            result = doctest.DocTestRunner().run(one)
            failed, ran = failed + result.failed, ran + result.attempted
        for one in doctest.DocTestFinder().find(nearside._drive.open, "open", globs=dict(names)):
            result = doctest.DocTestRunner().run(one)
            failed, ran = failed + result.failed, ran + result.attempted
        readme = (pathlib.Path(__file__).parent.parent / "README.md").read_text()
        one = doctest.DocTestParser().get_doctest(readme.replace("```", ""), dict(names), "README", None, 0)
        result = doctest.DocTestRunner().run(one)
        assert (failed + result.failed, ran > 10, result.attempted > 10) == (0, True, True)
