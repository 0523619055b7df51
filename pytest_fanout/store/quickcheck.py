"""A quick yes for documents that fit their schema: made of the schema itself, a hundred times faster than jsonschema.

A report holds tens of thousands of trials, so that a rule looks at all values it applies to at once: at the types of
a column, its least, its largest, its different texts.

Only its yes counts. What it does not call fitting goes to jsonschema, which decides and names the fault: a float that
stands for an integer, say, is a no here and may fit there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

Check = Callable[[Any], bool]
#: Whether all of these values fit.
_Rule = Callable[[Sequence[Any]], bool]

_SILENT = frozenset({"$schema", "$id", "$defs", "title", "description"})
_OF_OBJECTS = ("properties", "required", "additionalProperties", "propertyNames", "minProperties")
_KNOWN = _SILENT | {
    "$ref", "type", "const", "enum", "anyOf", *_OF_OBJECTS, "items", "minItems",
    "maxItems", "minLength", "maxLength", "pattern", "minimum", "maximum",
}  # fmt: skip
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def quick_check(schema: Mapping[str, Any]) -> Check | None:
    """A function that says yes only to documents that fit; None for a schema with rules that are not known here."""
    try:
        rule = _Compiler(schema).rule(schema)
    except NotImplementedError:
        return None
    return lambda document: rule((document,))


class _Compiler:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._made: dict[str, _Rule] = {}

    def rule(self, schema: Mapping[str, Any]) -> _Rule:
        unknown = set(schema) - _KNOWN
        if unknown:
            raise NotImplementedError(", ".join(sorted(unknown)))
        rules = [
            make(schema)
            for keys, make in (
                (("$ref",), self._ref),
                (("type",), self._type),
                (("const", "enum"), self._values),
                (("anyOf",), self._any),
                (_OF_OBJECTS, self._object),
                (("items", "minItems", "maxItems"), self._array),
                (("minLength", "maxLength", "pattern"), self._string),
                (("minimum", "maximum"), self._number),
            )
            if any(key in schema for key in keys)
        ]
        # where nothing is left to look at, a definition that names itself comes to its end
        return lambda values: not values or all(rule(values) for rule in rules)

    def _ref(self, schema: Mapping[str, Any]) -> _Rule:
        name = schema["$ref"]
        if not name.startswith("#/$defs/"):
            raise NotImplementedError(name)
        if name not in self._made:
            made: list[_Rule] = []
            self._made[name] = lambda values: made[0](values)  # for a definition that names itself
            made.append(self.rule(self._root["$defs"][name.removeprefix("#/$defs/")]))
            self._made[name] = made[0]
        return self._made[name]

    def _type(self, schema: Mapping[str, Any]) -> _Rule:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        # exactly these types: True is no integer
        kinds = frozenset(kind for name in names for kind in _TYPES[name])
        return lambda values: kinds.issuperset(map(type, values))

    def _values(self, schema: Mapping[str, Any]) -> _Rule:
        allowed = [schema["const"]] if "const" in schema else schema["enum"]
        kinds = frozenset(map(type, allowed))
        if not kinds <= {str, int, type(None)} or ("const" in schema and "enum" in schema):
            raise NotImplementedError("enum")
        known = frozenset(allowed)
        return lambda values: kinds.issuperset(map(type, values)) and known.issuperset(values)

    def _any(self, schema: Mapping[str, Any]) -> _Rule:
        ways = [self.rule(way) for way in schema["anyOf"]]

        def fits(values: Sequence[Any]) -> bool:
            for kind in set(map(type, values)):  # mostly null beside one other kind
                alike = [value for value in values if type(value) is kind]
                if any(way(alike) for way in ways):
                    continue
                if len(alike) == 1 or not all(any(way((value,)) for way in ways) for value in alike):
                    return False
            return True

        return fits

    def _object(self, schema: Mapping[str, Any]) -> _Rule:
        known = {name: self.rule(rule) for name, rule in schema.get("properties", {}).items()}
        required, least = frozenset(schema.get("required", ())), schema.get("minProperties", 0)
        names = self.rule(schema["propertyNames"]) if "propertyNames" in schema else None
        rest = schema.get("additionalProperties", True)
        others: _Rule = self.rule(rest) if isinstance(rest, Mapping) else lambda values: bool(rest)

        def fits(values: Sequence[Any]) -> bool:
            objects = [value for value in values if type(value) is dict]
            present: set[str] = set().union(*objects)
            # among thousands of trials each has all keys that any of them has
            is_uniform = set(map(len, objects)) == {len(present)}
            if not all(
                len(value) >= least and value.keys() >= required for value in (objects[:1] if is_uniform else objects)
            ):
                return False
            if names is not None and not names(tuple(present)):
                return False
            for name in present & known.keys():
                having = objects if is_uniform else [value for value in objects if name in value]
                if not known[name](list(map(itemgetter(name), having))):
                    return False
            if present <= known.keys():
                return True
            return others([item for value in objects for name, item in value.items() if name not in known])

        return fits

    def _array(self, schema: Mapping[str, Any]) -> _Rule:
        each: _Rule = self.rule(schema["items"]) if "items" in schema else lambda values: True
        least, most = schema.get("minItems", 0), schema.get("maxItems", float("inf"))

        def fits(values: Sequence[Any]) -> bool:
            arrays = [value for value in values if type(value) is list]
            return all(least <= size <= most for size in set(map(len, arrays))) and each(tuple(chain(*arrays)))

        return fits

    def _string(self, schema: Mapping[str, Any]) -> _Rule:
        least, most = schema.get("minLength", 0), schema.get("maxLength", float("inf"))
        pattern = re.compile(schema.get("pattern", ""))

        def fits(values: Sequence[Any]) -> bool:
            texts = {value for value in values if type(value) is str}
            return all(least <= size <= most for size in set(map(len, texts))) and all(map(pattern.search, texts))

        return fits

    def _number(self, schema: Mapping[str, Any]) -> _Rule:
        least, most = schema.get("minimum", float("-inf")), schema.get("maximum", float("inf"))

        def fits(values: Sequence[Any]) -> bool:
            numbers = {value for value in values if type(value) in (int, float)}
            return not numbers or (least <= min(numbers) and max(numbers) <= most)

        return fits
