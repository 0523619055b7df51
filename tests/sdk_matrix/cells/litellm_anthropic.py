"""litellm, a model of Anthropic's."""

from sdk_matrix.cells import litellm
from sdk_matrix.cells.litellm import async_, async_early, async_streamed, early, streamed, sync

litellm.MODEL = "anthropic/claude-sonnet-4-5"
__all__ = ["async_", "async_early", "async_streamed", "early", "streamed", "sync"]
