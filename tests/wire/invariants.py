"""What holds for every record that the readers give, whatever the bytes were. Tests and the fuzz target share it."""

from __future__ import annotations

from dataclasses import fields

from pytest_fanout.records import Attempt
from pytest_fanout.wire.quick import Cost
from pytest_fanout.wire.shapes import MAX_COUNT

COUNTS = (
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "total_reported",
)
KINDS = {"generate", "compact", "embed", "rerank", "moderate", "agent_run"}
FINISHES = {
    *("stop", "length", "tool_calls", "content_filter", "refusal"),
    *("pause", "continue", "steered", "cancelled", "error", None),
}


def check_invariants(attempt: Attempt, status: int | None) -> None:
    """The invariants of an Attempt with this HTTP status."""
    assert "codec_error" not in attempt.notes, attempt.notes
    assert attempt.kind in KINDS, attempt.kind
    assert attempt.status in ("ok", "error", "incomplete", "pending"), attempt.status
    assert attempt.finish in FINISHES, attempt.finish
    assert attempt.http_status == status
    _check_usage(attempt, status)
    assert type(attempt.choices) is int
    assert attempt.choices >= 0
    assert all(type(count) is int and count > 0 for count in attempt.server_tool_calls.values())
    assert attempt.retry_after_s is None or attempt.retry_after_s >= 0
    assert len(attempt.error_type or "") <= 200
    assert "\\ud" not in repr(attempt)
    repr([getattr(attempt, field.name) for field in fields(attempt)]).encode("utf-8")
    hash((attempt.tool_calls, attempt.tool_results_in, attempt.site, attempt.side_calls, attempt.notes))


def _check_usage(attempt: Attempt, status: int | None) -> None:
    for name in COUNTS:
        count = getattr(attempt, name)
        assert count is None or (type(count) is int and 0 <= count <= 4 * MAX_COUNT), (name, count)
    for side in attempt.side_calls:
        assert all(count is None or count >= 0 for count in (side.input_tokens, side.output_tokens))
    is_success = status is not None and 200 <= status < 300
    known = (attempt.input_tokens is not None, attempt.output_tokens is not None)
    expected = {"none"} if not is_success else {"missing"} if not any(known) else {"partial"}
    if is_success and all(known):
        expected = {"partial", "final", "estimated"}
    assert attempt.usage_source in expected, (attempt.usage_source, known, status)
    assert is_success or attempt.status == "error"
    if "total_mismatch" in attempt.notes:
        return
    if attempt.input_tokens is not None:
        assert (attempt.cached_input_tokens or 0) + (attempt.cache_write_tokens or 0) <= attempt.input_tokens
    if attempt.output_tokens is not None:
        assert (attempt.reasoning_tokens or 0) <= attempt.output_tokens
    if all(known) and attempt.total_reported is not None:
        assert attempt.total_reported == attempt.total_tokens


def check_quick(quick: Cost | None, full: Attempt) -> None:
    """A quick answer, where there is one, is that of the full reading, of a call that reached a model."""
    if quick is None:
        return
    assert quick == Cost((full.input_tokens or 0) + (full.output_tokens or 0), len(full.tool_calls)), (quick, full)
    assert full.status != "error", full
