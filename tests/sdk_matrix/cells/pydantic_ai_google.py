"""pydantic-ai on Gemini."""

from __future__ import annotations

from typing import Any

from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.google import GoogleProvider
from sdk_matrix.cells import pydantic_ai
from sdk_matrix.cells.pydantic_ai import async_, async_early, async_streamed, early, streamed, sync


def _google(url: str | None) -> Any:
    return GoogleModel("gemini-2.5-flash", provider=GoogleProvider(base_url=url))


pydantic_ai.MODEL = _google
__all__ = ["async_", "async_early", "async_streamed", "early", "streamed", "sync"]
