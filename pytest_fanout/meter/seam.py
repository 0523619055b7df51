"""The one decision about a request, whatever library sends it: count it, answer it, let it go out, or refuse it."""

from __future__ import annotations

import json
import mmap
import threading
import time
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

from pytest_fanout import wire
from pytest_fanout.meter.agent_names import agent_name
from pytest_fanout.meter.branching import goes_live
from pytest_fanout.meter.flight import Flight, Outgoing, RawHeaders
from pytest_fanout.meter.keys import SealedKeys, is_loopback
from pytest_fanout.meter.ledger import AGENT, ANY, SETUP, TOOL, Ledger, Outer, Place, Sent, outer_request
from pytest_fanout.meter.outflow import SPEND_LIMIT, UNPACED, Outflow, request_tokens
from pytest_fanout.meter.outflow import waits as waits_of
from pytest_fanout.meter.reader import COUNTED, Reader, matches_host, path_of, peer_of
from pytest_fanout.meter.task import TaskScope
from pytest_fanout.meter.words import FORKED_CALL, setup_call
from pytest_fanout.records import HttpAnswer, HttpRequest, MeasureRules, Problem, Replayed
from pytest_fanout.wire import hosts

Redact = Callable[[HttpRequest, HttpAnswer], "tuple[HttpRequest, HttpAnswer] | None"]
RPC_STREAMS = "gRPC with a stream of requests"
OTHER_SOCKETS = "other WebSockets"  # whose messages nobody reads, or that no hook opens
AIOHTTP_SOCKETS = "WebSockets of aiohttp"
#: Layers whose answers no recording gives back: in replay their requests are refused.
UNREPLAYED = frozenset({RPC_STREAMS, OTHER_SOCKETS, AIOHTTP_SOCKETS})
#: The handshake of a socket whose calls are recorded: it is given back with none of them.
_SWITCHED = Replayed(HttpAnswer(101, (), (), (), 0), 0)
_NO_ANSWER = HttpAnswer(None, (), (), (), 0)
_CACHE_SIZE = 1024


class Target(NamedTuple):
    """What is known of a method and URL before the request is looked at."""

    role: str  # model or tool
    counted: bool  # generate or compact
    way: str  # normal, ignore, passthrough, live_input
    host: str
    port: int
    name: str  # host:port
    path: str


class Seam:
    """Asked by each hook: ``begin`` before anything is sent. It owns the counts of what belongs to no task."""

    def __init__(
        self, mode: str, rules: MeasureRules, ledger: Ledger, reader: Reader, keys: SealedKeys, redact: Redact | None
    ) -> None:
        self.mode = mode
        self.rules = rules
        self.ledger = ledger
        self.reader = reader
        self.keys = keys
        self.redact = redact
        self.active = False
        self.forked = False  # in a child made by fork nothing can be counted for the parent
        self._child_called = mmap.mmap(-1, 1)  # shared with children made by fork: 1 once one has called a model
        self.ended: Callable[[str], None] | None = None  # the run is over: who is to be told of a call that still comes
        self.exiting = False  # and so is the process
        self.outflow: Outflow | None = None  # asked before a live model call goes out
        self.probe: list[str] | None = None  # while a hook proves itself: what it saw
        self.problems: list[Problem] = []
        self.late = 0
        self.unattributed = 0
        self.setup_calls = 0
        self.peers: set[tuple[str, int]] = set()  # host and port that served a counted call
        self._lock = threading.RLock()
        self._targets: dict[tuple[str, str], Target] = {}

    # --- the hooks ask -----------------------------------------------------------------------------------------

    def is_model(self, method: str, url: str) -> bool:
        """Whether a request goes to a model, or may: for hooks that leave everything else alone."""
        return (self._targets.get((method, url)) or self._look(method, url)).role == "model"

    def outer(self, method: str, url: str, body: bytes) -> Outer | None:
        """What to set as INSIDE while this request is handed on; None: a layer above has booked it already."""
        target = self._targets.get((method, url)) or self._look(method, url)
        above = outer_request()
        if above is not None and above.method == ANY:
            return None
        if above is not None and above.method == TOOL and self._is_part_of_tool(above, method, target):
            return None
        if above is not None and (above.counted or not target.counted):
            same = (above.method, above.body) == (method, body)
            if same and (body or above.path == target.path):
                return None
        return Outer(method, target.path, body, target.host, target.port, target.counted, [])

    def begin(
        self,
        layer: str,
        method: str,
        url: str,
        headers: RawHeaders,
        body: bytes,
        *,
        is_local: Callable[[], bool] = lambda: False,
        place: Place | None = None,
        depth: int | None = None,
        waits: bool = True,
    ) -> Flight | None:
        """Book a request before it is sent. ``is_local``: whether it goes to code of this process, not to a network.
        ``place``: its owner, where the request itself says so; otherwise the owner of the code that asks. ``depth``:
        how deep in agents that start agents it was made, where the request says so. ``waits`` False: the hook itself
        waits for the flight's turn (``outflow.waits``), which holds up no event loop.

        Returns:
            None: it is none of ours, let it pass. A flight with ``reply`` or ``replayed``: answer with that.
            Any other flight: send it (``flight.opened`` says how) and tell the flight what comes back.

        Raises:
            TaskStopped: a cap of its task is reached.
        """
        target = self._targets.get((method, url)) or self._look(method, url)
        if target.way == "passthrough" or (target.role != "model" and is_local()):
            return None  # local code runs in every mode; what it sends itself is booked by itself
        if self.ended is not None:
            of_the_run = place is not None or depth is not None or self.is_left_over()
            return self._after_the_end(target, layer, method, url, headers, body) if of_the_run else None
        place = place or self.ledger.place()
        if target.way == "ignore":
            return self._replied(self._flight(None, AGENT, layer, method, url, headers, body), 204, b"")
        if self.forked:
            return self._in_child(layer, method, url, headers, body) if target.role == "model" else None
        if place is None or place.scope.closed:
            if target.role != "model":
                return None
            return self._unowned(place.scope if place else None, target, layer, method, url, headers, body)
        scope, bucket, site = place
        flight = self._flight(scope, bucket, layer, method, url, headers, body)
        flight.role, flight.counted, flight.depth = target.role, target.counted, depth
        flight.site = site or (agent_name() if target.role == "model" else None)
        scope.reserve(flight)
        if scope.waiting:
            scope.waits(0)
            flight.starts()
        if target.role == "model":
            self._remember(scope, target)
        if target.way == "live_input":
            flight.live_input = True
        elif scope.source is not None or self.mode == "replay":
            answered = self._from_source(scope, flight)
            if answered is not None:
                return answered
        flight = self._live(flight, target)
        if flight.turn is not None and waits and layer not in UNPACED:
            for pause_s in waits_of(flight):
                time.sleep(pause_s)
        return flight

    def begin_tool(self, name: str, arguments: bytes) -> tuple[Flight, Outer] | None:
        """Book a call of one of the agent's functions whose results are recorded.

        Args:
            name: module and qualified name of the function.
            arguments: what tells this call from others, as a JSON object.

        Returns:
            As ``begin``, and what to set as INSIDE while the function runs; None where it simply runs: in no task, in
            another recorded function, or live.
        """
        above = outer_request()
        place = self.ledger.place()
        is_open = place is not None and not place.scope.closed
        if self.mode == "live" or not is_open or self.ended is not None or self.forked:
            return None
        if above is not None and above.method == TOOL:
            return None
        headers = [(b"content-type", b"application/json")]
        flight = self.begin("recorded", TOOL, f"call:///{quote(name)}", headers, arguments, place=place)
        return None if flight is None else (flight, Outer(TOOL, name, b"", "", 0, False, []))

    def _is_part_of_tool(self, above: Outer, method: str, target: Target) -> bool:
        """Whether a request is one of what a recorded function does, which its result stands for."""
        if target.role != "model":
            return True
        place = self.ledger.place()
        text = f"{above.path} is recorded, but calls a model ({method} {target.name}), which a replay would leave out"
        (self if place is None else place.scope).add_problem(
            "model-call-in-recorded",
            f"{text}\n  mend: call models outside of functions marked @pytest_fanout.recorded",
        )
        return False

    def meet(self, what: str, method: str, url: str) -> None:
        """A hook that books only what goes to models has seen its library speak to another server: that is listed."""
        target = self._targets.get((method, url)) or self._look(method, url)
        place = self.ledger.place()
        if self.ended is None and target.way == "normal" and place is not None and not place.scope.closed:
            verdict = "invalid" if self.rules.strict_egress else "notice"
            place.scope.add_problem("unhooked-peer", f"{what} at {target.name}, which is not recorded", verdict)

    def missing_key(self, variable: str, method: str, host: str, scope: TaskScope | None = None) -> str:
        """A request needs a key that was not there; the text that says so."""
        text = f"{variable} is not set, and {method} {host} needs it: nothing was sent"
        (scope or self).add_problem("missing-key", f"{text}\n  mend: export {variable}=... before pytest starts")
        return text

    async def let_finish(self) -> None:
        """Before TaskStopped is raised into a coroutine: it would cancel the calls that its siblings have in flight,
        and what those cost would never be known. They get a moment.
        """
        import anyio

        place = self.ledger.place()
        while place is not None and place.scope.is_finishing:
            await anyio.sleep(0.005)

    def sending(self, method: str, raw_path: bytes) -> Sent | None:
        """A network transport is about to send. A transport of the user's above it may send one request many times.

        Args:
            raw_path: path and query, as they go over the network.

        Returns:
            Where to note the answer; None when it is no model call below one that a hook has booked.
        """
        outer = outer_request()
        if not self.active or outer is None or not outer.counted:
            return None
        path = raw_path.partition(b"?")[0]
        if method != outer.method or (path != outer.path.encode() and not self._calls(method, path)):
            return None
        if outer.sent:
            owner = place.scope if (place := self.ledger.place()) is not None else self
            where = f"{method} {outer.host}:{outer.port}"
            if any(earlier.status is None or 200 <= earlier.status < 300 for earlier in outer.sent):
                text = f"the client's transport sent {where} again although it had not failed: calls are not counted"
                owner.add_problem("resent-by-transport", f"{text}\n  mend: repeat it above the client")
            else:
                text = f"the client's transport retries {where} by itself: attempts holds one for all of them"
                owner.add_problem("retried-by-transport", text, "notice")
        sent = Sent()
        outer.sent.append(sent)
        return sent

    def _calls(self, method: str, path: bytes) -> bool:
        # a transport may turn to another provider, which asks by another path
        return self.reader.classify(method, "http://other.invalid" + path.decode("latin-1")).kind in COUNTED

    def is_replay(self) -> bool:
        """Whether what runs here and now gets its answers from a recording."""
        place = self.ledger.place()
        return self.mode == "replay" or (place is not None and place.scope.source is not None)

    def lets_by(self, method: str, url: str) -> bool:
        """Whether a request is none of ours, whatever it holds."""
        return (self._targets.get((method, url)) or self._look(method, url)).way == "passthrough"

    def unbooked(self, method: str, url: str, what: str, mend: str) -> None:
        """A hook sees a request, or the way for one, that it cannot book: a problem where a model is called.

        Raises:
            ConnectionRefusedError: in replay, where nothing may go out.
        """
        target = self._targets.get((method, url)) or self._look(method, url)
        replay = self.is_replay()
        is_model = target.role == "model" or (target.host, target.port) in self.peers
        if target.way != "normal" or not (is_model or replay):
            return
        place = self.ledger.place()
        owner = self if place is None or place.scope.closed else place.scope
        text = f"{what}: {target.name} {'was not reached' if replay else 'was called uncounted'}"
        owner.add_problem("unbooked-request", f"{text}\n  mend: {mend}")
        if replay:
            raise ConnectionRefusedError(f"pytest-fanout: replay goes to no network ({target.name})")

    def add_problem(self, slug: str, text: str, verdict: str = "invalid") -> Problem:
        """Add a problem of the run once."""
        problem = Problem(slug, text, verdict)
        with self._lock:
            if problem not in self.problems:
                self.problems.append(problem)
        return problem

    # --- what happens to it ------------------------------------------------------------------------------------

    def _from_source(self, scope: TaskScope, flight: Flight) -> Flight | None:
        """None: it goes out, because its task goes on live from here."""
        request = self.keys.scrub(flight.request())
        if self.redact is not None:
            request = (self.redact(request, _NO_ANSWER) or (request,))[0]
        if scope.resumes_ms is not None and (flight.layer in UNREPLAYED or flight.url.startswith("ws")):
            goes_live(scope, flight)  # no recording that is branched holds the like
            return None
        if flight.layer in UNREPLAYED:
            text = f"{flight.method} {flight.url.partition('?')[0]} was refused: calls by {flight.layer} are counted"
            scope.add_problem(
                "stack-not-replayed",
                f"{text}, but not replayed yet\n  mend: measure this agent with --fanout-mode=live",
            )
            return self._refused(flight, 400, "stack-not-replayed", f"calls by {flight.layer} are not replayed")
        if flight.method == "GET" and flight.url.startswith("ws"):
            flight.kept, flight.replayed = False, _SWITCHED
            return flight
        source = scope.source  # another thread may take it away
        replayed = source.answer(request, flight.role) if source is not None else None
        if replayed is not None:
            flight.replayed = replayed
            return flight
        if goes_live(scope, flight):
            return None
        with scope.lock:
            scope.misses += 1
        return self._refused(
            flight,
            400,
            "request-not-recorded",
            f"this {flight.role} request is not on the recording of task {scope.task!r}, and replay goes to no network",
        )

    def _live(self, flight: Flight, target: Target) -> Flight:
        scope = flight.scope
        opened = self.keys.open_request(flight.headers, flight.url) if self.keys.is_sealed else None
        missing = opened[2] if opened is not None else None
        if opened is not None and missing is None:
            flight.opened = Outgoing(opened[0], opened[1])
        if missing is not None and target.role == "model" and not is_loopback(target.host):
            text = self.missing_key(missing, flight.method, target.host, scope)
            return self._refused(flight, 401, "missing-key", text)
        if target.role == "model":
            flight.no_key = missing  # of a server on this machine, which may need none
        if self.outflow is not None and flight.counted:
            flight.turn = self.outflow.ask(scope.agent if scope is not None else None, request_tokens(flight.body))
            if flight.turn is None:
                return self._unaffordable(flight)
        if self.mode == "live":
            flight.keep_little()
        if scope is not None and flight.counted:
            with scope.lock:
                scope.spent_calls += 1
        return flight

    def _unaffordable(self, flight: Flight) -> Flight:
        """The run may spend no more: nothing is sent, and the task is stopped."""
        scope = flight.scope
        if scope is None or scope.closed:
            return self._refused(flight, 400, "spend-limit", "the run may spend no more")
        flight.refuse("TaskStopped")
        scope.release(flight)
        scope.stop(SPEND_LIMIT)
        raise scope.stopped()

    def _unowned(
        self,
        closed: TaskScope | None,
        target: Target,
        layer: str,
        method: str,
        url: str,
        headers: RawHeaders,
        body: bytes,
    ) -> Flight:
        where = f"{method} {target.host}:{target.port}"
        in_setup = closed is None and self.ledger.setup_depth > 0
        bucket = SETUP if in_setup else AGENT
        flight = self._flight(closed, bucket, layer, method, url, headers, body)
        flight.role, flight.counted = target.role, target.counted
        self.peers.add((target.host, target.port))
        if closed is not None and closed.capped is not None:
            closed.reserve(flight)  # as before its end, each further call is refused: it changes no number
        with self._lock:
            self.late += closed is not None
            self.setup_calls += in_setup
            self.unattributed += closed is None and not in_setup
        if closed is not None:
            closed.reserve(flight)
            text = f"{where} was called for task {closed.task!r} of {closed.agent} after it had ended"
            problem = closed.add_problem("late-call", text)
            with self._lock:
                if problem not in self.problems:
                    self.problems.append(problem)
        elif in_setup and self.mode != "live":
            self.add_problem("setup-call", setup_call(where, refused=self.mode == "replay"), "notice")
        elif not in_setup:
            self.add_problem(
                "unattributed-call", f"{where} was called while no task was running, or by a thread of none"
            )
        if self.mode == "replay":
            if in_setup:
                return self._refused(
                    flight, 400, "setup-call", "a fixture's call is not recorded: replay has no answer"
                )
            slug = "late-call" if closed is not None else "unattributed-call"
            return self._refused(flight, 400, slug, "replay goes to no network")
        return self._live(flight, target)

    def refuse_unknown(self, layer: str, method: str, url: str, headers: RawHeaders, body: bytes, where: str) -> Flight:
        """A request that came to the gateway without the key of a task: it is answered 401 and goes nowhere.

        Args:
            where: how the message names it: method and path on the gateway.
        """
        target = self._targets.get((method, url)) or self._look(method, url)
        text = f"{where} came to the gateway without the key of a task: it was refused with 401"
        if target.role == "model":
            with self._lock:
                self.unattributed += 1
        mend = "let the agent take its key and its base URL from its environment"
        self.add_problem(
            "gateway-unattributed", f"{text}\n  mend: {mend}", "invalid" if target.role == "model" else "notice"
        )
        flight = self._flight(None, AGENT, layer, method, url, headers, body)
        return self._refused(flight, 401, "gateway-unattributed", f"{text}; {mend}")

    def is_left_over(self) -> bool:
        """After the end of the run: whether this code is a rest of it, and not of the program around pytest."""
        return self.exiting or self.ledger.is_of_the_run()

    def tell_left_over(self, where: str) -> None:
        """After the end of the run: something that the run has left behind called a model."""
        place = self.ledger.place()
        of = f" for task {place.scope.task!r} of {place.scope.agent}" if place is not None else ""
        assert self.ended is not None
        self.ended(f"{where} was called{of} after the run had ended; it was refused, because it cannot be counted")

    def _after_the_end(
        self, target: Target, layer: str, method: str, url: str, headers: RawHeaders, body: bytes
    ) -> Flight | None:
        if target.role != "model":
            return None
        self.tell_left_over(f"{method} {target.name}")
        flight = self._flight(None, AGENT, layer, method, url, headers, body)
        return self._refused(flight, 400, "call-after-end", "the run has ended")

    def hear_children(self, scope: TaskScope | None) -> None:
        """A child made by fork called a model: the task that ran meanwhile, or the run, has too few calls."""
        if self._child_called[0]:
            self._child_called[0] = 0
            (scope or self).add_problem("forked-call", FORKED_CALL)

    def child_called(self) -> None:
        """In a child made by fork: let the parent know that it called a model."""
        self._child_called[0] = 1

    def _in_child(self, layer: str, method: str, url: str, headers: RawHeaders, body: bytes) -> Flight:
        self.child_called()
        flight = self._flight(None, AGENT, layer, method, url, headers, body)
        return self._refused(flight, 400, "forked-call", "a model call in a forked child process cannot be counted")

    def _refused(self, flight: Flight, status: int, slug: str, text: str) -> Flight:
        flight.role = "refused"
        message = f"pytest-fanout: {text}; see docs/messages.md#{slug}"
        body = json.dumps({"error": {"type": "pytest_fanout", "code": slug, "message": message}}).encode()
        return self._replied(flight, status, body)

    def _replied(self, flight: Flight, status: int, body: bytes) -> Flight:
        headers = (("content-type", "application/json"), ("x-should-retry", "false")) if body else ()
        flight.reply = HttpAnswer(status, headers, (body,) if body else (), (0,) if body else (), 0)
        flight.status = status
        flight.end("complete")
        return flight

    # --- looking -----------------------------------------------------------------------------------------------

    def _flight(
        self, scope: TaskScope | None, bucket: str, layer: str, method: str, url: str, headers: RawHeaders, body: bytes
    ) -> Flight:
        return Flight(scope, bucket, layer, method, url, headers, body, self.reader, self.keys)

    def _remember(self, scope: TaskScope, target: Target) -> None:
        if target.name not in scope.hosts:
            scope.hosts.add(target.name)
            self.peers.add((target.host, target.port))

    def _look(self, method: str, url: str) -> Target:
        kind = self.reader.classify(method, url).kind
        host, port = peer_of(url)
        is_model = kind != "other" or wire.is_unclassified(method, url, self.rules.model_hosts)
        if not is_model:
            is_model = hosts.is_model_host(f"{host}:{port}", self.rules.model_hosts)
        way = "normal"
        # A model endpoint is never let by, whatever the rules say: it would be a hole in the count.
        if not is_model:
            for name in ("ignore", "passthrough", "live_inputs"):
                if matches_host(host, port, getattr(self.rules, name)):
                    way = "live_input" if name == "live_inputs" else name
                    break
        # A channel itself is no call; what its hook books with the method of a channel is one response on it.
        counted = kind in COUNTED or (kind == "channel" and method == "WS")
        target = Target("model" if is_model else "tool", counted, way, host, port, f"{host}:{port}", path_of(url))
        if len(self._targets) >= _CACHE_SIZE:
            self._targets.clear()
        self._targets[method, url] = target
        return target
