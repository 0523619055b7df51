"""A scripted gRPC server on loopback that takes any method; its log is the ground truth. Messages are any JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct

#: What the server does with a call: give messages, one or many, or end it by ``context.abort``.
Script = Callable[["Heard", grpc.ServicerContext], Iterator[dict[str, Any]]]


@dataclass
class Heard:
    """One call that reached the server."""

    method: str
    metadata: dict[str, str]
    request: Any
    cancelled: bool = False
    number: int = 0


def completion(prompt: int = 5, made: int = 2, **more: Any) -> dict[str, Any]:
    """A whole answer of xAI, as JSON."""
    usage = {"promptTokens": prompt, "completionTokens": made, "totalTokens": prompt + made}
    message = {"role": "ROLE_ASSISTANT", "content": "ok"}
    return {"id": "r", "model": "grok-x", "outputs": [{"finishReason": "REASON_STOP", "message": message}],
            "usage": usage, **more}  # fmt: skip


def chunks(prompt: int = 5, made: int = 2) -> list[dict[str, Any]]:
    """The same as a stream: usage on each chunk, the last one whole."""
    first = {"id": "r", "model": "grok-x", "outputs": [{"delta": {"role": "ROLE_ASSISTANT", "content": "o"}}],
             "usage": {"promptTokens": prompt, "completionTokens": 1, "totalTokens": prompt + 1}}  # fmt: skip
    last = {**completion(prompt, made), "outputs": [{"finishReason": "REASON_STOP", "delta": {"content": "k"}}]}
    return [first, last]


def answer(heard: Heard, context: grpc.ServicerContext) -> Iterator[dict[str, Any]]:
    """5 tokens in, 2 out."""
    yield from chunks() if "Chunk" in heard.method or "Stream" in heard.method else [completion()]


def pack(document: dict[str, Any]) -> Struct:
    return json_format.ParseDict(document, Struct())


class RpcServer(grpc.GenericRpcHandler):
    """The server; ``target`` is what a channel is made for. Methods with Chunk or Stream in their name give streams."""

    def __init__(
        self, script: Script = answer, *, key: str | None = None, raw: bool = False, secure: bool = False
    ) -> None:
        self.script = script
        self.key = key  # the one that is let in; None: everybody
        self.raw = raw  # messages are bytes that the script makes by itself
        self.log: list[Heard] = []
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="rpc-server")
        self._server = grpc.server(self._pool, handlers=(self,))
        if secure:
            self.port = self._server.add_secure_port("localhost:0", grpc.local_server_credentials())
        else:
            self.port = self._server.add_insecure_port("localhost:0")
        self.target = f"localhost:{self.port}"

    def __enter__(self) -> RpcServer:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()
        self._pool.shutdown()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        streams = "Chunk" in details.method or "Stream" in details.method
        make = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
        read, write = (None, None) if self.raw else (Struct.FromString, Struct.SerializeToString)

        def many(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            metadata = dict(context.invocation_metadata())
            given = request if self.raw else json_format.MessageToDict(request)
            heard = Heard(details.method, metadata, given, number=len(self.log) + 1)
            self.log.append(heard)
            context.add_callback(lambda: setattr(heard, "cancelled", not context.is_active()))
            if self.key is not None and metadata.get("authorization") != f"Bearer {self.key}":
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong key")
            for message in self.script(heard, context):
                yield message if self.raw else pack(message)

        one = many if streams else lambda request, context: next(many(request, context))
        return make(one, request_deserializer=read, response_serializer=write)
