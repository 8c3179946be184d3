# pyright: reportUnknownArgumentType=false
"""Which JSON values a schema accepts, from above: enough to tell that two exclude each other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast
from urllib.parse import unquote

_TYPES = frozenset({"null", "boolean", "number", "string", "array", "object"})
_OBJECT = frozenset({"object"})
_MOST_CONSTANTS = 1000
_MOST_SCHEMAS = 10_000
_DEEPEST = 50
_MOST_COMPARISONS = 200_000
"""Beyond these, values count as any, or as not told apart: a request takes a second at most."""


@dataclass(frozen=True, slots=True)
class Values:
    """All the values that a schema accepts, and perhaps others."""

    types: frozenset[str] = _TYPES
    constants: frozenset[str] | None = None
    """All of them, as JSON with sorted keys; None: they aren't listed."""
    fields: Mapping[str, Values] = field(default_factory=dict[str, "Values"])
    """Of those that are objects."""
    required: frozenset[str] = frozenset()
    closed: frozenset[str] | None = None
    """The only fields that objects have; None: they may have others."""

    def of_field(self, name: str) -> Values:
        if self.closed is not None and name not in self.closed:
            return NOTHING
        return self.fields.get(name, ANYTHING)

    def also(self, other: Values) -> Values:
        """The values in both."""
        types = self.types & other.types
        listed = [each for each in (self.constants, other.constants) if each is not None]
        constants = frozenset[str].intersection(*listed) if listed else None
        if constants is not None:
            constants = frozenset(each for each in constants if _type_of(each) in types)
            types = frozenset(map(_type_of, constants))
        closed = [each for each in (self.closed, other.closed) if each is not None]
        return Values(
            types=types,
            constants=constants,
            fields={**self.fields, **other.fields, **_listed(self.fields)},
            required=self.required | other.required,
            closed=frozenset[str].intersection(*closed) if closed else None,
        )


ANYTHING = Values()
NOTHING = Values(types=frozenset(), constants=frozenset())


def any_of(parts: Sequence[Values]) -> Values:
    """The values in at least one."""
    constants: frozenset[str] | None = frozenset()
    for part in parts:
        if constants is not None and part.constants is not None:
            constants |= part.constants
        else:
            constants = None
        if constants is not None and len(constants) > _MOST_CONSTANTS:
            constants = None
    objects = [part for part in parts if "object" in part.types]
    if not objects:
        objects = [ANYTHING]
    closed = [part.closed for part in objects if part.closed is not None]
    shared = [_listed(part.fields) for part in objects]
    return Values(
        types=frozenset[str]().union(*(part.types for part in parts)),
        constants=constants,
        fields={
            name: any_of([fields[name] for fields in shared])
            for name in shared[0]
            if all(name in fields for fields in shared)
        },
        required=frozenset[str].intersection(*(part.required for part in objects)),
        closed=frozenset[str]().union(*closed) if len(closed) == len(objects) else None,
    )


def _listed(fields: Mapping[str, Values]) -> dict[str, Values]:
    return {name: values for name, values in fields.items() if values.constants is not None}


class Exclusions:
    """Tells whether sets of values exclude each other."""

    def __init__(self) -> None:
        self._left = _MOST_COMPARISONS

    def certain(self, one: Values, other: Values) -> bool:
        """Whether no value is in both. False where it can't be told."""
        self._left -= 1
        if self._left < 0:
            return False
        common = one.types & other.types
        if not common:
            return True
        if one.constants is not None and other.constants is not None:
            return not one.constants & other.constants
        return common <= _OBJECT and any(
            self.certain(one.of_field(name), other.of_field(name))
            for name in sorted(one.required | other.required)
        )


class Schema:
    """A JSON schema, and what the schemas in it accept."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        nested = json.dumps(root).count('"$id"') - ("$id" in root)
        self._refs_are_pointers = nested == 0
        self._known: dict[int, tuple[object, Values]] = {}

    def target(self, ref: object) -> object:
        """What a reference points to; None where that can't be told."""
        if not isinstance(ref, str) or not self._refs_are_pointers:
            return None
        if ref != "#" and not ref.startswith("#/"):
            return None
        found: object = self.root
        for step in ref.split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = as_dict(found).get(key)
            else:
                at, several = int(key) if key.isdecimal() else -1, as_list(found)
                found = several[at] if 0 <= at < len(several) else None
        return found

    def values(self, schema: object, depth: int = 0) -> Values:
        """What a schema that is somewhere in the root accepts."""
        if schema is False:
            return NOTHING
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return ANYTHING
        fields = cast("dict[str, Any]", schema)
        if id(fields) not in self._known:
            if len(self._known) >= _MOST_SCHEMAS:
                return ANYTHING
            self._known[id(fields)] = fields, ANYTHING  # what it is where it holds itself
            self._known[id(fields)] = fields, self._values(fields, depth + 1)
        return self._known[id(fields)][1]

    def _values(self, schema: Mapping[str, Any], depth: int) -> Values:
        if "$ref" in schema:  # what stands beside it doesn't count in older drafts
            return self.values(self.target(schema["$ref"]), depth)
        found = replace(_own(schema), fields=self._fields(schema, depth))
        for part in as_list(schema.get("allOf")):
            found = found.also(self.values(part, depth))
        for union in ("anyOf", "oneOf"):
            if parts := as_list(schema.get(union)):
                found = found.also(any_of([self.values(part, depth) for part in parts]))
        return found

    def _fields(self, schema: Mapping[str, Any], depth: int) -> dict[str, Values]:
        properties = as_dict(schema.get("properties"))
        return {name: self.values(each, depth) for name, each in properties.items()}


def _own(schema: Mapping[str, Any]) -> Values:
    """What the words of a schema itself say, but for its fields."""
    declared = schema.get("type")
    named = as_list(declared) if isinstance(declared, list) else [declared]
    types = frozenset("number" if name == "integer" else str(name) for name in named) & _TYPES
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    found = Values(
        types=_TYPES if declared is None else types,
        required=frozenset(map(str, as_list(schema.get("required")))),
        closed=frozenset(as_dict(schema.get("properties"))) if closed else None,
    )
    if "const" in schema:
        found = found.also(_constants([schema["const"]]))
    if isinstance(schema.get("enum"), list):
        found = found.also(_constants(as_list(schema["enum"])))
    return found


def _constants(values: Sequence[Any]) -> Values:
    if len(values) > _MOST_CONSTANTS:
        return ANYTHING
    spelled = frozenset(json.dumps(_normal(value), sort_keys=True) for value in values)
    return Values(types=frozenset(map(_type_of, spelled)), constants=spelled)


def _normal(value: Any) -> Any:
    """Equal numbers alike: 1.0 as 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_normal(each) for each in as_list(value)]
    if isinstance(value, dict):
        return {key: _normal(each) for key, each in as_dict(value).items()}
    return value


_TYPES_BY_START = {
    "n": "null",
    "t": "boolean",
    "f": "boolean",
    '"': "string",
    "[": "array",
    "{": "object",
}


def _type_of(spelled: str) -> str:
    return _TYPES_BY_START.get(spelled[0], "number")


def members(value: object) -> list[tuple[str, Any]]:
    """What a list or an object holds, with the name of each place in a JSON pointer."""
    return [*as_dict(value).items(), *((str(at), each) for at, each in enumerate(as_list(value)))]


def as_list(value: object) -> list[Any]:
    """Nothing, of what isn't a list."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_dict(value: object) -> dict[str, Any]:
    """Nothing, of what isn't an object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
