"""Replay: a request hears only what was recorded for it, each recorded answer once."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from recording_samples import CHAT_URL, JSON_HEADERS, chat, chat_answer, chat_request, exchange, recording

from pytest_fanout.errors import ConfigError
from pytest_fanout.records import HttpAnswer, HttpRequest, Recording, Replayed
from pytest_fanout.store.recordings import RecordingStore
from pytest_fanout.store.replay import ReplaySource


@pytest.fixture
def stored(tmp_path: Path) -> RecordingStore:
    return RecordingStore(tmp_path, {})


def heard(replayed: Replayed | None) -> str | None:
    return None if replayed is None else json.loads(replayed.answer.body)["choices"][0]["message"]["content"]


def test_a_request_hears_its_own_answer_in_any_order(stored: RecordingStore) -> None:
    """Matching is by what is asked; the answer comes with its place in time."""
    source = ReplaySource(stored.save(recording(chat("a", "b"))))

    second = source.answer(chat_request("b"), "model")
    first = source.answer(chat_request("a"), "model")

    assert (heard(first), heard(second)) == ("re: a #0", "re: b #1")
    assert second is not None
    assert second.started_ms == 10
    assert (source.note(), source.leftover, source.asked, source.other_hosts) == (None, 0, 2, set())


def test_a7_more_calls_than_recorded_are_counted_and_never_served(stored: RecordingStore) -> None:
    """A7: two on the tape, five asked: three hear nothing, and the note says how many there are at least."""
    source = ReplaySource(stored.save(recording(chat("a", "a"))), (), "support::refund::t1")

    answers = [heard(source.answer(chat_request("a"), "model")) for _ in range(5)]

    assert answers == ["re: a #0", "re: a #1", None, None, None]
    note = source.note()
    assert note is not None
    assert (note.call, note.role, note.recorded, note.requested, note.leftover) == (3, "model", 2, 5, 0)
    assert note.changes == ("at least 5 calls of POST /v1/chat/completions, 2 recorded: fanout rose",)


def test_a7_fewer_calls_leave_leftovers(stored: RecordingStore) -> None:
    """A7: one of two asked is no miss; the other is reported as left over."""
    source = ReplaySource(stored.save(recording(chat("a", "a"))))

    assert heard(source.answer(chat_request("a"), "model")) == "re: a #0"
    assert (source.note(), source.leftover) == (None, 1)


def test_a_changed_request_hears_nothing_and_is_explained(stored: RecordingStore) -> None:
    """The first miss is compared with the next recorded exchange of its endpoint that was not used."""
    source = ReplaySource(stored.save(recording(chat("a", "b", "c"))))
    source.answer(chat_request("a"), "model")

    assert source.answer(chat_request("b", temperature=1), "model") is None
    assert source.answer(chat_request("d"), "model") is None

    note = source.note()
    assert note is not None
    assert (note.call, note.requested, note.leftover) == (2, 3, 2)
    assert note.changes == ("temperature: (not set) -> 1",)


def test_the_same_request_once_more_is_named_as_that(stored: RecordingStore) -> None:
    """A loop that repeats a call is not described as a change of the next one."""
    source = ReplaySource(stored.save(recording(chat("a", "b"))))
    source.answer(chat_request("a"), "model")
    source.answer(chat_request("a"), "model")

    note = source.note()
    assert note is not None
    assert note.changes == ("the same request is made at least 2 times, 1 recorded",)


def test_a_tool_request_that_differs_is_named_as_a_tools(stored: RecordingStore) -> None:
    """Role and query of the request are told."""
    tool = HttpRequest("GET", "https://shop.example/search?q=red", (), b"")
    source = ReplaySource(stored.save(recording((exchange(tool, HttpAnswer(200, (), (b"1",), (1,), 2), 0, "tool"),))))

    assert source.answer(dataclasses.replace(tool, url="https://shop.example/search?q=blue"), "tool") is None

    note = source.note()
    assert note is not None
    assert (note.role, note.changes) == ("tool", ("tool GET /search: query: 'q=red' -> 'q=blue'",))


def test_counts_in_headers_are_part_of_the_recording(stored: RecordingStore) -> None:
    """Of some models behind Bedrock only the headers of an answer tell the tokens: they are replayed with it."""
    url = "https://bedrock-runtime.us-east-1.amazonaws.com/model/claude-x/invoke"
    counts = (("x-amzn-bedrock-input-token-count", "40"), ("x-amzn-bedrock-output-token-count", "9"))
    answer = HttpAnswer(200, (*JSON_HEADERS, *counts, ("x-amzn-trace-id", "t")), (b'{"completion":"a"}',), (5,), 6)
    request = HttpRequest("POST", url, JSON_HEADERS, b'{"prompt":"a"}')
    source = ReplaySource(stored.save(recording((exchange(request, answer),))))

    replayed = source.answer(request, "model")

    assert replayed is not None
    assert replayed.answer.headers == (*JSON_HEADERS, *counts)


def test_an_escaped_colon_is_a_colon(stored: RecordingStore) -> None:
    """Clients differ in whether they escape the colon of Bedrock's model names; it is the same request."""
    url = "https://bedrock-runtime.us-east-1.amazonaws.com/model/{}/converse"
    request = HttpRequest("POST", url.format("claude-x%3A0"), JSON_HEADERS, b"{}")
    source = ReplaySource(stored.save(recording((exchange(request, chat_answer("a"), 0),))))

    assert source.answer(dataclasses.replace(request, url=url.format("claude-x:0")), "model") is not None


def test_an_endpoint_that_was_never_asked_is_named(stored: RecordingStore) -> None:
    """There is nothing to compare it with."""
    source = ReplaySource(stored.save(recording(chat("a"))))
    source.answer(HttpRequest("DELETE", "https://shop.example/cart/1", (), b""), "tool")

    note = source.note()
    assert note is not None
    assert note.changes == ("tool DELETE /cart/1: is not on the recording",)


@pytest.mark.parametrize(
    ("asked", "changes"),
    [
        ("models/gemini-y:generateContent", ("model: gemini-x -> gemini-y",)),
        (
            "models/gemini-y:streamGenerateContent",
            ("POST /v1/models/gemini-y:streamGenerateContent is not on the recording",),
        ),
    ],
)
def test_another_model_in_the_url_is_named_as_that(
    stored: RecordingStore, asked: str, changes: tuple[str, ...]
) -> None:
    """Gemini, Vertex, Bedrock and Azure name the model in the path: another one is the change, not another endpoint."""
    base = "https://generativelanguage.googleapis.com/v1/"
    request = dataclasses.replace(chat_request("a"), url=base + "models/gemini-x:generateContent")
    source = ReplaySource(stored.save(recording((exchange(request, chat_answer("a")),))))

    assert source.answer(dataclasses.replace(request, url=base + asked), "model") is None
    note = source.note()
    assert note is not None
    assert note.changes == changes


def test_without_a_recording_everything_is_a_miss() -> None:
    """A trial that was never recorded is stale, not silent."""
    source = ReplaySource(None)
    assert source.note() is None

    assert source.answer(chat_request("a"), "model") is None

    note = source.note()
    assert note is not None
    assert (note.call, note.changes, note.recorded, note.requested) == (1, ("no recording of this trial",), 0, 1)


@pytest.mark.parametrize("difference", ["model", "method", "path", "query"])
def test_what_makes_a_request_another_one(stored: RecordingStore, difference: str) -> None:
    """Method, path, query and model are part of what was asked."""
    source = ReplaySource(stored.save(recording(chat("a"))))
    request = {
        "model": chat_request("a", model="other"),
        "method": dataclasses.replace(chat_request("a"), method="PUT"),
        "path": dataclasses.replace(chat_request("a"), url=CHAT_URL + "/x"),
        "query": dataclasses.replace(chat_request("a"), url=CHAT_URL + "?api-version=2"),
    }[difference]

    assert source.answer(request, "model") is None


def test_what_does_not_make_a_request_another_one(stored: RecordingStore) -> None:
    """Key order, layout, headers, credentials and host do not; another host is noticed."""
    source = ReplaySource(stored.save(recording(chat("a", "a", "a", "a"))))
    body = json.loads(chat_request("a").body)
    requests = [
        HttpRequest("post", CHAT_URL, JSON_HEADERS, json.dumps(dict(reversed(body.items())), indent=2).encode()),
        dataclasses.replace(chat_request("a"), headers=(*JSON_HEADERS, ("x-stainless-retry-count", "2"))),
        dataclasses.replace(chat_request("a"), url=CHAT_URL + "?key=another"),
        dataclasses.replace(chat_request("a"), url="http://127.0.0.1:9000/v1/chat/completions"),
    ]

    assert [heard(source.answer(request, "model")) for request in requests] == [f"re: a #{n}" for n in range(4)]
    assert source.other_hosts == {"127.0.0.1:9000"}


def test_a_redacted_credential_does_not_make_a_request_another_one(stored: RecordingStore) -> None:
    """Matching works on what was stored: recorded with one key, replayed with another."""
    with_key = exchange(chat_request("a", api_key="CANARY-1"), chat_answer("re: a #0"))
    source = ReplaySource(stored.save(recording((with_key,))))

    assert heard(source.answer(chat_request("a", api_key="CANARY-2"), "model")) == "re: a #0"


def test_volatile_places_do_not_make_a_request_another_one(stored: RecordingStore) -> None:
    """What the budget lists as volatile is ignored, and nothing else."""
    item = exchange(chat_request("run 1, at 12:00", user="u1"), chat_answer("re: a #0"))
    saved = stored.save(recording((item,)))
    request = chat_request("run 1, at 12:01", user="u2")

    assert ReplaySource(saved).answer(request, "model") is None
    assert ReplaySource(saved, ("/user",)).answer(request, "model") is None
    assert heard(ReplaySource(saved, ("/user", r"\d\d:\d\d")).answer(request, "model")) == "re: a #0"


def test_a_bad_volatile_entry_is_refused_before_the_first_request() -> None:
    """Not inside the agent's call."""
    with pytest.raises(ConfigError):
        ReplaySource(None, ("(",))


def test_a_chain_of_retries_comes_back_in_order(stored: RecordingStore) -> None:
    """503, 503, 200 for one body, each just as it was recorded."""
    failure = HttpAnswer(503, (("retry-after", "3"), ("x-request-id", "r")), (b"{}",), (1,), 2)
    items = tuple(
        exchange(chat_request("a"), answer, n) for n, answer in enumerate([failure, failure, chat_answer("fine")])
    )
    source = ReplaySource(stored.save(recording(items)))

    answers = [source.answer(chat_request("a"), "model") for _ in range(3)]

    assert [answer.answer for answer in answers if answer] == [failure, failure, chat_answer("fine")]


def test_requests_without_a_body_are_matched(stored: RecordingStore) -> None:
    """GET requests of tools, each URL its own queue; an empty body is not a redacted one."""
    urls = ["https://shop.example/a", "https://shop.example/b", "https://shop.example/a"]
    items = tuple(
        exchange(HttpRequest("GET", url, (), b""), HttpAnswer(200, (), (b"%d" % n,), (1,), 2), n, "tool")
        for n, url in enumerate(urls)
    )
    secret = exchange(HttpRequest("GET", urls[0], (), b'{"password":"x1"}'), HttpAnswer(200, (), (b"9",), (1,), 2), 3)
    source = ReplaySource(stored.save(recording((secret, *items))))

    answers = [source.answer(HttpRequest("GET", url, (), b""), "tool") for url in [urls[0], urls[0], urls[1]]]

    assert [answer.answer.body for answer in answers if answer] == [b"0", b"2", b"1"]
    assert source.leftover == 1


def test_a_recording_that_was_never_stored_answers_as_well() -> None:
    """The trial that was just recorded can be proved before it is on disk."""
    source = ReplaySource(recording(chat("a")))

    assert heard(source.answer(chat_request("a"), "model")) == "re: a #0"


def test_concurrent_requests_keep_their_answers(stored: RecordingStore) -> None:
    """16 threads, 40 texts asked five times each: every text hears its own five answers, each once."""
    texts = [f"text {n}" for n in range(40)] * 5
    items = tuple(exchange(chat_request(text), chat_answer(f"{text} #{n}"), n) for n, text in enumerate(texts))
    source = ReplaySource(stored.save(recording(items)))
    start = threading.Barrier(16)

    def ask(part: int) -> list[str | None]:
        start.wait()
        requests = [
            # every other thread writes its JSON another way, so that both indexes are used at once
            chat_request(text) if part % 2 else HttpRequest("POST", CHAT_URL, (), _spaced(chat_request(text).body))
            for text in texts[part::16]
        ]
        return [heard(source.answer(request, "model")) for request in requests]

    with ThreadPoolExecutor(16) as pool:
        answers = [answer for part in pool.map(ask, range(16)) for answer in part]

    assert Counter(answers) == Counter(f"{text} #{n}" for n, text in enumerate(texts))
    assert (source.leftover, source.note()) == (0, None)


def _spaced(body: bytes) -> bytes:
    return json.dumps(json.loads(body), indent=1).encode()


def large_recording() -> Recording:
    messages = [{"role": "user", "content": f"{n} " + "word " * 400} for n in range(20)]
    return recording(
        tuple(exchange(chat_request("x", messages=messages, n=n), chat_answer(f"#{n}"), n) for n in range(60))
    )


def test_a_look_up_is_fast(stored: RecordingStore) -> None:
    """Far below a millisecond for a 40 KB body with the recorded bytes (CPU time, generous for a busy machine)."""
    requests = [item.request for item in large_recording().exchanges]
    assert len(requests[0].body) > 40_000
    source = ReplaySource(stored.save(large_recording()))

    begun = time.process_time()
    answers = [heard(source.answer(request, "model")) for request in requests]
    spent = time.process_time() - begun

    assert answers == [f"#{n}" for n in range(60)]
    assert spent / 60 < 0.001


def asked(text: str, agent: str = "", **more: object) -> HttpRequest:
    """A request of a client that names itself in its User-Agent."""
    request = chat_request(text, **more)
    return dataclasses.replace(request, headers=(*request.headers, ("user-agent", agent)))


def explained(stored: RecordingStore, before: HttpRequest, after: HttpRequest) -> tuple[str, ...]:
    source = ReplaySource(stored.save(recording((exchange(before, chat_answer("x")),))))
    assert source.answer(after, "model") is None
    note = source.note()
    assert note is not None
    return note.changes


OLD, NEW = "OpenAI/Python 2.8.0 os/shop-laptop", "OpenAI/Python 2.9.1"


def test_what_an_sdk_update_adds_is_told_from_what_a_user_changes(stored: RecordingStore) -> None:
    """Keys on one side only, when the SDK is another version, are probably its own; all else the user has changed."""
    before = asked("a", OLD, user="u1", temperature=1)
    after = asked("a", NEW, temperature=2, service_tier="auto", store=None)

    assert explained(stored, before, after) == (
        "probably by the SDK (OpenAI/Python 2.8.0 -> 2.9.1): service_tier, store added; user left out",
        "temperature: 1 -> 2",
    )
    assert explained(stored, before, asked("a", NEW, user="u1", temperature=1, store=None)) == (
        "probably by the SDK (OpenAI/Python 2.8.0 -> 2.9.1): store added",
    )
    assert explained(stored, before, asked("b", NEW, user="u1", temperature=1)) == (
        "SDK: OpenAI/Python 2.8.0 -> 2.9.1",
        'messages[0] (user): "a" -> "b"',
    )


def test_without_an_update_no_sdk_is_named(stored: RecordingStore) -> None:
    """The same version, another library, or none that is told: then what differs is what somebody changed."""
    after = asked("a", store=None)
    for old, new in ((OLD, OLD), (OLD, "Anthropic/Python 0.9"), ("", NEW), (OLD, "curl")):
        found = explained(stored, asked("a", old), dataclasses.replace(after, headers=(("user-agent", new),)))
        assert found == ("store: (not set) -> null",)


def test_of_a_user_agent_only_name_and_version_are_kept(stored: RecordingStore) -> None:
    """What it tells of the machine beside them is nobody's business."""
    saved = stored.save(recording((exchange(asked("a", OLD), chat_answer("x")),)))

    assert dict(saved.exchanges[0].request.headers)["user-agent"] == "OpenAI/Python 2.8.0"


def test_each_entry_counts_the_requests_in_which_it_ignored_something(stored: RecordingStore) -> None:
    """What was the same, or what another entry has ignored, counts for none."""
    volatile = ("/metadata/run", "on \\d+", "/seed")
    saved = stored.save(recording(chat("a on 1", "b on 1", "c")))
    source = ReplaySource(saved, volatile)
    for text in ("a on 2", "b on 1", "c"):
        source.answer(chat_request(text), "model")

    assert (source.note(), dict(source.ignored)) == (None, {"on \\d+": 1})


def test_a_forgiving_source_shows_all_that_differs(stored: RecordingStore) -> None:
    """A request that is not on the recording hears the answer of the one most like it, and is noted all the same."""
    saved = stored.save(recording(chat("first of 1", "second of 1", "third")))
    source = ReplaySource(saved, forgiving=True)
    answers = [heard(source.answer(chat_request(t), "model")) for t in ("second of 2", "first of 2", "third", "more")]

    assert answers == ["re: second of 1 #1", "re: first of 1 #0", "re: third #2", None]
    bodies = [
        (miss.call, json.loads(miss.recorded.body)["messages"][0]["content"] if miss.recorded else None)
        for miss in source.missed
    ]
    assert bodies == [(1, "second of 1"), (2, "first of 1"), (4, None)]
    assert source.missed[2].changes == ("at least 4 calls of POST /v1/chat/completions, 3 recorded: fanout rose",)
    assert source.note() is not None


def test_one_change_in_many_texts_is_of_one_kind(stored: RecordingStore) -> None:
    """However the text differs that it stands in, what was changed is the same."""
    kinds = set()
    for text in ("Where is my parcel?", "I want my money back"):
        source = ReplaySource(stored.save(recording(chat(f"Question: {text} Answer briefly."))))
        source.answer(chat_request(f"Question: {text} Answer in one word."), "model")
        note = source.note()
        assert note is not None
        assert text[-8:] in note.changes[0]
        kinds.add(note.kinds)

    assert kinds == {('messages[0] (user): "…briefly…" -> "…in one word…"',)}


def test_a_source_that_ends_at_its_first_miss() -> None:
    """Whatever is asked after a request that is not on the recording hears nothing, though it is on it."""
    source = ReplaySource(recording(chat("a", "b", "c")), until_miss=True)

    assert source.answer(chat_request("a"), "model") is not None
    assert source.answer(chat_request("x"), "model") is None
    assert source.answer(chat_request("b"), "model") is None
    assert source.leftover == 2


def test_when_the_first_request_that_was_missed_is_sent() -> None:
    """The recorded ones are sent at 0, 10 and 20 ms and answered in 6. A changed second one is sent as the recorded one
    was; after the third, no recorded one stands for it, so that it follows its answer by what the agent took; and
    one more than there were follows the last answer."""
    changed, late, more = (ReplaySource(recording(chat("a", "b", "c")), until_miss=True) for _ in range(3))
    for source, texts in ((changed, "ax"), (late, "acx"), (more, "abcx")):
        for text in texts:
            source.answer(chat_request(text), "model")

    assert [source.resumes_ms(3) for source in (changed, late, more)] == [10, 29, 29]
