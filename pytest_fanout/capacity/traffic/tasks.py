"""From steps to tasks: each call once, and what a task does not know stays unknown. All of it is expressions (ibis)."""

from __future__ import annotations

from typing import Any

Expression = Any

#: How far above a call a span is looked for that only repeats it: parent, its parent, and so on.
LEVELS = 4
METRICS = (
    "fanout",
    "tool_calls",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "tokens",
    "duration_ms",
)


def once(steps: Expression) -> Expression:
    """A span that was exported twice counts once. Spans without an id are all different."""
    named = steps.filter(steps.span.notnull()).distinct(on=["task", "span"], keep="first")
    return named.union(steps.filter(steps.span.isnull()))


def counted(steps: Expression, *, nested: bool) -> Expression:
    """The model calls and tool calls: of a span and what it wraps, the innermost.

    A span that reports the usage of a call below it is no call of its own, up to four levels above; a tool between the
    two ends that: what runs inside a tool is another call. A span of a tool directly inside one of the same tool
    is the same tool call (a client and its server).
    """
    model = steps.filter((steps.kind == "model") & steps.task.notnull())
    tools = steps.filter((steps.kind == "tool") & steps.task.notnull())
    # an error that told no usage reached no model
    model = model.filter(~(model.failed & model.input.isnull() & model.output.isnull()))
    if not nested:
        return model.union(tools)
    import ibis

    links = steps.filter(steps.span.notnull()).select(
        above_task=steps.task, above_span=steps.span, above_parent=steps.parent, above_kind=steps.kind
    )
    up = model.filter(model.parent.notnull()).select(wrapped_task=model.task, wrapped_span=model.parent)
    levels = [up]
    for _ in range(LEVELS - 1):
        joined = up.inner_join(links, [up.wrapped_task == links.above_task, up.wrapped_span == links.above_span])
        up = joined.filter(joined.above_parent.notnull() & (joined.above_kind != "tool")).select(
            wrapped_task=joined.above_task, wrapped_span=joined.above_parent
        )
        levels.append(up)
    wrappers = ibis.union(*levels, distinct=True)
    model = model.anti_join(wrappers, [model.task == wrappers.wrapped_task, model.span == wrappers.wrapped_span])
    outer = tools.select(outer_task=tools.task, outer_span=tools.span, outer_tool=tools.tool)
    tools = tools.anti_join(
        outer,
        [tools.task == outer.outer_task, tools.parent == outer.outer_span, tools.tool == outer.outer_tool],
    )
    return model.union(tools)


def tasks_of(steps: Expression, calls: Expression, classes: int) -> Expression:
    """One row a task: class, user, start, and its metrics. A task of which one call is unknown is unknown itself.

    A task is as long as its first span to its last one. Tasks without any model call are none: health checks, jobs.
    """
    import ibis

    whole = steps.filter(steps.task.notnull()).group_by("task").aggregate(
        **{f"class_{index}": steps[f"class_{index}"].argmin(steps.started) for index in range(classes)},
        **{f"any_{index}": steps[f"class_{index}"].max() for index in range(classes)},
        user=steps.user.max(),
        started=steps.started.min(),
        ended=steps.ended.max(),
    )  # fmt: skip
    is_model = calls.kind == "model"

    def total(name: str) -> Expression:
        unknown = (is_model & calls[name].isnull()).sum()
        return ibis.cases((unknown > 0, ibis.null("int64")), else_=calls[name].sum(where=is_model).cast("int64"))

    sums = (
        calls.group_by("task")
        .aggregate(
            fanout=is_model.sum().cast("int64"),
            tool_calls=(calls.kind == "tool").sum().cast("int64"),
            input_tokens=total("input"),
            cached_input_tokens=total("cached"),
            output_tokens=total("output"),
            unknown=(is_model & (calls.input.isnull() | calls.output.isnull())).sum().cast("int64"),
        )
        .rename(of="task")
    )
    sums = sums.filter(sums.fanout > 0)
    joined = whole.inner_join(sums, [whole.task == sums.of])
    known = [joined[f"{name}_{index}"] for index in range(classes) for name in ("class", "any")]
    return joined.select(
        agent=ibis.coalesce(*known, ibis.literal("(no class)")),
        task=joined.task,
        user=joined.user,
        started=joined.started,
        fanout=joined.fanout,
        tool_calls=joined.tool_calls,
        input_tokens=joined.input_tokens,
        cached_input_tokens=joined.cached_input_tokens,
        output_tokens=joined.output_tokens,
        tokens=joined.input_tokens + joined.output_tokens,
        duration_ms=joined.ended.delta(joined.started, unit="millisecond").cast("int64"),
        unknown=joined.unknown,
    )


def tasks_as_given(steps: Expression, classes: int) -> Expression:
    """The same of a source that has one row a task already."""
    import ibis

    known = [steps[f"class_{index}"] for index in range(classes)]
    spent = steps.ended.delta(steps.started, unit="millisecond").cast("int64")
    return steps.select(
        agent=ibis.coalesce(*known, ibis.literal("(no class)")),
        task=steps.task,
        user=steps.user,
        started=steps.started,
        fanout=steps.fanout,
        tool_calls=steps.tool_calls,
        input_tokens=steps.input,
        cached_input_tokens=steps.cached,
        output_tokens=steps.output,
        tokens=steps.input + steps.output,
        duration_ms=ibis.coalesce(steps.duration_ms, spent),
        # how many calls of a task do not know theirs cannot be seen in such a row
        unknown=ibis.literal(0, "int64"),
    )


def once_each(tasks: Expression) -> Expression:
    """Tasks as given, where a row that says the same as another one, its start among it, counts once.

    Without a start two equal rows may be two tasks, and both count.
    """
    dated = tasks.task.notnull() & tasks.started.notnull()
    return tasks.filter(dated).distinct().union(tasks.filter(~dated))


def names_of(tasks: Expression) -> Expression:
    """One row: how many tasks there are, how many of them have a name, and how many names there are."""
    return tasks.aggregate(
        tasks=tasks.count().cast("int64"),
        named=tasks.task.count().cast("int64"),
        names=tasks.task.nunique().cast("int64"),
    )


def totals_of(steps: Expression, tasks: Expression) -> Expression:
    """One row: rows, model calls that were told of, that failed without usage, and that name no task; those counted."""
    is_model = steps.kind == "model"
    lost = steps.failed & steps.input.isnull() & steps.output.isnull()
    of_steps = steps.aggregate(
        rows=steps.count().cast("int64"),
        told=(is_model & steps.task.notnull()).sum().cast("int64"),
        failed=(is_model & steps.task.notnull() & lost).sum().cast("int64"),
        no_task=((steps.kind != "other") & steps.task.isnull()).sum().cast("int64"),
    )
    of_tasks = tasks.aggregate(calls=tasks.fanout.sum().cast("int64"), unknown=tasks.unknown.sum().cast("int64"))
    return of_steps.cross_join(of_tasks)


def renamed(tasks: Expression, names: dict[str, str]) -> Expression:
    """Classes as the project calls them."""
    if not names:
        return tasks
    import ibis

    agent = ibis.cases(*[(tasks.agent == given, ours) for given, ours in sorted(names.items())], else_=tasks.agent)
    return tasks.mutate(agent=agent)


def spreads_of(tasks: Expression) -> Expression:
    """For each class and metric: how many tasks, how many know it, sum, percentiles and maximum.

    Percentiles are exact and the gate's own (inverted_cdf): each distinct value with its count, cumulated in order. No
    backend's own quantile is used, they differ.
    """
    import ibis

    # one row a task and metric, of one pass over the tasks
    each = tasks.select("agent", *METRICS, number=ibis.array(list(range(len(METRICS)))).unnest())
    numbered = list(enumerate(METRICS))
    long = each.select(
        "agent",
        "number",
        value=ibis.cases(*[(each.number == number, each[name].cast("int64")) for number, name in numbered]),
    )
    # by number, and by name only at the end: millions of rows are grouped
    counts = long.group_by("agent", "number", "value").aggregate(n=long.count())
    known = counts.filter(counts.value.notnull())
    of_metric = ibis.window(group_by=["agent", "number"])
    so_far = ibis.cumulative_window(group_by=["agent", "number"], order_by="value")
    ranked = known.mutate(reached=known.n.sum().over(so_far), every=known.n.sum().over(of_metric))

    def percentile(percent: int) -> Expression:
        return ranked.value.min(where=ranked.reached * 100 >= ranked.every * percent)

    found = ranked.group_by("agent", "number").aggregate(
        known=ranked.n.sum().cast("int64"),
        total=(ranked.value * ranked.n).sum().cast("float64"),
        p50=percentile(50),
        p95=percentile(95),
        p99=percentile(99),
        max=ranked.value.max(),
    )
    every = counts.group_by("agent", "number").aggregate(tasks=counts.n.sum().cast("int64"))
    every = every.rename(agent_="agent", number_="number")
    joined = every.left_join(found, [every.agent_ == found.agent, every.number_ == found.number])
    columns = [joined[name] for name in ("known", "total", "p50", "p95", "p99", "max")]
    metric = ibis.cases(*[(joined.number_ == number, ibis.literal(name)) for number, name in numbered])
    return joined.select(joined.tasks, *columns, agent=joined.agent_, metric=metric)


def cells_of(tasks: Expression, agent: str, metric: str, edges: list[int]) -> Expression:
    """How many tasks of a class lie in each cell (edge, next edge], the first from below, the last to above.

    Args:
        edges: rising whole numbers, two at least.
    """
    own = tasks.filter((tasks.agent == agent) & tasks[metric].notnull())
    cell = own[metric].bucket(edges, closed="right", close_extreme=False, include_under=True, include_over=True)
    placed = own.select(cell=cell.cast("int64"))
    return placed.group_by("cell").aggregate(n=placed.count().cast("int64"))


def days_of(tasks: Expression) -> Expression:
    """For each class and day (UTC): tasks, users, tasks without a user, tokens and how many tasks know them."""
    dated = tasks.filter(tasks.started.notnull()).mutate(day=tasks.started.date())
    return dated.group_by("agent", "day").aggregate(
        tasks=dated.count().cast("int64"),
        users=dated.user.nunique().cast("int64"),
        nameless=dated.user.isnull().sum().cast("int64"),
        tokens=dated.tokens.sum().cast("float64"),
        knowing=dated.tokens.notnull().sum().cast("int64"),
    )
