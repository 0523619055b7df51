"""smolagents on huggingface-hub's InferenceClient."""

from __future__ import annotations

from typing import Any

from sdk_matrix.cells import smolagents
from sdk_matrix.cells.smolagents import early, streamed, sync
from smolagents import InferenceClientModel


def _huggingface(url: str | None) -> Any:
    model = InferenceClientModel(url)
    model.retryer.wait_seconds = 0.01  # a minute by default
    return model


smolagents.MODEL = _huggingface
__all__ = ["early", "streamed", "sync"]
