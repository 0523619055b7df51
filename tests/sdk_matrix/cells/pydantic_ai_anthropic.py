"""pydantic-ai on Anthropic's Messages."""

from __future__ import annotations

from typing import Any

from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from sdk_matrix.cells import pydantic_ai
from sdk_matrix.cells.pydantic_ai import async_, async_early, async_streamed, early, streamed, sync


def _anthropic(url: str | None) -> Any:
    return AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(base_url=url))


pydantic_ai.MODEL = _anthropic
__all__ = ["async_", "async_early", "async_streamed", "early", "streamed", "sync"]
