"""A drive, and the question that each of its methods is."""

from __future__ import annotations

import base64
import errno
import gzip
import io
import json
import os
import typing

from . import _native
from ._file import DriveFile
from ._select import Selection
from .errors import Error

if typing.TYPE_CHECKING:
    import pyarrow

    from ._native import Entry, Match

Path = typing.Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Pattern = typing.Union[str, bytes]
OnError = typing.Callable[[Exception], object]

#: All that there is: the most that a length can say.
_ALL = 2**64 - 1
#: Bytes that a file's buffer has room for.
_BUFFER = 1 << 20

#: What a drive is opened with, where nothing is said.
_OPTIONS: dict[str, typing.Any] = {
    "partition": None,
    "volume": None,
    "as_user": None,
    "home": False,
    "allow_unrecovered": False,
    "completion": "polled",
    "host_nqn": None,
    "dhchap_key_file": None,
    "dhchap_ctrl_key_file": None,
    "tls_key_file": None,
    "concat": False,
    "header_digest": False,
    "data_digest": False,
    "reconnect_delay": 10.0,
    "ctrl_loss_tmo": 600.0,
}


class Count(typing.NamedTuple):
    """What is in a file, as ``wc`` counts it."""

    #: Newlines.
    lines: int
    #: Runs of bytes between ASCII white space.
    words: int
    #: Bytes.
    bytes: int


class Place(typing.NamedTuple):
    """Where a string of a rule was found."""

    #: The string's name, with its ``$``.
    string: str
    #: Its first byte in the file.
    offset: int
    #: Bytes.
    length: int
    #: What was there, at most 512 bytes.
    data: bytes


class Rule(typing.NamedTuple):
    """A rule of YARA that matches a file."""

    #: The file.
    path: str
    #: The rule's name.
    name: str
    namespace: str
    tags: tuple[str, ...]
    meta: tuple[tuple[str, str | int | bool], ...]
    #: Where its strings were found, where that was asked for.
    strings: tuple[Place, ...] = ()


def open(
    name: Path,
    *,
    partition: int | str | None = None,
    volume: str | None = None,
    as_user: typing.Sequence[typing.Any] | None = None,
    home: bool = False,
    allow_unrecovered: bool = False,
    completion: str = "polled",
    host_nqn: str | None = None,
    dhchap_key_file: Path | None = None,
    dhchap_ctrl_key_file: Path | None = None,
    tls_key_file: Path | None = None,
    concat: bool = False,
    header_digest: bool = False,
    data_digest: bool = False,
    reconnect_delay: float = 10.0,
    ctrl_loss_tmo: float | None = 600.0,
) -> Drive:
    """Opens a drive by the names that the command takes with ``-d``.

    Args:
        name: An image (raw or qcow2, also as .gz or .zst) or a block device, which are only read;
            ``qcow2:PATH?snapshot=NAME``; ``lvm:PATH?volume=VG/LV``; ``file:PATH``; ``unix:PATH`` of an
            attached drive;
            ``nvme+tcp://HOST:PORT/NQN/NSID`` (with several ``HOST:PORT``, by whichever answers);
            ``vfio-user:PATH``.
        partition: The one that holds the volume, where there are several: its number, its name, or the label
            or UUID of its file system.
        volume: ``VG/LV``, a logical volume of LVM, that is read in the place of all of the image.
        as_user: ``(uid, gid)`` or ``(uid, gid, groups)``, for whom permissions are checked in the place of
            this process.
        home: Show what lies in home locations of a volume that was not unmounted, and not its journal.
        allow_unrecovered: Give what lies in blocks to every user, also where freed blocks may be another
            file's: the word of whoever owns the image.
        completion: ``"polled"``, ``"interrupt"`` or ``"hybrid"``: how the end of a command is learned.
        host_nqn: This host's name, by which a target allows it.
        dhchap_key_file: A file with this host's key, by which it proves who it is; or ``keyring:NAME``, a key that the
            kernel keeps, as of each key here.
        dhchap_ctrl_key_file: A file with the subsystem's key, by which that proves who it is.
        tls_key_file: A file with a TLS key: connections are encrypted, and both ends prove by it who they are.
        concat: Encrypt connections by what the keys of ``dhchap_key_file`` agree on.
        header_digest: Protect headers on the connection.
        data_digest: Protect data on it.
        reconnect_delay: Seconds before a connection that is lost is made again, and from each attempt to the
            next; what is asked goes on where it was. Other addresses are tried at once.
        ctrl_loss_tmo: Seconds after which such a connection is given up; ``None``: never, 0: at once.

    Raises:
        Error: it is not there, or may not be read, or is no drive.

    >>> with nearside.open("disk.img", as_user=(1000, 1000, [4])) as drive:
    ...     drive.read("/etc/hostname")
    b'nearside\\n'
    """
    return Drive(
        name,
        partition=partition,
        volume=volume,
        as_user=as_user,
        home=home,
        allow_unrecovered=allow_unrecovered,
        completion=completion,
        host_nqn=host_nqn,
        dhchap_key_file=dhchap_key_file,
        dhchap_ctrl_key_file=dhchap_ctrl_key_file,
        tls_key_file=tls_key_file,
        concat=concat,
        header_digest=header_digest,
        data_digest=data_digest,
        reconnect_delay=reconnect_delay,
        ctrl_loss_tmo=ctrl_loss_tmo,
    )


def arguments(name: Path, options: typing.Mapping[str, typing.Any]) -> dict[str, typing.Any]:
    """What the library opens a drive by: all of the options of :func:`open`."""
    unknown = options.keys() - _OPTIONS
    if unknown:
        raise TypeError(f"no option of a drive: {', '.join(sorted(unknown))}")
    user = options.get("as_user")
    if user is not None:
        uid, gid, *groups = user
        user = (uid, gid, list(*groups))
    partition = options.get("partition")
    return {
        **_OPTIONS,
        **options,
        "name": os.fsencode(name),
        "as_user": user,
        "partition": None if partition is None else str(partition),
    }


def drives(*names: Path, **options: typing.Any) -> list[str]:
    """The drives that names stand for, each by a name that :func:`open` takes, in the order of these.

    Args:
        names: A folder stands for the images in it (files that end in .img, .raw, .qcow2, .gz and .zst);
            ``discover:HOST[:PORT]``, with port 8009 unless given, for every namespace over TCP that a discovery service
            there lists for this host, as ``nvme+tcp://HOST:PORT/NQN/NSID``; any other name for itself. What is named by
            itself, or was listed before, is not listed again. Referrals to other services are not followed.
        options: Those of :func:`open`, of which ``host_nqn``, ``dhchap_key_file``, ``tls_key_file`` and their kin are for
            a service and for the subsystems that it lists.

    Raises:
        Error: a folder cannot be read, a service or a subsystem does not answer or refuses this host, or there is no
            drive; which, it says.

    >>> nearside.drives("/srv/images", "discover:10.0.0.1", "disk.img")               # doctest: +SKIP
    """
    found = _native.drives([os.fsencode(name) for name in names], arguments("", options))
    return [os.fsdecode(name) for name in found]


def images(folder: Path) -> list[str]:
    """The images in a folder, by their names: files that end in .img, .raw, .qcow2, .gz and .zst.

    Raises:
        Error: the folder cannot be read.
    """
    return [os.fsdecode(name) for name in _native.images(os.fsencode(folder))]


class Drive:
    """An open drive: :func:`nearside.open`, whose arguments it takes.

    Paths are absolute paths in the volume, as text, bytes or path objects; they come as text, of which
    ``os.fsencode`` gives the bytes. Methods that give iterators ask the drive for more when they have no more,
    one command at a time: an iterator that is dropped leaves nothing behind. In a tree, a file that cannot be
    read raises; with ``onerror``, that is called with the error in its place, and the rest is answered.

    Any number of threads may use one drive; up to four commands are carried out at once. After a fork, the
    child opens drives of its own.
    """

    def __init__(self, name: Path, **options: typing.Any) -> None:
        self._native = _native.Drive(arguments(name, options))
        self.name = os.fsdecode(name)

    def close(self) -> None:
        """Ends the sessions with the drive; what other threads ask at that moment raises."""
        self._native.close()

    @property
    def closed(self) -> bool:
        """Whether it is."""
        return self._native.closed

    def __enter__(self) -> Drive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<nearside.Drive {self.name!r}{' (closed)' if self.closed else ''}>"

    def search(
        self,
        pattern: Pattern | typing.Sequence[Pattern],
        path: Path = "/",
        *,
        fixed: bool = False,
        ignore_case: bool = False,
        invert: bool = False,
        word: bool = False,
        line: bool = False,
        only_matching: bool = False,
        max_count: int | None = None,
        before: int = 0,
        after: int = 0,
        binary: str = "text",
        null_data: bool = False,
        decompress: bool = False,
        include: typing.Iterable[Pattern] = (),
        exclude: typing.Iterable[Pattern] = (),
        max_depth: int | None = None,
        onerror: OnError | None = None,
    ) -> typing.Iterator[Match]:
        """Lines that match, in a file or in every file below a directory.

        Args:
            pattern: In the syntax of Rust's regex crate; of several, a line matches any. One of bytes is over
                bytes, without Unicode.
            path: A file, or a directory.
            fixed: Patterns are texts.
            ignore_case: As Unicode folds it.
            invert: Lines that do not match.
            word: Only matches with no word character before and after them.
            line: Only matches of whole lines.
            only_matching: What matched, in the place of the lines.
            max_count: Most lines of a file.
            before: Lines of context before a match, whose ``context`` is true.
            after: Lines of context after a match.
            binary: ``"text"``: files with NULs are searched as others. ``"skip"``: they have no lines.
            null_data: Lines end in NUL, and a newline is a byte as any.
            decompress: Files that gzip, xz or zstd have made are searched in what they hold.
            include: Globs: only files whose names match; with a ``/``, the path below ``path``.
            exclude: Globs: not these, directories with all below them.
            max_depth: Deepest level below ``path``, which is 0.
            onerror: Called with the error of a file that cannot be read.

        >>> [match.number for match in drive.search("ERROR", "/var/log", include=["*.log"])]
        [2]
        """
        patterns = [pattern] if isinstance(pattern, (str, bytes)) else list(pattern)
        arguments = {
            "patterns": [_bytes(one) for one in patterns],
            "fixed": fixed,
            "bytes": any(isinstance(one, bytes) for one in patterns),
            "ignore_case": ignore_case,
            "invert": invert,
            "word": word,
            "line": line,
            "max_count": max_count,
            "binary": binary,
            "null_data": null_data,
            "decompress": decompress,
            "before": before,
            "after": after,
            "only_matching": only_matching,
        }
        return self._native.search(_tree(path, include, exclude, max_depth, onerror), arguments)

    def ls(self, path: Path = "/") -> list[Entry]:
        """A directory's entries.

        >>> [entry.name for entry in drive.ls("/var")]
        ['data', 'log']
        """
        return list(self.scandir(path))

    def scandir(self, path: Path = "/") -> typing.Iterator[Entry]:
        """A directory's entries, one after the other."""
        return self._native.list(os.fsencode(path))

    def find(
        self,
        path: Path = "/",
        *,
        include: typing.Iterable[Pattern] = (),
        exclude: typing.Iterable[Pattern] = (),
        max_depth: int | None = None,
        onerror: OnError | None = None,
    ) -> typing.Iterator[Entry]:
        """A directory and everything below it, by path. Globs, as in :meth:`search`, say which files are
        meant; directories come in any case, but those that are excluded.

        >>> [entry.path for entry in drive.find("/var", include=["trips*"]) if entry.kind == "file"]
        ['/var/data/trips.csv']
        """
        return self._native.find(_tree(path, include, exclude, max_depth, onerror))

    def walk(
        self, top: Path = "/", *, onerror: OnError | None = None
    ) -> typing.Iterator[tuple[str, list[str], list[str]]]:
        """As :func:`os.walk`, from the top down: what is taken out of the directories is not gone into."""
        above = [os.fsdecode(top)]
        while above:
            path = above.pop()
            directories: list[str] = []
            files: list[str] = []
            try:
                for entry in self.scandir(path):
                    (directories if entry.kind == "directory" else files).append(entry.name)
            except OSError as error:
                if onerror is not None:
                    onerror(error)
                continue
            yield path, directories, files
            base = path if path.endswith("/") else path + "/"
            above.extend(base + name for name in reversed(directories))

    def stat(self, path: Path, *, follow: bool = False) -> Entry:
        """What is known of a path; with ``follow``, of where a symbolic link leads.

        >>> drive.stat("/etc/hostname").size
        9
        """
        return _one(self._native.stat(os.fsencode(path), follow))

    def exists(self, path: Path) -> bool:
        """Whether a path leads somewhere."""
        try:
            self.stat(path, follow=True)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file: as many as there are, from ``offset`` on.

        >>> drive.read("/etc/hostname", 4, 4)
        b'side'
        """
        if offset < 0 or (length is not None and length < 0):
            raise ValueError("a place or a length below 0")
        return self._native.read(os.fsencode(path), offset, _ALL if length is None else length)

    @typing.overload
    def open(self, path: Path, mode: typing.Literal["rb"] = ..., *, buffering: int = ...) -> typing.BinaryIO: ...
    @typing.overload
    def open(
        self,
        path: Path,
        mode: typing.Literal["r", "rt"],
        *,
        buffering: int = ...,
        encoding: str | None = ...,
        errors: str | None = ...,
        newline: str | None = ...,
    ) -> typing.TextIO: ...
    def open(
        self,
        path: Path,
        mode: str = "rb",
        *,
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> typing.Any:
        """A file as Python's own are: read and looked for a place in, and closed.

        Args:
            path: The file.
            mode: ``"rb"``, or ``"r"`` for text.
            buffering: Bytes of its buffer; 0: none.
            encoding: Of text; UTF-8 where nothing is said.
            errors: Of text, as the built-in ``open`` has it.
            newline: Of text, as the built-in ``open`` has it.

        >>> with drive.open("/var/log/app.log", "r") as file:
        ...     file.readline()
        'INFO all is well\\n'
        """
        if mode not in ("r", "rt", "rb", "br"):
            raise ValueError(f"mode {mode!r}: a drive's files are read (r, rb)")
        raw = DriveFile(self, os.fsdecode(path))
        if buffering == 0:
            if "b" not in mode:
                raise ValueError("text has a buffer")
            return raw
        file = io.BufferedReader(raw, buffering if buffering > 1 else _BUFFER)
        return file if "b" in mode else io.TextIOWrapper(file, encoding or "utf-8", errors, newline)

    def count(self, path: Path) -> Count:
        """Lines, words and bytes of a file, counted in the drive.

        >>> drive.count("/var/log/app.log")
        Count(lines=3, words=11, bytes=48)
        """
        return Count(*_one(self._native.value(os.fsencode(path), None))[1])

    def counts(
        self,
        path: Path = "/",
        *,
        include: typing.Iterable[Pattern] = (),
        exclude: typing.Iterable[Pattern] = (),
        max_depth: int | None = None,
        onerror: OnError | None = None,
    ) -> typing.Iterator[tuple[str, Count]]:
        """The same of every file below a directory, each with its path."""
        tree = _tree(path, include, exclude, max_depth, onerror)
        return ((path, Count(*count)) for path, count in self._native.values(tree, None))

    def cksum(self, path: Path, algorithm: str = "sha256") -> bytes:
        """A checksum of a file, made in the drive: ``"sha256"``, ``"xxh3"`` or ``"crc32c"``.

        >>> drive.cksum("/etc/hostname", "crc32c").hex()
        '79601f8e'
        """
        return _one(self._native.value(os.fsencode(path), algorithm))[1]

    def cksums(
        self,
        path: Path = "/",
        algorithm: str = "sha256",
        *,
        include: typing.Iterable[Pattern] = (),
        exclude: typing.Iterable[Pattern] = (),
        max_depth: int | None = None,
        onerror: OnError | None = None,
    ) -> typing.Iterator[tuple[str, bytes]]:
        """The same of every file below a directory, each with its path."""
        return self._native.values(_tree(path, include, exclude, max_depth, onerror), algorithm)

    def select(
        self,
        *paths: Path,
        columns: str | typing.Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        group_by: str | typing.Sequence[str] | None = None,
        aggregate: str | typing.Sequence[str] | None = None,
        recursive: bool = False,
        include: typing.Iterable[Pattern] = (),
        format: str | None = None,
        schema: str | typing.Mapping[str, str] | None = None,
        header: bool = True,
        delimiter: str | None = None,
        quote: str | None = '"',
        skip_bad: bool = False,
        onerror: OnError | None = None,
    ) -> Selection:
        """Rows of CSV, TSV, JSON-lines or Parquet files, chosen in the drive, or what is made of groups of them.

        Args:
            paths: Files; with ``recursive``, every file below directories, of those that match ``include``.
            columns: Which, as names or as text with commas; all of them where nothing is said.
            where: Only rows for which this is true.
            limit: Most rows of the answer.
            group_by: Put rows together that are alike in these columns.
            aggregate: What to make of them: ``count(*)``, ``count``, ``sum``, ``min``, ``max``, ``avg``.
            format: ``"csv"``, ``"tsv"``, ``"jsonl"`` or ``"parquet"``; by the first path's name where nothing is said.
            schema: Types of columns: ``bool``, ``int64``, ``float64``, ``date``, ``timestamp``, ``utf8``.
            header: The first row has names.
            delimiter: The character between fields.
            quote: The character around fields; ``None``: none is.
            skip_bad: Pass over rows that are not as the others (:attr:`Selection.skipped`).
            onerror: Called with the error of a file that cannot be read, or does not fit.

        >>> drive.select("/var/data/trips.csv", columns=["city"], where="price > 10").to_arrow().to_pydict()
        {'city': ['Bern', 'Basel']}
        """
        if not paths:
            raise TypeError("no path is named")
        names = [os.fsencode(path) for path in paths]
        if isinstance(schema, typing.Mapping):
            schema = ", ".join('"%s" %s' % (name.replace('"', '""'), kind) for name, kind in schema.items())
        arguments = {
            "paths": names,
            "recursive": recursive,
            "include": [_bytes(glob) for glob in include],
            "columns": columns if columns is None or isinstance(columns, str) else list(columns),
            "condition": where,
            "limit": limit,
            "group_by": group_by if group_by is None or isinstance(group_by, str) else list(group_by),
            "aggregate": aggregate if aggregate is None or isinstance(aggregate, str) else list(aggregate),
            "format": format or _format(names[0]),
            "schema": schema,
            "header": header,
            "delimiter": None if delimiter is None else _character("delimiter", delimiter),
            "quote": None if quote is None else _character("quote", quote),
            "skip_bad": skip_bad,
            "onerror": onerror,
        }
        return Selection(self._native.select(arguments))

    def run(
        self,
        program: bytes | str | os.PathLike[str],
        path: Path,
        *,
        parameters: bytes = b"",
        fuel: int | None = None,
        recursive: bool = False,
        include: typing.Iterable[Pattern] = (),
        exclude: typing.Iterable[Pattern] = (),
        max_depth: int | None = None,
        onerror: OnError | None = None,
    ) -> typing.Iterator[tuple[str, bytes]]:
        """Has the drive run a program of WebAssembly over a file, and gives what it emits: of each record the
        path of the file that it is about, and its bytes.

        Args:
            program: The module, as bytes; or its path in the volume.
            path: A file; with ``recursive``, every file below a directory, of those that match.
            parameters: What the program is told.
            fuel: Instructions, about, that it may take for a file: 10^9, and 1000 for each byte of it.
            recursive: Every file below a directory, each with a run of its own.
            include: Globs, as in :meth:`search`.
            exclude: Globs, as in :meth:`search`.
            max_depth: As in :meth:`search`.
            onerror: Called with the error of a file over which the program fails, or that cannot be read.

        >>> list(drive.run("/etc/echo.wasm", "/etc/hostname", parameters=b"told"))
        [('/etc/hostname', b'told'), ('/etc/hostname', b'nearside\\n')]
        """
        stored = not isinstance(program, bytes)
        arguments = {
            "program": os.fsencode(program) if stored else program,
            "stored": stored,
            "rules": False,
            "parameters": parameters,
            "fuel": 0 if fuel is None else fuel,
        }
        tree = _tree(path, include, exclude, max_depth, onerror)
        return self._native.run(tree, arguments, recursive)

    def yara(
        self,
        rules: str | bytes | os.PathLike[str],
        path: Path,
        *,
        strings: bool = False,
        variables: typing.Mapping[str, bool | int | float | str | bytes] | None = None,
        timeout: float | None = None,
        recursive: bool = False,
        include: typing.Iterable[Pattern] = (),
        exclude: typing.Iterable[Pattern] = (),
        max_depth: int | None = None,
        onerror: OnError | None = None,
    ) -> typing.Iterator[Rule]:
        """Has the drive match rules of YARA against a file, and gives the rules that match.

        Args:
            rules: Their text, or a gzip of it as bytes; or, as a ``PathLike``, where they are in the volume. They include
                no other file.
            path: A file; with ``recursive``, every file below a directory, of those that match.
            strings: Say where strings of the rules were found as well.
            variables: The rules' external variables, and their values; ``True`` is the integer 1, as YARA's.
            timeout: Seconds after which a file is given up: 1, and 1 more for each MB of it.
            recursive: Every file below a directory.
            include: Globs, as in :meth:`search`.
            exclude: Globs, as in :meth:`search`.
            max_depth: As in :meth:`search`.
            onerror: Called with the error of a file that cannot be read or matched.

        >>> rules = 'rule named { strings: $a = "near" condition: $a at 0 }'
        >>> [(found.path, found.name) for found in drive.yara(rules, "/etc/hostname")]
        [('/etc/hostname', 'named')]
        """
        stored = isinstance(rules, os.PathLike)
        arguments = {
            "program": os.fsencode(rules) if stored else gzip.compress(rules.encode()) if isinstance(rules, str) else rules,
            "stored": stored,
            "rules": True,
            "parameters": _native.rule_parameters(strings, list((variables or {}).items())),
            "fuel": 0 if timeout is None else max(1, int(timeout * 1e9)),
        }
        tree = _tree(path, include, exclude, max_depth, onerror)
        return _matched(self._native.run(tree, arguments, recursive))

    def gather(
        self,
        path: Path,
        rows: typing.Iterable[int],
        *,
        pooling: str | None = None,
        bags: typing.Iterable[int] | None = None,
        weights: typing.Iterable[float] | None = None,
        dtype: str | None = None,
        columns: int = 0,
        scale: float = 1.0,
        raw: bool = False,
    ) -> typing.Any:
        """Rows of a table of numbers (NumPy's .npy, or raw), or what is made of bags of them: an embedding's.

        Args:
            path: The table.
            rows: Their numbers, from 0.
            pooling: ``"sum"``, ``"mean"`` or ``"weighted"``: one row for each bag.
            bags: How many of the rows are in each; all are in one where nothing is said.
            weights: One for each row, with ``"weighted"``.
            dtype: ``"f32"``, ``"f16"``, ``"bf16"`` or ``"i8"`` of a file without a header.
            columns: How many numbers are in a row of it.
            scale: What each number is multiplied by.
            raw: Bytes in the place of an array: single precision, little-endian.

        Returns:
            A NumPy array of two axes, of float32.

        >>> drive.gather("/var/data/table.npy", [2, 0]).tolist()
        [[4.0, 5.0], [0.0, 1.0]]
        """
        arguments = {
            "path": os.fsencode(path),
            "table": _table(dtype, columns, scale),
            "pooling": pooling,
            "rows": _list(rows),
            "bags": None if bags is None else _list(bags),
            "weights": None if weights is None else _list(weights),
        }
        count, data = self._native.gather(arguments)
        if raw:
            return data
        import numpy

        width = len(data) // 4 // count if count else 0
        return numpy.frombuffer(data, "<f4").reshape(count, width)

    def nearest(
        self,
        path: Path,
        query: typing.Iterable[float],
        count: int = 10,
        *,
        measure: str = "inner product",
        dtype: str | None = None,
        columns: int = 0,
        scale: float = 1.0,
    ) -> list[tuple[int, float]]:
        """The rows of a table of numbers that are nearest to a query, the nearest first.

        Args:
            path: The table, as in :meth:`gather`.
            query: As many numbers as a row has.
            count: How many rows.
            measure: ``"inner product"``, or ``"l2"`` for the square of the Euclidean distance.
            dtype: As in :meth:`gather`.
            columns: As in :meth:`gather`.
            scale: As in :meth:`gather`.

        Returns:
            Of each row its number, from 0, and its score.

        >>> drive.nearest("/var/data/table.npy", [1.0, 0.0], 1)
        [(2, 4.0)]
        """
        if measure not in ("inner product", "l2"):
            raise ValueError(f"measure {measure!r} is neither 'inner product' nor 'l2'")
        arguments = {
            "path": os.fsencode(path),
            "table": _table(dtype, columns, scale),
            "query": _list(query),
            "count": count,
            "l2": measure == "l2",
        }
        return self._native.nearest(arguments)

    def volumes(self) -> list[dict[str, typing.Any]]:
        """What the volume is: of several, each. ``"warnings"`` are what a user should know of it.

        >>> drive.volumes()[0]["file_system"]
        'ext4'
        """
        return self._native.volumes()


def _one(answer: typing.Iterator[typing.Any]) -> typing.Any:
    for value in answer:
        return value
    raise Error(errno.EIO, "the drive's answer lacks what was asked for")


def _bytes(text: Pattern) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def _matched(records: typing.Iterator[tuple[str, bytes]]) -> typing.Iterator[Rule]:
    """The rules, each with the places that are said behind it."""
    rule: Rule | None = None
    places: list[Place] = []
    for path, record in records:
        said = json.loads(record)
        if "string" in said:
            places.append(Place(said["string"], said["offset"], said["length"], base64.b64decode(said["data"])))
            continue
        if rule is not None:
            yield rule._replace(strings=tuple(places))
        meta = tuple((name, value) for name, value in said["meta"])
        rule, places = Rule(path, said["rule"], said["namespace"], tuple(said["tags"]), meta), []
    if rule is not None:
        yield rule._replace(strings=tuple(places))


def _tree(
    path: Path,
    include: typing.Iterable[Pattern],
    exclude: typing.Iterable[Pattern],
    max_depth: int | None,
    onerror: OnError | None,
) -> dict[str, typing.Any]:
    if isinstance(include, (str, bytes)) or isinstance(exclude, (str, bytes)):
        raise TypeError("include and exclude are lists of globs")
    return {
        "root": os.fsencode(path),
        "include": [_bytes(glob) for glob in include],
        "exclude": [_bytes(glob) for glob in exclude],
        "max_depth": max_depth,
        "onerror": onerror,
    }


def _table(dtype: str | None, columns: int, scale: float) -> dict[str, typing.Any]:
    return {"element": dtype, "columns": columns, "scale": scale}


def _list(values: typing.Any) -> list[typing.Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _character(option: str, text: str) -> int:
    if len(text) != 1 or not text.isascii() or text in "\r\n":
        raise ValueError(f"{option}: one ASCII character is wanted")
    return ord(text)


def _format(path: bytes) -> str:
    path = path.lower()
    if path.endswith((b".jsonl", b".ndjson", b".json")):
        return "jsonl"
    if path.endswith((b".parquet", b".parq", b".pq")):
        return "parquet"
    return "tsv" if path.endswith((b".tsv", b".tab")) else "csv"
