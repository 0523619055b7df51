"""pydantic-ai on Gemini, with a client that was told to retry."""

from __future__ import annotations

from typing import Any

from google import genai
from google.genai import types
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.google import GoogleProvider
from sdk_matrix.cells import pydantic_ai
from sdk_matrix.cells.pydantic_ai import async_, async_early, async_streamed, early, streamed, sync


def _google(url: str | None) -> Any:
    retries = types.HttpRetryOptions(attempts=3, initial_delay=0.01, jitter=0.01)
    client = genai.Client(http_options=types.HttpOptions(base_url=url, retry_options=retries))
    return GoogleModel("gemini-2.5-flash", provider=GoogleProvider(client=client))


pydantic_ai.MODEL = _google
__all__ = ["async_", "async_early", "async_streamed", "early", "streamed", "sync"]
