"""``fanout-capacity traces``: what production did, per class, beside the anchors."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from pytest_fanout.capacity.traffic.check import bad_row
from pytest_fanout.capacity.traffic.measures import classes_of, rows_of
from pytest_fanout.capacity.traffic.steps import (
    ATTRIBUTES,
    SOURCES,
    Reading,
    nested_names,
    otel_attributes,
    source_of,
    steps_of,
)
from pytest_fanout.capacity.traffic.tasks import (
    counted,
    names_of,
    once,
    once_each,
    renamed,
    tasks_as_given,
    tasks_of,
    totals_of,
)
from pytest_fanout.cli.console import clean, json_text
from pytest_fanout.config import find_settings
from pytest_fanout.errors import FanoutError, IntegrityError, UsageError, nearest
from pytest_fanout.gate import read_anchors
from pytest_fanout.gate.fleet import samples_of_anchor
from pytest_fanout.records import Samples, Traffic
from pytest_fanout.report import plan_page, traffic_page
from pytest_fanout.store.git import Repository
from pytest_fanout.store.traces import line_of, open_traces, reading

_Table = Any
_MOST_CLASSES = 20
_FIELDS = sorted({name for source in SOURCES for name in source.names})


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE…")
@click.option(
    "--as",
    "kind",
    type=click.Choice([source.kind for source in SOURCES]),
    help="What the sources are; by default their columns say it.",
)
@click.option(
    "--connect", "url", metavar="URL", help="SOURCE names tables of this warehouse, as ibis.connect() opens it."
)
@click.option("--class-by", metavar="NAME", help="The attribute or column that names the agent class.")
@click.option("--class", "agent", metavar="NAME", help="Everything is of this agent class.")
@click.option(
    "--rename", "renames", multiple=True, metavar="THEIRS=OURS", help="A class has another name here; repeatable."
)
@click.option(
    "--column", "columns", multiple=True, metavar="FIELD=NAME", help="The column that holds a field; repeatable."
)
@click.option("--by-session", is_flag=True, help="A task is a session, not a trace.")
@click.option("--cached-apart", is_flag=True, help="Input tokens do not contain those read from or written to a cache.")
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="Only this class; repeatable.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json", "md"]),
    default="table",
    show_default=True,
    help="How to print it.",
)
def traces(
    sources: tuple[str, ...], kind: str | None, url: str | None, class_by: str | None, agent: str | None,
    renames: tuple[str, ...], columns: tuple[str, ...], by_session: bool, cached_apart: bool, agents: tuple[str, ...],
    style: str,
) -> None:  # fmt: skip
    """What production did: tasks per class beside the anchors of HEAD, weights for the eval set, weeks.

    SOURCE: files of OpenTelemetry spans (OTLP JSON), Langfuse observations, LiteLLM spend logs, or plain JSONL, CSV or
    Parquet, one row a call or one a task. With --connect tables of a warehouse: the rows stay there.
    """
    _prepare_ibis()
    asked = Reading(class_by, agent, _pairs(columns, "--column", _FIELDS), by_session, cached_apart)
    ours = dict(_pairs(renames, "--rename"))
    paths = [] if url else [Path(source) for source in sources]
    with ExitStack() as held:
        held.enter_context(_asking(url) if url else reading(paths))
        tables = _tables(url, sources) if url else [(_open(paths, asked), str(paths[0]))]
        traffic = _measure(held, tables, kind, asked, ours, _anchors(), agents, bool(paths))
    if not traffic.classes:
        raise UsageError(
            "no-traffic",
            f"no task with a model call was found in {traffic.rows:,} rows",
            where=sources[0],
            mend="say with --as what the sources are, and with --column task=NAME what names a task",
        )
    if style == "json":
        click.echo(json_text(traffic_page.document(traffic)))
        return
    text = plan_page.render(traffic_page.sections(traffic), markdown=style == "md")
    click.echo(clean(text, keep_lines=True))


def _open(paths: Sequence[Path], asked: Reading) -> _Table:
    return open_traces(paths, otel_attributes(asked), nested_names(asked), ATTRIBUTES)


def _prepare_ibis() -> None:
    if importlib.util.find_spec("ibis") is None or importlib.util.find_spec("duckdb") is None:
        raise UsageError(
            "no-traces-extra",
            "reading traces stands on ibis and DuckDB, which are not installed",
            mend="pip install 'pytest-fanout[traces]'",
        )
    import ibis

    # fused, a value that is used ten times would be worked out, and written into the SQL, ten times
    ibis.options.sql.fuse_selects = False


def _pairs(given: Sequence[str], option: str, known: Sequence[str] = ()) -> Mapping[str, str]:
    found = {}
    for pair in given:
        left, mark, right = pair.partition("=")
        if not (left and mark and right) or (known and left not in known):
            of = f"; fields: {', '.join(known)}" if known else ""
            raise UsageError(
                "trace-option", f"{option} {pair}: is no pair that can be used{of}", mend=f"{option} NAME=NAME"
            )
        found[left] = right
    return found


def _tables(url: str, names: Sequence[str]) -> list[tuple[_Table, str]]:
    import ibis

    try:
        connection = ibis.connect(url)
        return [(connection.table(name), name) for name in names]
    except ImportError as error:
        what = f"the driver of this warehouse is not installed: {error}"
        mend = "pip install 'ibis-framework[NAME]', with the name of the warehouse"
    except Exception as error:  # each warehouse has errors of its own
        what, mend = f"it cannot be opened: {_said(error, url)}", "mend the URL or the name of the table"
    raise UsageError("no-warehouse", what, where=_scheme(url), mend=mend)


@contextmanager
def _asking(url: str) -> Iterator[None]:
    """Where a warehouse is asked: what it answers in place of rows is told without the password.

    Raises:
        UsageError: it gave none.
    """
    try:
        yield
    except FanoutError:
        raise
    except Exception as error:  # as above
        raise UsageError(
            "no-warehouse",
            f"it gave no answer: {_said(error, url)}",
            where=_scheme(url),
            mend="mend the table, or your rights on it",
        ) from None


def _said(error: Exception, url: str) -> str:
    said = str(error).replace(url, _scheme(url)).replace(_password(url) or url, "…")
    return f"{type(error).__name__}: {said}"


def _password(url: str) -> str | None:
    try:
        return urlsplit(url).password
    except ValueError:  # what is no URL is told without its end
        return url.partition("://")[2] or None


def _scheme(url: str) -> str:
    """A URL may hold a password: only what stands before it is shown."""
    return url.partition("://")[0] + "://…"


def _measure(
    held: ExitStack,
    tables: Sequence[tuple[_Table, str]],
    kind: str | None,
    asked: Reading,
    ours: dict[str, str],
    anchors: Mapping[str, Mapping[str, Sequence[Samples]]],
    agents: Sequence[str],
    files: bool,
) -> Traffic:
    found = []
    for table, where in tables:
        source = source_of(table.columns, where, kind)
        found.append((source, steps_of(table, source, asked, where)))
    source, steps = found[0][0], found[0][1].union(*(one for _, one in found[1:])) if len(found) > 1 else found[0][1]
    spark = not files and steps.get_backend().name == "pyspark"
    if spark or (files and not tables[0][1].endswith((".parquet", ".pq"))):
        # text is read once; columns of Parquet are read again for less than a copy of them takes
        steps = held.enter_context(steps.cache())
    _check(steps)
    classes = sum(1 for name in steps.columns if name.startswith("class_"))
    copies = namesakes = 0
    if source.kind == "tasks":
        tasks = tasks_as_given(steps, classes)
        names = rows_of(names_of(tasks))[0]
        if names["named"] > names["names"]:
            tasks = once_each(tasks)
            left = rows_of(names_of(tasks))[0]
            copies, namesakes = names["tasks"] - left["tasks"], left["named"] - left["names"]
    else:
        each = once(steps) if "span" in source.names else steps
        tasks = tasks_of(each, counted(each, nested="parent" in source.names), classes)
    # names are not kept: they were counted, and for each of millions they are the longest value
    tasks = renamed(tasks, ours).drop("task")
    if files or spark:
        # nothing is written to somebody's warehouse: there each question starts from the rows. Spark keeps it in memory
        tasks = held.enter_context(tasks.cache())
    made = classes_of(tasks, anchors, agents)
    totals = replace(_totals(rows_of(totals_of(steps, tasks))[0]), copies=copies, namesakes=namesakes)
    missing = [agent for agent in agents if agent not in {each.agent for each in made}]
    if missing:
        there = sorted(row["agent"] for row in rows_of(tasks.select("agent").distinct()))
        if there:
            raise _no_class(missing, there, totals.rows, tables[0][1])
    return replace(totals, classes=tuple(made))


def _no_class(missing: Sequence[str], there: Sequence[str], rows: int, where: str) -> UsageError:
    near = nearest(missing[0], there)
    shown = ", ".join(there[:_MOST_CLASSES])
    more = f" and {len(there) - _MOST_CLASSES:,} more" if len(there) > _MOST_CLASSES else ""
    return UsageError(
        "no-traffic",
        f"no task of {', '.join(missing)} with a model call was found in {rows:,} rows; there are tasks of: "
        f"{shown}{more}",
        where=where,
        mend=f"--agent {near}" if near else "name one of these, or say with --class-by what names the class",
    )


def _totals(row: Mapping[str, Any]) -> Traffic:
    calls = row["calls"] or 0
    return Traffic(
        classes=(),
        rows=row["rows"],
        calls=calls,
        repeated=max(0, (row["told"] or 0) - (row["failed"] or 0) - calls),
        failed=row["failed"] or 0,
        unknown=row["unknown"] or 0,
        no_task=row["no_task"] or 0,
    )


def _check(steps: _Table) -> None:
    bad = bad_row(steps)
    if bad is None:
        return
    where = f"{bad.file or 'the table'}"
    # an id may stand in many rows: the one with the figure that is wrong, if it is written there as it is told
    line = bad.file and (line_of(Path(bad.file), (*bad.ids, bad.what.split()[0])) or line_of(Path(bad.file), bad.ids))
    if line:
        where += f":{line}"
    named = f"{' of '.join(bad.ids)}: " if bad.ids else ""
    mend = "mend or remove the row"
    if bad.field == "cached_over_input":
        mend = "where input tokens do not contain the cached ones, say --cached-apart; else mend the row"
    raise IntegrityError("bad-trace-row", f"{named}{bad.what}", where=f"{where}: {bad.field}", mend=mend)


def _anchors() -> dict[str, Mapping[str, Sequence[Samples]]]:
    """Those of HEAD; none where there is no repository or no commit: production can be looked at from anywhere."""
    settings = find_settings(Path.cwd())
    repo = Repository.find(settings.root)
    rev = repo.resolve("HEAD") if repo is not None else None
    if repo is None or rev is None:
        return {}
    return {agent: samples_of_anchor(anchor) for agent, anchor in read_anchors(repo, rev, settings).items()}
