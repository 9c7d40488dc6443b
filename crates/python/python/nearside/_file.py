"""A file of a volume, as Python's own files are: read, and looked for a place in."""

from __future__ import annotations

import io
import typing

if typing.TYPE_CHECKING:
    from ._drive import Drive


class DriveFile(io.RawIOBase):
    """Reads a file of a drive, each time by a command. :meth:`Drive.open` puts a buffer before it."""

    def __init__(self, drive: Drive, path: str) -> None:
        self._drive = drive
        self._at = 0
        # Opened by a path that leads to a file that may be read, or not at all.
        self._size = drive.stat(path, follow=True).size
        drive.read(path, 0, 0)
        self.name = path
        self.mode = "rb"

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check()
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check()
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}.get(whence)
        if start is None:
            raise ValueError(f"whence {whence} is none")
        if start + offset < 0:
            raise ValueError("a place before the file's first byte")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: typing.Any) -> int:
        self._check()
        room = memoryview(buffer).cast("B")
        data = self._drive.read(self.name, self._at, len(room))
        room[: len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        self._check()
        data = self._drive.read(self.name, self._at)
        self._at += len(data)
        return data

    def _check(self) -> None:
        if self.closed:
            raise ValueError("the file is closed")
