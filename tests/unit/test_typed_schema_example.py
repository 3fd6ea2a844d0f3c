"""An example of a schema is described by it."""

from __future__ import annotations

import pytest

from pgflowd.core.typed.schema_check import fault_of
from pgflowd.core.typed.schema_example import example_of

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
