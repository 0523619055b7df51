"""How a request wants to be answered: temperature, effort, limits and the like, apart from what it says."""

from __future__ import annotations

from typing import Any, Final

from pytest_fanout.wire.bodies import NOT_JSON, load_json
from pytest_fanout.wire.places import PROMPT, SYSTEM, TOOLS, as_text

#: What is said, who asks, and how the answer is to travel: nothing that the model answers differently for.
_NO_SETTINGS: Final = frozenset(
    {
        *(*PROMPT, *SYSTEM, *TOOLS, "model", "stream", "stream_options", "user", "metadata", "store"),
        *("prompt_cache_key", "safety_identifier", "previous_response_id", "conversation", "questions"),
    }
)


def settings_of(body: bytes) -> tuple[tuple[str, str], ...]:
    """Names and values (as JSON) of a request's settings, sorted; what stands in an object as ``outer.inner``.

    Never raises.
    """
    request = load_json(body) if body else NOT_JSON
    if not isinstance(request, dict):
        return ()
    found: dict[str, Any] = {}
    for key, value in request.items():
        if key in _NO_SETTINGS:
            continue
        if isinstance(value, dict) and key != "response_format":
            found.update((f"{key}.{name}", inner) for name, inner in value.items())
        else:
            found[key] = value
    return tuple((name, as_text(value)) for name, value in sorted(found.items()))
