"""What users' hooks return is looked at: something else than it has to be is a usage error that names its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pluggy
import pytest

from pytest_fanout import hookspecs
from pytest_fanout.capacity.profiles import BUILT_IN
from pytest_fanout.errors import UsageError
from pytest_fanout.meter.reader import Reader
from pytest_fanout.records import Attempt, Endpoint, HttpAnswer, HttpRequest
from pytest_fanout.session.extensions import codecs_of, profiles_of, redacted

SPEC, IMPL = pluggy.HookspecMarker("pytest"), pluggy.HookimplMarker("pytest")
REQUEST = HttpRequest("POST", "http://h/x", (), b"a")
ANSWER = HttpAnswer(200, (), (b"b",), (0,), 1)
SEE = "\n  see: docs/messages.md#bad-hook"


class Codec:
    def __init__(self, endpoint: Any = None) -> None:
        self.endpoint = endpoint

    def classify(self, method: str, url: str) -> Any:
        if isinstance(self.endpoint, Exception):
            raise self.endpoint
        return self.endpoint

    def read_call(self, *said: Any) -> Any:
        return "read"


def relay(name: str, *functions: Callable[..., Any]) -> Any:
    """The hook caller of a name, with these implementations, in the order of their registration."""
    manager = pluggy.PluginManager("pytest")
    manager.add_hookspecs(hookspecs)
    for function in functions:
        plugin = type("Plugin", (), {name: staticmethod(IMPL(function))})()
        manager.register(plugin)
    return getattr(manager.hook, name)


def place(function: Callable[..., Any]) -> str:
    return f"tests/session/test_extensions.py:{function.__code__.co_firstlineno}"


CLASSIFY = "classify(method, url) returns a pytest_fanout.records.Endpoint, or None for a URL that is not its own"


@pytest.mark.parametrize(
    ("value", "what", "mend"),
    [
        (5, "returned a value of type int", "return a list of codecs"),
        (Codec(), "returned a value of type Codec", "return a list of codecs"),
        ("text", "returned a value of type str", "return a list of codecs"),
        (
            [object()],
            "returned an object of type object without classify and read_call",
            "a codec has classify(…) and read_call(…)",
        ),
        (
            [None],
            "returned an object of type NoneType without classify and read_call",
            "a codec has classify(…) and read_call(…)",
        ),
        ([Codec], "returned the class Codec, not an object of it", "a codec has classify(…) and read_call(…)"),
        ([Codec("generate")], "returned Codec, whose classify returned a value of type str", CLASSIFY),
        ([Codec(KeyError("x"))], "returned Codec, whose classify raised KeyError: 'x'", CLASSIFY),
    ],
)
def test_wrong_codecs_are_told(value: Any, what: str, mend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names file and line of the hook, what came, and what has to come."""
    monkeypatch.chdir(__file__.rsplit("/tests/", 1)[0])

    def hook() -> Any:
        return value

    with pytest.raises(UsageError) as caught:
        codecs_of(relay("pytest_fanout_codecs", hook))

    assert str(caught.value) == f"{place(hook)}: pytest_fanout_codecs {what}\n  mend: {mend}{SEE}"


def test_a_hook_that_raises_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is one of the user's, and no crash of pytest."""
    monkeypatch.chdir(__file__.rsplit("/tests/", 1)[0])

    def hook() -> Any:
        raise ValueError("no config")

    with pytest.raises(UsageError) as caught:
        codecs_of(relay("pytest_fanout_codecs", hook))

    assert str(caught.value) == (
        f"{place(hook)}: pytest_fanout_codecs raised ValueError: no config\n  mend: mend the hook{SEE}"
    )


def test_codecs_of_several_plugins_stand_in_the_order_of_pluggy() -> None:
    """The last registered first, each with all of its own; a hook that returns None adds none."""
    one, two, three = Codec(), Codec(), Codec()

    assert codecs_of(
        relay("pytest_fanout_codecs", lambda: [one], lambda: None, lambda: (two, three))
    ) == [two, three, one]  # fmt: skip


def test_what_a_codec_answers_later_cannot_leave_a_call_out() -> None:
    """An endpoint that is none, of a kind that is none, or an attempt that is none: the call counts, usage unknown."""
    for endpoint in ("generate", Endpoint("mine", "chat")):
        reader = Reader([Codec(endpoint)])
        assert reader.classify("POST", "http://h/x") == Endpoint("unknown", "generate")
        assert reader.read(REQUEST, ANSWER) == Attempt(
            api="unknown", kind="generate", status="incomplete", http_status=200, usage_source="missing",
            notes=("codec_error",),
        )  # fmt: skip


def test_wrong_profiles_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As wrong codecs are; right ones come through."""
    monkeypatch.chdir(__file__.rsplit("/tests/", 1)[0])

    def hook() -> Any:
        return ["h100"]

    with pytest.raises(UsageError) as caught:
        profiles_of(relay("pytest_fanout_profiles", hook))

    assert str(caught.value) == (
        f"{place(hook)}: pytest_fanout_profiles returned a value of type str in its list\n"
        f"  mend: return a list of pytest_fanout.capacity.profiles.Profile{SEE}"
    )
    assert profiles_of(relay("pytest_fanout_profiles", lambda: list(BUILT_IN[:2]))) == BUILT_IN[:2]


def test_what_redact_returns_is_a_pair_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that gives the request alone would store a wrong thing."""
    monkeypatch.chdir(__file__.rsplit("/tests/", 1)[0])

    def hook(request: Any) -> Any:
        return request

    with pytest.raises(UsageError) as caught:
        redacted(relay("pytest_fanout_redact", hook), REQUEST, ANSWER)

    assert str(caught.value) == (
        f"{place(hook)}: pytest_fanout_redact returned a value of type HttpRequest\n"
        f"  mend: return (request, response), changed with dataclasses.replace, or None{SEE}"
    )
    assert redacted(relay("pytest_fanout_redact", lambda: None), REQUEST, ANSWER) == (REQUEST, ANSWER)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"body": "text"}, "request.body is of type str"),
        ({"url": b"http://h/x"}, "request.url is of type bytes"),
        ({"headers": (("a", b"b"),)}, "request.headers are no pairs of texts"),
        ({"chunks": ("text",)}, "response.chunks are no bytes"),
        ({"chunks": (b"a", b"b")}, "response has 2 chunks and 1 chunk_ms"),
    ],
)
def test_a_redaction_that_cannot_be_stored_names_the_field(change: dict[str, Any], what: str) -> None:
    """A pair of the right records with wrong values in them would break the store, or a later replay."""

    def hook(request: HttpRequest, response: HttpAnswer) -> Any:
        side = {"request": request, "response": response}["response" if "chunks" in change else "request"]
        changed = replace(side, **change)
        return (request, changed) if side is response else (changed, response)

    with pytest.raises(UsageError) as caught:
        redacted(relay("pytest_fanout_redact", hook), REQUEST, ANSWER)

    assert str(caught.value) == (
        f"{place(hook)}: pytest_fanout_redact returned a pair whose {what}\n  mend: keep the types of its fields{SEE}"
    )


def test_a_redaction_that_raises_is_named() -> None:
    """Not with a traceback through the agent, and not as a failure of the agent."""

    def hook(request: HttpRequest) -> Any:
        raise KeyError("customer")

    with pytest.raises(UsageError) as caught:
        redacted(relay("pytest_fanout_redact", hook), REQUEST, ANSWER)

    assert str(caught.value) == (
        f"{place(hook)}: pytest_fanout_redact raised KeyError: 'customer'\n  mend: mend the hook{SEE}"
    )
