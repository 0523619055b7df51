"""The name that a tracing library gives the agent that is at work: it names the call site where the code does not.

Only a library that the process has imported already is asked; for all other agents this is two look-ups a call.
Sources: OpenTelemetry's semantic conventions (``gen_ai.agent.name`` of a span); OpenAI Agents' spans of kind "agent".
"""

from __future__ import annotations

import sys
from contextvars import Token
from typing import Any

_LONGEST = 64  # of a name, as for call_site()
_MOST_SPANS = 50  # between a call and its agent's span there are two or three


def agent_name() -> str | None:
    """The agent of the current context, at most 64 printable characters; None: no library names one.

    Never raises: what a library changes about its spans takes the name away, and nothing else.
    """
    agents, otel = sys.modules.get("agents.tracing"), sys.modules.get("opentelemetry.trace")
    if agents is None and otel is None:
        return None
    for module, read in ((agents, _of_openai_agents), (otel, _of_opentelemetry)):
        try:
            name = read(module.get_current_span()) if module is not None else None
        except Exception:  # half imported, another package of that name, another version
            continue
        if isinstance(name, str) and name and name.isprintable():
            return name[:_LONGEST]
    return None


def _of_opentelemetry(span: Any) -> object:
    attributes = getattr(span, "attributes", None)  # spans that are not recorded have none
    return None if attributes is None else attributes.get("gen_ai.agent.name")


def _of_openai_agents(span: Any) -> object:
    """The innermost span of kind "agent": a call stands in spans of its own, each of which holds the one around it."""
    for _ in range(_MOST_SPANS):
        if span is None or span.span_data.type == "agent":
            break
        around = getattr(span, "_prev_span_token", None)
        span = None if around is None or around.old_value is Token.MISSING else around.old_value
    return None if span is None else span.span_data.name
