"""From the columns of a source to steps: one row a model call, tool call or other span, the same for all sources.

Everything here is an expression (ibis): it runs where the rows are. Names are looked for in this order: a column of
that name, then the same name inside a column of attributes (a map, a struct or JSON).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_fanout.errors import UsageError
from pytest_fanout.records import FILE_COLUMN

Expression = Any  # ibis has no types of its own that mypy could read

#: Operations that are no call of a model, whatever usage their span repeats.
_NOT_MODEL = (
    "create_agent", "embeddings", "execute_tool", "invoke_agent", "invoke_workflow", "plan", "rerank", "retrieval",
    "agent", "chain", "embedding", "evaluator", "guardrail", "reranker", "retriever", "task", "tool", "workflow",
)  # fmt: skip
_MODEL = ("chat", "generate_content", "text_completion", "llm")
_TOOL = ("execute_tool", "tool")


@dataclass(frozen=True, slots=True)
class Source:
    """How a kind of traces names things: for each field of a step the columns or attributes to look for, best first.

    ``classes``: the ones that name the agent class; the first that any step of a task has decides.
    """

    kind: str
    names: Mapping[str, tuple[str, ...]]
    classes: tuple[str, ...]
    required: tuple[str, ...]
    marks: tuple[tuple[str, ...], ...]  # a table with all columns of one of these is of this kind


_USAGE = ("usage_details", "usageDetails", "usage")
OTEL = Source(
    "otel",
    {
        "task": ("trace_id", "traceId", "TraceId", "context.trace_id"),
        "span": ("span_id", "spanId", "SpanId", "context.span_id"),
        "parent": ("parent_span_id", "parentSpanId", "ParentSpanId", "parent_id"),
        "session": ("gen_ai.conversation.id", "session.id"),
        "user": ("user.id", "enduser.id"),
        "operation": (
            "gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind", "llm.request.type",
        ),
        "tool": ("gen_ai.tool.name", "tool.name"),
        "input": (
            "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens",
            "llm.token_count.prompt",
        ),
        "cached": (
            "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
            "llm.token_count.prompt_details.cache_read",
        ),
        "written": (
            "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens",
            "llm.token_count.prompt_details.cache_write",
        ),
        "output": (
            "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens",
            "llm.token_count.completion",
        ),
        "started": ("start_time", "startTime", "start_time_unix_nano", "startTimeUnixNano", "Timestamp"),
        "ended": ("end_time", "endTime", "end_time_unix_nano", "endTimeUnixNano"),
        "status": ("status_code", "status.code", "status.status_code", "StatusCode"),
    },
    ("fanout.agent", "gen_ai.agent.name", "service.name"),
    ("task", "span"),
    (
        ("resourceSpans",), ("trace_id", "span_id"), ("traceId", "spanId"), ("TraceId", "SpanId"),
        ("context", "parent_id"),
    ),
)  # fmt: skip
LANGFUSE = Source(
    "langfuse",
    {
        "task": ("trace_id", "traceId"),
        "span": ("id",),
        "parent": ("parent_observation_id", "parentObservationId"),
        "session": ("session_id", "sessionId"),
        "user": ("user_id", "userId"),
        "operation": ("type",),
        "tool": ("name",),
        "input": tuple(f"{usage}.input" for usage in _USAGE),
        "output": tuple(f"{usage}.output" for usage in _USAGE),
        "total": tuple(f"{usage}.total" for usage in _USAGE),
        "started": ("start_time", "startTime"),
        "ended": ("end_time", "endTime"),
        "status": ("level",),
    },
    ("trace_name", "traceName"),
    ("task", "operation"),
    (
        ("trace_id", "type", "provided_model_name"), ("trace_id", "type", "usage_details"),
        ("traceId", "type", "usageDetails"),
        ("trace_id", "type", "parent_observation_id"), ("traceId", "type", "parentObservationId"),
    ),
)  # fmt: skip
LITELLM = Source(
    "litellm",
    {
        "task": ("session_id", "trace_id", "request_id", "id"),
        "span": ("request_id", "id"),
        "session": ("session_id",),
        "user": ("end_user", "user", "metadata.user_api_key_end_user_id", "metadata.user_api_key_user_id"),
        "operation": ("call_type",),
        "tool": ("mcp_namespaced_tool_name",),
        "input": ("prompt_tokens",),
        "cached": (
            "metadata.usage_object.prompt_tokens_details.cached_tokens",
            "metadata.additional_usage_values.cache_read_input_tokens",
            "metadata.usage_object.cache_read_input_tokens",
        ),
        "output": ("completion_tokens",),
        "started": ("startTime",),
        "ended": ("endTime",),
        "status": ("status", "metadata.status"),
        "answered": ("cache_hit",),
    },
    ("metadata.agent", "metadata.requester_metadata.agent", "agent_id", "team_id"),
    ("task", "input"),
    (("prompt_tokens", "completion_tokens", "startTime"),),
)  # fmt: skip
_TASK = ("task", "task_id", "trace_id", "conversation_id")
_AGENT = ("agent", "class", "agent_class")
_PLAIN = {
    "task": _TASK,
    "user": ("user", "user_id"),
    "input": ("input_tokens", "prompt_tokens"),
    "cached": ("cached_input_tokens", "cached_tokens"),
    "output": ("output_tokens", "completion_tokens"),
    "started": ("started_at", "start_time", "timestamp"),
    "ended": ("ended_at", "end_time"),
    "duration_ms": ("duration_ms",),
}
CALLS = Source(
    "calls",
    {
        **_PLAIN,
        "span": ("call", "call_id", "span_id"),
        "operation": ("kind",),
        "tool": ("tool",),
        "status": ("status",),
    },
    _AGENT,
    ("task",),
    tuple((task,) for task in _TASK),
)
TASKS = Source(
    "tasks",
    {**_PLAIN, "fanout": ("fanout", "calls", "model_calls"), "tool_calls": ("tool_calls",)},
    _AGENT,
    ("fanout",),
    (("fanout",), ("model_calls",)),
)
#: In this order: a table is of the first kind whose marks it has.
SOURCES = (OTEL, LITELLM, LANGFUSE, TASKS, CALLS)
#: Buckets of Langfuse's usage map; each token is in one of them, `input` and `output` hold the rest.
_LANGFUSE_CACHED = ("input_cached_tokens", "cache_read_input_tokens", "input_cache_read")
_LANGFUSE_WRITTEN = ("cache_creation_input_tokens", "input_cache_creation", "input_cache_write")
_LANGFUSE_OUTPUT = ("output_reasoning_tokens", "output_reasoning", "output_audio_tokens")
_LANGFUSE_BUCKETS = (*_LANGFUSE_CACHED, *_LANGFUSE_WRITTEN, *_LANGFUSE_OUTPUT)
#: Columns that may hold attributes by their full names.
ATTRIBUTES = ("attributes", "span_attributes", "SpanAttributes", "resource_attributes", "ResourceAttributes")


@dataclass(frozen=True, slots=True)
class Reading:
    """How somebody wants a source read. ``columns``: field of a step -> the column that holds it."""

    class_by: str | None = None
    agent: str | None = None  # everything is of this class
    columns: Mapping[str, str] = field(default_factory=dict)
    by_session: bool = False  # a task is a session, not a trace
    cached_apart: bool = False  # input tokens do not contain the cached ones


def otel_attributes(reading: Reading) -> tuple[str, ...]:
    """Every attribute that is looked for in a span."""
    dotted = [name for names in OTEL.names.values() for name in names if "." in name]
    own = [name for name in (reading.class_by, *reading.columns.values()) if name]
    return tuple(dict.fromkeys([*dotted, *OTEL.classes, *own]))


def nested_names(reading: Reading) -> tuple[str, ...]:
    """Every name that may lie inside another column, of any kind of traces."""
    dotted = [name for source in SOURCES for names in source.names.values() for name in names if "." in name]
    dotted += [name for usage in _USAGE for name in (f"{usage}.{bucket}" for bucket in _LANGFUSE_BUCKETS)]
    dotted += [name for source in SOURCES for name in source.classes if "." in name]
    own = [name for name in (reading.class_by, *reading.columns.values()) if name and "." in name]
    return tuple(dict.fromkeys([*dotted, *own]))


def source_of(columns: Sequence[str], where: str, wanted: str | None) -> Source:
    """The kind of traces that has these columns.

    Raises:
        UsageError: no kind has.
    """
    given = set(columns)
    for source in SOURCES:
        if source.kind == wanted or (wanted is None and any(given >= set(mark) for mark in source.marks)):
            return source
    shown = ", ".join(sorted(given - {FILE_COLUMN})[:12])
    raise UsageError(
        "trace-format",
        f"its columns are those of no known kind of traces: {shown}",
        where=where,
        mend="say with --as what it is, and with --column task=NAME which columns hold what",
    )


def steps_of(rows: Expression, source: Source, reading: Reading, where: str) -> Expression:
    """The steps of a source: task, span, parent, kind, started, ended, user, tool, failed, tokens, class_0 …

    ``kind`` is ``model``, ``tool`` or ``other``. Numbers stay as they are written (``text_…``) beside what they say, so
    that a check can tell a number that is none from one that is missing.

    Raises:
        UsageError: a column that the kind needs is not there.
    """
    import ibis

    find = _Finder(rows, source, reading)
    # what somebody names is needed too: misspelt, it would read as unknown
    missing = [name for name in (*reading.columns, *source.required) if find.raw(name) is None]
    if reading.class_by and find.look_up(reading.class_by) is None:
        missing.append("class")
    if missing:
        own = reading.class_by if missing[0] == "class" else reading.columns.get(missing[0])
        looked = own or ", ".join(source.names[missing[0]])
        raise UsageError(
            "trace-columns",
            f"holds no {missing[0]}: looked for {looked}",
            where=where,
            mend=f"name the column: --column {missing[0]}=NAME, or say with --as what kind of traces it is",
        )
    given = {name: find.text(name) for name in _TEXTS}
    given |= {name: find.number(name) for name in (*_NUMBERS, "total")}
    given |= {name: find.time(name) for name in TIMES}
    given |= {f"text_{name}": find.written(name) for name in (*WRITTEN, *TIMES)}
    if source is LANGFUSE:
        given |= {name: find.as_number(find.in_usage(name)) for name in _LANGFUSE_BUCKETS}
    chosen = (reading.class_by,) if reading.class_by else source.classes
    classes = [ibis.literal(reading.agent)] if reading.agent else [find.named(name) for name in chosen]
    given |= {f"class_{index}": value for index, value in enumerate(classes)}
    # in two selections: what is looked up is then looked up once, however often it is used
    return _understood(rows.select(**given, file=find.named(FILE_COLUMN)), source, reading)


def _understood(found: Expression, source: Source, reading: Reading) -> Expression:
    """What the fields of a row mean: whether it is a call, of how many tokens."""
    import ibis

    operation, status = found.operation.lower(), found.status.lower()
    numbers = _langfuse_usage(found) if source is LANGFUSE else {name: found[name] for name in _NUMBERS}
    said = numbers["input"].notnull() | numbers["output"].notnull()
    is_tool = operation.isin(_TOOL) | (operation == "call_mcp_tool")
    if source is OTEL:
        is_model = operation.isin(_MODEL) | (said & (operation.isnull() | ~operation.isin(_NOT_MODEL)))
    elif source is LANGFUSE:
        is_model = operation == "generation"
    elif source is LITELLM:
        other = operation.re_search("embed|image|speech|transcription|rerank|moderation|mcp").fill_null(False)
        # answered from the proxy's own cache: no model was asked
        is_model = ~other & (found.answered.lower().fill_null("") != "true")
    else:
        is_model = operation.isnull() | ~operation.isin(_TOOL)
    inputs = numbers["input"]
    if reading.cached_apart:
        inputs = inputs + numbers["cached"].fill_null(0) + numbers["written"].fill_null(0)
    # a prompt of no tokens does not exist: proxies write 0 where nobody told them
    is_unknown = inputs.fill_null(1) == 0
    unknown = ibis.null("int64")
    return found.select(
        "span", "parent", "started", "ended", "user", "tool", "file",
        *(name for name in found.columns if name.startswith(("class_", "text_"))),
        task=found.session if reading.by_session else found.task,
        kind=ibis.cases((is_model.fill_null(False), "model"), (is_tool.fill_null(False), "tool"), else_="other"),
        failed=status.isin(("error", "failure", "failed", "2", "status_code_error")).fill_null(False),
        input=ibis.cases((is_unknown, unknown), else_=inputs),
        cached=numbers["cached"],
        output=ibis.cases((is_unknown & (numbers["output"].fill_null(1) == 0), unknown), else_=numbers["output"]),
        **{name: numbers[name] for name in ("duration_ms", "fanout", "tool_calls")},
    )  # fmt: skip


_TEXTS = ("task", "span", "parent", "session", "user", "operation", "tool", "status", "answered")
_NUMBERS = ("input", "cached", "written", "output", "duration_ms", "fanout", "tool_calls")
#: Fields whose text is kept for the check of numbers.
WRITTEN = ("input", "cached", "output", "duration_ms", "fanout", "tool_calls")
TIMES = ("started", "ended")


def _langfuse_usage(found: Expression) -> dict[str, Expression]:
    """Buckets exclude each other; where the total says otherwise, the total is right."""
    import ibis

    unknown = ibis.null("int64")

    def first(names: Sequence[str]) -> Expression:
        return ibis.coalesce(*(found[name] for name in names))

    cached, written = first(_LANGFUSE_CACHED), first(_LANGFUSE_WRITTEN)
    reasoning = sum((found[name].fill_null(0) for name in _LANGFUSE_OUTPUT), ibis.literal(0, "int64"))
    output = ibis.cases((found.input + found.output == found.total, found.output), else_=found.output + reasoning)
    inputs = ibis.coalesce(found.total - output, found.input + cached.fill_null(0) + written.fill_null(0))
    return {
        "input": ibis.cases((found.input.isnull(), unknown), else_=inputs), "cached": cached, "written": written,
        "output": output, "duration_ms": unknown, "fanout": unknown, "tool_calls": unknown,
    }  # fmt: skip


class _Finder:
    """Looks names up in the columns of a table, and inside its columns of attributes."""

    def __init__(self, rows: Expression, source: Source, reading: Reading) -> None:
        self.rows = rows
        self.types = dict(rows.schema().items())
        self.source = source
        self.reading = reading

    def raw(self, field: str) -> Expression | None:
        """What holds a field of a step; None: nothing does."""
        own = self.reading.columns.get(field)
        names = (own,) if own else self.source.names.get(field, ())
        found = [value for name in names if (value := self.look_up(name)) is not None]
        if not found:
            return None
        if len(found) == 1:
            return found[0]
        import ibis

        if len({str(value.type()) for value in found}) > 1:
            found = [value.cast("string") for value in found]
        return ibis.coalesce(*(value.nullif("") if value.type().is_string() else value for value in found))

    def text(self, field: str) -> Expression:
        return self._as_text(self.raw(field))

    def in_usage(self, bucket: str) -> Expression | None:
        """A bucket of Langfuse's usage map."""
        import ibis

        found = [value for usage in _USAGE if (value := self.look_up(f"{usage}.{bucket}")) is not None]
        return ibis.coalesce(*(self._as_text(value) for value in found)) if found else None

    def named(self, name: str) -> Expression:
        return self._as_text(self.look_up(name))

    def written(self, field: str) -> Expression:
        """The text of a number or time that is stored as a text or a fraction."""
        import ibis

        value = self.raw(field)
        kind = None if value is None else value.type()
        if kind is None or not (kind.is_string() or kind.is_floating() or kind.is_decimal()):
            return ibis.null("string")
        return self._as_text(value)

    def number(self, field: str) -> Expression:
        return self.as_number(self.raw(field))

    def as_number(self, value: Expression | None) -> Expression:
        import ibis

        if value is None:
            return ibis.null("int64")
        if value.type().is_string():
            # by way of a fraction: "12.0" is 12, which some warehouses read as no whole number
            value = value.try_cast("float64")
        # a number that is none becomes unknown here, and the check finds it by its text
        return value.cast("int64") if value.type().is_integer() else value.try_cast("int64")

    def time(self, field: str) -> Expression:
        import ibis

        value = self.raw(field)
        if value is None:
            return ibis.null("timestamp")
        kind = value.type()
        if kind.is_integer():
            names = (self.reading.columns.get(field, ""), *self.source.names[field])
            if "nano" in next((name for name in names if name in self.types), "").lower():
                return (value // 1_000_000).as_timestamp("ms").cast("timestamp")
            return value.as_timestamp("s").cast("timestamp")
        if kind.is_string():
            # by way of a time with a zone: DuckDB's own cast drops an offset and keeps the clock's hours
            return value.try_cast("timestamp('UTC')").cast("timestamp")
        return value.cast("timestamp")

    def _as_text(self, value: Expression | None) -> Expression:
        import ibis

        if value is None:
            return ibis.null("string")
        return value.cast("string").nullif("")

    def look_up(self, name: str) -> Expression | None:
        if name in self.types:
            return self._scalar(self.rows[name])
        outer, _, inner = name.partition(".")
        found = []
        if inner and outer in self.types:
            found.append(self._inside(self.rows[outer], inner, nested=True))
        # ids and times are columns; what has a dot, or what somebody names, may be an attribute
        if inner or name == self.reading.class_by or name in self.reading.columns.values():
            found += [self._inside(self.rows[column], name) for column in ATTRIBUTES if column in self.types]
        kept = [value for value in found if value is not None]
        if not kept:
            return None
        import ibis

        return ibis.coalesce(*(self._as_text(value) for value in kept))

    def _inside(self, column: Expression, key: str, *, nested: bool = False) -> Expression | None:
        kind = column.type()
        if kind.is_struct():
            if key in kind.names:
                return self._scalar(column[key])
            outer, _, inner = key.partition(".")
            return self._inside(column[outer], inner, nested=nested) if inner and outer in kind.names else None
        if kind.is_map():
            return self._scalar(column.get(key))
        if kind.is_json():
            for part in key.split(".") if nested else [key]:
                # a dot in a path of DuckDB goes one level deeper, unless the name is quoted
                column = column[f'"{part}"' if "." in part else part]
            return self._scalar(column)
        return None

    def _scalar(self, value: Expression) -> Expression:
        if not value.type().is_json():
            return value
        import ibis

        return ibis.coalesce(value.str, value.int.cast("string"), value.float.cast("string"))
