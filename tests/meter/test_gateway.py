"""The gateway counts what other processes call, exactly as the hooks count what this one calls."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from gatewaying import CHAT, STREAMED, Child, behind, child_of, open_socket, read_all, read_one, request_bytes, talk
from metering import Tape, chat, metering
from model_server import ModelServer

from pytest_fanout.errors import UsageError
from pytest_fanout.meter import measure_trial
from pytest_fanout.meter.ledger import ANY, INSIDE, Outer
from pytest_fanout.records import Caps
from pytest_fanout.wire.hosts import KEY_VARIABLES


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def bearer(child: Child) -> dict[str, str]:
    return {"Authorization": f"Bearer {child.key}"}


def usage(model: ModelServer, name: str) -> int:
    return sum(entry.usage[name] for entry in model.generated if entry.usage)


def test_what_curl_asks_is_counted(model: ModelServer) -> None:
    """Calls, attempts and tokens of three dialects, a stream among them, are those of the server's own log."""
    with behind(model) as child:
        said = child.ask()
        streamed = child.curl("-N", "-H", f"Authorization: Bearer {child.key}", child.chat, body=STREAMED)
        messages = child.env["ANTHROPIC_BASE_URL"] + "/v1/messages"
        child.curl("-H", f"x-api-key: {child.env['ANTHROPIC_API_KEY']}", messages, body=CHAT)
        listed = child.curl("-H", f"Authorization: Bearer {child.key}", child.env["OPENAI_BASE_URL"] + "/models")
        measured = child.close()

    assert said["choices"][0]["message"]["content"] == "echo: hi"
    assert streamed.stdout.endswith(b"data: [DONE]\n\n")
    assert json.loads(listed.stdout)["object"] == "list"
    samples = measured.samples
    assert (samples["fanout"], samples["attempts"], samples["spawn_depth"]) == (3, 3, 0) == (len(model.generated), 3, 0)
    assert (samples["input_tokens"], samples["output_tokens"]) == (usage(model, "input"), usage(model, "output"))
    assert (measured.other, child.slugs, measured.unknown_usage) == (1, [], 0)
    assert child.trace is not None
    assert [e.request.url for e in child.trace.exchanges][:2] == [model.base_url + "/v1/chat/completions"] * 2
    assert {(e.layer, e.answer.outcome) for e in child.trace.exchanges} == {("gateway", "complete")}


def test_real_keys_stay_here(model: ModelServer) -> None:
    """The child's environment and all that is kept hold dummies only; the server gets the real key, once."""
    model.restart(lambda entry: {"json": {"you sent": entry.headers["authorization"]}})
    with behind(model, OPENAI_API_KEY="sk-real", AWS_SECRET_ACCESS_KEY="aws-secret") as child:
        answer = child.ask()
        child.close()

    assert answer == {"you sent": "Bearer sk-real"}
    assert "sk-real" not in str(child.env)
    assert child.env["AWS_SECRET_ACCESS_KEY"] == "aws-secret"
    assert child.trace is not None
    assert "sk-real" not in repr(child.trace.exchanges)
    headers = child.trace.exchanges[0].request.headers
    assert ("authorization", "Bearer fanout-sealed-OPENAI_API_KEY") in headers


@pytest.mark.parametrize(
    "place", ["Authorization: Bearer {}", "x-api-key: {}", "api-key: {}", "x-goog-api-key: {}", "?key={}"]
)
def test_the_dummy_tells_whose_call_it_is_wherever_it_stands(place: str, model: ModelServer) -> None:
    """A key is known and swapped in each header that SDKs send keys in, and in the query; the path needs no token."""
    with behind(model, OPENAI_API_KEY="sk-real") as child:
        url = child.gateway.url + "/openai/v1/chat/completions"
        filled = place.format(child.key)
        if place.startswith("?"):
            talk(url + filled, CHAT)
        else:
            talk(url, CHAT, dict([tuple(filled.split(": "))]))  # type: ignore[list-item]
        fanout = child.close().samples["fanout"]

    (entry,) = model.generated
    sent = entry.query if place.startswith("?") else entry.headers[place.partition(":")[0].lower()]
    assert (fanout, sent) == (1, place.format("sk-real").partition(": ")[2] or "key=sk-real")


def test_a_base_url_alone_tells_it_too(model: ModelServer) -> None:
    """A client with a key of its own, as local servers want none, is counted by the token in its base URL."""
    with behind(model) as child:
        talk(child.chat, CHAT, {"Authorization": "Bearer EMPTY"})
        fanout = child.close().samples["fanout"]

    assert (fanout, model.generated[0].headers["authorization"]) == (1, "Bearer EMPTY")


@pytest.mark.parametrize("key", ["", "Bearer sk-mine", "Bearer fanout-sealed-OPENAI_API_KEY-0123456789abcdef"])
def test_who_has_no_key_of_a_task_gets_nowhere(key: str, model: ModelServer) -> None:
    """Without a known key a model call is answered 401, told, and never sent on; other requests are a notice."""
    with behind(model) as child:
        headers = {"Authorization": key} if key else {}
        answer = talk(child.gateway.url + "/openai/v1/chat/completions", CHAT, headers)
        talk(child.gateway.url + "/openai/v1/models", headers=headers, method="GET")
        facts = child.meter.finish()

    text = "POST /openai/v1/chat/completions came to the gateway without the key of a task: it was refused with 401"
    mend = "let the agent take its key and its base URL from its environment"
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == {
        "type": "pytest_fanout",
        "code": "gateway-unattributed",
        "message": f"pytest-fanout: {text}; {mend}; see docs/messages.md#gateway-unattributed",
    }
    assert (model.log, facts.unattributed) == ([], 1)
    assert [(p.slug, p.verdict, p.text) for p in facts.problems] == [
        ("gateway-unattributed", "invalid", f"{text}\n  mend: {mend}"),
        (
            "gateway-unattributed",
            "notice",
            f"{text}\n  mend: {mend}".replace("POST", "GET").replace("chat/completions", "models"),
        ),
    ]


def test_a_bypass_meets_a_server_that_knows_no_dummy(model: ModelServer) -> None:
    """A child that goes round the gateway with its key is refused by any provider that checks keys."""
    good = "Bearer sk-real"
    model.restart(lambda entry: {} if entry.headers.get("authorization") == good else {"status": 401})
    with behind(model, OPENAI_API_KEY="sk-real") as child:
        through = child.ask()
        direct = child.curl(
            "-o", "-", "-w", "%{http_code}", "-H", f"Authorization: Bearer {child.key}",
            model.base_url + "/v1/chat/completions", body=CHAT,
        )  # fmt: skip

    assert through["choices"][0]["message"]["content"] == "echo: hi"
    assert direct.stdout.endswith(b"401")


def test_tasks_that_overlap_are_told_apart(model: ModelServer) -> None:
    """Two tasks open at once, their calls interleaved from 16 threads: each has exactly its own."""
    with metering() as meter:
        children = [child_of(meter, model, task=name) for name in ("one", "two")]

        def ask(number: int) -> None:
            child = children[number % 3 == 0]
            talk(child.chat, CHAT.replace(b"hi", b"call %d" % number), bearer(child))

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(ask, range(60)))
        measured = [child.close() for child in children]
        facts = meter.finish()

    assert [m.samples["fanout"] for m in measured] == [40, 20]
    for child, keep in zip(children, (False, True), strict=True):
        assert child.trace is not None
        texts = [json.loads(e.request.body)["messages"][0]["content"] for e in child.trace.exchanges]
        assert sorted(texts) == sorted(f"call {n}" for n in range(60) if (n % 3 == 0) is keep)
    assert (facts.late, facts.unattributed, facts.problems) == (0, 0, ())


def test_a_key_of_a_closed_task_is_late(model: ModelServer) -> None:
    """What comes after the end of its task is counted as late and makes the run invalid, also once the task is gone."""
    with metering() as meter:
        child = child_of(meter, model, task="short")
        chat_url, headers = child.chat, bearer(child)
        child.gateway.close_scope(child.scope)
        talk(chat_url, CHAT, headers)
        meter.close_task(child.scope)
        del child
        talk(chat_url, CHAT, headers)
        facts = meter.finish()

    assert facts.late == 2
    (problem,) = facts.problems
    where = model.base_url.removeprefix("http://")
    assert (problem.slug, problem.text) == (
        "late-call",
        f"POST {where} was called for task 'short' of shop after it had ended",
    )


def test_an_environment_of_no_task_belongs_to_the_one_that_runs(model: ModelServer) -> None:
    """A server started once calls for whichever task runs; between tasks its calls are unattributed."""
    with metering() as meter:
        gateway = meter.gateway()
        env = gateway.environ_for(None, {"OPENAI_BASE_URL": model.base_url + "/v1"})
        url, key = env["OPENAI_BASE_URL"] + "/chat/completions", {"Authorization": f"Bearer {env['OPENAI_API_KEY']}"}
        connection = None
        counts = []
        for calls in (2, 1):
            scope = meter.open_task("shop", f"t{calls}", 1, Caps())
            # opened in the first task and kept alive over all that comes, as a server's pool would be
            connection = connection or open_socket(url)
            for _ in range(calls):
                connection.sendall(request_bytes(url, CHAT, key))
                assert read_one(connection).startswith(b"HTTP/1.1 200")
            trace = meter.close_task(scope)
            counts.append(measure_trial(trace.exchanges, trace.duration_ms).samples["fanout"])
        assert connection is not None
        with connection:
            connection.sendall(request_bytes(url, CHAT, key))
            read_one(connection)
        facts = meter.finish()

    assert counts == [2, 1]
    assert (facts.unattributed, facts.late) == (1, 0)
    assert [problem.slug for problem in facts.problems] == ["unattributed-call"]


def test_a_cap_is_shared_and_exact(model: ModelServer) -> None:
    """Of a parent's call and 20 calls of its children at once under a cap of five, five reach the model; the rest get a
    400 that no SDK retries and that names the cap."""
    model.restart(lambda entry: {"delay_s": 0.05})
    gate = threading.Barrier(20)
    with metering() as meter:
        scope = meter.open_task("shop", "t", 1, Caps(fanout=5))
        env = meter.gateway().environ_for(scope, {"OPENAI_BASE_URL": model.base_url + "/v1"})
        url, key = env["OPENAI_BASE_URL"] + "/chat/completions", {"Authorization": f"Bearer {env['OPENAI_API_KEY']}"}
        with httpx2.Client() as client:
            client.post(model.base_url + "/v1/chat/completions", json=chat("of the parent"))

        def ask(number: int) -> bytes:
            with open_socket(url) as connection:
                gate.wait(10)
                connection.sendall(request_bytes(url, CHAT, {**key, "Connection": "close"}))
                return read_all(connection)

        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(ask, range(20)))
        trace = meter.close_task(scope)

    refused = [answer for answer in answers if not answer.startswith(b"HTTP/1.1 200")]
    assert (len(model.generated), len(refused), trace.capped) == (5, 16, "fanout")
    assert measure_trial(trace.exchanges, trace.duration_ms).samples["fanout"] == 5
    for answer in refused:
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"x-should-retry: false" in answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"] == (
            "pytest-fanout: 't' of shop reached its cap fanout = 5: it was stopped and every further call of it is"
            " refused; see docs/messages.md#capped"
        )


def test_a_cap_that_is_near_stands_in_the_answer(model: ModelServer) -> None:
    """From 80 % of a cap on each answer says so in a header."""
    with behind(model, caps=Caps(fanout=5)) as child:
        heads = [talk(child.chat, CHAT, bearer(child)).partition(b"\r\n\r\n")[0] for _ in range(5)]
        child.close()

    warned = [line for head in heads for line in head.split(b"\r\n") if line.startswith(b"x-fanout-cap-warning")]
    assert [b"x-fanout-cap-warning" in head for head in heads] == [False, False, False, True, True]
    assert warned == [b"x-fanout-cap-warning: fanout=0.80", b"x-fanout-cap-warning: fanout=1.00"]


def test_a_recording_replays(model: ModelServer) -> None:
    """Plain answers, streams, a 429, a stream that died and a server that was down replay as they were, without it."""
    script = [
        {"text": "first"},
        {"status": 429, "retry_after": 7},
        {"text": "one two three"},
        {"text": "four five six", "break_after": 3},
    ]
    model.restart(script)

    def agent(child: Child) -> list[tuple[int, bytes]]:
        bodies = [CHAT, CHAT.replace(b"hi", b"two"), STREAMED, STREAMED.replace(b"hi", b"dies")]
        ran = [child.curl("-N", "-w", "%{http_code}", *auth(child), child.chat, body=body) for body in bodies]
        down = child.curl(
            "-w", "%{http_code}", *auth(child), child.env["GROQ_BASE_URL"] + "/openai/v1/chat/completions", body=CHAT
        )
        return [(done.returncode, done.stdout) for done in (*ran, down)]

    def auth(child: Child) -> tuple[str, str]:
        return "-H", f"Authorization: Bearer {child.key}"

    nowhere = {"GROQ_BASE_URL": "http://127.0.0.1:9"}
    with behind(model, "record", **nowhere) as child:
        live, measured = agent(child), child.close()
        assert child.trace is not None
        tape = Tape(child.trace.exchanges)
    sent = len(model.log)
    with behind(model, "replay", source=tape, **nowhere) as child:
        replayed, again = agent(child), child.close()

    assert [code for code, _ in live] == [0, 0, 0, 18, 0]  # 18: the transfer ended before its end
    assert [text[-3:] for _, text in live] == [b"200", b"429", b"200", b"200", b"502"]
    assert [(code, text[-3:]) for code, text in replayed] == [(code, text[-3:]) for code, text in live]
    assert [text for _, text in replayed][:4] == [text for _, text in live][:4]
    assert (len(model.log), tape.missed) == (sent, [])
    names = ("fanout", "attempts", "input_tokens", "output_tokens", "spawn_depth")
    assert [again.samples[name] for name in names] == [measured.samples[name] for name in names]


def test_a_request_that_is_not_recorded_is_refused(model: ModelServer) -> None:
    """In replay nothing goes out: a miss is a 400 that no SDK retries."""
    with behind(model, "replay", source=Tape(())) as child:
        answer = talk(child.chat, CHAT, bearer(child))
        child.close()

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"x-should-retry: false" in answer
    assert b"request-not-recorded" in answer
    assert model.log == []
    assert child.trace is not None
    assert child.trace.misses == 1


def test_a_path_of_no_route_goes_nowhere(model: ModelServer) -> None:
    """Upstreams come from the environment: a path that no variable leads to is a 404 and makes the run invalid."""
    with behind(model) as child:
        answer = talk(child.env["FANOUT_GATEWAY"] + "/other/v1/chat/completions", CHAT, bearer(child))
        bedrock = talk(child.env["AWS_ENDPOINT_URL_BEDROCK_RUNTIME"] + "/model/m/converse", CHAT, bearer(child))
        problems = child.meter.finish().problems

    assert answer.startswith(b"HTTP/1.1 404 ")
    assert bedrock.startswith(b"HTTP/1.1 404 ")
    assert [problem.text for problem in problems] == [
        "POST /other/v1/chat/completions came to the gateway, and no base-URL variable leads there: nothing was sent\n"
        "  mend: use the base URLs of the environment as they are",
        "POST /bedrock/model/m/converse came to the gateway, and the region of its provider is not known: nothing was"
        " sent\n  mend: set AWS_REGION or AWS_DEFAULT_REGION",
    ]
    assert {problem.slug for problem in problems} == {"gateway-no-upstream"}


def test_the_request_does_not_choose_the_upstream(model: ModelServer) -> None:
    """Neither Host, nor dots in the path, nor a URL behind the route lead anywhere else."""
    with behind(model) as child, ModelServer() as other:
        at = f"127.0.0.1:{other.port}"
        for target in (
            "/../../x/v1/chat/completions",
            f"/http://{at}/v1/chat/completions",
            f"//{at}/v1/chat/completions",
        ):
            talk(child.env["OPENAI_BASE_URL"] + target, CHAT, {**bearer(child), "X-Forwarded-Host": at})
        raw = request_bytes(child.chat, CHAT, {**bearer(child), "Connection": "close"})
        with open_socket(child.chat) as connection:
            connection.sendall(raw.replace(b"Host: " + child.chat.split("/")[2].encode(), b"Host: " + at.encode()))
            read_all(connection)

        assert other.log == []
        assert [entry.headers["host"] for entry in model.log] == [f"127.0.0.1:{model.port}"] * 4


def test_only_loopback_is_listened_on(model: ModelServer) -> None:
    """The gateway is not to be reached from another machine; a port that is taken is a clear error."""
    with behind(model) as child:
        url = child.gateway.url
    with metering() as meter, pytest.raises(UsageError) as caught:
        meter.gateway(port=model.port)

    assert str(caught.value) == (
        f"the gateway cannot listen on 127.0.0.1:{model.port}: Address already in use\n"
        "  mend: choose another port, or 0 for any that is free\n  see: docs/messages.md#gateway-port"
    )
    assert url.startswith("http://127.0.0.1:")


def test_a_signature_of_aws_is_refused() -> None:
    """A request signed for the gateway's address would be refused by AWS: it is refused here, and says why."""
    with behind("http://127.0.0.1:9", AWS_REGION="eu-west-1") as child:
        url = child.env["AWS_ENDPOINT_URL_BEDROCK_RUNTIME"] + "/model/m/converse"
        answer = talk(url, CHAT, {"Authorization": "AWS4-HMAC-SHA256 Credential=AKIA/x"})
        child.close()

    text = (
        "POST https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/converse is signed with AWS credentials for the"
        " gateway's address: nothing was sent"
    )
    mend = "give the agent a Bedrock API key (AWS_BEARER_TOKEN_BEDROCK), or use the forward proxy"
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert [(p.slug, p.verdict, p.text) for p in child.scope.problems] == [
        ("gateway-signed", "invalid", f"{text}\n  mend: {mend}")
    ]


def test_without_its_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway's libraries are an extra; where they are missing the message names it."""
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with metering() as meter, pytest.raises(UsageError) as caught:
        meter.gateway()

    assert str(caught.value) == (
        "the gateway stands on aiohttp, which is not installed\n  mend: pip install 'pytest-fanout[gateway]'\n"
        "  see: docs/messages.md#gateway-not-installed"
    )


def test_a_websocket_that_nobody_reads_is_refused(model: ModelServer) -> None:
    """A socket that nobody reads would pass uncounted: the handshake gets a 501, and the agent hears why."""
    with behind(model) as child:
        url = child.env["OPENAI_BASE_URL"] + "/realtime"
        upgrade = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": "x",
            "Sec-WebSocket-Version": "13",
        }
        with open_socket(url) as connection:
            connection.sendall(request_bytes(url, headers={**bearer(child), **upgrade}, method="GET"))
            answer = read_one(connection)
        child.close()

    where = f"{model.base_url}/v1/realtime"
    text = f"a WebSocket to {where} was asked for, which nobody would read: it was refused with 501"
    mend = "let the agent use HTTP for it, streamed or not"
    assert answer.startswith(b"HTTP/1.1 501 ")
    assert [(p.slug, p.verdict, p.text) for p in child.scope.problems] == [
        ("gateway-websocket", "notice", f"{text}\n  mend: {mend}")
    ]
    assert model.log == []


@pytest.mark.parametrize("proxy", [False, True])
def test_vertex_is_seen_by_the_proxy_only(proxy: bool, model: ModelServer) -> None:
    """A base URL would change what google-genai asks Vertex for, so it has none: without the proxy that is invalid."""
    with behind(model, proxy=proxy, GOOGLE_GENAI_USE_VERTEXAI="True") as child:
        child.close()

    text = (
        "GOOGLE_GENAI_USE_VERTEXAI is set: google-genai keeps to Vertex's own address and sign-in, past the gateway\n"
        "  mend: use the forward proxy"
    )
    assert [(p.slug, p.verdict, p.text) for p in child.scope.problems] == (
        [] if proxy else [("gateway-blind", "invalid", text)]
    )


def test_what_the_gateway_sends_is_booked_once(model: ModelServer) -> None:
    """The gateway's own client may be hooked like any other: below its request no hook books a second one."""
    url = model.base_url + "/v1/chat/completions"
    with metering() as meter, httpx2.Client() as client:
        scope = meter.open_task("shop", "t", 1, Caps())
        token = INSIDE.set(Outer(ANY, "/v1/chat/completions", CHAT, "127.0.0.1", model.port, True, []))
        client.post(url, content=CHAT)
        INSIDE.reset(token)
        client.post(url, content=CHAT)
        trace = meter.close_task(scope)

    assert len(model.log) == 2
    assert len(trace.exchanges) == 1


def test_a_hook_that_raises_is_no_silence(model: ModelServer) -> None:
    """Whatever fails inside the gateway makes the task invalid, and the agent gets a 500 that says so."""

    def redact(request: object, answer: object) -> None:
        raise ValueError("broken hook")

    with metering("replay", redact=redact) as meter:
        child = child_of(meter, model, source=Tape(()))
        answer = talk(child.chat, CHAT, bearer(child))
        problems = list(child.scope.problems)

    text = f"the gateway failed on POST {model.base_url}/v1/chat/completions: ValueError: broken hook"
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert f"pytest-fanout: {text}; see docs/messages.md#gateway-failed".encode() in answer
    assert [(p.slug, p.verdict, p.text) for p in problems] == [("gateway-failed", "invalid", text)]
    assert model.log == []
