"""google-genai where aiohttp is installed: its async client leaves httpx."""

from sdk_matrix.cells.google_genai import async_, async_early, async_streamed

__all__ = ["async_", "async_early", "async_streamed"]
