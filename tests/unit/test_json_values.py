"""Values that can be stored arrive unchanged; others are refused with their place."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import math
import pathlib
import types
import uuid
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.covers import covers

from pgflowd.core.json import decode, encode
from pgflowd.errors import OutputError

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
scalars = st.none() | st.booleans() | st.integers() | text
scalars |= st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(scalars, lambda v: st.lists(v) | st.dictionaries(text, v), max_leaves=20)


@given(values)
def test_json_values_come_back_as_they_were(value):
    assert decode(encode(value)) == value


@pytest.mark.parametrize("value", [0, "", [], {}, False, None, 0.0, "\u2028</script>", "\\u0000"])
def test_falsy_and_odd_values_are_kept(value):
    assert decode(encode(value)) == value
    assert type(decode(encode(value))) is type(value)


def test_odd_inputs_are_plain_data():
    digits = "7" * 100_000
    text = f'{{"__proto__": {{"$ref": "#"}}, "n": {digits}, "f": 1.5}}'

    value = decode(text)

    assert value["__proto__"] == {"$ref": "#"}
    assert value["n"] % 10**9 == 777_777_777
    assert value["f"] == 1.5
    with pytest.raises(ValueError, match="Expecting"):
        decode("{]")


def test_tuples_become_lists_and_subclasses_their_base():
    Point = collections.namedtuple("Point", "x y")
    value = {"p": Point(1, 2), "d": collections.OrderedDict(a=1)}

    assert decode(encode(value)) == {"p": [1, 2], "d": {"a": 1}}


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int


class Model:  # as pydantic's
    def model_dump(self): ...


class Moment(datetime.datetime):  # as the Timestamp of pandas
    pass


async def stream():
    yield 1


OtherBool = type("bool", (), {"__module__": "numpy", "tolist": lambda self: True})

loop: list = [1]
loop.append({"again": loop})

REFUSED = [
    (float("nan"), "output is NaN"),
    ({"items": [0, 0, 0, {"price": float("nan")}]}, "output.items[3].price is NaN"),
    ([float("inf")], "output[0] is Infinity"),
    ([-float("inf")], "output[0] is -Infinity"),
    ({"a b": "x\0"}, 'output["a b"] contains a NUL character, which PostgreSQL cannot store'),
    (["\ud800"], r"output[0] contains the lone surrogate \ud800, which is not text"),
    ({"\udfff": 1}, r"output has the key '\udfff', which contains the lone surrogate \udfff"),
    ({1: 2}, "output has the key 1, which is an int; keys must be strings"),
    ({"a": {None: 2}}, "output.a has the key None, which is a NoneType; keys must be strings"),
    ({(1, 2): 2}, "output has the key (1, 2), which is a tuple"),
    ({1, 2}, "output is a set, which JSON has no type for; return a list"),
    (b"x", "output is a bytes, which JSON has no type for; decode it"),
    ([decimal.Decimal(1)], "output[0] is a Decimal, which JSON has no type for"),
    ({"at": datetime.datetime(2026, 1, 1)}, "output.at is a datetime, which JSON has no type for"),
    (uuid.UUID(int=0), "output is a UUID, which JSON has no type for; return str"),
    (Colour.RED, "output is a Colour, which JSON has no type for; return its value"),
    (object(), "output is an object, which JSON has no type for"),
    (Point(1), "output is a Point, which JSON has no type for; return dataclasses.asdict(…)"),
    (Model(), "output is a Model, which JSON has no type for; return its model_dump(mode='json')"),
    (Moment(2026, 1, 1), "output is a Moment, which JSON has no type for; return its isoformat()"),
    (OtherBool(), "output is a numpy.bool, which JSON has no type for; return its tolist()"),
    (stream(), "output is an async_generator, which JSON has no type for; return a list"),
    (MagicMock(), "output is a MagicMock, which JSON has no type for"),
    (pathlib.Path("x"), "Path, which JSON has no type for; return str(…), or annotate what"),
    (types.MappingProxyType({}), "which JSON has no type for; return dict(…)"),
    ({}.keys(), "output is a dict_keys, which JSON has no type for; return a list"),
    ({"a": 1, 1: 2}, "output has the key 1, which is an int"),
    ({b"x" * 100: 1}, "xxx, which is a bytes; keys must be strings"),
    (10**5000, "output is an integer of over 4,000 digits"),
    (loop, "output[1].again contains itself"),
]


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_what_json_does_not_know_is_refused_with_its_place(value, message):
    with pytest.raises(OutputError) as caught:
        encode(value)

    assert caught.value.code == "E403"
    assert message in str(caught.value)


def test_twenty_thousand_levels_are_refused():
    value: list = []
    for _ in range(20_000):
        value = [value]

    with pytest.raises(OutputError, match="E403 output is nested more than 1000 levels deep"):
        encode(value)


def test_a_message_stays_short_however_long_a_key_is():
    with pytest.raises(OutputError) as caught:
        encode({b"x" * 100_000: 1})

    assert len(str(caught.value)) < 200


def test_tuples_cost_no_more_than_lists(monkeypatch):
    """Only a suspicious value is walked in Python, and a tuple is not suspicious."""
    rows = [{"id": number, "at": [number, number]} for number in range(20)]
    same = [{"id": number, "at": (number, number)} for number in range(20)]
    monkeypatch.delattr("pgflowd.core.json._faults")

    assert encode(same) == encode(rows)


@covers("E404")
def test_what_is_too_large_is_refused_with_both_sizes():
    with pytest.raises(OutputError) as caught:
        encode("ä" * 1024, max_bytes=1024)

    assert str(caught.value) == (
        "E404 output has 2.0 KiB, more than the 1.0 KiB allowed;"
        " store it elsewhere and return a reference to it"
    )
    assert encode("ä" * 511, max_bytes=1024)


def test_an_input_is_named_as_such():
    with pytest.raises(OutputError, match=r"E403 input\.x is NaN"):
        encode({"x": float("nan")}, what="input")


def is_storable(value) -> bool:
    if isinstance(value, list):
        return all(is_storable(element) for element in value)
    if isinstance(value, dict):
        return all(isinstance(k, str) and is_storable([k, v]) for k, v in value.items())
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, bytes)


anything = st.recursive(
    values | st.floats() | st.text() | st.binary(max_size=2) | st.just("\ud900"),
    lambda v: st.lists(v) | st.dictionaries(st.text() | st.integers() | st.none(), v),
    max_leaves=8,
)


@given(anything)
def test_exactly_what_can_be_stored_is_accepted(value):
    try:
        encode(value)
    except OutputError:
        assert not is_storable(value)
    else:
        assert is_storable(value)
