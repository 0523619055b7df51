"""Eval sets: what is read, what is refused and how it is said, what an answer is compared with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fanout.errors import ConfigError
from pytest_fanout.store import schemas
from pytest_fanout.store.evalsets import expectation_failure, read_evalset

EXAMPLE = '{"id": "refund-1", "input": "I want my money back"}'


def write(folder: Path, *lines: str | dict[str, Any]) -> Path:
    path = folder / "support.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_bytes("\n".join(texts).encode())
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_evalset(path, "support", "fixtures/support.jsonl")
    return str(caught.value)


def test_a_line_becomes_a_task_with_defaults(tmp_path: Path) -> None:
    """Only id and input are needed; weight is 1, nothing is expected, calls are."""
    path = write(tmp_path, {"id": "a", "input": {"q": [1, None]}})

    (task,) = read_evalset(path, "support").tasks

    assert (task.id, task.input, task.expect, task.tags, task.weight, task.no_calls, task.line) == (
        "a",
        {"q": [1, None]},
        None,
        (),
        1.0,
        False,
        1,
    )


def test_every_field_is_read(tmp_path: Path) -> None:
    """All six fields of a line arrive in the task."""
    line = {"id": "b", "input": 1, "expect": {"contains": ["x"]}, "tags": ["t"], "weight": 2.5, "no_calls": True}

    evalset = read_evalset(write(tmp_path, line), "support", "fixtures/support.jsonl")

    assert (evalset.agent, evalset.path) == ("support", "fixtures/support.jsonl")
    task = evalset.tasks[0]
    assert (task.expect, task.tags, task.weight, task.no_calls) == ({"contains": ["x"]}, ("t",), 2.5, True)


def test_editors_may_add_a_mark_carriage_returns_and_blank_lines(tmp_path: Path) -> None:
    """A byte-order mark, CRLF and blank lines change neither tasks nor digests; line numbers count every line."""
    plain = tmp_path / "plain.jsonl"
    plain.write_bytes(b'{"id":"a","input":1}\n{"id":"b","input":2}\n')
    edited = tmp_path / "edited.jsonl"
    edited.write_bytes(b'\xef\xbb\xbf{"id":"a","input":1}\r\n\r\n  \n{"id":"b","input":2}')

    first, second = read_evalset(plain, "support"), read_evalset(edited, "support")

    assert first.digest == second.digest
    assert [task.line for task in second.tasks] == [1, 4]


def test_order_weight_tags_and_layout_do_not_change_the_digest(tmp_path: Path) -> None:
    """Moving lines, another weight, another tag, another order of keys, 1.0 for 1: the same tasks."""
    one = read_evalset(write(tmp_path, '{"id":"a","input":{"x":1,"y":2}}', '{"id":"b","input":2}'), "support")
    two = read_evalset(
        write(tmp_path, '{"input":2,"id":"b","tags":["t"]}', '{"weight":3,"id":"a","input":{"y":2.0,"x":1}}'), "support"
    )

    assert one.digest == two.digest
    assert [task.id for task in two.tasks] == ["b", "a"]


@pytest.mark.parametrize(
    "other", ['{"id":"a","input":2}', '{"id":"a","input":1,"expect":"x"}', '{"id":"a","input":1,"no_calls":true}']
)
def test_what_a_task_is_changes_the_digest(tmp_path: Path, other: str) -> None:
    """Another input, expectation or no_calls is another definition, and another eval set."""
    one = read_evalset(write(tmp_path, '{"id":"a","input":1}'), "support")
    two = read_evalset(write(tmp_path, other), "support")

    assert one.tasks[0].definition != two.tasks[0].definition
    assert one.digest != two.digest


def test_a_definition_digest_is_that_of_the_canonical_line(tmp_path: Path) -> None:
    """Worked by hand: SHA-256 of ``{"id":"a","input":1.5}``, tags and weight left out."""
    import hashlib

    (task,) = read_evalset(write(tmp_path, '{"input":1.50, "id":"a", "tags":["x"], "weight":2}'), "support").tasks

    assert task.definition == "sha256:" + hashlib.sha256(b'{"id":"a","input":1.5}').hexdigest()


def test_a_duplicate_id_names_both_lines(tmp_path: Path) -> None:
    """Two lines with one id would overwrite each other in every table: refused, with both places."""
    path = write(tmp_path, {"id": "a", "input": 1}, "", {"id": "a", "input": 2})

    assert refusal(path) == (
        "fixtures/support.jsonl:3: the id 'a' stands on line 1 as well; ids are unique in an eval set\n"
        "  mend: rename one of the two\n"
        "  see: docs/messages.md#evalset-duplicate-id"
    )


def test_a_missing_id_is_named(tmp_path: Path) -> None:
    """A task without an id cannot be compared with anything."""
    assert refusal(write(tmp_path, {"input": 1})) == (
        "fixtures/support.jsonl:1: has no id\n"
        '  mend: add "id": "…", unique in the file\n'
        "  see: docs/messages.md#evalset-missing-id"
    )


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    """A misspelt key would silently not be a check."""
    assert refusal(write(tmp_path, {"id": "a", "input": 1, "expects": "x"})) == (
        "fixtures/support.jsonl:1: unknown key 'expects'; known: expect, id, input, no_calls, tags, weight\n"
        "  mend: remove or rename 'expects'; data of your own belongs into `input`\n"
        "  see: docs/messages.md#evalset-unknown-key"
    )


@pytest.mark.parametrize("content", [b"", b"\n \r\n\n", b"\xef\xbb\xbf"])
def test_a_file_without_tasks_is_empty(tmp_path: Path, content: bytes) -> None:
    """No task is not a passing eval set."""
    path = tmp_path / "support.jsonl"
    path.write_bytes(content)

    assert refusal(path) == (
        "fixtures/support.jsonl: holds no task\n"
        f"  mend: write one task a line, for example {EXAMPLE}\n"
        "  see: docs/messages.md#evalset-empty"
    )


def test_a_missing_file_is_named_with_its_setting(tmp_path: Path) -> None:
    """The path comes from pyproject.toml: the message says from which key."""
    assert refusal(tmp_path / "no.jsonl") == (
        "fixtures/support.jsonl: the eval set of agent class 'support' does not exist\n"
        "  mend: create it, or mend `evalset` under [tool.fanout.agents.support]\n"
        "  see: docs/messages.md#evalset-missing"
    )


def test_a_folder_is_no_eval_set(tmp_path: Path) -> None:
    """A folder where a file should be."""
    assert refusal(tmp_path) == (
        "fixtures/support.jsonl: is not a regular file\n  mend: remove it\n  see: docs/messages.md#evalset-unreadable"
    )


def test_a_link_is_no_eval_set(tmp_path: Path) -> None:
    """What a reviewer sees in the diff of a link is not what is run."""
    write(tmp_path, {"id": "a", "input": 1})
    (tmp_path / "link.jsonl").symlink_to("support.jsonl")

    assert "is a symbolic link" in refusal(tmp_path / "link.jsonl")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"id":"a","input":1', "is not valid JSON: Expecting ',' delimiter"),
        ('{"id":"a","id":"b","input":1}', "holds the key 'id' twice"),
        ('{"id":"a","input":NaN}', "holds NaN, which is not JSON"),
        ('{"id":"a","input":-Infinity}', "holds -Infinity, which is not JSON"),
        ('{"id":"a","input":1e999}', "holds 1e999, which is too large for a number"),
        ('{"id":"a","input":' + "9" * 5000 + "}", "holds a number with too many digits"),
        ('{"id":"a","input":' + "[" * 100_000 + "}", "is nested too deeply"),
        ("<<<<<<< HEAD", "holds the marks of an unresolved merge conflict"),
    ],
    ids=["cut", "twice", "nan", "infinity", "overflow", "digits", "deep", "conflict"],
)
def test_bad_json_names_its_line(tmp_path: Path, line: str, what: str) -> None:
    """Anything that is not strict JSON is refused with the number of its line."""
    assert refusal(write(tmp_path, {"id": "z", "input": 1}, line)) == (
        f"fixtures/support.jsonl:2: {what}\n"
        f"  mend: write one JSON object a line, for example {EXAMPLE}\n"
        "  see: docs/messages.md#evalset-bad-json"
    )


def test_a_line_that_is_no_object_is_bad(tmp_path: Path) -> None:
    """A list is JSON, but no task."""
    assert "fixtures/support.jsonl:1: is not a JSON object\n" in refusal(write(tmp_path, "[1]"))


def test_bytes_that_are_no_utf8_name_their_line(tmp_path: Path) -> None:
    """Latin-1 files are told apart from broken JSON."""
    path = tmp_path / "support.jsonl"
    path.write_bytes(b'{"id":"a","input":1}\n{"id":"\xe9","input":1}\n')

    assert refusal(path) == (
        "fixtures/support.jsonl:2: is not UTF-8 text\n"
        "  mend: save the file as UTF-8\n"
        "  see: docs/messages.md#evalset-bad-json"
    )


BAD_FIELDS = [
    ({"id": 7}, "id must be a text of 1 to 200 characters"),
    ({"id": ""}, "id must be a text of 1 to 200 characters"),
    ({"id": "x" * 201}, "id must be a text of 1 to 200 characters"),
    ({"id": " a"}, "id begins or ends with a space"),
    ({"id": "a\u00a0"}, "id begins or ends with a space"),
    ({"id": "a\nb"}, "id holds control characters"),
    ({"id": "a\x7fb"}, "id holds control characters"),
    ({"id": "a\u2028b"}, "id holds control characters"),
    ({"expect": ""}, "expect is an empty text, which every answer contains"),
    ({"expect": None}, "expect must be a text or an object with at least one rule"),
    ({"expect": {}}, "expect must be a text or an object with at least one rule"),
    ({"expect": {"is": 1}}, "expect.is is no known rule"),
    ({"expect": {"contains": []}}, "expect.contains must be a text or a list of texts, none of them empty"),
    ({"expect": {"contains": ["a", 1]}}, "expect.contains must be a text or a list of texts, none of them empty"),
    ({"expect": {"matches": ""}}, "expect.matches must be a regular expression that is not empty"),
    ({"tags": "t"}, "tags must be a list of texts"),
    ({"tags": [""]}, "tags must be a list of texts"),
    ({"weight": 0}, "weight must be a number above 0 and at most 1e12"),
    ({"weight": True}, "weight must be a number above 0 and at most 1e12"),
    ({"weight": 10**400}, "weight must be a number above 0 and at most 1e12"),
    ({"no_calls": 1}, "no_calls must be true or false"),
]


@pytest.mark.parametrize(("change", "what"), BAD_FIELDS, ids=[str(index) for index in range(len(BAD_FIELDS))])
def test_a_bad_field_is_named_by_reader_and_schema(tmp_path: Path, change: dict[str, Any], what: str) -> None:
    """Each wrong field is named with its key; the shipped schema refuses the same lines."""
    line = {"id": "a", "input": 1, **change}

    message = refusal(write(tmp_path, line))

    assert message.startswith(f"fixtures/support.jsonl:1: {what}\n  mend: ")
    assert message.endswith("\n  see: docs/messages.md#evalset-bad-field")
    assert schemas.fault(line, "evalset-line") is not None


def test_a_lone_surrogate_in_an_id_is_refused(tmp_path: Path) -> None:
    """It has no UTF-8 form, so that no report could be written."""
    assert "id holds control characters" in refusal(write(tmp_path, r'{"id":"a\ud800b","input":1}'))


def test_a_bad_pattern_is_found_when_the_file_is_read(tmp_path: Path) -> None:
    """Not when the first answer is checked."""
    assert refusal(write(tmp_path, {"id": "a", "input": 1, "expect": {"matches": "("}})) == (
        "fixtures/support.jsonl:1: expect.matches is no regular expression: missing ), unterminated subpattern at"
        " position 0\n  mend: mend the pattern\n  see: docs/messages.md#evalset-bad-field"
    )


def test_a_missing_input_is_named(tmp_path: Path) -> None:
    """The entry point is called with it: null must be written out."""
    assert "fixtures/support.jsonl:1: input is missing\n" in refusal(write(tmp_path, {"id": "a"}))


@pytest.mark.parametrize(
    "line",
    [
        {"id": "a", "input": None},
        {"id": "ünï cöde 🙂", "input": [], "expect": "x"},
        {"id": "a", "input": 1, "expect": {"equals": None, "json": {}, "matches": "[[a]", "contains": "b"}},
        {"id": "x" * 200, "input": 1, "tags": [], "weight": 1e12, "no_calls": False},
    ],
)
def test_reader_and_schema_accept_the_same_lines(tmp_path: Path, line: dict[str, Any]) -> None:
    """What the reader takes, the shipped schema takes."""
    assert read_evalset(write(tmp_path, line), "support").tasks[0].id == line["id"]
    assert schemas.fault(line, "evalset-line") is None


HOLDS = [
    ("refund", "your refund is on its way"),
    ("42", 42),
    ({"equals": {"a": [1, True]}}, {"a": (1.0, True)}),
    ({"equals": None}, None),
    ({"contains": ["a", "b"]}, "b a"),
    ({"matches": r"\bref\w+"}, "a refund"),
    ({"json": {"a": {"b": 1}}}, '{"a": {"b": 1, "c": 2}, "d": 3}'),
    ({"json": {"a": [1, {"x": 3}]}}, {"a": [0, 1, 2, {"x": 3, "y": 4}]}),
    ({"json": {"a": 1}}, b'{"a": 1}'),
    ({"contains": "a", "matches": "b"}, "ab"),
]


@pytest.mark.parametrize(("expect", "answer"), HOLDS)
def test_an_answer_that_is_expected(expect: Any, answer: Any) -> None:
    """None says that the expectation holds."""
    assert expectation_failure(expect, answer) is None


FAILS: list[tuple[Any, Any, str]] = [
    ("refund", "no", 'answer does not contain "refund": "no"'),
    ("None", None, 'answer does not contain "None": ""'),
    ({"equals": 1}, True, "answer is true, expected 1"),
    ({"equals": "1"}, 1, 'answer is 1, expected "1"'),
    ({"equals": [1]}, [1, 2], "answer is [1, 2], expected [1]"),
    ({"contains": ["a", "b"]}, "a", 'answer does not contain "b": "a"'),
    ({"matches": "^b"}, "a\nb", 'answer does not match "^b": "a\\nb"'),
    ({"json": {"a": 1}}, "no json", 'answer is not valid JSON: Expecting value: "no json"'),
    ({"json": {"a": {"b": 1}}}, {"a": {"b": 2}}, "a.b is 2, expected 1"),
    ({"json": {"a": {"b": 1}}}, {"a": {}}, "a has no key 'b'"),
    ({"json": {"a": 1}}, [], "answer is [], expected an object"),
    ({"json": [2, 1]}, [1, 2], "answer does not hold 1 (in this order)"),
    ({"json": {"a": [1]}}, {"a": 1}, "a is 1, expected a list"),
    ({"contains": "a", "matches": "b"}, "a", 'answer does not match "b": "a"'),
]


@pytest.mark.parametrize(("expect", "answer", "why"), FAILS)
def test_an_answer_that_is_not_expected(expect: Any, answer: Any, why: str) -> None:
    """The reason is one line that shows what was expected and what came."""
    assert expectation_failure(expect, answer) == why


def test_nothing_expected_always_holds() -> None:
    """A line without `expect` checks nothing."""
    assert expectation_failure(None, object()) is None


@settings(deadline=None)
@given(st.text(min_size=1), st.text())
def test_a_reason_is_one_short_line(expect: str, answer: str) -> None:
    """Whatever a model answers, the reason stays one line of at most 200 characters."""
    why = expectation_failure(expect, answer)

    assert (why is None) == (expect in answer)
    assert why is None or (len(why) <= 200 and len(why.splitlines()) == 1)
