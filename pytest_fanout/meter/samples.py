"""From the exchanges of one trial to its numbers. Pure: the same exchanges always give the same samples.

The samples, one integer a trial; only calls of the bucket "agent" are in them, and of kinds generate and compact:

fanout             calls that reached a model (grouping.py says which attempts are one call)
attempts           physical requests, failed ones included
tool_calls         client tool calls that answers ask for, all names; ``tool_calls[NAME]`` by name
input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens
                   sums over attempts, estimates among them; None when any call's usage is missing or partial, or no
                   provider tells the part
context_max        the largest input of one attempt, in tokens
context_token_ms   sum over attempts of (input + output tokens) x its duration: what the attempt keeps in a KV cache
duration_ms        as given: from the start to the end of the task
model_ms           sum of the durations of attempts; overlapping ones count in full
tool_ms            from the end of an answer that asks for a tool to the start of the first later request that carries
                   its result (matched by id, or by name and order where the API gives none), summed over tool calls;
                   ``tool_ms[NAME]`` by name
peak_concurrency   most attempts in flight at once
rounds             longest chain of calls each begun after the one before had ended
spawn_depth        how deep in agents that start agents a call was made: the deepest seen by the gateway, from 0 for the
                   task's own agent; None where no call came through it
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_fanout import wire
from pytest_fanout.meter.flight import CUT, is_given_up
from pytest_fanout.meter.grouping import Counted, group_attempts, group_counted
from pytest_fanout.meter.ledger import AGENT
from pytest_fanout.meter.reader import COUNTED, Reader, host_port
from pytest_fanout.records import TIMING_METRICS, TOKEN_METRICS, Attempt, CallSite, Exchange, ModelCall, Problem, Turn

#: Kinds that run an unknown number of model calls at the provider, or on a channel that is not read.
_UNOBSERVABLE = frozenset({"agent_run", "batch", "channel"})
#: Usage that gives no sum, and usage that no provider has counted.
_UNKNOWN = frozenset({"missing", "partial"})
_NOT_COUNTED = _UNKNOWN | {"estimated"}
_PARTS = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")


@dataclass(frozen=True, slots=True)
class Measured:
    """The numbers of one trial. ``calls`` are the agent's; ``aside`` counts those of other buckets by name."""

    calls: tuple[ModelCall, ...]
    samples: Mapping[str, int | None]
    aside: Mapping[str, int] = field(default_factory=dict)
    sites: Mapping[str, int] = field(default_factory=dict)
    site_tokens: Mapping[str, int] = field(default_factory=dict)
    call_sites: tuple[CallSite, ...] = ()
    models_requested: tuple[str, ...] = ()
    models_served: tuple[str, ...] = ()
    unknown_usage: int = 0  # calls whose usage is missing, partial or estimated
    other: int = 0  # requests that are no model calls: tools, model lists, token counting, embeddings
    unclassified: int = 0
    hosts: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    failures: Mapping[str, int] = field(default_factory=dict)  # what went wrong -> attempts of the agent's calls


def measure_trial(
    exchanges: Iterable[Exchange], duration_ms: int | None, codecs: Iterable[Any] = (), model_hosts: Iterable[str] = ()
) -> Measured:
    """Count one trial, in every mode by this one function, so that a replay equals its recording.

    Args:
        exchanges: all of the trial, in any order; their times are ms from the start of the task.
        duration_ms: of the task; in replay that of the recording. None: all times are placeholders, and what depends on
            them is unknown.
        codecs: the user's own, asked before the built-in ones.
        model_hosts: the user's own model hosts: an unknown POST to one is unclassified.
    """
    reader, sorting = Reader(codecs), _Sorting(tuple(model_hosts))
    for exchange in exchanges:
        sorting.add(exchange, reader)
    sorting.attach_polls()
    failures = Counter(said for item in sorting.counted.get(AGENT, ()) if (said := _failure(item)))
    calls = {bucket: group_attempts(items) for bucket, items in sorting.counted.items()}
    own = calls.pop(AGENT, ())
    reached = [call for call in own if call.reached_model]
    sites = Counter(site.fingerprint for call in reached if (site := call.last.site))
    site_tokens: Counter[str] = Counter()
    for call in reached:
        if site := call.last.site:
            site_tokens[site.fingerprint] += sum(attempt.total_tokens or 0 for attempt in call.attempts)
    known = {site.fingerprint: site for call in own for attempt in call.attempts if (site := attempt.site)}
    attempts = [attempt for call in own for attempt in call.attempts]
    return Measured(
        calls=own,
        samples=samples_of(own, duration_ms) | {"spawn_depth": sorting.depth},
        aside={name: sum(call.reached_model for call in some) for name, some in sorted(calls.items())},
        sites=dict(sites),
        site_tokens=dict(site_tokens),
        call_sites=tuple(known[fingerprint] for fingerprint in sorted(known)),
        models_requested=_names(attempt.model_requested for attempt in attempts),
        models_served=_names(attempt.model_served for attempt in attempts),
        unknown_usage=sum(_has_usage(call, _NOT_COUNTED) for call in reached),
        other=len(sorting.other),
        unclassified=len(sorting.unclassified),
        hosts=tuple(sorted(sorting.hosts)),
        problems=(*sorting.problems(), *_estimates(reached)),
        failures=dict(sorted(failures.items())),
    )


def turns_of(exchanges: Iterable[Exchange], codecs: Iterable[Any] = ()) -> tuple[Turn, ...]:
    """A trial in the order of sending, its model calls put together as they are counted."""
    everything = sorted(exchanges, key=lambda one: (one.started_ms, one.seq))
    reader, sorting = Reader(codecs), _Sorting(())
    for exchange in everything:
        sorting.add(exchange, reader)
    sorting.attach_polls()
    calls = [call for items in sorting.counted.values() for call in group_counted(items)]
    begins = {id(call[0].exchange): call for call in calls}
    inside = {id(item.exchange) for call in calls for item in call}
    turns = []
    for exchange in everything:
        if call := begins.get(id(exchange)):
            turns.append(Turn(tuple(item.exchange for item in call), tuple(item.attempt for item in call)))
        elif id(exchange) not in inside:
            turns.append(Turn((exchange,)))
    return tuple(turns)


class _Sorting:
    """Exchanges by what they are."""

    def __init__(self, model_hosts: tuple[str, ...]) -> None:
        self.model_hosts = model_hosts
        self.counted: dict[str, list[Counted]] = {}
        self.other: list[str] = []
        self.unclassified: list[str] = []
        self.unobservable: list[str] = []
        self.empty: list[str] = []
        self.hosts: set[str] = set()
        self.depth: int | None = None
        self.polls: dict[str, list[tuple[int, Attempt]]] = {}  # by id of the run: end in ms, and what was told

    def add(self, exchange: Exchange, reader: Reader) -> None:
        request, status = exchange.request, exchange.answer.status
        if exchange.role == "refused" or (status is not None and 300 <= status < 400):
            return  # never sent, or the next hop is the request
        method = "WS" if status == 101 else request.method  # an upgraded GET is a channel
        kind = reader.classify(method, request.url).kind
        name = f"{request.method} {request.url.partition('?')[0]}"
        if kind in COUNTED or kind == "channel":
            attempt = reader.read(request, exchange.answer)
            if attempt is not None and attempt.kind in COUNTED:
                self._count(exchange, attempt, name)
                return
            if attempt is not None or kind in COUNTED:
                kind = attempt.kind if attempt is not None else "other"
        if kind in _UNOBSERVABLE:
            self.unobservable.append(f"{name} ({kind})")
        elif kind == "other" and wire.is_unclassified(method, request.url, self.model_hosts):
            self.unclassified.append(name)
        else:
            self.other.append(name)
            if wire.poll_id(method, request.url) is not None:
                self._note_poll(exchange, reader)

    def _note_poll(self, exchange: Exchange, reader: Reader) -> None:
        request, answer = exchange.request, exchange.answer
        told = reader.read_poll(request.method, request.url, answer.status, answer.headers, answer.body)
        if told is not None:
            end = exchange.started_ms + exchange.answer.ended_ms
            self.polls.setdefault(told.response_id or "", []).append((end, told))

    def attach_polls(self) -> None:
        """Give each background run what the last poll of it told. It lasted until the first poll that saw its end."""
        for counted in self.counted.values():
            for at, item in enumerate(counted):
                polls = self.polls.get(item.attempt.response_id or "", ())
                ended = sorted((poll for poll in polls if poll[1].status != "pending"), key=lambda poll: poll[0])
                if ended and item.attempt.status in ("pending", "incomplete"):
                    counted[at] = replace(item, attempt=_as_told(item.attempt, ended[-1][1], ended[0][0]))

    def _count(self, exchange: Exchange, attempt: Attempt, name: str) -> None:
        end = exchange.started_ms + exchange.answer.ended_ms
        url = exchange.request.url.partition("?")[0]
        answer = exchange.answer
        if answer.status is None and (answer.outcome == "unread" or answer.error == CUT):
            attempt = replace(attempt, status="pending", usage_source="missing")  # sent; the end came before its answer
        elif is_given_up(answer.status, answer.outcome, answer.error):
            attempt = replace(attempt, usage_source="missing")  # sent as well: what it has cost nobody can tell
        timed = replace(attempt, url=url, started_ms=exchange.started_ms, ended_ms=end)
        self.counted.setdefault(exchange.bucket, []).append(Counted(exchange, timed))
        self.hosts.add(host_port(exchange.request.url))
        if exchange.depth is not None and exchange.bucket == AGENT:
            self.depth = max(exchange.depth, self.depth or 0)
        if "no_codec" in attempt.notes or "codec_error" in attempt.notes:
            self.unclassified.append(name)
        if "empty_response" in attempt.notes and exchange.answer.outcome == "complete":
            self.empty.append(name)

    def problems(self) -> tuple[Problem, ...]:
        found = []
        if self.unclassified:
            found.append(
                Problem(
                    "unclassified-request",
                    f"{_times(self.unclassified)}: sent to a model host, and no codec reads it\n"
                    "  mend: add a codec by the hook pytest_fanout_codecs",
                )
            )
        if self.unobservable:
            found.append(
                Problem(
                    "fanout-unobservable",
                    f"{_times(self.unobservable)}: the provider runs model calls of its own there, out of sight",
                )
            )
        if self.empty:
            found.append(
                Problem(
                    "empty-answer",
                    f"{_times(self.empty)}: answered 200 with no content and no usage, so nothing was measured",
                )
            )
        if self.other and not self.counted and not found:
            found.append(
                Problem(
                    "only-other-requests",
                    f"no request went to a model that is known; others did: {_times(sorted(set(self.other)), 3)}",
                    "notice",
                )
            )
        return tuple(found)


def _as_told(attempt: Attempt, told: Attempt, ended_ms: int) -> Attempt:
    names = (
        *("status", "error_type", "choices", "finish", "finish_raw", "tool_calls", "server_tool_calls", "side_calls"),
        *("inner_iterations", "usage_source", "total_reported", *_PARTS),
    )
    return replace(
        attempt,
        model_served=told.model_served or attempt.model_served,
        notes=tuple(dict.fromkeys((*attempt.notes, *told.notes))),
        ended_ms=ended_ms,
        **{name: getattr(told, name) for name in names},
    )


def _times(names: Sequence[str], most: int | None = None) -> str:
    counts = sorted(Counter(names).items())
    said = [name if count == 1 else f"{name} x {count}" for name, count in counts[:most]]
    return ", ".join(said) + (f" and {len(counts) - len(said)} more" if len(said) < len(counts) else "")


def _names(found: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({name for name in found if name}))


def _failure(item: Counted) -> str | None:
    """What went wrong in an attempt, by the provider or the network; None where nothing did."""
    status, answer = item.attempt.http_status, item.exchange.answer
    if status is not None and status >= 400:
        return f"HTTP {status}"
    if answer.outcome == "error":
        return "no answer" if answer.status is None else "broken off"
    return "error in the answer" if item.attempt.status == "error" else None


def _has_usage(call: ModelCall, sources: frozenset[str]) -> bool:
    return any(attempt.usage_source in sources for attempt in call.attempts)


def _estimates(reached: Iterable[ModelCall]) -> tuple[Problem, ...]:
    if not any(_has_usage(call, frozenset({"estimated"})) for call in reached):
        return ()
    # without numbers, so that a report tells it once for all tasks
    return (
        Problem(
            "usage-estimated",
            "model calls came without usage: their tokens are estimated from the text, and count as unknown usage\n"
            "  mend: let the client ask for usage (stream_options.include_usage)",
            "notice",
        ),
    )


def samples_of(calls: Sequence[ModelCall], duration_ms: int | None) -> dict[str, int | None]:
    """The samples of the agent's calls, as the module says; those of the clock None when ``duration_ms`` is."""
    reached = [call for call in calls if call.reached_model]
    attempts = [attempt for call in calls for attempt in call.attempts]
    spans = [(attempt.started_ms or 0, attempt.ended_ms or 0) for attempt in attempts]
    asked = Counter(tool.name for call in reached for tool in call.last.tool_calls)
    waits = _tool_waits(reached)
    samples: dict[str, int | None] = {
        "fanout": len(reached),
        "attempts": len(attempts),
        "tool_calls": asked.total(),
        **_token_samples(reached),
        "duration_ms": duration_ms,
        "model_ms": sum(end - start for start, end in spans),
        "tool_ms": sum(waits.values()),
        "peak_concurrency": _peak(spans),
        "rounds": _longest_chain([(c.attempts[0].started_ms or 0, c.last.ended_ms or 0) for c in calls]),
        "spawn_depth": None,
    }
    samples.update((f"tool_calls[{name}]", count) for name, count in sorted(asked.items()))
    samples.update((f"tool_ms[{name}]", waits.get(name, 0)) for name in sorted(asked))
    if duration_ms is None:
        samples.update((name, None) for name in samples if name.partition("[")[0] in TIMING_METRICS)
    return samples


def _token_samples(reached: Sequence[ModelCall]) -> dict[str, int | None]:
    if any(_has_usage(call, _UNKNOWN) for call in reached):
        return dict.fromkeys(sorted(TOKEN_METRICS - {"tokens"}))
    used = [a for call in reached for a in call.attempts if a.usage_source != "none"]
    samples: dict[str, int | None] = {}
    for name in _PARTS:
        values = [getattr(attempt, name) for attempt in used]
        samples[name] = None if None in values else sum(values)
    samples["context_max"] = max((a.input_tokens or 0 for a in used), default=0)
    samples["context_token_ms"] = sum((a.total_tokens or 0) * ((a.ended_ms or 0) - (a.started_ms or 0)) for a in used)
    return samples


def _tool_waits(calls: Sequence[ModelCall]) -> Counter[str]:
    """Milliseconds by tool name."""
    waits: Counter[str] = Counter()
    carried = sorted(
        ((attempt.started_ms or 0, Counter(attempt.tool_results_in)) for call in calls for attempt in call.attempts),
        key=lambda pair: pair[0],
    )
    for call in calls:
        end = call.last.ended_ms or 0
        # A request carries the whole history. Without ids the result is the first one more, of that name, than its
        # call's own request carried.
        seen = Counter(call.last.tool_results_in)
        for tool in call.last.tool_calls:
            key = tool.id or tool.name
            seen[key] = 1 if tool.id is not None else seen[key] + 1
            start = next((at for at, results in carried if at >= end and results[key] >= seen[key]), None)
            if start is not None:
                waits[tool.name] += start - end
    return waits


def _peak(spans: Iterable[tuple[int, int]]) -> int:
    flying: list[int] = []
    peak = 0
    for start, end in sorted(spans):
        while flying and flying[0] <= start:
            heapq.heappop(flying)
        heapq.heappush(flying, end)
        peak = max(peak, len(flying))
    return peak


def _longest_chain(spans: Iterable[tuple[int, int]]) -> int:
    """Most spans that can be put one after the other: always take the one that ends first."""
    length, free_from = 0, -1
    for start, end in sorted(spans, key=lambda span: (span[1], span[0])):
        if start >= free_from:
            length, free_from = length + 1, end
    return length
