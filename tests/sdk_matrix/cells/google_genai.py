"""google-genai with a key. Its async client uses aiohttp where that is installed. It retries only when told to."""

from __future__ import annotations

from typing import Any

from google import genai
from google.genai import types
from sdk_matrix.cells.shop import ABOUT, QUESTION, SCHEMA, checked, use

DECLARED = [{"name": n, "description": about, "parameters_json_schema": SCHEMA} for n, about in ABOUT.items()]
CONFIG = types.GenerateContentConfig(tools=[types.Tool(function_declarations=DECLARED)])  # type: ignore[arg-type]


def _client(url: str | None) -> genai.Client:
    retries = types.HttpRetryOptions(attempts=3, initial_delay=0.01, jitter=0.01)
    return genai.Client(http_options=types.HttpOptions(base_url=url, retry_options=retries))


def _start() -> list[Any]:
    return [types.UserContent(QUESTION)]


def _carry_on(contents: list[Any], parts: list[Any]) -> bool:
    """Append what the tools say; False when the parts are the answer."""
    calls = [part.function_call for part in parts if part.function_call]
    if calls:
        results = [
            types.Part.from_function_response(name=call.name, response={"result": use(call.name, call.args)})
            for call in calls
        ]
        contents += [types.ModelContent(parts), types.UserContent(results)]
    return bool(calls)


def _parts(answer: Any) -> list[Any]:
    return list(answer.candidates[0].content.parts)


def _text(parts: list[Any]) -> str:
    return checked("".join(part.text or "" for part in parts))


def sync(url: str | None) -> str:
    contents = _start()
    with _client(url) as client:
        while True:
            parts = _parts(client.models.generate_content(model="gemini-x", contents=contents, config=CONFIG))
            if not _carry_on(contents, parts):
                return _text(parts)


async def async_(url: str | None) -> str:
    contents = _start()
    async with _client(url).aio as client:
        while True:
            parts = _parts(await client.models.generate_content(model="gemini-x", contents=contents, config=CONFIG))
            if not _carry_on(contents, parts):
                return _text(parts)


def streamed(url: str | None) -> str:
    contents = _start()
    with _client(url) as client:
        while True:
            stream = client.models.generate_content_stream(model="gemini-x", contents=contents, config=CONFIG)
            parts = [part for chunk in stream for part in _parts(chunk)]
            if not _carry_on(contents, parts):
                return _text(parts)


async def async_streamed(url: str | None) -> str:
    contents = _start()
    async with _client(url).aio as client:
        while True:
            stream = await client.models.generate_content_stream(model="gemini-x", contents=contents, config=CONFIG)
            parts = [part async for chunk in stream for part in _parts(chunk)]
            if not _carry_on(contents, parts):
                return _text(parts)


def early(url: str | None) -> None:
    with _client(url) as client:
        stream = client.models.generate_content_stream(model="gemini-x", contents=_start(), config=CONFIG)
        next(stream)
        stream.close()


async def async_early(url: str | None) -> None:
    async with _client(url).aio as client:
        stream = await client.models.generate_content_stream(model="gemini-x", contents=_start(), config=CONFIG)
        await anext(stream)
        await stream.aclose()
