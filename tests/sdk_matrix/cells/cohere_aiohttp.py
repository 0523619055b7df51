"""cohere where httpx-aiohttp is installed: its async client sends by aiohttp below httpx."""

from sdk_matrix.cells.cohere import async_, async_early, async_streamed

__all__ = ["async_", "async_early", "async_streamed"]
