"""The samples of a trial, by hand-worked conversations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from pytest_fanout.meter import Measured, measure_trial
from pytest_fanout.records import Attempt, Endpoint, Exchange, HttpAnswer, HttpRequest
from pytest_fanout.wire import estimate

URL = "https://api.openai.com/v1/chat/completions"


def answer_body(input_tokens: int, output_tokens: int, tools: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    calls = [{"id": id_, "type": "function", "function": {"name": name, "arguments": "{}"}} for id_, name in tools]
    message = {"role": "assistant", "content": "x", **({"tool_calls": calls} if calls else {})}
    usage = {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    finish = "tool_calls" if calls else "stop"
    return {"model": "m-1", "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage}


def sent(
    seq: int,
    start: int,
    end: int,
    body: dict[str, Any] | None = None,
    *,
    asks: Any = None,
    status: int | None = 200,
    bucket: str = "agent",
    role: str = "model",
    url: str = URL,
    method: str = "POST",
    headers: dict[str, str] | None = None,
    outcome: str = "complete",
) -> Exchange:
    """One exchange from ``start`` to ``end`` ms; ``asks``: the request's messages, by default its number."""
    messages = asks if isinstance(asks, list) else [{"role": "user", "content": str(seq if asks is None else asks)}]
    request = HttpRequest(
        method, url, tuple((headers or {}).items()), json.dumps({"model": "m", "messages": messages}).encode()
    )
    chunks = (json.dumps(body).encode(),) if body is not None else ()
    kind = (("content-type", "application/json"),)
    return Exchange(
        seq,
        "httpx2",
        role,
        bucket,
        request,
        HttpAnswer(status, kind, chunks, (0,) * len(chunks), end - start, outcome),
        start,
    )


def measured(*exchanges: Exchange, duration_ms: int = 1000) -> Measured:
    return measure_trial(exchanges, duration_ms)


def test_a_conversation_with_two_tools() -> None:
    """Every sample of a small conversation, worked by hand."""
    results = [
        {"role": "user", "content": "hi"},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
    ]
    got = measured(
        sent(0, 0, 100, answer_body(10, 5, [("c1", "look"), ("c2", "buy")])),
        sent(1, 100, 150, {}, url="https://shop.example/search", role="tool"),
        sent(2, 180, 300, answer_body(30, 7), asks=results),
    )

    assert dict(got.samples) == {
        "fanout": 2,
        "attempts": 2,
        "tool_calls": 2,
        "input_tokens": 40,
        "cached_input_tokens": 2,
        "cache_write_tokens": None,  # the provider does not tell
        "output_tokens": 12,
        "reasoning_tokens": 4,
        "context_max": 30,
        "context_token_ms": 15 * 100 + 37 * 120,
        "duration_ms": 1000,
        "model_ms": 220,
        "tool_ms": 160,  # 80 ms for each of the two
        "peak_concurrency": 1,
        "rounds": 2,
        "spawn_depth": None,
        "tool_calls[buy]": 1,
        "tool_calls[look]": 1,
        "tool_ms[buy]": 80,
        "tool_ms[look]": 80,
    }
    assert (got.other, got.unclassified, got.unknown_usage, got.problems) == (1, 0, 0, ())
    assert (got.models_requested, got.models_served, got.hosts) == (("m",), ("m-1",), ("api.openai.com:443",))
    (site,) = got.call_sites
    assert (dict(got.sites), dict(got.site_tokens)) == ({site.fingerprint: 2}, {site.fingerprint: 52})


def test_no_call_at_all() -> None:
    """A trial without calls has zeros, not unknowns: it is known that nothing was used."""
    samples = measured().samples

    assert {samples[name] for name in samples if name not in ("duration_ms", "spawn_depth")} == {0}


@pytest.mark.parametrize(
    ("spans", "peak", "rounds"),
    [
        ([(0, 10), (10, 20), (20, 30)], 1, 3),
        ([(0, 10), (0, 10), (0, 10)], 3, 1),
        ([(0, 100), (0, 10), (10, 20), (50, 60)], 2, 3),
        ([(0, 10), (5, 15), (15, 20)], 2, 2),
        ([(0, 30), (10, 20), (15, 40), (40, 50)], 3, 2),
    ],
)
def test_shape_in_time(spans: list[tuple[int, int]], peak: int, rounds: int) -> None:
    """`peak_concurrency` is what overlaps at one moment, `rounds` the longest chain of one after the other."""
    samples = measured(*(sent(n, start, end, answer_body(1, 2)) for n, (start, end) in enumerate(spans))).samples

    assert (samples["peak_concurrency"], samples["rounds"]) == (peak, rounds)


def test_missing_usage_is_unknown_not_zero() -> None:
    """One call without usage makes every token sample unknown; fanout and times stay known."""
    silent = answer_body(1, 2)
    del silent["usage"]
    got = measured(sent(0, 0, 10, answer_body(10, 5)), sent(1, 10, 20, silent))

    assert got.unknown_usage == 1
    assert {got.samples[name] for name in ("input_tokens", "output_tokens", "context_max", "context_token_ms")} == {
        None
    }
    assert (got.samples["fanout"], got.samples["model_ms"]) == (2, 20)


def test_estimated_usage_is_summed_and_still_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate enters the sums, counts among the calls of unknown usage, and is told; its parts are not known."""
    monkeypatch.setattr(estimate, "tokenizer", lambda: len)
    silent = answer_body(1, 2)
    silent["choices"][0]["message"]["content"] = "12345"
    del silent["usage"]
    got = measured(sent(0, 0, 10, answer_body(10, 5)), sent(1, 10, 20, silent, asks="123"))

    assert got.unknown_usage == 1
    assert [got.samples[name] for name in ("input_tokens", "output_tokens", "context_max")] == [13, 10, 10]
    assert (got.samples["context_token_ms"], got.samples["reasoning_tokens"]) == (15 * 10 + 8 * 10, None)
    assert [(problem.slug, problem.text, problem.verdict) for problem in got.problems] == [
        (
            "usage-estimated",
            "model calls came without usage: their tokens are estimated from the text, and count as unknown usage\n"
            "  mend: let the client ask for usage (stream_options.include_usage)",
            "notice",
        )
    ]


def test_rejected_calls_reached_no_model() -> None:
    """A call that was only ever rejected is an attempt and no fanout, and its usage is none, not unknown."""
    got = measured(
        sent(0, 0, 5, {"error": {"message": "no"}}, status=429),
        sent(1, 10, 12, status=None, outcome="error"),
        sent(2, 20, 30, answer_body(10, 5)),
    )

    assert (got.samples["fanout"], got.samples["attempts"], got.samples["input_tokens"]) == (1, 3, 10)


@pytest.mark.parametrize(
    ("first", "second", "calls"),
    [
        ({"status": 503}, {"start": 20}, 1),
        ({"status": 429}, {"start": 20}, 1),
        ({"status": 400}, {"start": 20}, 2),
        ({"status": 400}, {"start": 20, "headers": {"x-stainless-retry-count": "1"}}, 1),
        ({"status": 503}, {"start": 5}, 2),  # began before the first had ended
        ({"status": 503}, {"start": 20, "asks": "another"}, 2),
        ({"status": 503}, {"start": 20, "url": URL + "?v=2"}, 2),
        ({"status": 200}, {"start": 20}, 2),  # a repetition after a success
        ({"status": 200}, {"start": 20, "headers": {"x-stainless-retry-count": "1"}}, 2),
        ({"status": None, "outcome": "error"}, {"start": 20}, 1),
        ({"status": 503, "headers": {"idempotency-key": "a"}}, {"start": 5, "headers": {"idempotency-key": "a"}}, 1),
        ({"status": 503, "headers": {"idempotency-key": "a"}}, {"start": 20, "headers": {"idempotency-key": "b"}}, 2),
        ({"status": 200, "headers": {"idempotency-key": "a"}}, {"start": 20, "headers": {"idempotency-key": "a"}}, 2),
        (
            {"status": 400, "headers": {"amz-sdk-invocation-id": "a"}},
            {"start": 20, "headers": {"amz-sdk-invocation-id": "a"}},
            1,
        ),
    ],
)
def test_which_attempts_are_one_call(first: dict[str, Any], second: dict[str, Any], calls: int) -> None:
    """An attempt continues a failed call of the same request; a repetition after a success is a call of its own."""
    body = answer_body(1, 2) if first.get("status") == 200 else {"error": {}}
    start = second.pop("start")
    got = measured(
        sent(0, 0, 10, body, asks="q", **first), sent(1, start, 30, answer_body(1, 2), **{"asks": "q", **second})
    )

    assert len(got.calls) == calls
    assert sum(len(call.attempts) for call in got.calls) == 2


def test_three_attempts_then_the_same_question_again() -> None:
    """503, 503, 200 is one call; the same request once more is a second one."""
    failed = {"error": {}}
    got = measured(
        sent(0, 0, 5, failed, asks="q", status=503),
        sent(1, 10, 15, failed, asks="q", status=503),
        sent(2, 20, 30, answer_body(1, 2), asks="q"),
        sent(3, 40, 50, answer_body(1, 2), asks="q"),
    )

    assert [len(call.attempts) for call in got.calls] == [3, 1]


def test_buckets_and_refusals_stay_apart() -> None:
    """Calls of a judge are counted by bucket; what was refused or redirected is no call at all."""
    got = measured(
        sent(0, 0, 10, answer_body(1, 2)),
        sent(1, 10, 20, answer_body(100, 200), bucket="judge"),
        sent(2, 20, 20, {"error": {}}, status=400, role="refused"),
        sent(3, 30, 31, status=307),
    )

    assert (got.samples["fanout"], got.samples["attempts"], dict(got.aside)) == (1, 1, {"judge": 1})
    assert (got.samples["input_tokens"], got.samples["model_ms"], got.other) == (1, 10, 0)


def test_what_nobody_can_count_is_named() -> None:
    """Unreadable endpoints, hosted agents and empty answers are problems with their full text; nothing is guessed."""
    got = measured(
        sent(0, 0, 1, {}, url="https://api.openai.com/v1/brains"),
        sent(1, 0, 1, {}, url="https://api.openai.com/v1/brains"),
        sent(2, 0, 1, {}, url="https://api.anthropic.com/v1/sessions/s1/events"),
        sent(3, 0, 1, None),
        sent(4, 0, 1, None, url="https://api.openai.com/v1/responses", method="GET", status=101),
    )

    assert [(problem.slug, problem.text, problem.verdict) for problem in got.problems] == [
        (
            "unclassified-request",
            "POST https://api.openai.com/v1/brains x 2: sent to a model host, and no codec reads it\n"
            "  mend: add a codec by the hook pytest_fanout_codecs",
            "invalid",
        ),
        (
            "fanout-unobservable",
            "GET https://api.openai.com/v1/responses (channel), POST https://api.anthropic.com/v1/sessions/s1/events"
            " (agent_run): the provider runs model calls of its own there, out of sight",
            "invalid",
        ),
        (
            "empty-answer",
            f"POST {URL}: answered 200 with no content and no usage, so nothing was measured",
            "invalid",
        ),
    ]
    assert (got.unclassified, got.samples["fanout"]) == (2, 1)


class OwnCodec:
    """A codec for one URL of the user's own; ``broken`` makes it raise."""

    def __init__(self, broken: bool) -> None:
        self.broken = broken

    def classify(self, method: str, url: str) -> Endpoint | None:
        return Endpoint("own", "generate") if url.endswith("/think") else None

    def read_call(self, *parts: Any) -> Attempt | None:
        if self.broken:
            raise ValueError("oh")
        return Attempt("own", usage_source="final", input_tokens=3, output_tokens=4, http_status=200)


@pytest.mark.parametrize("broken", [False, True])
def test_codecs_of_the_user(broken: bool) -> None:
    """A codec of the user's own is asked first; one that raises loses no call: usage unknown, request unclassified."""
    exchanges = [sent(0, 0, 1, {}, url="http://localhost:1/think"), sent(1, 1, 2, answer_body(10, 5))]
    got = measure_trial(exchanges, 5, [OwnCodec(broken)])

    assert got.samples["fanout"] == 2
    assert got.samples["input_tokens"] == (None if broken else 13)
    assert [problem.slug for problem in got.problems] == (["unclassified-request"] if broken else [])


def test_order_of_exchanges_does_not_matter() -> None:
    """The same exchanges in any order give the same numbers."""
    exchanges = [sent(n, n * 10, n * 10 + 15, answer_body(n, 2), asks=n % 2) for n in range(6)]

    assert measured(*exchanges) == measured(*reversed(exchanges))


def test_a_trial_with_other_requests_only_names_their_urls() -> None:
    """Without queries, the first three by name; nothing is said beside a counted call."""
    paths = ("/ask?key=1", "/b", "/b", "/c", "/d")
    others = [sent(n, 0, 1, {}, url=f"http://h{path}", role="tool") for n, path in enumerate(paths)]

    assert [(p.slug, p.text, p.verdict) for p in measure_trial(others, 10).problems] == [
        (
            "only-other-requests",
            "no request went to a model that is known; others did: POST http://h/ask, POST http://h/b, "
            "POST http://h/c and 1 more",
            "notice",
        )
    ]
    assert measure_trial([*others, sent(9, 0, 1, answer_body(1, 1))], 10).problems == ()
