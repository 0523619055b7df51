"""A8: credentials never reach the disk, and what looks like one stops the save."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest
from recording_samples import CHAT_URL, chat, chat_answer, chat_request, exchange, recording

from pytest_fanout.errors import StorageError
from pytest_fanout.records import HttpAnswer, HttpRequest
from pytest_fanout.store.recordings import RecordingStore
from pytest_fanout.store.scanner import scan
from pytest_fanout.store.secrets import redact_form_data

CANARIES = ["canary-header-1", "canary-xapikey-2", "canary-query-3", "canary-body-4", "canary-cookie-5"]


def test_five_canaries_in_five_places_reach_no_file(tmp_path: Path) -> None:
    """A8: authorization and x-api-key headers, a query key, a body field and a cookie are not stored."""
    request = HttpRequest(
        "POST",
        f"{CHAT_URL}?key=canary-query-3&version=2",
        (("authorization", "Bearer canary-header-1"), ("x-api-key", "canary-xapikey-2")),
        json.dumps({"model": "m", "api_key": "canary-body-4", "messages": []}).encode(),
    )
    answer = HttpAnswer(
        200, (("set-cookie", "s=canary-cookie-5"), ("content-type", "application/json")), (b'{"choices":[]}',), (1,), 2
    )

    RecordingStore(tmp_path, {}).save(recording((exchange(request, answer),)))

    (path,) = tmp_path.rglob("*.jsonl")
    text = path.read_text(encoding="utf-8")
    assert [canary for canary in CANARIES if canary in text] == []
    assert "?key=[redacted]&version=2" in text
    assert '"api_key":"[redacted]"' in text


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b'{"a":{"Client-Secret":"CANARY-1"}}', b'{"a":{"Client-Secret":"[redacted]"}}'),
        (b'[{"password":1234567}]', b'[{"password":"[redacted]"}]'),
        (b'{"properties":{"password":{"type":"string"}}}', b'{"properties":{"password":{"type":"string"}}}'),
        (b'{"logprobs":[{"token":"Hello"}],"secret":""}', b'{"logprobs":[{"token":"Hello"}],"secret":""}'),
    ],
)
def test_credential_fields_of_json_bodies(tmp_path: Path, body: bytes, kept: bytes) -> None:
    """Fields named like credentials lose their value; schemas that describe them and plain words do not."""
    sent = exchange(HttpRequest("POST", CHAT_URL, (), body), chat_answer("x"))

    stored = RecordingStore(tmp_path, {}).save(recording((sent,)))

    assert stored.exchanges[0].request.body == kept


def test_a_redacted_body_leaves_no_digest_of_what_it_was(tmp_path: Path) -> None:
    """A short password can be guessed from the digest of a body that is otherwise known."""
    sent = exchange(HttpRequest("POST", CHAT_URL, (), b'{"password":"12345"}'), chat_answer("x"))

    stored = RecordingStore(tmp_path, {}).save(recording((sent,)))

    assert stored.exchanges[0].raw_body == ""


def test_tokens_that_a_tool_hears_are_redacted(tmp_path: Path) -> None:
    """The answer of a login holds a credential as well, and a form does."""
    request = HttpRequest(
        "POST",
        "https://user:CANARY-0@login.example/token#CANARY-1",
        (("content-type", "application/x-www-form-urlencoded"),),
        b"grant_type=x&client_secret=CANARY-2&assertion=eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJ4In0.c2ln",
    )
    answer = HttpAnswer(
        200, (("content-type", "application/json"),), (b'{"access_tok', b'en":"CANARY-3","n":1}'), (1, 2), 3
    )

    stored = RecordingStore(tmp_path, {}).save(recording((exchange(request, answer, role="tool"),))).exchanges[0]

    assert stored.request.url == "https://login.example/token"
    assert stored.request.body == b"grant_type=x&client_secret=[redacted]&assertion=[redacted]"
    assert stored.answer.body == b'{"access_token":"[redacted]","n":1}'


def test_plain_data_under_a_name_like_key_is_kept_for_tools(tmp_path: Path) -> None:
    """``?key=sku-1`` and ``?key=sku-2`` are two look-ups: redacting them would make them one."""
    plain = HttpRequest("GET", "https://shop.example/stock?key=sku-1&code=DE", (), b"")
    secret = HttpRequest("GET", "https://maps.example/geo?key=Zx81kQ0aPq7LmN3r5TtY&q=x", (), b"")
    answer = HttpAnswer(200, (), (b"1",), (1,), 2)

    stored = RecordingStore(tmp_path, {}).save(
        recording((exchange(plain, answer, 0, "tool"), exchange(secret, answer, 1, "tool")))
    )

    assert [item.request.url for item in stored.exchanges] == [
        "https://shop.example/stock?key=sku-1&code=DE",
        "https://maps.example/geo?key=[redacted]&q=x",
    ]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"arguments": '{"password": "CANARY"}'}, {"arguments": '{"password": "[redacted]"}'}),
        (
            {"content": json.dumps({"raw": json.dumps({"api_key": "CANARY", "n": 1})})},
            {"content": json.dumps({"raw": json.dumps({"api_key": "[redacted]", "n": 1})})},
        ),
        ({"headers": {"Authorization": ["CANARY"]}}, {"headers": {"Authorization": ["[redacted]"]}}),
        ([{"name": "X-Api-Key", "value": "CANARY"}], [{"name": "X-Api-Key", "value": "[redacted]"}]),
        ({"cookie": "sid=CANARY"}, {"cookie": "[redacted]"}),
        ({"token": "CANARY0123456789abc"}, {"token": "[redacted]"}),
        ({"cookie": "chocolate", "token": "Hello"}, {"cookie": "chocolate", "token": "Hello"}),
        ({"name": "password", "description": "of the user"}, {"name": "password", "description": "of the user"}),
        ({"text": '{"a": 1, "b":2}'}, {"text": '{"a": 1, "b":2}'}),
    ],
)
def test_credentials_inside_of_texts_and_lists(tmp_path: Path, sent: object, kept: object) -> None:
    """Arguments and results of tools stand as JSON in texts of JSON, headers as lists; all else keeps its form."""
    request = HttpRequest("POST", CHAT_URL, (), json.dumps(sent).encode())
    answer = HttpAnswer(200, (("content-type", "application/json"),), (json.dumps({"got": sent}).encode(),), (1,), 2)

    stored = RecordingStore(tmp_path, {}).save(recording((exchange(request, answer),))).exchanges[0]

    assert json.loads(stored.request.body) == kept
    assert json.loads(stored.answer.body) == {"got": kept}


def test_a_stream_is_redacted_line_by_line_and_keeps_its_chunks(tmp_path: Path) -> None:
    """Also where a chunk ends in the middle of the key: what is new stands where the old began."""
    whole = (
        b'event: x\ndata: {"n": 1}\n\n'
        b'data: {"result": {"access_token": "CANARY-0123456789", "n": 2}}\n\ndata: [DONE]\n\n'
    )
    cut = whole.index(b"CANARY") + 8
    answer = HttpAnswer(200, (("content-type", "text/event-stream"),), (whole[:cut], whole[cut:]), (1, 5), 6)
    lines = HttpAnswer(
        200, (("content-type", "application/x-ndjson"),), (b'{"a":1}\n', b'{"password":"CANARY"}\n'), (1, 2), 3
    )
    request = HttpRequest("POST", "https://tools.example/mcp", (), b"")

    kept = RecordingStore(tmp_path, {}).save(
        recording((exchange(request, answer, 0, "tool"), exchange(request, lines, 1, "tool")))
    )

    first, second = (item.answer for item in kept.exchanges)
    assert first.body == (
        b'event: x\ndata: {"n": 1}\n\ndata: {"result":{"access_token":"[redacted]","n":2}}\n\ndata: [DONE]\n\n'
    )
    assert (len(first.chunks), first.chunk_ms) == (2, (1, 5))
    assert first.chunks[1] == b"\n\ndata: [DONE]\n\n"
    assert second.chunks == (b'{"a":1}\n', b'{"password":"[redacted]"}\n')


def test_fields_of_multipart_forms_are_redacted(tmp_path: Path) -> None:
    """As those of other forms; files and plain fields stay."""
    body = (
        b'--b\r\nContent-Disposition: form-data; name="password"\r\n\r\nCANARY\r\n'
        b'--b\r\nContent-Disposition: form-data; name="note"\r\n\r\nhello\r\n--b--\r\n'
    )
    request = HttpRequest("POST", "https://x.example/", (("content-type", "multipart/form-data; boundary=b"),), body)

    stored = RecordingStore(tmp_path, {}).save(
        recording((exchange(request, HttpAnswer(200, (), (), (), 1), 0, "tool"),))
    )

    assert stored.exchanges[0].request.body == body.replace(b"CANARY", b"[redacted]")


def test_links_of_an_answer_are_redacted_as_its_locations_are(tmp_path: Path) -> None:
    """Pages of results are linked by URLs, which may hold the key that was sent."""
    link = '<https://x.example/?page=2&api_key=CANARY>; rel="next", <https://x.example/?page=9>; rel="last"'
    answer = HttpAnswer(200, (("link", link), ("location", "https://u:CANARY@x.example/a")), (b"1",), (1,), 2)
    request = HttpRequest("GET", "https://x.example/", (), b"")

    stored = RecordingStore(tmp_path, {}).save(recording((exchange(request, answer, 0, "tool"),)))

    assert stored.exchanges[0].answer.headers == (
        ("link", '<https://x.example/?page=2&api_key=[redacted]>; rel="next", <https://x.example/?page=9>; rel="last"'),
        ("location", "https://x.example/a"),
    )


def streamed(*deltas: dict[str, object]) -> HttpAnswer:
    """A streamed chat completion, a chunk an event."""
    events = [
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n" for delta in deltas
    ]
    return HttpAnswer(200, (("content-type", "text/event-stream"),), tuple(events), tuple(range(len(events))), 9)


def test_a_secret_that_a_model_says_in_pieces_is_found(tmp_path: Path) -> None:
    """No event of the stream holds it whole; the text that the agent hears does."""
    secret = "sk-ant-" + "Ab1" * 10
    answer = streamed(*({"content": secret[at : at + 4]} for at in range(0, len(secret), 4)))

    with pytest.raises(StorageError, match=r"not saved: the text of answer 1 .* holds an Anthropic key"):
        RecordingStore(tmp_path, {}).save(recording((exchange(chat_request("x"), answer),)))


def test_a_credential_in_streamed_arguments_of_a_tool_is_found(tmp_path: Path) -> None:
    """It cannot be taken out of the pieces of a stream, so the recording is refused, and the tool named."""
    pieces = ['{"user": "dana", "pass', 'word": "hun', 'ter2"}']
    calls = [{"index": 0, "id": "c1", "function": {"name": "login", "arguments": ""}}]
    answer = streamed(
        {"tool_calls": calls}, *({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces)
    )

    with pytest.raises(
        StorageError, match=r"the arguments of tool call login of answer 1 .* a field that is named like"
    ):
        RecordingStore(tmp_path, {}).save(recording((exchange(chat_request("x"), answer),)))


SECRETS = [
    ("sk-ant-api03-" + "Ab1" * 10, "an Anthropic key (sk-ant-…)"),
    ("sk-proj-" + "Ab1" * 10, "an OpenAI key (sk-…)"),
    ("sk-" + "Ab1" * 10, "an OpenAI key (sk-…)"),
    ("AKIA" + "ABCD1234" * 2, "an AWS access key (AKIA…)"),
    ("AIza" + "a" * 35, "a Google API key (AIza…)"),
    ("ghp_" + "a" * 36, "a GitHub token (ghp_…)"),
    ("xoxb-1234567890-abc", "a Slack token (xox…)"),
    ("authorization: bearer abcdefghijklmnop1234", "a bearer token (Bearer …)"),
    ("-----BEGIN RSA PRIVATE KEY-----", "a private key (-----BEGIN …)"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijklm", "a JSON Web Token (eyJ…)"),
]


@pytest.mark.parametrize(("secret", "kind"), SECRETS)
@pytest.mark.parametrize("around", ["{}", "see {} here", "line\\n{}\\nline", '"{}"'])
def test_key_shapes_are_found(secret: str, kind: str, around: str) -> None:
    """Wherever they stand, after an escaped line break too."""
    assert scan(around.format(secret), {}) == (kind,)


@pytest.mark.parametrize(
    "text",
    [
        "task-abcdefghijklmnopqrstuvwxyz",
        "use sk-learn-estimators-and-more-of-them",
        "Bearer of bad news everywhere-and-anywhere",
        "Authorization: Bearer fanout-sealed-support-refund-1-abcdef",
        "eyJ",
        "call_abcdefghijklmnopqrstuvwxyz0123456789",
        "-----BEGIN PUBLIC KEY-----",
    ],
)
def test_words_that_only_look_like_keys_are_not(text: str) -> None:
    """A scan that cries wolf would be turned off; the dummies of sealed keys open nothing."""
    assert scan(text, {}) == ()


def test_values_of_secret_looking_variables_are_found() -> None:
    """By name of the variable, from 12 characters on, also as JSON and URLs write them."""
    environ = {
        "SHOP_TOKEN": 'pa"ss/word-1234',
        "SHORT_KEY": "12345678901",
        "HOME_PAGE": "https://shop.example",
        "OPENAI_API_KEY": "fanout-sealed-x-1234",
        "SSH_AUTH_SOCK": "ssh-agent-socket-1234",
    }
    kind = ("the value of the environment variable SHOP_TOKEN",)

    assert scan('x pa"ss/word-1234 x', environ) == kind
    assert scan(json.dumps('pa"ss/word-1234'), environ) == kind
    assert scan("?q=pa%22ss%2Fword-1234", environ) == kind
    assert scan(" ".join(value for name, value in environ.items() if name != "SHOP_TOKEN"), environ) == ()


def test_a_secret_in_a_prompt_stops_the_save_and_is_not_shown(tmp_path: Path) -> None:
    """The message names the place and the kind, never the secret; what stood there stays."""
    store = RecordingStore(tmp_path, {})
    store.save(recording(chat("hello")))
    before = store.path("support", "refund", 1).read_bytes()
    secret = "sk-ant-" + "Ab1" * 10

    with pytest.raises(StorageError) as caught:
        store.save(recording(chat("hello", f"my key is {secret}")))

    assert str(caught.value) == (
        f"{store.path('support', 'refund', 1)}: not saved: messages[0].content of request 2 (POST /v1/chat/completions)"
        " holds an Anthropic key (sk-ant-…)\n"
        "  mend: keep the secret out of what the agent sends, or remove it in the hook pytest_fanout_redact\n"
        "  see: docs/messages.md#secret-in-recording"
    )
    assert store.path("support", "refund", 1).read_bytes() == before


def test_a_secret_is_found_in_an_answer_cut_into_chunks_and_compressed(tmp_path: Path) -> None:
    """A chunk boundary, or gzip, does not hide it."""
    secret = "ghp_" + "a" * 36
    data = gzip.compress(f"data: {secret}\n\n".encode())
    answer = HttpAnswer(200, (("content-encoding", "gzip"),), (data[:20], data[20:]), (1, 2), 3)

    with pytest.raises(StorageError, match=r"the body of answer 1 .* holds a GitHub token"):
        RecordingStore(tmp_path, {}).save(recording((exchange(chat_request("x"), answer),)))


def test_a_secret_in_a_growing_text_is_found_though_it_is_stored_in_two_pieces(tmp_path: Path) -> None:
    """Two keys that begin alike share their beginning in the file; the scan looks at the whole."""
    base = "x" * 150 + " gho_" + "a" * 20

    with pytest.raises(StorageError, match=r"of request 2 .* holds a GitHub token"):
        RecordingStore(tmp_path, {}).save(recording(chat(base, base + "b" * 16)))


def test_a_form_of_headers_without_end_is_looked_through_at_once() -> None:
    """A megabyte of headers and no value: looking from each of them to the end of the body would take minutes."""
    body = b'content-disposition: form-data; name="password"\r\n' * 20_000
    begun = time.process_time()

    assert redact_form_data(body) == (body, False)
    assert time.process_time() - begun < 10
