"""The JSON Schemas that ship with the package: loaded once, and used to say which line and key of a file is wrong.

jsonschema costs about 200 ms to import, so that readers check by hand what they read often and come here only to
name a fault; ``docs`` and editors use the same files.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from typing import TYPE_CHECKING, Any

from pytest_fanout.errors import FanoutError, IntegrityError
from pytest_fanout.store.quickcheck import Check, quick_check

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator


def load(name: str) -> dict[str, Any]:
    """The schema ``schemas/<name>.schema.json`` as shipped."""
    resource = importlib.resources.files("pytest_fanout") / "schemas" / f"{name}.schema.json"
    schema: dict[str, Any] = json.loads(resource.read_text(encoding="utf-8"))
    return schema


@functools.cache
def _validator(name: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(load(name))


@functools.cache
def _quick(name: str) -> Check | None:
    return quick_check(load(name))


def fits_exactly(document: Any, name: str) -> bool:
    """Whether ``document`` fits the schema ``name`` with no number written otherwise (1.0 or true for 1)."""
    quick = _quick(name)
    return quick is not None and quick(document)


def fault(document: Any, name: str) -> str | None:
    """Why ``document`` does not fit the schema ``name``, in one line that names the key, or None when it fits."""
    if fits_exactly(document, name):
        return None
    from jsonschema.exceptions import best_match

    error = best_match(_validator(name).iter_errors(document))
    if error is None:
        return None
    # the value itself may be long, or hold what must not reach a log
    rule = error.validator_value
    kind = error.validator
    if kind == "additionalProperties" and isinstance(error.instance, dict):
        unknown = sorted(set(error.instance) - set(error.schema.get("properties", {})))
        what = f"has unknown key{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown))}"
    elif kind == "required" and isinstance(rule, list):
        what = f"lacks {', '.join(repr(key) for key in rule if key not in error.instance)}"
    elif kind == "type":
        what = f"must be {' or '.join(rule) if isinstance(rule, list) else rule}"
    elif kind in ("const", "enum"):
        what = f"must be {json.dumps(rule)}"
    else:
        what = f"breaks the rule {kind} {json.dumps(rule)[:80]}"
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
    return f"{key or 'the document'} {what}"


def validate(
    document: Any,
    name: str,
    where: str,
    *,
    slug: str = "schema",
    error: type[FanoutError] = IntegrityError,
    mend: str | None = None,
) -> None:
    """Refuse a document that does not fit the schema ``name``.

    Raises:
        error: (IntegrityError unless told otherwise) with ``slug``, naming ``where`` and the key.
    """
    what = fault(document, name)
    if what is not None:
        raise error(slug, what, where=where, mend=mend)
