"""What the agents of all cells share: one question, two tools, and the answer that must come out."""

from __future__ import annotations

import json
from typing import Any

from sdk_matrix.dialects.turns import ANSWER, RESULTS

QUESTION = "What does article 7 cost, and how many of it are left?"


def price(sku: int) -> int:
    """The price of an article.

    Args:
        sku: number of the article
    """
    return RESULTS[0]


def stock(sku: int) -> int:
    """How many of an article are left.

    Args:
        sku: number of the article
    """
    return RESULTS[1]


FUNCTIONS = {"price": price, "stock": stock}
ABOUT = {"price": "The price of an article.", "stock": "How many of an article are left."}
SCHEMA = {"type": "object", "properties": {"sku": {"type": "integer"}}, "required": ["sku"]}


def use(name: str, arguments: Any) -> str:
    """Run a tool; ``arguments`` as an object, or as its JSON text."""
    given = json.loads(arguments) if isinstance(arguments, str) else dict(arguments)
    return str(FUNCTIONS[name](**given))


def checked(text: str | None) -> str:
    """The answer, which must be the whole of what the model said: the SDK understood our server, streams included."""
    if not text or ANSWER not in text:
        raise AssertionError(f"the agent heard {text!r}, the model said {ANSWER!r}")
    return text
