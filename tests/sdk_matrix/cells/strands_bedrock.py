"""strands on Bedrock, its default: boto3 in a thread, in async code too."""

from __future__ import annotations

from typing import Any

from sdk_matrix.cells import strands
from sdk_matrix.cells.strands import async_, async_early, async_streamed, sync
from strands.models import BedrockModel


def _bedrock(url: str | None) -> Any:
    return BedrockModel(model_id="anthropic.claude-x-v1:0", endpoint_url=url)


strands.MODEL = _bedrock
__all__ = ["async_", "async_early", "async_streamed", "sync"]
