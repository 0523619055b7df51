"""smolagents on huggingface-hub's InferenceClient."""

from __future__ import annotations

from typing import Any

from sdk_matrix.cells import smolagents
from sdk_matrix.cells.shop import QUESTION
from sdk_matrix.cells.smolagents import streamed, sync
from smolagents import InferenceClientModel


def _huggingface(url: str | None) -> Any:
    model = InferenceClientModel(url)
    model.retryer.wait_seconds = 0.01  # a minute by default
    return model


def early(url: str | None) -> None:
    model = _huggingface(url)
    stream = model.generate_stream([{"role": "user", "content": QUESTION}])
    next(stream)
    stream.close()
    model.client.close()  # until then it keeps the answer open


smolagents.MODEL = _huggingface
__all__ = ["early", "streamed", "sync"]
