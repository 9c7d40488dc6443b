"""A drive that understands files.

>>> import nearside
>>> with nearside.open("disk.img") as drive:                       # doctest: +SKIP
...     for match in drive.search("ERROR", "/var/log"):
...         print(match.path, match.number, match.text)

:func:`open` takes the names that the command ``nearside`` takes, and gives a :class:`Drive`; :func:`drives` are those that a
folder has, or that a discovery service lists.
"""

from __future__ import annotations

from ._drive import Count, Drive, Path, Place, Rule, drives, images, open
from ._native import Entry, Match
from ._select import Selection
from .errors import (
    ClosedError,
    DamagedError,
    DeniedError,
    DriveWarning,
    Error,
    IsDirectoryError,
    NotDirectoryError,
    NotFoundError,
    PatternError,
    RequestError,
    TableError,
    UnstableWarning,
    UnsupportedError,
    VolumeError,
)

__all__ = [
    "ClosedError",
    "Count",
    "DamagedError",
    "DeniedError",
    "Drive",
    "DriveWarning",
    "Entry",
    "Error",
    "IsDirectoryError",
    "Match",
    "NotDirectoryError",
    "NotFoundError",
    "Path",
    "PatternError",
    "Place",
    "RequestError",
    "Rule",
    "Selection",
    "TableError",
    "UnstableWarning",
    "UnsupportedError",
    "VolumeError",
    "drives",
    "images",
    "open",
]
