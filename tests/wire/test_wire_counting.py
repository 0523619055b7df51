"""How counts of different providers become one: everything in, everything out, parts of them, and what is not known."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire_examples import SSE, facts, render

from pytest_fanout.records import Attempt, SideCall
from pytest_fanout.wire import classify, read_call

CHAT = "https://api.openai.com/v1/chat/completions"
RESPONSES = "https://api.openai.com/v1/responses"
MESSAGES = "https://api.anthropic.com/v1/messages"


def answer(url: str, document: Any, **usage: Any) -> Attempt:
    """What is read from a JSON answer whose usage is ``usage``."""
    body = json.dumps({**document, "usage": usage}).encode()
    attempt = read_call("POST", url, b"", 200, {}, body)
    assert attempt is not None
    return attempt


def chat(**usage: Any) -> Attempt:
    return answer(CHAT, {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]}, **usage)


def message(**usage: Any) -> Attempt:
    return answer(MESSAGES, {"type": "message", "content": [], "stop_reason": "end_turn"}, **usage)


def chunk(made: int, *, finish: str | None = None) -> list[Any]:
    usage = {"prompt_tokens": 100, "completion_tokens": made, "total_tokens": 100 + made}
    return [{"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage}]


def test_usage_on_every_chunk_is_never_added_up() -> None:
    """A1: four chunks with growing usage are one call with the last numbers, as the same answer in one piece is."""
    stream = render([chunk(1), chunk(2), chunk(3), chunk(4, finish="stop"), ["[DONE]"]])
    whole = {
        "id": "c",
        "model": "m",
        "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 4, "total_tokens": 104},
    }
    request = b'{"model": "m", "messages": []}'
    streamed = read_call("POST", CHAT, request, 200, SSE, stream)
    plain = read_call("POST", CHAT, request, 200, {}, json.dumps(whole).encode())

    assert facts(streamed, "input_tokens", "output_tokens") == {"input_tokens": 100, "output_tokens": 4}
    assert facts(streamed) == {**facts(plain), "stream": True}


def test_usage_of_a_cut_stream_is_a_lower_bound() -> None:
    """What a stream said before it was cut is partial; once the choice had finished it is final, cut or not."""
    bound = read_call("POST", CHAT, b"", 200, SSE, render([chunk(1), chunk(2)]))
    final = read_call("POST", CHAT, b"", 200, SSE, render([chunk(1), chunk(2, finish="stop")]))

    names = ("status", "output_tokens", "usage_source")
    assert facts(bound, *names) == {"status": "incomplete", "output_tokens": 2, "usage_source": "partial"}
    assert facts(final, *names) == {"status": "incomplete", "output_tokens": 2, "usage_source": "final"}


@pytest.mark.parametrize(
    "attempt",
    [
        message(input_tokens=5, cache_read_input_tokens=1000, cache_creation_input_tokens=200, output_tokens=10),
        chat(prompt_tokens=1205, completion_tokens=10, prompt_tokens_details={"cached_tokens": 1000}),
        answer(
            RESPONSES,
            {"status": "completed", "output": []},
            input_tokens=1205,
            input_tokens_details={"cached_tokens": 1000},
            output_tokens=10,
        ),
    ],
    ids=["anthropic", "chat", "responses"],
)
def test_cached_tokens_are_a_part_of_the_input_on_every_wire(attempt: Attempt) -> None:
    """A2: three wires, one meaning: input holds cache reads and writes, cached is a part of it."""
    expected = {"input_tokens": 1205, "cached_input_tokens": 1000, "output_tokens": 10, "usage_source": "final"}

    assert facts(attempt, *expected) == expected


@pytest.mark.parametrize(
    ("usage", "output", "notes"),
    [
        # inside the completion: the total is prompt + completion
        ({"prompt_tokens": 10, "completion_tokens": 50, "total_tokens": 60, "r": 30}, 50, ()),
        ({"prompt_tokens": 10, "completion_tokens": 50, "r": 30}, 50, ()),
        # beside it: the total says so
        ({"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 60, "r": 30}, 50, ("reasoning_additive",)),
        # beside it: a part cannot be larger than the whole
        ({"prompt_tokens": 10, "completion_tokens": 20, "r": 30}, 50, ("reasoning_additive",)),
        # a remainder that nothing names was generated
        ({"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 60}, 50, ("total_exceeds_parts",)),
        # less than its parts: kept and flagged
        ({"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 25}, 20, ("total_mismatch",)),
    ],
)
def test_reasoning_is_always_inside_the_output(usage: dict[str, int], output: int, notes: tuple[str, ...]) -> None:
    """A3: output holds reasoning, whether the wire puts it inside or beside; a total that does not fit is flagged."""
    rest = {key: value for key, value in usage.items() if key != "r"}
    attempt = chat(**rest, completion_tokens_details={"reasoning_tokens": usage.get("r")})

    assert facts(attempt, "input_tokens", "output_tokens", "notes") == {
        "input_tokens": 10,
        "output_tokens": output,
        "notes": notes,
    }


def test_redirects_never_reached_a_model() -> None:
    """A4: a 307 is an attempt without usage that no call can count; the request that it leads to is the call."""
    attempt = read_call("POST", CHAT, b"{}", 307, {"location": "/x"}, b"")

    expected = {"status": "error", "usage_source": "none", "error_type": "redirect", "http_status": 307}
    assert facts(attempt, *expected) == expected


def test_counting_and_listing_are_not_fanout() -> None:
    """A5: of two generations, two token counts, a model list and an embedding, two are calls that generate."""
    requests = [
        ("POST", MESSAGES),
        ("POST", MESSAGES + "/count_tokens"),
        ("GET", "https://api.anthropic.com/v1/models"),
        ("POST", MESSAGES),
        ("POST", MESSAGES + "/count_tokens"),
        ("POST", "https://api.openai.com/v1/embeddings"),
    ]
    kinds = [classify(method, url).kind for method, url in requests]
    read = [read_call(method, url, b"{}", 200, {}, b"{}") for method, url in requests]

    assert kinds == ["generate", "count", "other", "generate", "count", "embed"]
    assert [attempt.kind if attempt else None for attempt in read] == [
        "generate",
        None,
        None,
        "generate",
        None,
        "embed",
    ]


@pytest.mark.parametrize("url", [CHAT, RESPONSES, MESSAGES, "https://api.openai.com/v1/embeddings"])
@pytest.mark.parametrize("body", [b"", b"  \n", b"{}", b"[]", b"null", b": comment\n\n", b"data: [DONE]\n\n"])
def test_an_empty_answer_is_not_a_measured_call(url: str, body: bytes) -> None:
    """A9: HTTP 200 without content and usage is incomplete and says so; its usage is missing, never zero."""
    expected = {"status": "incomplete", "usage_source": "missing", "output_tokens": None, "notes": ("empty_response",)}

    assert facts(read_call("POST", url, b"{}", 200, SSE if body[:1] in b":d" else {}, body), *expected) == expected


@pytest.mark.parametrize("body", [b"<html>sign in</html>", b'{"choices": [{"ind', b"\xff\xfe\x00", b"[" * 100_000])
def test_a_body_that_is_no_answer_is_not_a_measured_call(body: bytes) -> None:
    """A page of a proxy, half a document or noise is incomplete, with missing usage."""
    expected = {"status": "incomplete", "usage_source": "missing", "notes": ("unreadable_body",)}

    assert facts(read_call("POST", CHAT, b"{}", 200, {}, body), *expected) == expected


@pytest.mark.parametrize("bad", [-1, 1.5, True, "12", 2**53 + 1, [], float("nan"), float("inf"), 10**400])
def test_numbers_that_are_no_counts_are_unknown(bad: Any) -> None:
    """A count that is negative, broken, a truth value, a text or absurdly large is unknown and noted; others stand."""
    expected = {"input_tokens": 7, "output_tokens": None, "usage_source": "partial", "notes": ("bad_usage",)}

    assert facts(chat(prompt_tokens=7, completion_tokens=bad), *expected) == expected


def test_counts_at_the_edges_are_counts() -> None:
    """Zero is measured, 2**53 is the largest count, and 12.0 is twelve."""
    attempt = chat(prompt_tokens=2**53, completion_tokens=0, prompt_tokens_details={"cached_tokens": 12.0})

    expected = {"input_tokens": 2**53, "output_tokens": 0, "cached_input_tokens": 12, "notes": ()}
    assert facts(attempt, *expected) == expected


def test_an_unknown_part_makes_anthropics_input_unknown() -> None:
    """Input is a sum there: with one part unreadable the sum is not known, rather than too small."""
    attempt = message(input_tokens=5, cache_read_input_tokens="many", output_tokens=1)

    expected = {"input_tokens": None, "cached_input_tokens": None, "output_tokens": 1, "notes": ("bad_usage",)}
    assert facts(attempt, *expected) == expected


def test_parts_larger_than_their_whole_are_flagged() -> None:
    """Cached beyond input keeps the numbers and notes that they contradict each other."""
    attempt = chat(prompt_tokens=5, completion_tokens=1, prompt_tokens_details={"cached_tokens": 6})

    assert facts(attempt, "cached_input_tokens", "notes") == {"cached_input_tokens": 6, "notes": ("total_mismatch",)}


def test_cache_hits_and_misses_in_deepseeks_words() -> None:
    """Hit tokens are cached; hit and miss together are the prompt where the prompt is not given."""
    attempt = chat(prompt_cache_hit_tokens=64, prompt_cache_miss_tokens=36, completion_tokens=5)

    expected = {"input_tokens": 100, "cached_input_tokens": 64, "output_tokens": 5, "usage_source": "final"}
    assert facts(attempt, *expected) == expected


def test_inference_beside_a_message_is_kept_apart() -> None:
    """Compaction and advisor passes are side calls outside the totals; turns of the tool loop are inner iterations."""
    steps = [
        {"type": "compaction", "input_tokens": 900, "cache_read_input_tokens": 100, "output_tokens": 50},
        {"type": "message", "input_tokens": 10, "output_tokens": 3},
        {"type": "advisor_message", "input_tokens": 20, "output_tokens": 4},
        {"type": "message", "input_tokens": 13, "output_tokens": 2},
    ]
    attempt = message(input_tokens=23, output_tokens=5, iterations=steps)

    assert attempt.side_calls == (SideCall("compaction", 1000, 50), SideCall("advisor_message", 20, 4))
    assert (attempt.inner_iterations, attempt.input_tokens, attempt.output_tokens) == (2, 23, 5)


def test_a_compaction_pass_is_a_call_of_its_own_kind() -> None:
    """The compaction endpoint runs the model once, with usage of its own."""
    document = {"id": "cmp_1", "object": "response.compaction", "output": [{"type": "compaction"}]}
    attempt = answer(RESPONSES + "/compact", document, input_tokens=400, output_tokens=40, total_tokens=440)

    expected = {"kind": "compact", "status": "ok", "input_tokens": 400, "output_tokens": 40, "usage_source": "final"}
    assert facts(attempt, *expected) == expected


def test_a_null_takes_nothing_back() -> None:
    """A later chunk whose usage has null, at the top or inside its details, leaves what was known."""
    first = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    later = {"prompt_tokens": None, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": None}}
    chunks = [[{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": u}] for u in (first, later)]

    expected = {"input_tokens": 9, "output_tokens": 3, "cached_input_tokens": 4, "usage_source": "final"}
    assert facts(read_call("POST", CHAT, b"", 200, SSE, render([*chunks, ["[DONE]"]])), *expected) == expected
