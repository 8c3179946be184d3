"""``oneOf`` in JSON schemas, for a sampler that only knows ``anyOf``.

The two mean the same where no value is valid under two branches; elsewhere a sampler
can't hold an answer to exactly one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import combinations, count
from typing import Any, cast

from art_core.chat.value_sets import Exclusions, Schema, Values, as_dict, as_list, members
from art_core.errors import ChatError

_SCHEMA = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_SCHEMAS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_NAMED_SCHEMAS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_NOT_COPIED = ("$defs", "definitions", "$id", "$schema")
_MOST_TAGGED = 1_000_000
"""Characters of definitions that are written a second time."""


def without_one_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``schema`` with ``anyOf`` for each ``oneOf`` whose branches exclude each other.

    The property that an OpenAPI ``discriminator`` names is required in each branch that
    has it, as OpenAPI and pydantic have it.

    Raises:
        ChatError: two branches may hold for one value, or can't be told apart.
    """
    return _Rewriting(schema).done()


class _Rewriting:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._root: dict[str, Any] = deepcopy(dict(schema))
        self._schema = Schema(self._root)
        self._exclusions = Exclusions()
        self._pending: list[tuple[str, dict[str, Any]]] = [("#", self._root)]
        self._seen: dict[int, object] = {}
        self._tagged: dict[tuple[int, str], str] = {}
        self._room = _MOST_TAGGED

    def done(self) -> dict[str, Any]:
        while self._pending:
            place, schema = self._pending.pop()
            if id(schema) in self._seen:
                continue
            self._seen[id(schema)] = schema
            if as_list(schema.get("oneOf")):
                self._rewrite(place, schema)
            self._pending += self._inside(place, schema)
        return self._root

    def _inside(self, place: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """The schemas in a schema, and the one that it refers to."""
        found = [(str(schema.get("$ref")), self._schema.target(schema.get("$ref")))]
        found += [(f"{place}/{key}", schema.get(key)) for key in _SCHEMA]
        for key in _SCHEMAS:
            found += [
                (f"{place}/{key}/{at}", each) for at, each in members(as_list(schema.get(key)))
            ]
        for key in _NAMED_SCHEMAS:
            found += [
                (f"{place}/{key}/{at}", each) for at, each in members(as_dict(schema.get(key)))
            ]
        for inner, each in found:
            if isinstance(each, dict):
                yield inner, cast("dict[str, Any]", each)

    def _rewrite(self, place: str, schema: dict[str, Any]) -> None:
        branches = [*as_list(schema["oneOf"])]
        tag = as_dict(schema.get("discriminator")).get("propertyName")
        values = [self._schema.values(branch) for branch in branches]
        for at, each in enumerate(values):
            if isinstance(tag, str) and tag in each.fields and tag not in each.required:
                values[at] = each.also(Values(required=frozenset({tag})))
                branches[at] = self._with_tag(place, branches[at], tag)
        for (i, one), (j, other) in combinations(enumerate(values), 2):
            if not self._exclusions.certain(one, other):
                raise ChatError(
                    f"the schema's oneOf at {place:.200} can't be kept: an answer may be valid "
                    f"under its branches {i} and {j} at once",
                    "Give each branch a required property with a const of its own, or use anyOf.",
                )
        del schema["oneOf"]
        schema.pop("discriminator", None)
        if "anyOf" in schema:
            schema["allOf"] = [*as_list(schema.get("allOf")), {"anyOf": branches}]
        else:
            schema["anyOf"] = branches

    def _with_tag(self, place: str, fields: dict[str, Any], tag: str) -> dict[str, Any]:
        """A branch that requires a property; others may refer to its definition without."""
        target = self._schema.target(fields.get("$ref"))
        if not isinstance(target, dict):
            return {**fields, "required": [*as_list(fields.get("required")), tag]}
        definition = cast("dict[str, Any]", target)
        key = (id(definition), tag)
        if key not in self._tagged:
            self._room -= len(json.dumps(definition))
            if self._room < 0:
                raise ChatError(f"the schema's oneOf at {place:.200} is too large")
            copy = {name: each for name, each in definition.items() if name not in _NOT_COPIED}
            name = next(n for i in count() if (n := f"x-tagged-{i}") not in self._root)
            self._root[name] = {}
            self._tagged[key] = f"#/{name}"
            self._root[name] = self._with_tag(place, copy, tag)
            self._pending.append((f"#/{name}", self._root[name]))
        return {**fields, "$ref": self._tagged[key]}
