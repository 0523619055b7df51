"""dspy: the same program on litellm."""

from sdk_matrix.cells import dspy as own
from sdk_matrix.cells.dspy import async_, async_early, async_streamed, streamed, sync

own.ENGINE = "litellm"
__all__ = ["async_", "async_early", "async_streamed", "streamed", "sync"]
