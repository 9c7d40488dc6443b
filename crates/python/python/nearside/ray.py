"""Questions to many drives at once, by Ray: each drive computes, and what it answers is a Ray dataset.

>>> import nearside.ray                                                          # doctest: +SKIP
>>> drives = ["nvme+tcp://10.0.0.1:4420,10.0.1.1:4420/nqn.2026-11.example:a/1", "/srv/images/b.img"]
>>> drives += ["discover:10.0.2.1"]                                              # doctest: +SKIP
>>> errors = nearside.ray.search(drives, "ERROR", "/var/log")                    # doctest: +SKIP
>>> errors.groupby("drive").count().show()                                       # doctest: +SKIP
>>> trips = nearside.ray.select(drives, "/var/data/trips.parquet")               # doctest: +SKIP
>>> trips.filter(expr=ray.data.expressions.col("price") > 10).select_columns(["drive", "city"]).show()  # doctest: +SKIP

Of a name that stands for many drives (a folder, or a discovery service: :func:`nearside.drives`) each is asked. A drive
and a path of it are one task of Ray's, where it has as many CPUs; where it has fewer, a task asks several drives at a
time, since it is drives that work. Filters and chosen columns that follow go into the drives, as far as a
condition of :meth:`nearside.Drive.select` can say them; the rest stays Ray's. No drive is missing from an answer in
silence: one that fails, or from which nothing comes for a time, is asked once more, by its next address where it has
several; then there is no answer but a :class:`DriveError`, which names it. So it is where a file cannot be read.
"""

from __future__ import annotations

import collections
import os
import queue
import threading
import time
import typing

import pyarrow
import pyarrow.compute
import ray.data
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata
from ray.data.expressions import BinaryExpr, ColumnExpr, Expr, LiteralExpr, Operation, UnaryExpr

from . import _drive
from ._drive import Drive, Path, images

#: Rows of a block.
_ROWS = 16_384
#: Drives that a task asks at a time.
_AT_A_TIME = 64
#: The column that says from which drive a row is.
_DRIVE = "drive"


class DriveError(Exception):
    """A drive of several could not be asked; which, and why."""

    def __init__(self, drive: str, why: str) -> None:
        super().__init__(drive, why)
        self.drive = drive
        self.why = why

    def __str__(self) -> str:
        return f"{self.drive}: {self.why}"


def select(
    drives: typing.Iterable[str],
    *paths: Path,
    columns: typing.Sequence[str] | None = None,
    where: str | None = None,
    recursive: bool = False,
    timeout: float = 300.0,
    retries: int = 1,
    unreadable: str = "raise",
    options: typing.Mapping[str, typing.Any] | None = None,
    **how: typing.Any,
) -> ray.data.Dataset:
    """Rows of files of many drives, as :meth:`nearside.Drive.select` chooses them, each with its ``drive``.

    Args:
        drives: Names as :func:`nearside.drives` takes them: of one drive each, or a folder, or ``discover:HOST[:PORT]``.
        paths: Files; with ``recursive``, trees. Each path of each drive is a task.
        columns: Which; all of them where nothing is said.
        where: Only rows for which this is true.
        recursive: Every file below the paths.
        timeout: Seconds after which a drive from which nothing comes is given up: longer than it may look at files
            of which it has nothing to say.
        retries: How often a drive that has failed, and of which no row had come, is asked again.
        unreadable: ``"raise"``: a file below the paths that cannot be read is the drive's error; ``"ignore"``: it
            is left out.
        options: What :func:`nearside.open` takes beside a name.
        how: What else :meth:`nearside.Drive.select` takes: ``format``, ``schema``, ``include``, ``skip_bad``...
    """
    for word in ("limit", "group_by", "aggregate", "onerror"):
        if word in how:
            raise TypeError(f"{word}= is of one drive; see aggregate() and Dataset.limit()")
    question = _Select(recursive, where, {**how, **_onerror(unreadable)}, None if columns is None else tuple(columns))
    return _read(question, drives, paths, timeout, retries, options)


def search(
    drives: typing.Iterable[str],
    pattern: str,
    *paths: Path,
    timeout: float = 300.0,
    retries: int = 1,
    unreadable: str = "raise",
    options: typing.Mapping[str, typing.Any] | None = None,
    **how: typing.Any,
) -> ray.data.Dataset:
    """Lines that match in files below paths of many drives: ``drive``, ``path``, ``number``, ``text``.

    Args:
        how: What :meth:`nearside.Drive.search` takes: ``ignore_case``, ``include``, ``fixed``...
    """
    return _read(_Search(pattern, {**how, **_onerror(unreadable)}), drives, paths or ("/",), timeout, retries, options)


def yara(
    drives: typing.Iterable[str],
    rules: str,
    *paths: Path,
    variables: typing.Mapping[str, bool | int | float | str | bytes] | None = None,
    timeout: float = 300.0,
    retries: int = 1,
    unreadable: str = "raise",
    options: typing.Mapping[str, typing.Any] | None = None,
) -> ray.data.Dataset:
    """Files below paths of many drives that rules of YARA match: ``drive``, ``path``, ``rule``, ``tags``."""
    return _read(_Yara(rules, {"variables": variables, **_onerror(unreadable)}), drives, paths or ("/",), timeout, retries, options)


def aggregate(
    drives: typing.Iterable[str],
    *paths: Path,
    aggregate: typing.Sequence[str],
    group_by: typing.Sequence[str] = (),
    where: str | None = None,
    recursive: bool = False,
    timeout: float = 300.0,
    retries: int = 1,
    unreadable: str = "raise",
    options: typing.Mapping[str, typing.Any] | None = None,
    **how: typing.Any,
) -> pyarrow.Table:
    """What is made of groups of rows over all drives. Each drive makes of its own what it can, so that only that
    travels.

    Args:
        aggregate: ``count(*)``, ``count(x)``, ``sum(x)``, ``min(x)``, ``max(x)``. An average is a sum and a count.
        group_by: Columns whose values make groups.
    """
    kinds = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}
    merges = []
    for one in aggregate:
        kind = kinds.get(one.partition("(")[0].strip().lower())
        if kind is None:
            raise ValueError(f"{one}: of several drives there are count, sum, min and max")
        merges.append(kind)
    parts = {"group_by": list(group_by) or None, "aggregate": list(aggregate)}
    question = _Select(recursive, where, {**how, **parts, **_onerror(unreadable)}, None)
    dataset = _read(question, drives, paths, timeout, retries, options)
    # It is all that this does, and small. Ray's budget would be nothing in its first second, and drives asked one by one.
    dataset.context.op_resource_reservation_enabled = False
    tables = [table for table in dataset.iter_batches(batch_format="pyarrow", batch_size=None) if table.num_rows]
    if not tables:
        return pyarrow.table({})
    whole = pyarrow.concat_tables(tables, promote_options="permissive").drop_columns([_DRIVE])
    keys, made = whole.column_names[: len(group_by)], whole.column_names[len(group_by) :]
    # Two may have one name.
    whole = whole.rename_columns([*keys, *(f"{nth}" for nth in range(len(made)))])
    # NaN is greater than all for a drive, and nothing for Arrow.
    floats = [nth for nth, kind in enumerate(merges) if kind != "sum" and pyarrow.types.is_floating(whole.schema.field(f"{nth}").type)]
    for nth in floats:
        whole = whole.append_column(f"nan{nth}", pyarrow.compute.is_nan(whole.column(f"{nth}")))
    nans = [(f"nan{nth}", "any" if merges[nth] == "max" else "all") for nth in floats]
    # Sums of integers are as wide as they need be, until all are there: one that has no room is an error, as in a drive.
    wide = [f"{nth}" for nth, kind in enumerate(merges) if kind == "sum" and whole.schema.field(f"{nth}").type == pyarrow.int64()]
    for name in wide:
        exact = whole.column(name).cast(pyarrow.decimal128(38, 0))
        whole = whole.set_column(whole.column_names.index(name), name, exact)
    merged = whole.group_by(keys).aggregate([*((f"{nth}", kind) for nth, kind in enumerate(merges)), *nans])
    for nth, (name, every) in zip(floats, nans):
        column = f"{nth}_{merges[nth]}"
        right = pyarrow.compute.if_else(merged.column(f"{name}_{every}"), float("nan"), merged.column(column))
        merged = merged.set_column(merged.column_names.index(column), column, right)
    order = [*keys, *(f"{nth}_{kind}" for nth, kind in enumerate(merges))]
    merged = merged.select(order)
    for name in wide:
        narrow = merged.column(f"{name}_sum").cast(pyarrow.int64())
        merged = merged.set_column(order.index(f"{name}_sum"), f"{name}_sum", narrow)
    return merged.rename_columns([*keys, *made])


class _Select:
    """Rows of tables."""

    pushes = True

    def __init__(
        self,
        recursive: bool,
        where: str | None,
        how: dict[str, typing.Any],
        columns: tuple[str, ...] | None,
        after: tuple[Expr, tuple[str, ...] | None] | None = None,
    ) -> None:
        self.recursive, self.where, self.how, self.columns, self.after = recursive, where, how, columns, after

    def tables(self, drive: Drive, path: Path, limit: int | None) -> typing.Iterator[pyarrow.Table]:
        columns, how = None if self.columns is None else list(self.columns), _below(path, self.how)
        if columns == []:
            made = drive.select(path, recursive=self.recursive, where=self.where, aggregate="count(*)", **how)
            yield _rows(made.to_arrow().column(0)[0].as_py())
            return
        if self.after is not None:
            limit = None
        chosen = drive.select(
            path, recursive=self.recursive, where=self.where, columns=columns, limit=limit, **how
        )
        for batch in chosen:
            table = pyarrow.Table.from_batches([batch])
            if self.after is not None:
                predicate, wanted = self.after
                table = table.filter(predicate.to_pyarrow())
                if wanted is not None:
                    rows, table = table.num_rows, table.select(list(wanted))
                    table = table if wanted else _rows(rows)
            yield table


class _Search:
    """Lines that match."""

    pushes = False

    def __init__(self, pattern: str, how: dict[str, typing.Any]) -> None:
        self.pattern, self.how = pattern, how

    def tables(self, drive: Drive, path: Path, limit: int | None) -> typing.Iterator[pyarrow.Table]:
        found = drive.search(self.pattern, path, **_below(path, self.how))
        schema = pyarrow.schema([("path", pyarrow.string()), ("number", pyarrow.int64()), ("text", pyarrow.string())])
        return _blocks(((match.path, match.number, match.text) for match in found), schema, limit)


class _Yara:
    """Rules that match."""

    pushes = False

    def __init__(self, rules: str, how: dict[str, typing.Any]) -> None:
        self.rules, self.how = rules, how

    def tables(self, drive: Drive, path: Path, limit: int | None) -> typing.Iterator[pyarrow.Table]:
        found = drive.yara(self.rules, path, recursive=True, **_below(path, self.how))
        tags = pyarrow.list_(pyarrow.string())
        schema = pyarrow.schema([("path", pyarrow.string()), ("rule", pyarrow.string()), ("tags", tags)])
        return _blocks(((rule.path, rule.name, list(rule.tags)) for rule in found), schema, limit)


def _ignore(error: Exception) -> None:
    """A file that cannot be read is left out."""


def _below(path: Path, how: dict[str, typing.Any]) -> dict[str, typing.Any]:
    """With files left out, if they are, below the path alone: where that fails itself, nothing was answered."""
    if how.get("onerror") is not _ignore:
        return how
    asked = os.fsdecode(path)

    def ignore(error: Exception) -> None:
        if not isinstance(error, OSError) or error.filename in (None, asked):
            raise error

    return {**how, "onerror": ignore}


def _rows(count: int) -> pyarrow.Table:
    """Rows without columns, which are rows still."""
    return pyarrow.table({"": pyarrow.nulls(count)})


def _named(table: pyarrow.Table, name: str, columns: list[str] | None) -> typing.Iterator[pyarrow.Table]:
    """With the drive's name, where that is wanted, and the columns in the order in which they are."""
    if columns is None or _DRIVE in columns:
        if _DRIVE in table.column_names:
            raise ValueError(f"a column of the table is called {_DRIVE!r}, as the one that says whose a row is")
        name = pyarrow.scalar(name, pyarrow.string())
        if table.schema == _rows(0).schema:
            for at in range(0, max(table.num_rows, 1), _ROWS):
                yield pyarrow.table({_DRIVE: pyarrow.repeat(name, min(table.num_rows - at, _ROWS))})
            return
        table = table.add_column(0, _DRIVE, pyarrow.repeat(name, table.num_rows))
    yield table.select(columns) if columns else table


def _onerror(unreadable: str) -> dict[str, typing.Any]:
    if unreadable not in ("raise", "ignore"):
        raise ValueError(f'unreadable={unreadable!r} is neither "raise" nor "ignore"')
    return {"onerror": _ignore} if unreadable == "ignore" else {}


def _blocks(
    rows: typing.Iterable[tuple[typing.Any, ...]], schema: pyarrow.Schema, limit: int | None
) -> typing.Iterator[pyarrow.Table]:
    """Tables of rows, so many at a time."""
    held: list[tuple[typing.Any, ...]] = []
    since = time.monotonic()
    make = lambda: pyarrow.table([[row[nth] for row in held] for nth in range(len(schema))], schema=schema)
    for nth, row in enumerate(rows):
        if nth == limit:
            break
        held.append(row)
        # Who waits hears of what comes slowly, too.
        if len(held) == _ROWS or time.monotonic() - since > 1:
            yield make()
            held, since = [], time.monotonic()
    yield make()


class _Fleet(Datasource):
    """One question to many drives."""

    def __init__(self, question: typing.Any, tasks: list[tuple[str, Path]], timeout: float, retries: int, options: dict[str, typing.Any]) -> None:
        super().__init__()
        self._question, self._tasks = question, tasks
        self._timeout, self._retries, self._options = timeout, retries, options
        self._projection_map: dict[str, str] | None = None
        self._condition: str | None = None

    def get_name(self) -> str:
        return "Nearside"

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def supports_projection_pushdown(self) -> bool:
        return self._question.pushes and "aggregate" not in self._question.how

    def supports_predicate_pushdown(self) -> bool:
        return self._question.pushes and "aggregate" not in self._question.how

    def apply_predicate(self, predicate_expr: Expr) -> Datasource:
        condition = _condition(predicate_expr)
        if condition is None:
            # Ray's own filter stays.
            return self
        pushed = super().apply_predicate(predicate_expr)
        pushed._condition = condition if self._condition is None else f"({self._condition}) and ({condition})"
        return pushed

    def _asked(self) -> typing.Any:
        """The question, with what was pushed into it."""
        question, predicate = self._question, self._predicate_expr
        if not question.pushes or (self._projection_map is None and predicate is None):
            return question
        columns, where, after = question.columns, question.where, None
        if self._projection_map is not None:
            columns = tuple(name for name in self._projection_map if name != _DRIVE)
        if self._condition is not None and predicate is not None:
            where = self._condition if where is None else f"({where}) and ({self._condition})"
            # What is left out by Arrow's rules and not by a drive's: NaN, which is greater than all for a drive.
            after = (predicate, columns)
            if columns is not None:
                columns = (*columns, *(name for name in sorted(_names(predicate)) if name not in columns))
        return _Select(question.recursive, where, question.how, columns, after)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: typing.Any = None
    ) -> list[ReadTask]:
        question = self._asked()
        columns = None if self._projection_map is None else list(self._projection_map)
        how = (self._timeout, self._retries, self._options, per_task_row_limit, columns)
        tasks = []
        for nth in range(min(parallelism, len(self._tasks))):
            some = self._tasks[nth::parallelism]
            files = [f"{drive}:{os.fsdecode(path)}" for drive, path in some]
            about = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=files)
            ask = _Task([_Asked(question, drive, path, *how) for drive, path in some])
            tasks.append(ReadTask(ask, about, per_task_row_limit=per_task_row_limit))
        return tasks


class _Task:
    """Questions that are asked together, each of one drive about one path."""

    def __init__(self, asked: list[_Asked]) -> None:
        self.asked = asked

    def __call__(self) -> typing.Iterator[pyarrow.Table]:
        if len(self.asked) == 1:
            yield from self.asked[0]()
            return
        waiting = collections.deque(self.asked)
        left = threading.Event()
        answers: queue.Queue[typing.Any] = queue.Queue(maxsize=4)

        def ask() -> None:
            try:
                while not left.is_set():
                    try:
                        one = waiting.popleft()
                    except IndexError:
                        break
                    for table in one():
                        if not _put(answers, table, left):
                            return
                _put(answers, _END, left)
            except Exception as error:
                _put(answers, error, left)

        asking = min(_AT_A_TIME, len(self.asked))
        for nth in range(asking):
            threading.Thread(target=ask, name=f"nearside task {nth}", daemon=True).start()
        try:
            while asking:
                answer = answers.get()
                if isinstance(answer, Exception):
                    raise answer
                if answer is _END:
                    asking -= 1
                else:
                    yield answer
        finally:
            left.set()


class _Asked:
    """One question to one drive about one path."""

    def __init__(self, *of: typing.Any) -> None:
        self.of = of

    def __call__(self) -> typing.Iterator[pyarrow.Table]:
        question, name, path, timeout, retries, options, limit, columns = self.of
        for attempt in range(retries + 1):
            came = False
            try:
                for table in _watched(question, _turned(name, attempt), path, timeout, options, limit):
                    for part in _named(table, name, columns):
                        came |= part.num_rows > 0
                        yield part
                return
            except Exception as error:
                # What it has answered cannot be taken back.
                if came or attempt == retries:
                    raise DriveError(name, f"{type(error).__name__}: {error}") from None


def _turned(name: str, attempt: int) -> str:
    """A drive's name, with another of its addresses as the first."""
    scheme, found, rest = name.partition("nvme+tcp://")
    if scheme or not found:
        return name
    addresses, slash, what = rest.partition("/")
    each = addresses.split(",")
    attempt %= len(each)
    return found + ",".join(each[attempt:] + each[:attempt]) + slash + what


_END = object()


def _put(answers: queue.Queue[typing.Any], answer: typing.Any, left: threading.Event) -> bool:
    """Hands an answer to who waits; ``False``: nobody does any more."""
    while not left.is_set():
        try:
            answers.put(answer, timeout=1)
            return True
        except queue.Full:
            pass
    return False


def _watched(
    question: typing.Any, name: str, path: Path, timeout: float, options: dict[str, typing.Any], limit: int | None
) -> typing.Iterator[pyarrow.Table]:
    """What a drive answers; an error where nothing comes of it for too long. A thread of its own asks it: what
    waits for a drive cannot be told to stop."""
    answers: queue.Queue[typing.Any] = queue.Queue(maxsize=4)
    left = threading.Event()

    def ask() -> None:
        try:
            with _drive.open(name, **options) as drive:
                for table in question.tables(drive, path, limit):
                    if not _put(answers, table, left):
                        return
            _put(answers, _END, left)
        except Exception as error:
            _put(answers, error, left)

    threading.Thread(target=ask, name=f"nearside {name}", daemon=True).start()
    try:
        while True:
            try:
                answer = answers.get(timeout=timeout)
            except queue.Empty:
                raise TimeoutError(f"nothing came for {timeout:g} s") from None
            if answer is _END:
                return
            if isinstance(answer, Exception):
                raise answer
            yield answer
    finally:
        left.set()


def _read(
    question: typing.Any,
    drives: typing.Iterable[str],
    paths: typing.Sequence[Path],
    timeout: float,
    retries: int,
    options: typing.Mapping[str, typing.Any] | None,
) -> ray.data.Dataset:
    if not paths:
        raise TypeError("no path is named")
    if isinstance(drives, (str, bytes)):
        raise TypeError("drives is a list of names")
    if retries < 0:
        raise ValueError(f"retries={retries}: a drive is asked once at least")
    options = dict(options or {})
    tasks = [(drive, path) for drive in _drive.drives(*drives, **options) for path in paths]
    if not tasks:
        raise ValueError("no drive is named")
    fleet = _Fleet(question, tasks, timeout, retries, options)
    if not ray.is_initialized():
        ray.init()
    cpus = int(ray.cluster_resources().get("CPU", 1))
    blocks = max(1, min(len(tasks), cpus))
    # Each mostly waits.
    return ray.data.read_datasource(fleet, override_num_blocks=blocks, num_cpus=0.5)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_COMPARES = {
    Operation.GT: ">",
    Operation.LT: "<",
    Operation.GE: ">=",
    Operation.LE: "<=",
    Operation.EQ: "=",
    Operation.NE: "<>",
}


def _condition(expression: Expr) -> str | None:
    """A condition of a selection that is true of all rows of which an expression is; ``None`` where there is none."""
    if isinstance(expression, UnaryExpr):
        if expression.op in (Operation.IS_NULL, Operation.IS_NOT_NULL):
            word = "is null" if expression.op is Operation.IS_NULL else "is not null"
            name = _column(expression.operand)
            return None if name is None else f"{name} {word}"
        # What is not less may be NaN, for Arrow; a drive says that it is greater.
        if expression.op is not Operation.NOT or _orders(expression.operand):
            return None
        inner = _condition(expression.operand)
        return None if inner is None else f"not ({inner})"
    if not isinstance(expression, BinaryExpr):
        return None
    left, right = expression.left, expression.right
    if expression.op in (Operation.AND, Operation.OR):
        both = [_condition(left), _condition(right)]
        word = "and" if expression.op is Operation.AND else "or"
        return None if None in both else f"({both[0]}) {word} ({both[1]})"
    name = _column(left)
    if name is None or not isinstance(right, LiteralExpr):
        return None
    if expression.op in (Operation.IN, Operation.NOT_IN):
        values = right.value
        if not isinstance(values, (list, tuple)) or not values:
            return None
        each = [_literal(value) for value in values]
        if None in each:
            return None
        values = ", ".join(typing.cast("list[str]", each))
        # For Arrow a null is in no list, and not unknown.
        if expression.op is Operation.IN:
            return f"{name} is not null and {name} in ({values})"
        return f"{name} is null or {name} not in ({values})"
    compares, value = _COMPARES.get(expression.op), _literal(right.value)
    return None if compares is None or value is None else f"{name} {compares} {value}"


def _orders(expression: Expr) -> bool:
    """Whether it asks what is less."""
    if isinstance(expression, BinaryExpr):
        less = expression.op in (Operation.GT, Operation.LT, Operation.GE, Operation.LE)
        return less or _orders(expression.left) or _orders(expression.right)
    return isinstance(expression, UnaryExpr) and _orders(expression.operand)


def _names(expression: Expr) -> set[str]:
    """The columns that it asks for."""
    if isinstance(expression, ColumnExpr):
        return {expression.name}
    if isinstance(expression, BinaryExpr):
        return _names(expression.left) | _names(expression.right)
    return _names(expression.operand) if isinstance(expression, UnaryExpr) else set()


def _column(expression: Expr) -> str | None:
    if isinstance(expression, ColumnExpr) and expression.name != _DRIVE:
        return _quoted(expression.name)
    return None


def _literal(value: typing.Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if -(2**63) <= value < 2**63 else None
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) != float("inf") else None
    if isinstance(value, str) and "\0" not in value:
        return "'" + value.replace("'", "''") + "'"
    return None
