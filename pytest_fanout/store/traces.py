"""Files of traces, opened in an embedded DuckDB: they are read where they lie, and only what is asked for.

What is nested in OTLP (resource, scope, spans, lists of attributes) becomes one row a span with a column for each
attribute that is looked for. Malformed files are refused with their line, never skipped over.
"""

from __future__ import annotations

import csv
import glob
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pytest_fanout.errors import IntegrityError, UsageError
from pytest_fanout.records import FILE_COLUMN

_KINDS = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
#: One JSON document may be this long: an exporter writes a whole batch of spans on one line.
_LONGEST_OBJECT = 64 * 1024 * 1024
_OTLP_ATTRIBUTES = "STRUCT(key VARCHAR, value JSON)[]"
_OTLP = (
    f"STRUCT(resource STRUCT(attributes {_OTLP_ATTRIBUTES}), scopeSpans STRUCT(spans STRUCT("
    "traceId VARCHAR, spanId VARCHAR, parentSpanId VARCHAR, name VARCHAR, startTimeUnixNano VARCHAR, "
    f"endTimeUnixNano VARCHAR, status STRUCT(code VARCHAR), attributes {_OTLP_ATTRIBUTES})[])[])[]"
)


def open_traces(paths: Sequence[Path], attributes: Sequence[str], nested: Sequence[str], holders: Sequence[str]) -> Any:
    """All files as one table of ibis, on a DuckDB of its own. ``FILE_COLUMN`` is the file of a row.

    Args:
        attributes: of OTLP, the attributes that become columns.
        nested: names with dots that become columns where another column holds them as JSON: ``outer.inner``, or the
            whole name inside one of ``holders``.

    Raises:
        UsageError: a file that is not there, or of no known suffix; files of several kinds.
        IntegrityError: a malformed file; naming file and line.
    """
    kind = _kind_of(paths)
    for path in paths:
        _check_whole(path)
    import ibis

    connection = ibis.duckdb.connect()
    # days and weeks are UTC, whatever this machine's clock says
    connection.raw_sql("SET TimeZone = 'UTC'")
    # after two seconds it would be drawn into what machines read
    connection.raw_sql("SET enable_progress_bar = false")
    # a name is a pattern to DuckDB, and a[1].csv would be a1.csv
    files = "[" + ", ".join(_text(glob.escape(str(path))) for path in paths) + "]"
    # DuckDB would take `agent=x/` in a path for a column, in place of what the rows say
    common = f"filename = {_text(FILE_COLUMN)}, hive_partitioning = false"
    with reading(paths):
        if kind == "parquet":
            return _view(connection, f"SELECT * FROM read_parquet({files}, {common}, union_by_name = true)")
        if kind == "csv":
            mark = "\t" if ".tsv" in paths[0].suffixes else ","
            names = _headers(paths, mark)
            # nothing is guessed: every value is kept as it is written, and no line is skipped
            columns = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in names)
            options = (
                f"auto_detect = false, columns = {{{columns}}}, header = true, delim = {_text(mark)}, quote = '\"', "
                f"escape = '\"', {common}, strict_mode = true"
            )
            return _flat(connection, f"SELECT * FROM read_csv({files}, {options})", nested, holders)
        options = f"{common}, maximum_object_size = {_LONGEST_OBJECT}"
        # the whole file decides on its columns: a key that is first seen late would be dropped
        shape = (
            f"SELECT * FROM read_json({files}, maximum_depth = 1, sample_size = -1, union_by_name = true, {options})"
        )
        if "resourceSpans" in _view(connection, shape).columns:
            return _view(connection, _spans(files, options, attributes))
        return _flat(connection, shape, nested, holders)


def _headers(paths: Sequence[Path], mark: str) -> list[str]:
    """The names of the columns, which all files have in common."""
    found: list[list[str]] = []
    for path in paths:
        if path.suffix.lower() == ".zst":
            raise UsageError(
                "no-trace-file", "a CSV is read as it is or with .gz", where=str(path), mend=f"unzstd {path.name}"
            )
        try:
            with _opened(path) as lines:
                header = next(csv.reader(lines, delimiter=mark), [])
        except csv.Error as error:
            raise _unreadable(path, f"its first line is not CSV: {error}") from None
        if any("\0" in name for name in header):
            raise _unreadable(path, "is not UTF-8 text")
        header = [name.removeprefix("\ufeff").strip() for name in header]
        unlike = found and header != found[0]
        # DuckDB takes task and Task for one
        is_twice = len({name.lower() for name in header}) < len(header)
        if not all(header) or not header or is_twice or unlike:
            what = f"its columns differ from those of {paths[0]}" if unlike else "its first line names no columns"
            what = "its first line names a column twice" if is_twice and all(header) and not unlike else what
            raise IntegrityError(
                "bad-trace-file",
                what,
                where=f"{path}:1",
                mend="name each column once; export files of one kind together",
            )
        found.append(header)
    return found[0]


def _flat(connection: Any, query: str, nested: Sequence[str], holders: Sequence[str]) -> Any:
    """The table of a query, with a column for each nested name that one of its columns may hold."""
    table = _view(connection, query)
    # texts too: a CSV holds its maps as JSON in quotes
    outer = {name for name, kind in table.schema().items() if kind.is_json() or kind.is_string()}
    columns = []
    for name in nested:
        first, *inner = name.split(".")
        places = [(first, inner)] if first in outer else []
        places += [(holder, [name]) for holder in holders if holder in outer]
        found = [
            f"TRY_CAST({_name(holder)} AS JSON)->>{_text('.'.join(['$', *map(_name, path)]))}"
            for holder, path in places
        ]
        if found:
            columns.append(f", coalesce({', '.join(found)}) AS {_name(name)}")
    return _view(connection, f"SELECT *{''.join(columns)} FROM ({query})") if columns else table


def _view(connection: Any, query: str) -> Any:
    """DuckDB's own words: ibis would translate a query first, and knows fewer of them."""
    connection.raw_sql(f"CREATE OR REPLACE TEMP VIEW traces AS {query}")
    return connection.table("traces")


def _spans(files: str, options: str, attributes: Sequence[str]) -> str:
    def column(name: str) -> str:
        places = [f"list_filter({owner}.attributes, lambda a: a.key = {_text(name)})[1].value" for owner in ("s", "r")]
        kinds = ("stringValue", "intValue", "doubleValue", "boolValue")
        values = ", ".join(f"{place}->>'$.{kind}'" for place in places for kind in kinds)
        return f"coalesce({values}) AS {_name(name)}"

    columns = "".join(f", {column(name)}" for name in attributes)
    return (
        "SELECT s.traceId AS trace_id, s.spanId AS span_id, nullif(s.parentSpanId, '') AS parent_span_id, "
        "make_timestamp(CAST(s.startTimeUnixNano AS BIGINT) // 1000) AS start_time, "
        "make_timestamp(CAST(s.endTimeUnixNano AS BIGINT) // 1000) AS end_time, "
        f"s.status.code AS status_code, {FILE_COLUMN}{columns} FROM ("
        f"SELECT unnest(c.spans) AS s, r.resource AS r, {FILE_COLUMN} FROM ("
        f"SELECT unnest(r.scopeSpans) AS c, r, {FILE_COLUMN} FROM ("
        f"SELECT unnest(resourceSpans) AS r, {FILE_COLUMN} FROM read_json({files}, "
        f"columns = {{resourceSpans: '{_OTLP}'}}, {options}))))"
    )


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def _kind_of(paths: Sequence[Path]) -> str:
    found = {}
    for path in paths:
        if not path.is_file():
            raise UsageError("no-trace-file", "there is no such file", where=str(path), mend="name files of traces")
        suffix = next((s for s in reversed(path.suffixes) if s.lower() not in (".gz", ".zst")), "").lower()
        if suffix not in _KINDS:
            raise UsageError(
                "no-trace-file",
                f"its suffix says no format; known: {', '.join(_KINDS)}, also with .gz",
                where=str(path),
                mend="rename it to what it holds",
            )
        found[_KINDS[suffix]] = path
    if len(found) > 1:
        raise UsageError(
            "no-trace-file",
            f"the files are of several formats: {', '.join(sorted(found))}",
            where=str(paths[0]),
            mend="give the files of one format at a time",
        )
    return next(iter(found))


@contextmanager
def reading(paths: Sequence[Path]) -> Iterator[None]:
    """Where files are read: what DuckDB finds malformed is told with file and line.

    Raises:
        IntegrityError: a file that cannot be read.
    """
    import duckdb

    try:
        yield
    except (
        duckdb.InvalidInputException, duckdb.ConversionException, duckdb.IOException, duckdb.OutOfRangeException,
        duckdb.BinderException,
    ) as error:  # fmt: skip
        text = str(error).partition("\n\nLINE ")[0].strip()
        path = next((path for path in paths if str(path) in text), paths[0])
        where, what = _place(path, text)
        raise IntegrityError(
            "bad-trace-file", what, where=where, mend="mend or remove the line, or export the file again"
        ) from None


def _place(path: Path, text: str) -> tuple[str, str]:
    line = re.search(r"CSV Error on Line: (\d+)", text)
    if line:
        why = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text)
        what = f"has {why[2]} columns where the header has {why[1]}" if why else text.splitlines()[0]
        return f"{path}:{line[1]}", what
    if "JSON" in text:
        broken = _broken_json(path)
        if broken is not None:
            return f"{path}:{broken[0]}:{broken[1]}", f"is not JSON: {broken[2]}"
    first = text.splitlines()[0].replace(f'"{path}"', "it").removeprefix("Invalid Input Error: ")
    quoted = re.search(r"onvert string '([^']+)'", text)
    number = line_of(path, (quoted[1],)) if quoted else None
    return (f"{path}:{number}" if number else str(path)), first


def _broken_json(path: Path) -> tuple[int, int, str] | None:
    """Line, column and reason of the first line that is no JSON; DuckDB's own count of lines is off."""
    with _opened(path) as lines:
        if path.name.removesuffix(".gz").endswith(".json"):
            try:
                json.loads(lines.read())
            except RecursionError:
                return 1, 1, "nested too deeply"
            except json.JSONDecodeError as error:
                if error.msg != "Extra data":
                    return error.lineno, error.colno, error.msg
                lines.seek(0)
            else:
                return None
        for number, line in enumerate(lines, 1):
            try:
                json.loads(line or "null") if line.strip() else None
            except RecursionError:
                return number, 1, "nested too deeply"
            except json.JSONDecodeError as error:
                return number, error.colno, error.msg
    return None


def line_of(path: Path, words: Sequence[str]) -> int | None:
    """The first line of a text file that holds all these words; None: none does, or it is no text."""
    if path.suffix in (".parquet", ".pq", ".zst"):
        return None
    with _opened(path) as lines:
        for number, line in enumerate(lines, 1):
            if all(word in line for word in words):
                return number
    return None


def _check_whole(path: Path) -> None:
    """DuckDB reads what is there of a file that was cut off, and says nothing.

    Raises:
        IntegrityError: it cannot be read to its end.
    """
    try:
        if path.suffix.lower() == ".gz":
            with gzip.open(path) as file:
                while file.read(1 << 20):
                    pass
        else:
            path.open("rb").close()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _unreadable(path, f"is no whole gzip file: {error}") from None
    except OSError as error:
        raise _unreadable(path, f"cannot be read: {error.strerror or error}") from None


def _unreadable(path: Path, what: str) -> IntegrityError:
    return IntegrityError("bad-trace-file", what, where=str(path), mend="export the file again")


def _opened(path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")
