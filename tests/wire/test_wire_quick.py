"""The quick look at an answer's cost says what the full reading says, or nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_wire_fuzz import EXAMPLE, SCALARS, mutated
from wire_examples import EXAMPLES, LINES, Example, render

from pytest_fanout.wire import classify, read_call
from pytest_fanout.wire.quick import Cost, quick_cost


def check_agreement(example: Example, body: bytes) -> bool:
    """Whether a quick answer, where there is one, is that of ``read_call``. Says whether there was one."""
    quick = quick_cost(classify("POST", example.url).api, body)
    full = read_call("POST", example.url, b"", 200, example.headers, body)
    assert full is not None
    if quick is None:
        return False
    assert quick == Cost((full.input_tokens or 0) + (full.output_tokens or 0), len(full.tool_calls))
    assert full.status != "error"  # the caps take it for a call that reached a model
    return True


@pytest.mark.parametrize(
    ("name", "cost"),
    [
        ("OC1", Cost(1540, 0)),
        ("OC2", Cost(11, 0)),
        ("OC5", Cost(32, 0)),
        ("OC12", Cost(73, 0)),
        ("OR2", Cost(602, 2)),
        ("AN1", Cost(2650, 0)),
        ("AN8", Cost(64, 0)),
        ("GE1", Cost(623, 0)),
        ("GE4", Cost(32, 0)),
        ("GE6", Cost(140, 0)),
        ("BR1", Cost(1190, 1)),
        ("BR7", Cost(0, 0)),
        ("BI1", Cost(1190, 1)),
        ("CO2", Cost(161, 2)),
    ],
)
def test_plain_answers_are_read_quickly(name: str, cost: Cost) -> None:
    """The common shapes need no second look: input and output with all their parts, and the tools asked for."""
    example = EXAMPLES[name]
    assert quick_cost(classify("POST", example.url).api, example.body) == cost


@pytest.mark.parametrize(
    "name",
    [
        *("OC3", "OC4", "OC8", "OC11", "OC14", "OR1", "OR4", "GE2", "GE3", "GE5", "OL1", "OL2", "OL3"),
        *("BR2", "BR5", "BI2", "BI5", "CO1", "CO3", "CO5"),
    ],
)
def test_anything_else_is_left_to_the_full_reading(name: str) -> None:
    """Dialects, cut streams, hosted tools and failures are never guessed at."""
    example = EXAMPLES[name]
    assert quick_cost(classify("POST", example.url).api, example.body) is None


def test_ollamas_answers_are_read_quickly() -> None:
    """Its stream ends with the counts, unless a line before asks for a tool; in one document it says everything."""
    url = "http://localhost:11434/api/chat"
    said = {"model": "m", "message": {"role": "assistant", "content": "a"}, "done": False}
    last = {**said, "done": True, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 2}
    tools = [{"function": {"name": "find", "arguments": {}}}] * 2
    asked = {**last, "message": {"role": "assistant", "content": "", "tool_calls": tools}}
    example = Example("OL", url, b"", LINES, b"", {})
    for lines, cost in [([said, last], Cost(9, 0)), ([asked], Cost(9, 2)), ([asked, last], None), ([said], None)]:
        body = b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"

        assert quick_cost("ollama.chat", body) == cost
        assert check_agreement(example, body) is (cost is not None)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_both_readings_agree_on_every_example(name: str) -> None:
    """Wherever the quick look answers, the full reading says the same."""
    assert check_agreement(EXAMPLES[name], EXAMPLES[name].body) in (True, False)


@given(EXAMPLE, st.data())
def test_both_readings_agree_on_noise(example: Example, data: st.DataObject) -> None:
    """Also where an answer was cut or holds noise."""
    start = data.draw(st.integers(0, len(example.body)))
    end = data.draw(st.integers(start, min(start + 50, len(example.body))))
    check_agreement(example, example.body[:start] + data.draw(st.binary(max_size=20)) + example.body[end:])


@given(st.sampled_from([e for e in EXAMPLES.values() if e.form == "document"]), st.data())
def test_both_readings_agree_on_changed_values(example: Example, data: st.DataObject) -> None:
    """Also where one value has become something else."""
    check_agreement(example, json.dumps(mutated(json.loads(example.body), data)).encode())


@given(st.sampled_from(["prompt_tokens", "completion_tokens", "total_tokens"]), SCALARS)
def test_a_count_that_is_none_is_not_added_up(key: str, value: object) -> None:
    """A usage with a value that is no count is left to the full reading, or read alike."""
    body = json.loads(EXAMPLES["OC1"].body)
    body["usage"][key] = value
    check_agreement(EXAMPLES["OC1"], json.dumps(body).encode())


def test_a_text_that_speaks_of_usage_is_no_usage() -> None:
    """Words of the answer that look like a usage line do not count."""
    said = 'data: {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}'
    chunk = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": said}, "finish_reason": "stop"}]}
    last = {
        "id": "c",
        "model": "m",
        "choices": [],
        "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13},
    }
    example = replace(EXAMPLES["OC2"], body=render([[chunk], [last], ["[DONE]"]]))

    assert quick_cost("openai.chat", example.body) == Cost(13, 0)
    assert check_agreement(example, example.body)


def test_what_fuzzing_found_in_the_quick_look() -> None:
    """An end mark before the end, and a usage that was told in parts: both are left to the full reading."""
    example = EXAMPLES["OC2"]
    early = b"data: [DONE]\n\n" + example.body
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    parts = [{**usage, "completion_tokens_details": {"reasoning_tokens": 30}}, usage]
    chunks = [[{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": part}] for part in parts]

    for body in (early, render([*chunks, ["[DONE]"]])):
        assert quick_cost("openai.chat", body) is None
        assert check_agreement(example, body) is False
