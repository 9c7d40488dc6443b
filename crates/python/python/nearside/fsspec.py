"""Files in volumes for whatever reads by fsspec: pandas, polars, pyarrow, dask.

``nearside:///PATH`` is a path in the volume of the drive that the option ``drive`` names, or the variable
``NEARSIDE_DRIVE``, as for the command; ``nearside:///PATH::IMAGE`` one in an image::

    pandas.read_csv("nearside:///var/data/trips.csv", storage_options={"drive": "unix:/run/drive.sock"})
    pandas.read_csv("nearside:///var/data/trips.csv::disk.img")

All options of :func:`nearside.open` are options here.
"""

from __future__ import annotations

import os
import threading
import typing
from datetime import datetime, timezone

import fsspec
from fsspec.spec import AbstractBufferedFile

from ._drive import _OPTIONS, Drive


class NearsideFileSystem(fsspec.AbstractFileSystem):
    """The volume of a drive. It is only read."""

    protocol = "nearside"
    root_marker = "/"

    def __init__(
        self,
        drive: typing.Any = None,
        fo: typing.Any = None,
        target_protocol: str | None = None,
        target_options: dict[str, typing.Any] | None = None,
        **options: typing.Any,
    ) -> None:
        ours = {name for name in options if name in _OPTIONS}
        super().__init__(**{name: value for name, value in options.items() if name not in ours})
        if target_protocol not in (None, "file", "local"):
            raise ValueError(f"a drive's image is a file of this machine, and not of {target_protocol!r}")
        name = drive or fo or os.environ.get("NEARSIDE_DRIVE")
        if not name:
            raise ValueError("which drive: the option `drive`, or NEARSIDE_DRIVE")
        self._name, self._options = name, {option: options[option] for option in ours}
        self._drive: Drive | None = name if isinstance(name, Drive) else None
        self._opening = threading.Lock()

    @property
    def drive(self) -> Drive:
        """The drive, opened when it is first asked."""
        with self._opening:
            if self._drive is None:
                self._drive = Drive(self._name, **self._options)
            return self._drive

    @classmethod
    def _strip_protocol(cls, path: typing.Any) -> typing.Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        if path.startswith("nearside:"):
            path = path[len("nearside:") :]
            path = path[2:] if path.startswith("//") else path
        return "/" + path.strip("/")

    def ls(self, path: str, detail: bool = True, **_: typing.Any) -> typing.Any:
        path = self._strip_protocol(path)
        try:
            entries = [self._info(entry) for entry in self.drive.scandir(path)]
        except NotADirectoryError:
            entries = [self.info(path)]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_: typing.Any) -> dict[str, typing.Any]:
        return self._info(self.drive.stat(self._strip_protocol(path)))

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **options: typing.Any,
    ) -> typing.Any:
        path = self._strip_protocol(path)
        if options.get("prefix"):
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **options)
        found = {}
        try:
            for entry in self.drive.find(path, max_depth=maxdepth, onerror=_pass_over):
                info = self._info(entry)
                if withdirs or info["type"] != "directory":
                    found[info["name"]] = info
        except FileNotFoundError:
            pass
        names = sorted(found)
        return {name: found[name] for name in names} if detail else names

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: typing.Any
    ) -> bytes:
        path, first, length = self._strip_protocol(path), start or 0, None
        if first < 0 or (end is not None and end < 0):
            size = self.drive.stat(path, follow=True).size
            first = max(0, first + size) if first < 0 else first
            end = max(0, end + size) if end is not None and end < 0 else end
        if end is not None:
            length = max(0, end - first)
        return self.drive.read(path, first, length)

    def _open(self, path: str, mode: str = "rb", **options: typing.Any) -> NearsideFile:
        if mode != "rb":
            raise NotImplementedError("a drive's files are only read")
        options.pop("autocommit", None)
        return NearsideFile(self, path, mode, **options)

    def created(self, path: str) -> datetime | None:
        ns = self.drive.stat(self._strip_protocol(path), follow=True).birthtime_ns
        return None if ns is None else datetime.fromtimestamp(ns / 1e9, tz=timezone.utc)

    def modified(self, path: str) -> datetime:
        ns = self.drive.stat(self._strip_protocol(path), follow=True).mtime_ns
        return datetime.fromtimestamp(ns / 1e9, tz=timezone.utc)

    def ukey(self, path: str) -> str:
        entry = self.drive.stat(self._strip_protocol(path), follow=True)
        return f"{entry.ino}-{entry.size}-{entry.mtime_ns}-{entry.ctime_ns}"

    def _info(self, entry: typing.Any) -> dict[str, typing.Any]:
        path = entry.path
        info = {"name": path, "islink": entry.kind == "link"}
        if entry.kind == "link":
            info["destination"] = entry.target
            try:
                entry = self.drive.stat(path, follow=True)
            except OSError:
                # It leads nowhere, or where its user may not go.
                pass
        info.update(
            size=entry.size,
            type=entry.kind,
            ino=entry.ino,
            mode=entry.mode,
            uid=entry.uid,
            gid=entry.gid,
            nlink=entry.nlink,
            mtime=entry.mtime_ns / 1e9,
        )
        return info


def _pass_over(error: Exception) -> None:
    """As fsspec does with directories that the user may not read; a drive that fails is no smaller tree."""
    if not isinstance(error, (PermissionError, FileNotFoundError)):
        raise error


class NearsideFile(AbstractBufferedFile):
    """A file of a volume, with fsspec's caches before it."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs.drive.read(self.path, start, end - start)
