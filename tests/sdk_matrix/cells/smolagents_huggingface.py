"""smolagents on huggingface-hub's InferenceClient."""

from __future__ import annotations

from typing import Any

from sdk_matrix.cells import smolagents
from sdk_matrix.cells.smolagents import early, streamed, sync
from smolagents import InferenceClientModel


def _huggingface(url: str | None) -> Any:
    return InferenceClientModel(base_url=url, api_key=None)


smolagents.MODEL = _huggingface
__all__ = ["early", "streamed", "sync"]
