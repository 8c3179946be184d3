# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""``oneOf`` in schemas that answers are held to: kept where its branches exclude each other."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from llguidance import LLMatcher, LLTokenizer
from pydantic import BaseModel, Field, TypeAdapter

from art_core.chat.constrain import json_grammar
from art_core.chat.one_of import without_one_of
from art_core.errors import ChatError


def allows(schema: dict[str, Any], text: str) -> bool:
    """Whether a sampler that is held to the schema can write this."""
    grammar = LLMatcher.grammar_from_lark(f"start: content\ncontent: {json_grammar(schema)}")
    matcher = LLMatcher(_BYTES, grammar)
    assert not matcher.is_error(), matcher.get_error()
    tokens = _BYTES.tokenize_str(text)
    return matcher.validate_tokens(tokens) == len(tokens) and (
        matcher.consume_tokens(tokens) and matcher.is_accepting()
    )


_BYTES = LLTokenizer("byte")


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog", "puppy"] = "dog"
    """Not required: without its discriminator, an object may be either."""


class Pack(BaseModel):
    kind: Literal["pack"] = "pack"
    members: list[Annotated[Dog | Pack, Field(discriminator="kind")]]


class Home(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    pack: Pack | None = None


HOME = TypeAdapter(Home).json_schema()


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ('{"pet": {"kind": "cat", "lives": 9}}', True),
        ('{"pet": {"kind": "puppy"}}', True),
        ('{"pet": {}}', False),
        ('{"pet": {"kind": "cat"}}', False),
        ('{"pet": {"kind": "cow"}}', False),
        ('{"pet": {"kind": "dog"}, "pack": {"members": [{"kind": "dog"}]}}', True),
        ('{"pet": {"kind": "dog"}, "pack": {"members": [{}]}}', False),
        (
            '{"pet": {"kind": "dog"}, "pack": {"members": '
            '[{"kind": "pack", "members": [{"kind": "dog"}]}]}}',
            True,
        ),
    ],
)
def test_a_discriminated_union_of_pydantic(text: str, allowed: bool) -> None:
    """Exactly what pydantic itself accepts; recursive, and where tags have defaults."""
    assert allows(HOME, text) is allowed
    assert (not list(_errors(TypeAdapter(Home), text))) is allowed


def _errors(adapter: TypeAdapter[Any], text: str) -> list[Any]:
    try:
        adapter.validate_json(text)
    except ValueError as error:
        return [error]
    return []


def test_an_error_has_the_place_and_the_branches() -> None:
    item = {"oneOf": [{"type": "string"}, {"type": "number"}, {"type": "integer"}]}
    schema = {"type": "object", "properties": {"a": {"items": item}}}
    with pytest.raises(ChatError, match=r"oneOf at #/properties/a/items .* branches 1 and 2"):
        without_one_of(schema)


def tagged(name: str, tag: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"const": tag}}, "required": [name], **more}


def closed(name: str) -> dict[str, Any]:
    """As Rust's serde writes one variant of an enum."""
    fields: dict[str, Any] = {name: {}}
    return {
        "type": "object", "properties": fields, "required": [name], "additionalProperties": False
    }  # fmt: skip


EXCLUSIVE: list[list[Any]] = [
    [{"type": "string"}, {"type": "integer"}, {"type": ["array", "null"]}],
    [{"const": 1}, {"const": 2}, {"enum": [3, "1"]}],
    [{"const": True}, {"const": 1}],
    [{"type": "boolean"}, {"const": {"a": 1}}],
    [tagged("k", "a"), tagged("k", "b")],
    [tagged("k", "a"), {"type": "object", "properties": {"k": {"const": "b"}}}],
    [tagged("k", 1), {"properties": {"k": {"type": "string"}}, "type": "object"}],
    [closed("a"), closed("b")],
    [{"allOf": [tagged("k", "a"), {"required": ["x"]}]}, tagged("k", "b")],
    [{"anyOf": [tagged("k", "a"), tagged("k", "b")]}, tagged("k", "c")],
    [{"oneOf": [tagged("k", "a"), tagged("k", "b")]}, tagged("k", "c"), {"type": "null"}],
    [{"$ref": "#/$defs/a%2Fb~1c"}, {"type": "string"}],
    [{"anyOf": [tagged("k", "a"), {"type": "string"}]}, tagged("k", "c")],
    [False, True],
    [{"type": "string"}],
]
OVERLAPPING: list[list[Any]] = [
    [{}, {"type": "string"}],
    [{"const": 1}, {"const": 1.0}],
    [{"const": {"a": [1.0], "b": 2}}, {"enum": [{"b": 2, "a": [1]}]}],
    [{"enum": ["a", "b"]}, {"enum": ["b"]}],
    [{"type": "integer"}, {"type": "number"}],
    [{"minLength": 5, "type": "string"}, {"maxLength": 4, "type": "string"}],
    [tagged("k", "a", required=[]), tagged("k", "b", required=[])],
    [tagged("k", "a"), tagged("l", "b")],
    [tagged("k", "a"), {"properties": {"k": {"const": "b"}}, "required": ["k"]}, {}],
    [{**closed(x), "patternProperties": {"": {}}} for x in "ab"],
    [{"anyOf": [tagged("k", "a"), {"type": "object"}]}, tagged("k", "c")],
    [{"$ref": "https://example.org/schema"}, {"type": "string"}],
    [{"$ref": "#/$defs/loop"}, {"type": "string"}],
    [{"$ref": "#/$defs/none"}, {"type": "string"}],
    [{"$ref": "#/oneOf/9"}, {"type": "string"}],
    [{"items": {"type": "string"}, "type": "array"}, {"items": {"type": "null"}, "type": "array"}],
]
DEFINITIONS = {"a/b/c": {"type": "number"}, "loop": {"$ref": "#/$defs/loop"}}


@pytest.mark.parametrize("branches", EXCLUSIVE, ids=str)
def test_branches_that_exclude_each_other(branches: list[Any]) -> None:
    rewritten = without_one_of({"$defs": DEFINITIONS, "oneOf": branches})
    assert "oneOf" not in str(rewritten)
    assert len(rewritten["anyOf"]) == len(branches)


@pytest.mark.parametrize("branches", OVERLAPPING, ids=str)
def test_branches_that_may_not(branches: list[Any]) -> None:
    with pytest.raises(ChatError, match="oneOf at # can't be kept"):
        without_one_of({"$defs": DEFINITIONS, "oneOf": branches})
    with pytest.raises(ChatError, match="oneOf at # can't be kept"):
        without_one_of({"$defs": DEFINITIONS, "oneOf": branches, "discriminator": {"x": []}})


def test_what_is_no_schema_is_left_alone() -> None:
    odd = {"oneOf": [{}, {}]}
    schema = {
        "properties": {"oneOf": {"const": odd}, "b": {"enum": [odd], "default": odd}},
        "items": {"properties": {"type": "string"}},
        "examples": [odd],
    }
    assert without_one_of(schema) == schema


def test_beside_any_of() -> None:
    schema = {"oneOf": [{"const": 1}, {"const": 2}], "anyOf": [{"const": 2}, {"const": 3}]}
    rewritten = without_one_of(schema)
    assert [Draft202012Validator(rewritten).is_valid(n) for n in (1, 2, 3)] == [False, True, False]
    assert "oneOf" in schema


def test_where_a_reference_may_mean_another_document() -> None:
    branches = [{"$ref": "#/$defs/a"}, {"type": "string"}]
    definitions = {"a": {"type": "number"}, "b": {"$id": "https://example.org/b"}}
    with pytest.raises(ChatError, match="oneOf at #"):
        without_one_of({"$defs": definitions, "oneOf": branches})


def nested(levels: int) -> dict[str, Any]:
    """Each definition twice in the one before it: 2^levels values, if one looks at each."""
    names = [f"d{level}" for level in range(levels)]
    definitions = {
        name: {
            "type": "object",
            "required": ["a", "b"],
            "properties": {key: {"$ref": f"#/$defs/{following}"} for key in "ab"},
        }
        for name, following in zip(names, [*names[1:], "end"], strict=True)
    }
    copies = {f"e{name}": value for name, value in definitions.items()}
    return {
        "$defs": {**definitions, **copies, "end": {}},
        "oneOf": [{"$ref": "#/$defs/d0"}, {"$ref": "#/$defs/ed0"}],
    }


def chain(links: int) -> dict[str, Any]:
    definitions = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(links)}
    return {"$defs": definitions, "oneOf": [{"$ref": "#/$defs/d0"}, {"type": "string"}]}


LONG = {
    "title": "x" * 100_000,
    "type": "object",
    "properties": {f"t{n}": {"const": n} for n in range(2000)},
}
HUGE: dict[str, dict[str, Any]] = {
    "levels": nested(40),
    "a chain of references": chain(50_000),
    "branches": {"oneOf": [tagged("k", n) for n in range(20_000)]},
    "constants": {"oneOf": [{"enum": list(range(n, n + 50_000))} for n in (0, 50_000)]},
    "copies": {
        "$defs": {"a": tagged("k", "a"), "b": LONG},
        "allOf": [
            {
                "oneOf": [{"$ref": "#/$defs/b"}, {"type": "string"}],
                "discriminator": {"propertyName": f"t{n}"},
            }
            for n in range(2000)
        ],
    },
}


@pytest.mark.parametrize("name", HUGE)
def test_what_would_take_too_long_is_refused(name: str) -> None:
    started = time.process_time()
    with pytest.raises(ChatError):
        without_one_of(HUGE[name])
    assert time.process_time() - started < 20  # a loaded machine; minutes to years without bounds


NAMES = st.sampled_from(["a", "b"])
CONSTANTS: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, 1, 1.0, "x", "y", [], {}, {"a": 1}]
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.just({}),
    st.booleans(),
    st.fixed_dictionaries({"const": CONSTANTS}),
    st.fixed_dictionaries({"enum": st.lists(CONSTANTS, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"type": TYPES}),
    st.fixed_dictionaries({"$ref": st.sampled_from(["#/$defs/a", "#/$defs/b"])}),
)


def _inner(schemas: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(schemas, min_size=1, max_size=3)
    objects = st.fixed_dictionaries(
        {"properties": st.dictionaries(NAMES, schemas), "required": st.lists(NAMES, max_size=2)},
        optional={
            "type": st.just("object"),
            "additionalProperties": st.one_of(st.just(value=False), schemas),
            "oneOf": several,
        },
    )
    unions = [st.fixed_dictionaries({name: several}) for name in ("anyOf", "allOf", "oneOf")]
    return st.one_of(objects, *unions)


SCHEMAS = st.recursive(LEAVES, _inner, max_leaves=8)
OBJECTS = st.recursive(
    CONSTANTS, lambda values: st.dictionaries(NAMES, values, max_size=2), max_leaves=4
)


@given(
    branches=st.lists(SCHEMAS, min_size=2, max_size=3),
    definitions=st.fixed_dictionaries({"a": LEAVES, "b": SCHEMAS}),
    values=st.lists(OBJECTS, min_size=5, max_size=20),
)
def test_random_schemas_accept_the_same_values(
    branches: list[Any], definitions: dict[str, Any], values: list[Any]
) -> None:
    schema = {"$defs": definitions, "oneOf": branches}
    try:
        rewritten = without_one_of(schema)
    except ChatError:
        return
    one, other = Draft202012Validator(schema), Draft202012Validator(rewritten)
    for value in values:
        try:
            expected = one.is_valid(value)
        except RecursionError:  # a definition that is itself
            return
        assert other.is_valid(value) == expected
