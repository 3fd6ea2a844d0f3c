"""Schemas of flows, and the places where inputs differ from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest

from pgflowd import Flow
from pgflowd.core.definition.shape import step_schemas
from pgflowd.core.json import as_stored
from pgflowd.core.typed.codec import Misfit, codec_of, example_of, fault_of

ID = "00000000-0000-0000-0000-000000000007"


class Size(Enum):
    SMALL = "S"
    LARGE = "L"


class Point(NamedTuple):
    x: int
    y: int = 0


@dataclass
class Item:
    price: Decimal
    size: Size = Size.SMALL
    at: datetime | None = None
    point: Point | None = None


@dataclass
class Order:
    id: UUID
    items: list[Item]
    kind: Literal["new", "old"] = "new"
    tags: set[str] = field(default_factory=set)
    more: dict[str, float] = field(default_factory=dict)
    short: Annotated[str, msgspec.Meta(max_length=3, pattern="^[a-z]*$")] = ""


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    n: Annotated[int, msgspec.Meta(gt=0)]


class Signup(pydantic.BaseModel):
    seats: int = pydantic.Field(default=1, gt=0, le=5, alias="numberOfSeats")
    item: Item | None = None


def schema_of(annotation: Any, **options: Any) -> Any:
    def handler(run): ...

    handler.__annotations__["run"] = annotation
    flow = Flow("shop", **options)
    flow.step(slug="only")(handler)
    return flow.shape().get("inputSchema")


GOOD = {"id": ID, "items": [{"price": 1, "size": "L", "at": "2026-01-01T00:00:00Z", "point": [3]}]}


@pytest.mark.parametrize(
    ("annotation", "value", "fault"),
    [
        (Order, GOOD, None),
        (Order, GOOD | {"extra": 1, "tags": ["a", "a"]}, None),
        (Order, 3, "input: expected object, got number 3"),
        (Order, {"id": ID}, "input: field 'items' is missing"),
        (Order, GOOD | {"id": "x"}, "input.id: expected a uuid, got 'x'"),
        (Order, GOOD | {"kind": "no"}, "input.kind: expected 'new' or 'old', got 'no'"),
        (Order, GOOD | {"more": {"a": "b"}}, "input.more.a: expected number, got string 'b'"),
        (Order, GOOD | {"short": "abcd"}, "input.short: expected at most 3 characters, got 'abcd'"),
        (Order, GOOD | {"short": "A"}, "input.short: expected what matches ^[a-z]*$, got 'A'"),
        (Order, {"id": ID, "items": [{"price": 1}, {"price": True}]},
         "input.items[1].price: expected string or number, got boolean True"),
        (Order, {"id": ID, "items": [{"price": 1, "size": "M"}]},
         "input.items[0].size: expected 'L' or 'S', got 'M'"),
        (Order, {"id": ID, "items": [{"price": 1, "at": 3}]},
         "input.items[0].at: fits none of 2 types, got 3"),
        (Order, {"id": ID, "items": [{"price": 1, "point": ["x"]}]},
         "input.items[0].point[0]: expected integer, got string 'x'"),
        (Closed, {"n": 1}, None),
        (Closed, {"n": 0}, "input.n: expected more than 0, got 0"),
        (Closed, {"n": 1, "m": 2}, "input: field 'm' is refused"),
        (Signup, {"numberOfSeats": 5, "item": None}, None),
        (Signup, {"numberOfSeats": 6}, "input.numberOfSeats: expected at most 5, got 6"),
        (Signup, {"item": {}}, "input.item: fits none of 2 types, got {}"),
    ],
)  # fmt: skip
def test_an_input_is_refused_with_its_place(annotation: Any, value: Any, fault: Any) -> None:
    schema = schema_of(annotation)

    assert as_stored(schema) == schema
    assert fault_of(schema, value, "input") == fault
    try:
        codec_of(annotation).decode(value, "input")
    except Misfit:
        assert fault is not None  # the handler refuses it as well
    else:
        assert fault is None


def test_only_decoded_types_have_schemas() -> None:
    assert schema_of(dict[str, Any]) is None
    assert schema_of(Order, decode=False) is None
    flow = Flow("shop")

    @flow.map
    def each(item: Item) -> Closed: ...

    @flow.step
    def note(each: list[Closed]) -> int: ...

    assert fault_of(flow.shape()["inputSchema"], [{"price": []}], "input") == (
        "input[0].price: expected string or number, got array []"
    )
    found = step_schemas(flow.steps["each"])
    assert found["output"]["$ref"] == "#/$defs/Closed" and set(found["parameters"]) == {"item"}
    assert step_schemas(flow.steps["note"])["output"] is None


def test_all_handlers_that_take_the_input_have_a_say() -> None:
    flow = Flow("shop")

    @flow.step
    def first(run: Order) -> None: ...

    @flow.step
    def second(first, run: Signup) -> None: ...

    schema = flow.shape()["inputSchema"]
    assert fault_of(schema, GOOD | {"numberOfSeats": 1}, "input") is None
    assert fault_of(schema, GOOD | {"numberOfSeats": 0}, "input") == (
        "input.numberOfSeats: expected more than 0, got 0"
    )
    assert fault_of(schema, {"numberOfSeats": 1}, "input") == "input: field 'id' is missing"


ORDER = {
    "$ref": "#/$defs/Order",
    "$defs": {
        "Order": {
            "type": "object",
            "properties": {
                "id": {"type": "integer", "minimum": 1},
                "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}, "minItems": 1},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                "day": {"type": "string", "format": "date"},
            },
            "required": ["id", "lines", "day"],
        },
        "Line": {
            "type": "object",
            "properties": {
                "kind": {"enum": ["a", "b"]},
                "count": {"exclusiveMinimum": 0, "type": "integer"},
            },
            "required": ["kind", "count"],
        },
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "example"),
    [
        ({"type": "string", "minLength": 2}, "xx"),
        ({"type": ["null", "string"]}, None),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, False),
        ({"const": 3}, 3),
        ({}, None),
        (ORDER, {"id": 1, "lines": [{"kind": "a", "count": 1}], "day": "2000-01-01"}),
    ],
)
def test_it_is_small_and_has_what_is_required(schema, example):
    assert example_of(schema) == example
    assert fault_of(schema, example_of(schema), "input") is None


def test_a_schema_that_names_itself_ends():
    loop = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}

    assert "next" in example_of(loop)
