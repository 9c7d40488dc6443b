"""Rows that a drive has chosen, as Arrow has them."""

from __future__ import annotations

import errno
import typing

from .errors import TableError

if typing.TYPE_CHECKING:
    import pyarrow

    from . import _native


class Selection:
    """What :meth:`Drive.select` answers: once, in the way that is asked for.

    Iterating gives a ``pyarrow.RecordBatch`` for each piece of the answer, while the drive is still at work on
    the rest; :meth:`to_arrow` a table of all of it; :meth:`streams` the bytes, without pyarrow.
    """

    def __init__(self, streams: _native.Streams) -> None:
        self._streams = streams

    def streams(self) -> typing.Iterator[bytes]:
        """Streams of Arrow's IPC format, each whole: a schema and one batch."""
        return self._streams

    def __iter__(self) -> typing.Iterator[pyarrow.RecordBatch]:
        import pyarrow

        for stream in self._streams:
            # Over the bytes as they lie there: nothing is copied.
            yield from pyarrow.ipc.open_stream(pyarrow.py_buffer(stream))

    def to_arrow(self) -> pyarrow.Table:
        """One table of all rows.

        A column of which a file has no value has the type that other files say. Where two files say two, an
        int64 beside a float64 is a float64, and else it is an error: ``schema=`` says which is meant.
        """
        import pyarrow

        batches = list(self)
        if not batches:
            return pyarrow.table({})
        schema = _schema(batches)
        return pyarrow.Table.from_batches([_cast(batch, schema) for batch in batches], schema)

    @property
    def skipped(self) -> int:
        """Rows that were passed over so far, with ``skip_bad``, since they are not as the others."""
        return self._streams.skipped


def _schema(batches: list[pyarrow.RecordBatch]) -> pyarrow.Schema:
    import pyarrow

    fields = []
    for nth, first in enumerate(batches[0].schema):
        kind = None
        for batch in batches:
            theirs = batch.schema.field(nth).type
            if batch.column(nth).null_count == batch.num_rows or theirs == kind:
                continue
            if kind is None:
                kind = theirs
            elif {kind, theirs} == {pyarrow.int64(), pyarrow.float64()}:
                kind = pyarrow.float64()
            else:
                what = f"{first.name} is {theirs}, and {kind} in the files before (schema= says which)"
                raise TableError(errno.EBADMSG, what)
        fields.append(first.with_type(first.type if kind is None else kind))
    return pyarrow.schema(fields)


def _cast(batch: pyarrow.RecordBatch, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    import pyarrow

    if batch.schema == schema:
        return batch
    rows, columns = batch.num_rows, []
    for column, field in zip(batch.columns, schema):
        empty = column.null_count == rows
        columns.append(pyarrow.nulls(rows, field.type) if empty else column.cast(field.type))
    return pyarrow.record_batch(columns, schema=schema)
