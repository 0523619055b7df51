"""Tokens of a call whose usage never came, counted offline from its text. Needs the extra ``tokenizer``.

The vocabulary is o200k, whatever the model: an approximation for other models, and without what no text shows:
images, the provider's own framing of a prompt, reasoning that is not told, and what hosted tools read and wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any, Final

from pytest_fanout.wire.bodies import NOT_JSON
from pytest_fanout.wire.places import GENERATED, PROMPT, SYSTEM, TOOLS, as_text, parts_of, texts_at
from pytest_fanout.wire.reading import Payload
from pytest_fanout.wire.text import clean

#: Characters that are tokenized; of a longer text an even part stands for the rest.
MAX_CHARACTERS: Final = 1_000_000
#: Bytes of a stream that are read again; its beginning stands for the rest.
_MAX_STREAM: Final = 2_000_000


def estimate_tokens(api: str, request: dict[str, Any], payload: Payload) -> tuple[int, int] | None:
    """Input and output tokens of one call, by its text; None without the tokenizer, without text, or with too much.

    Args:
        request: the body as JSON; it must show the whole prompt.
        payload: the answer, which began.
    """
    count = tokenizer()
    roots = GENERATED.get(api)
    if count is None or roots is None:
        return None
    asked = _texts(request.get(key) for key in (*PROMPT, *SYSTEM))
    tools = [as_text(request[key]) for key in TOOLS if request.get(key)]
    document = NOT_JSON if payload.streamed else payload.document()
    beginning = payload if document is not NOT_JSON else replace(payload, data=payload.data[:_MAX_STREAM])
    made = _texts(part.get(key) for part in parts_of(document, beginning) for key in roots)
    if asked is None or not any(asked) or not made or not any(made):
        return None  # token numbers instead of words, or an image, are no zero
    output = _counted(made, count) * len(payload.data) // len(beginning.data)
    return _counted([*asked, *tools], count), output


@cache
def tokenizer() -> Callable[[str], int] | None:
    """Counts the tokens of a text; None when the extra is not installed, or cannot work here."""
    try:
        import quicktok  # type: ignore[import-not-found, import-untyped, unused-ignore]

        count: Callable[[str], int] = quicktok.get_encoding("o200k_base").count
        count("")
    except Exception:  # it is compiled code with data files of its own: whatever fails, an estimate is not worth a call
        return None
    return count


def _texts(roots: Iterable[Any]) -> list[str] | None:
    """The texts below some values, pieces of one place joined; None when there are too many values."""
    found = texts_at(((), root) for root in roots)
    return None if found is None else list(found.values())


def _counted(texts: list[str], count: Callable[[str], int]) -> int:
    size = sum(map(len, texts))
    if size <= MAX_CHARACTERS:
        return sum(count(clean(text)) for text in texts)
    parts = [text[: len(text) * MAX_CHARACTERS // size] for text in texts]
    tokens = sum(count(clean(part)) for part in parts)
    return tokens * size // max(sum(map(len, parts)), 1)
