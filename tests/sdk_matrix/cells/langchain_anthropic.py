"""langchain's agent on Anthropic's Messages."""

from __future__ import annotations

from typing import Any

from langchain_anthropic import ChatAnthropic
from sdk_matrix.cells import langchain
from sdk_matrix.cells.langchain import async_, async_early, async_streamed, early, streamed, sync


def _anthropic(url: str | None) -> Any:
    at = {} if url is None else {"base_url": url}
    return ChatAnthropic(model="claude-x", max_tokens=500, **at)


langchain.MODEL = _anthropic
__all__ = ["async_", "async_early", "async_streamed", "early", "streamed", "sync"]
