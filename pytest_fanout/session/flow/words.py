"""Amounts as forecast and progress say them."""

from __future__ import annotations

from pytest_fanout.capacity import figures


def number(value: float) -> str:
    """A whole number with its thousands apart."""
    return f"{round(value):,}"


def counted(value: float, noun: str) -> str:
    """``1 trial``, ``12 trials``: the nearest whole number of them."""
    return figures.counted(round(value), noun)


def dollars(value: float) -> str:
    """US dollars; less than a cent is said so, never as nothing."""
    return "less than $0.01" if 0 < value < 0.01 else f"${value:,.2f}"


def span(seconds: float) -> str:
    """Seconds below a minute, then minutes."""
    return counted(max(1, seconds), "second") if seconds < 59.5 else counted(seconds / 60, "minute")
