"""litellm, a model of Gemini's."""

from sdk_matrix.cells import litellm
from sdk_matrix.cells.litellm import async_, async_early, async_streamed, early, streamed, sync

litellm.MODEL = "gemini/gemini-2.5-flash"
__all__ = ["async_", "async_early", "async_streamed", "early", "streamed", "sync"]
