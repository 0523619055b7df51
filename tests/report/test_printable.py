"""Display width, wrapping and escaping, with widths counted by hand."""

from __future__ import annotations

import pytest

from pytest_fanout.report.printable import escape, width, wrap


@pytest.mark.parametrize(
    ("text", "columns"),
    [("refund", 6), ("日本語", 6), ("ｱ", 1), ("Ａ", 2), ("e\u0301", 1), ("🙂", 2), ("→…", 2), ("", 0)],
)
def test_width_is_counted_in_terminal_columns(text: str, columns: int) -> None:
    """Wide East Asian characters take two, combining marks none, half-width forms one."""
    assert width(text) == columns


def test_wrapping_breaks_at_spaces_and_inside_words_only_where_it_must() -> None:
    """Four columns hold two wide characters; a word that fits the next line is not cut."""
    assert list(wrap("日本語 ab cdef ghijk", 4)) == ["日本", "語", "ab", "cdef", "ghij", "k"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [x]", "plain [x]"),
        ("\x1b[31m\x07\x9b", "\\x1b[31m\\x07\\x9b"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\u202egpj\u2066", "\\u202egpj\\u2066"),
        ("zero\u200bwidth\u2028", "zero\\u200bwidth\\u2028"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("##[error]", "#\\#[error]"),
        ("café → 東", "café → 東"),
    ],
)
def test_what_steers_a_terminal_is_made_visible(text: str, shown: str) -> None:
    """Controls, overrides, invisible characters and lone surrogates; letters of any script stay."""
    assert escape(text) == shown


def test_ascii_spells_out_what_it_can_and_escapes_the_rest() -> None:
    """A24: arrows, ellipses, dashes and quotes have a spelling, letters do not."""
    assert escape("“café” → 東… – 3×4 ≤ 12 🙂", ascii_only=True) == ('"caf\\xe9" -> \\u6771... - 3x4 <= 12 \\U0001f642')
