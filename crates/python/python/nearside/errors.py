"""What is raised, and what is warned of.

Every error is a :class:`Error`, which is an :class:`OSError`: ``errno`` says what it means to the system, and
``filename`` is the path in the volume, where it is about one. Those that Python has a class for are of that
class as well::

    try:
        drive.read("/etc/shadow")
    except PermissionError as error:
        print(error.filename)
"""

from __future__ import annotations


class Error(OSError):
    """What a drive, or the way to it, could not do."""


class NotFoundError(Error, FileNotFoundError):
    """No such file or directory, drive, partition or volume."""


class DeniedError(Error, PermissionError):
    """The user may not have that."""


class IsDirectoryError(Error, IsADirectoryError):
    """A directory where a file is due."""


class NotDirectoryError(Error, NotADirectoryError):
    """A file where a directory is due."""


class RequestError(Error, ValueError):
    """A question that makes no sense: a path that is not absolute, a word that is none."""


class PatternError(Error, ValueError):
    """A pattern that does not compile."""


class TableError(Error, ValueError):
    """A file that is no such table, has no such row, or does not fit the files before it."""


class DamagedError(Error):
    """A volume that contradicts itself, or a file that is not what its form says, as a row unlike the others."""


class UnsupportedError(Error):
    """A feature of a file system's that the drive does not understand."""


class VolumeError(Error):
    """No volume that is known, or more than one."""


class ClosedError(ValueError):
    """The drive is closed."""


class DriveWarning(UserWarning):
    """What a user of the drive should know."""


class UnstableWarning(DriveWarning):
    """What lies in a file's blocks may be another's: the volume's medium promises no more."""
