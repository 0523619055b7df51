"""The hook of grpcio, blocking and asyncio: calls to model services, each once, below the client's interceptors.

What interceptors repeat is seen each time; what gRPC's core repeats by a retry policy of the channel is not, which is
said. Calls with a stream of requests, and methods of a model host that no rule names, are booked without being read.
What goes to any other server is left alone, and listed. In replay the library's own call objects run on a core that
answers from the recording.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from pytest_fanout.meter.flight import Flight
from pytest_fanout.meter.grpc_replies import asyncio_core, on_blocking_core, refused_core
from pytest_fanout.meter.keys import is_loopback
from pytest_fanout.meter.patching import untorn
from pytest_fanout.meter.reader import peer_of
from pytest_fanout.meter.rpc import METHOD, Rpc, message_json, metadata_of, raw_metadata, rpc_url
from pytest_fanout.meter.seam import RPC_STREAMS, Seam

MODULES: tuple[str, ...] = ("grpc._channel", "grpc._plugin_wrapping", "grpc.aio._call", "grpc.aio._channel")
LAYER = "grpc"
#: What the library says when the client closes a channel under its calls.
_CLOSED = "Channel closed!"
_MARK = "_pytest_fanout_hook"
#: Channels made under the hook, and their targets.
_NAMED: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
#: Host and port of channels that repeat calls by themselves.
_RETRYING: set[tuple[str, int]] = set()


def install(module: ModuleType, seam: Seam) -> Callable[[], None]:
    """Patch the classes of ``module``; the returned function takes the patches off again."""
    undo = []
    for class_name, name, make in _POINTS[module.__name__]:
        cls = getattr(module, class_name)
        if not hasattr(getattr(cls, name), _MARK):
            hook = make(module, seam, getattr(cls, name))
            setattr(hook, _MARK, True)
            undo.append(_patch(cls, name, hook))

    def uninstall() -> None:
        for step in undo:
            step()

    return uninstall


def prove(module: ModuleType, seam: Seam) -> list[str]:
    """Begin one call by each patch on an object without a channel, which sends nothing; names of the patches that did
    not see it exactly once."""
    failed = []
    for class_name, name, make in _POINTS[module.__name__]:
        if make in (_channel_hook, _plugin_hook):
            continue
        cls = getattr(module, class_name)
        seam.probe = []
        with contextlib.suppress(Exception):
            probed = cls.__new__(cls)
            probed._request_serializer = lambda _: None
            getattr(probed, name)(*[None] * (11 if name == "__init__" else 1))
        if len(seam.probe) != 1:
            failed.append(f"{module.__name__}.{class_name}.{name}")
        seam.probe = None
    return failed


def _patch(cls: Any, name: str, hook: Any) -> Callable[[], None]:
    before = cls.__dict__[name]
    setattr(cls, name, hook)

    def undo() -> None:
        if cls.__dict__.get(name) is hook:
            setattr(cls, name, before)

    return undo


# --- booking -------------------------------------------------------------------------------------------------------


def _begin(seam: Seam, channel: Any, method: Any, metadata: Any, request: Any) -> Flight | None:
    """Book a call; None: leave it alone.

    Raises:
        TaskStopped: a cap of its task is reached.
    """
    path = _text(method)
    url = rpc_url(_target(channel), path)
    if not seam.is_model(METHOD, url):
        seam.meet(f"gRPC called {path.lstrip('/')}", METHOD, url)
        return None
    body = b"" if request is None else message_json(request)
    if seam.outer(METHOD, url, body) is None:
        return None
    flight = seam.begin(LAYER if request is not None else RPC_STREAMS, METHOD, url, raw_metadata(metadata), body)
    if flight is not None and flight.counted and flight.scope is not None and peer_of(url) in _RETRYING:
        host, port = peer_of(url)
        text = f"the client's transport retries {METHOD} {host}:{port} by itself: attempts holds one for all of them"
        flight.scope.add_problem("retried-by-transport", text, "notice")
    return flight


def _target(core: Any) -> str:
    """Where a channel leads. Its core says so by a method in the one stack and by a value in the other; older ones
    of the asyncio stack do not say."""
    target = getattr(core, "target", None)
    if target is None:
        target = next((named for channel, named in list(_NAMED.items()) if channel._channel is core), "unknown")
    return _text(target() if callable(target) else target)


def _is_idle(seam: Seam) -> bool:
    """Whether there is nothing to book; a probe is told that it came by."""
    if seam.probe is not None:
        seam.probe.append(LAYER)
        return True
    return not seam.active


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _metadata(flight: Flight, metadata: Any) -> Any:
    return metadata if flight.opened is None else metadata_of(flight.opened.headers)


def _why(flight: Flight) -> tuple[str, str]:
    """Status and details of a call that may not go out."""
    reply = flight.reply
    assert reply is not None
    return "UNAUTHENTICATED" if reply.status == 401 else "FAILED_PRECONDITION", reply.body.decode("utf-8", "replace")


def _listening(deserializer: Any, rpc: Rpc) -> Any:
    """The call's deserializer, which hears each message as it comes in."""

    def read(data: bytes) -> Any:
        message = deserializer(data) if deserializer is not None else data
        rpc.heard(message, data)
        return message

    return read


def _heard_by(multi: Any, rpc: Rpc) -> Any:
    """A twin for one call: many calls may run on one of them."""
    twin = copy.copy(multi)
    twin._response_deserializer = _listening(multi._response_deserializer, rpc)
    return twin


# --- the blocking stack --------------------------------------------------------------------------------------------


def _refuse(module: ModuleType, flight: Flight) -> None:
    """Raise what the library raises for a call that it cannot send."""
    if flight.reply is not None:
        import grpc  # type: ignore[import-untyped, import-not-found, unused-ignore]

        code, details = _why(flight)
        raise module._InactiveRpcError(module._RPCState((), (), (), getattr(grpc.StatusCode, code), details))


def _failed(flight: Flight, rpc: Rpc, error: BaseException) -> None:
    code = getattr(error, "code", None)
    if callable(code):
        told: Any = error
        rpc.ended(
            code().name, _text(told.details()), initial=told.initial_metadata(), trailing=told.trailing_metadata()
        )
    else:
        flight.end("error", type(error).__name__)


def _blocking_hook(module: ModuleType, seam: Seam, original: Any) -> Any:
    with_call = original.__name__ == "with_call"

    @functools.wraps(original)
    def call(multi: Any, request: Any, timeout: Any = None, metadata: Any = None, *more: Any, **named: Any) -> Any:
        idle = _is_idle(seam)
        flight = None if idle else _begin(seam, multi._channel, multi._method, metadata, request)
        if flight is None:
            return original(multi, request, timeout, metadata, *more, **named)
        _refuse(module, flight)
        if flight.replayed is not None:
            return original(on_blocking_core(multi, flight), request, timeout, metadata, *more, **named)
        rpc = Rpc(flight, streamed=False)
        try:
            answer = original(_heard_by(multi, rpc), request, timeout, _metadata(flight, metadata), *more, **named)
        except BaseException as error:
            _failed(flight, rpc, error)
            raise
        told = answer[1] if with_call else None
        initial, trailing = (told.initial_metadata(), told.trailing_metadata()) if told is not None else ((), ())
        rpc.ended("OK", None, initial=initial, trailing=trailing)
        return answer

    return call


def _running_hook(module: ModuleType, seam: Seam, original: Any) -> Any:
    """For calls that go on when the agent has its object of them: futures and streams."""
    streamed = original.__name__ != "future"

    @functools.wraps(original)
    def call(multi: Any, request: Any, timeout: Any = None, metadata: Any = None, *more: Any, **named: Any) -> Any:
        idle = _is_idle(seam)
        flight = None if idle else _begin(seam, multi._channel, multi._method, metadata, request)
        if flight is None:
            return original(multi, request, timeout, metadata, *more, **named)
        _refuse(module, flight)
        if flight.replayed is not None:
            return original(on_blocking_core(multi, flight), request, timeout, metadata, *more, **named)
        rpc = Rpc(flight, streamed=streamed)
        twin = _heard_by(multi, rpc)
        metadata = _metadata(flight, metadata)
        # a call without the thread that the library starts for it keeps the channel from being closed
        return _watched(untorn(original, twin, request, timeout, metadata, *more, **named), rpc)

    return call


def _watched(rendezvous: Any, rpc: Rpc) -> Any:
    """A running call, which tells its end. Its state is held, not itself: dropped by the agent, it cancels the call."""
    state = rendezvous._state

    def done() -> None:
        rpc.ended(
            state.code.name,
            _text(state.details),
            cancelled=state.cancelled or _CLOSED in _text(state.details),
            initial=state.initial_metadata,
            trailing=state.trailing_metadata,
        )

    if not rendezvous.add_callback(done):
        done()
    return rendezvous


def _unread_hook(module: ModuleType, seam: Seam, original: Any) -> Any:
    """For calls with a stream of requests: they are noticed."""

    @functools.wraps(original)
    def call(multi: Any, requests: Any, timeout: Any = None, metadata: Any = None, *more: Any, **named: Any) -> Any:
        idle = _is_idle(seam)
        flight = None if idle else _begin(seam, multi._channel, multi._method, metadata, None)
        if flight is None:
            return original(multi, requests, timeout, metadata, *more, **named)
        _refuse(module, flight)
        return original(multi, requests, timeout, _metadata(flight, metadata), *more, **named)

    return call


# --- the asyncio stack ---------------------------------------------------------------------------------------------


def _aio_hook(module: ModuleType, seam: Seam, original: Any) -> Any:
    signature = inspect.signature(original)
    is_read = "request" in signature.parameters  # and not a stream of them

    @functools.wraps(original)
    def __init__(call: Any, *args: Any, **named: Any) -> None:
        if _is_idle(seam):
            return original(call, *args, **named)  # type: ignore[no-any-return]
        bound = signature.bind(call, *args, **named)
        given = bound.arguments
        request = given["request"] if is_read else None
        flight = _begin(seam, given["channel"], given["method"], given["metadata"], request)
        if flight is None:
            return original(call, *args, **named)  # type: ignore[no-any-return]
        if flight.reply is not None or flight.replayed is not None:
            given["channel"] = refused_core(*_why(flight)) if flight.reply is not None else asyncio_core(flight)
            return original(*bound.args, **bound.kwargs)  # type: ignore[no-any-return]
        given["metadata"] = _metadata(flight, given["metadata"])
        rpc = Rpc(flight, streamed="Stream" in type(call).__name__)
        if is_read:
            given["response_deserializer"] = _listening(given["response_deserializer"], rpc)
        original(*bound.args, **bound.kwargs)
        if is_read:
            _watch_core(call._cython_call, rpc)
        return None

    return __init__


def _watch_core(core: Any, rpc: Rpc) -> None:
    import grpc  # type: ignore[import-untyped, import-not-found, unused-ignore]

    names = {code.value[0]: code.name for code in grpc.StatusCode}

    def done() -> None:
        status = core._status
        rpc.ended(
            names.get(status.code(), "UNKNOWN"),
            status.details(),
            cancelled=core.is_locally_cancelled(),
            initial=core._initial_metadata,
            trailing=status.trailing_metadata(),
        )

    core.add_done_callback(done)


# --- channels and keys ---------------------------------------------------------------------------------------------


def _channel_hook(module: ModuleType, seam: Seam, original: Any) -> Any:
    """Notes where channels lead, and which have a retry policy: gRPC's core repeats calls where nobody sees it."""

    @functools.wraps(original)
    def __init__(channel: Any, target: Any, options: Any = (), *more: Any, **named: Any) -> None:
        options = tuple(options or ())
        config = dict(options)
        if "retryPolicy" in _text(config.get("grpc.service_config", "")) and config.get("grpc.enable_retries", 1):
            _RETRYING.add(peer_of(rpc_url(_text(target), "/")))
        original(channel, target, options, *more, **named)
        _NAMED[channel] = _text(target)

    return __init__


def _plugin_hook(module: ModuleType, seam: Seam, original: Any) -> Any:
    """Credentials of a channel come in below the calls, on a thread of the core: their dummies are swapped there."""

    @functools.wraps(original)
    def __call__(plugin: Any, service_url: Any, method_name: Any, callback: Any) -> Any:
        def opened(metadata: Any, status: Any, details: Any) -> Any:
            url = _text(service_url)
            found = seam.keys.open_request(raw_metadata(metadata), url) if seam.active and metadata else None
            if found is None:
                return callback(metadata, status, details)
            host, missing = peer_of(url)[0], found[2]
            if missing is not None and not is_loopback(host):
                return callback(None, _internal(), seam.missing_key(missing, METHOD, host).encode())
            return callback(metadata_of(found[0]), status, details)

        return original(plugin, service_url, method_name, opened)

    return __call__


def _internal() -> Any:
    from grpc._cython import cygrpc  # type: ignore[import-untyped, import-not-found, unused-ignore]

    return cygrpc.StatusCode.internal


_UNARY = "_UnaryUnaryMultiCallable"
_POINTS: dict[str, tuple[tuple[str, str, Any], ...]] = {
    "grpc._channel": (
        (_UNARY, "__call__", _blocking_hook),
        (_UNARY, "with_call", _blocking_hook),
        (_UNARY, "future", _running_hook),
        ("_UnaryStreamMultiCallable", "__call__", _running_hook),
        ("_SingleThreadedUnaryStreamMultiCallable", "__call__", _running_hook),
        ("_StreamUnaryMultiCallable", "__call__", _unread_hook),
        ("_StreamUnaryMultiCallable", "with_call", _unread_hook),
        ("_StreamUnaryMultiCallable", "future", _unread_hook),
        ("_StreamStreamMultiCallable", "__call__", _unread_hook),
        ("Channel", "__init__", _channel_hook),
    ),
    "grpc._plugin_wrapping": (("_Plugin", "__call__", _plugin_hook),),
    "grpc.aio._call": tuple(
        (name, "__init__", _aio_hook)
        for name in ("UnaryUnaryCall", "UnaryStreamCall", "StreamUnaryCall", "StreamStreamCall")
    ),
    "grpc.aio._channel": (("Channel", "__init__", _channel_hook),),
}
