"""SQL over drives that understand files, and their tables for Python's DataFusion.

>>> import nearside_sql
>>> drives = nearside_sql.open("disk.img")
>>> drives.sql("select city, price from csv('/var/data/trips.csv') where price > 10 order by price").read_all().to_pydict()
{'city': ['Bern', 'Basel'], 'price': [12.5, 30.0]}

What a drive can do exactly (columns, conditions, limits, groups) it does, and the rest is done here: docs/SQL.md has
the tables, their options, and what is worked out where. The same tables for a session of DataFusion's, beside others of
it; there groups are made by that session, of the rows that drives answer::

    >>> import datafusion
    >>> session = datafusion.SessionContext()
    >>> drives.register(session)
    >>> session.register_table("trips", drives.csv("/var/data/trips.csv"))
    >>> session.sql("select count(*) as n from trips where city like 'B%'").to_pydict()
    {'n': [3]}
"""

from __future__ import annotations

import atexit
import os
import typing

import nearside
import pyarrow
from nearside._drive import arguments

from . import _tables

if typing.TYPE_CHECKING:
    import datafusion

__all__ = ["Answer", "Drives", "Function", "Table", "open"]

atexit.register(_tables.at_exit)


def _fits() -> None:
    """Whether the DataFusion that is there lays out what is handed over as this package does."""
    import datafusion

    version = datafusion.__version__
    if version.split(".")[0] != str(_tables.DATAFUSION):
        raise RuntimeError(f"tables are for datafusion {_tables.DATAFUSION}, and {version} is installed")


class Table:
    """A table of drives: ``SessionContext.register_table`` takes it, and ``read_table``."""

    def __init__(self, native: _tables.Table) -> None:
        self._native = native

    def __datafusion_table_provider__(self, session: typing.Any) -> object:
        """As DataFusion takes it."""
        _fits()
        return self._native.capsule(session)


class Function:
    """A function that makes tables: ``datafusion.udtf`` takes it."""

    def __init__(self, native: _tables.Function) -> None:
        self._native = native

    def __datafusion_table_function__(self, session: typing.Any) -> object:
        """As DataFusion takes it."""
        _fits()
        return self._native.capsule(session)


class Answer:
    """What a query answers: an iterator of ``pyarrow.RecordBatch``, or all of it at once.

    What reads Arrow's streams takes it as it is: ``polars.DataFrame(answer)``, ``duckdb.from_arrow(answer)``. What is
    not read is not worked out; one that is dropped ends its query.
    """

    def __init__(self, native: _tables.Answer) -> None:
        self._native = native
        self._reader = pyarrow.RecordBatchReader.from_stream(native)

    @property
    def schema(self) -> pyarrow.Schema:
        """Names and types of the columns."""
        return self._reader.schema

    def __iter__(self) -> Answer:
        return self

    def __next__(self) -> pyarrow.RecordBatch:
        return self._read(self._reader.read_next_batch)

    def read_all(self) -> pyarrow.Table:
        """All rows that have not been read yet."""
        return self._read(self._reader.read_all)

    def read_pandas(self, **options: typing.Any) -> typing.Any:
        """The same as a frame of pandas'; with the options of ``pyarrow.Table.to_pandas``."""
        return self.read_all().to_pandas(**options)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """As the Arrow PyCapsule interface has it."""
        return self._reader.__arrow_c_stream__(requested_schema)

    def _read(self, read: typing.Callable[[], typing.Any]) -> typing.Any:
        try:
            return read()
        except pyarrow.ArrowException as error:
            # pyarrow has a text of it.
            raise self._native.failure() or error from None


class Drives:
    """Drives that are asked together: :func:`nearside_sql.open`.

    With several of them each table has a part of each, and a last column ``drive``, the name as it was given, or as
    :func:`nearside.drives` has it of a name that stands for many.
    """

    def __init__(
        self,
        *names: nearside.Path,
        unreadable: str = "raise",
        push_down: bool = True,
        **options: typing.Any,
    ) -> None:
        if not names:
            raise TypeError("which drive?")
        if unreadable not in ("raise", "ignore"):
            raise ValueError(f"unreadable: {unreadable!r} is neither 'raise' nor 'ignore'")
        self.names = nearside.drives(*names, **options)
        # As rows have it: a byte of a name that is no UTF-8 is \\xNN.
        shown = [os.fsencode(name).decode("utf-8", "backslashreplace") for name in self.names]
        if len(set(shown)) < len(shown):
            raise ValueError("a drive is named twice")
        each = [(one, arguments(name, options)) for one, name in zip(shown, self.names)]
        self._native = _tables.Drives(each, unreadable == "ignore", push_down)

    def __repr__(self) -> str:
        return f"<nearside_sql.Drives {', '.join(self.names)}>"

    def sql(self, query: str, *, memory: int = 1 << 30) -> Answer:
        """What a query answers, batch by batch as it comes: ``read_all()`` for a table, ``read_pandas()`` for a frame.

        Args:
            query: SELECT, EXPLAIN or SHOW, in DataFusion's dialect; nothing of this host is read or written.
            memory: Most bytes for what is sorted or put into groups here; beyond them temporary files are used.
        """
        return Answer(self._native.sql(query, memory))

    def files(self) -> Table:
        """What is known of every file, directory and link of the volumes."""
        return Table(self._native.files())

    def lines(self, path: str, *options: str) -> Table:
        """Lines of text files: of one, of those that a pattern matches, or of all below ``/directory/**``."""
        return self._table("lines", path, options)

    def csv(self, path: str, *options: str) -> Table:
        """Rows of CSV; options are those of SQL's function: ``"no-header"``, ``"delimiter=;"``, ``"schema=id utf8"``."""
        return self._table("csv", path, options)

    def tsv(self, path: str, *options: str) -> Table:
        """The same with tabs between fields."""
        return self._table("tsv", path, options)

    def json(self, path: str, *options: str) -> Table:
        """JSON lines: an object each."""
        return self._table("json", path, options)

    def parquet(self, path: str, *options: str) -> Table:
        """Rows of Parquet."""
        return self._table("parquet", path, options)

    def _table(self, function: str, path: str, options: typing.Sequence[str]) -> Table:
        return Table(self._native.table(function, [path, *options]))

    def functions(self) -> dict[str, Function]:
        """The functions that make tables in queries, by their names, for ``datafusion.udtf``."""
        return {name: Function(function) for name, function in self._native.functions()}

    def register(self, session: datafusion.SessionContext, prefix: str = "") -> None:
        """Gives a session of DataFusion's the table ``files`` and the functions, behind ``prefix`` each."""
        import datafusion

        session.register_table(f"{prefix}files", self.files())
        for name, function in self.functions().items():
            session.register_udtf(datafusion.udtf(function, f"{prefix}{name}"))


def open(
    *names: nearside.Path,
    unreadable: str = "raise",
    push_down: bool = True,
    **options: typing.Any,
) -> Drives:
    """Drives to be asked together. Each scan of a query has a session of its own; an image is held open from the first on.

    Args:
        names: As :func:`nearside.drives` takes them: a drive's; a folder, which is all images in it; or
            ``discover:HOST[:PORT]``, which is every namespace that a discovery service there lists for this host.
        unreadable: ``"raise"``: a file that cannot be read ends its query; ``"ignore"``: it is warned of
            (:class:`nearside.DriveWarning`) and left out.
        push_down: Conditions, limits and groups go to the drives; without it they answer rows: to compare.
        options: What else :func:`nearside.open` takes: ``as_user``, ``partition``, ``tls_key_file``...
    """
    return Drives(*names, unreadable=unreadable, push_down=push_down, **options)
