"""
The type check from producer to consumer: the table of docs/guides/typed-handlers.md, for all
libraries, and its promise: where it says that a type does not fit, a value of it is not decoded.
"""
# ruff: noqa: UP007, UP045  the unions are of values, for which Python 3.11 has no other spelling

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import enum
import typing
import uuid
from typing import Any, Literal, NamedTuple, Optional, Union

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typing_extensions import TypedDict

from pgflowd.core.json import as_stored
from pgflowd.core.typed.codec import Misfit, codec_of
from pgflowd.core.typed.comparison import misfit
from pgflowd.errors import OutputError


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Shade(enum.Enum):
    RED = "red"


KINDS = ("dataclass", "attrs", "struct", "model", "typed dict")


def made(kind: str, fields: dict[str, Any], optional: frozenset[str] = frozenset()) -> Any:
    """A class with these fields; those that are optional have the default None, or may miss."""
    ordered = sorted(fields, key=lambda name: name in optional)
    if kind == "dataclass":
        listed = [
            (n, fields[n], dataclasses.field(default=None)) if n in optional else (n, fields[n])
            for n in ordered
        ]
        return dataclasses.make_dataclass("Made", listed)
    if kind == "attrs":
        body = {
            n: attrs.field(default=None, type=fields[n])
            if n in optional
            else attrs.field(type=fields[n])
            for n in ordered
        }
        return attrs.make_class("Made", body)
    if kind == "struct":
        listed = [(n, fields[n], None) if n in optional else (n, fields[n]) for n in ordered]
        return msgspec.defstruct("Made", listed)
    if kind == "model":
        given = {n: (fields[n], None if n in optional else ...) for n in ordered}
        return pydantic.create_model("Made", **given)
    hints = {n: typing.NotRequired[fields[n]] if n in optional else fields[n] for n in ordered}
    return TypedDict("Made", hints)  # type: ignore[operator]


# -- the table ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_objects_are_compared_by_their_fields(kind: str, other: str) -> None:
    small = made(kind, {"id": int})
    large = made(other, {"id": int, "total": float})
    lax = made(kind, {"id": int, "note": Optional[str]}, frozenset({"note"}))

    assert misfit(small, large) is None  # an extra key is ignored
    larger = made(kind, {"id": int, "total": float})
    assert misfit(larger, made(other, {"id": int})) == "field 'total' is missing"
    assert misfit(lax, made(other, {"id": int})) is None
    wrong = made(other, {"id": list[int]})
    assert misfit(small, wrong) == "field 'id': list[int] is not int"
    assert misfit(small, small) is None
    assert misfit(list[small], large) is not None
    assert misfit(small, str) is not None
    unsure = made("typed dict", {"id": int}, frozenset({"id"}))
    assert misfit(small, unsure) == "field 'id' may be missing"


@pytest.mark.parametrize(
    ("consumer", "producer", "is_misfit"),
    [
        (Any, int, False),
        (int, Any, False),
        (float, int, False),
        (int, float, True),
        (int, bool, True),
        (Optional[int], int, False),
        (int, Optional[int], True),
        (Union[int, str], Union[str, int], False),
        (Union[int, str], Union[str, list[int]], True),
        (Union[float, str], Literal["red", 3], False),
        (Union[float, None], Literal["red", 3], True),
        (list[float], list[int], False),
        (set[int], list[int], False),
        (tuple[int, ...], set[int], False),
        (list[str], list[int], True),
        (tuple[int, str], tuple[int, str], False),
        (tuple[int, str], list[int], False),
        (tuple[int, str], tuple[int], True),
        (dict[str, float], dict[str, int], False),
        (dict[str, int], dict[str, str], True),
        (Literal["a", "b"], str, False),
        (str, Literal["a", "b"], False),
        (Literal["a", "b"], Literal["a"], False),
        (Literal["a"], Literal["a", "b"], True),
        (Color, str, False),
        (str, Color, False),
        (Color, Shade, False),
        (Shade, Color, True),
        (Color, int, True),
        (datetime.datetime, str, False),
        (str, datetime.datetime, False),
        (datetime.date, datetime.datetime, True),
        (decimal.Decimal, int, False),
        (uuid.UUID, uuid.UUID, False),
        (uuid.UUID, None, True),
    ],
)
def test_the_table(consumer: Any, producer: Any, is_misfit: bool) -> None:
    assert (misfit(consumer, producer) is not None) is is_misfit


def test_what_may_refuse_or_change_values_is_no_misfit() -> None:
    class Positive(pydantic.BaseModel):
        n: int = pydantic.Field(gt=0)

    class Even(pydantic.BaseModel):
        n: int

        @pydantic.field_validator("n")
        def is_even(cls, n: int) -> int:
            return n

    @dataclasses.dataclass
    class Checked:
        n: int

        def __post_init__(self) -> None: ...

    class Closed(msgspec.Struct, forbid_unknown_fields=True):
        n: int

    one = made("dataclass", {"n": int})
    for cls in (Positive, Even, Checked, Closed):
        assert misfit(cls, one) is misfit(cls, cls) is None
    assert misfit(Even, str) is None  # its validator may take anything
    more = made("struct", {"n": int, "m": int})
    assert misfit(Closed, more) == "field 'm' is refused"


def test_names_are_compared_as_json_has_them() -> None:
    class Camel(msgspec.Struct, rename="camel"):
        user_id: int

    class Model(pydantic.BaseModel):
        user_id: int = pydantic.Field(alias="userId")

    class OneWay(pydantic.BaseModel):
        user_id: int = pydantic.Field(serialization_alias="userId")

    assert misfit(Camel, Model) is misfit(Model, Camel) is None
    assert misfit(made("dataclass", {"user_id": int}), Camel) == "field 'user_id' is missing"
    assert misfit(OneWay, OneWay) == "field 'user_id' is missing"


@dataclasses.dataclass
class Tree:
    value: int
    children: list[Tree]


T = typing.TypeVar("T")


@dataclasses.dataclass
class Page(typing.Generic[T]):
    items: list[T]


class TreeModel(pydantic.BaseModel):
    value: float
    children: list[TreeModel]


def test_recursive_and_generic_types_are_compared() -> None:
    assert misfit(TreeModel, Tree) is None
    assert misfit(Tree, TreeModel) == "field 'value': float is not int"
    assert misfit(Page[float], Page[int]) is None
    assert misfit(Page[str], Page[int]) is not None


# -- the promise -------------------------------------------------------------------------


class Drawn(NamedTuple):
    annotation: Any
    values: st.SearchStrategy[Any]


ZONES = st.sampled_from([None, datetime.UTC, datetime.timezone(datetime.timedelta(hours=-5))])
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
LEAVES = [
    Drawn(None, st.none()),
    Drawn(bool, st.booleans()),
    Drawn(int, st.integers(-(2**53), 2**53)),
    Drawn(float, st.floats(allow_nan=False, allow_infinity=False)),
    Drawn(str, TEXT),
    Drawn(uuid.UUID, st.uuids()),
    Drawn(decimal.Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    Drawn(datetime.datetime, st.datetimes(timezones=ZONES)),
    Drawn(datetime.date, st.dates()),
    Drawn(datetime.timedelta, st.timedeltas()),
    Drawn(datetime.time, st.times()),
    Drawn(bytes, st.binary(max_size=5)),
    Drawn(Color, st.sampled_from(Color)),
    Drawn(Shade, st.sampled_from(Shade)),
    Drawn(Literal["red"], st.just("red")),
    Drawn(Literal["red", 3], st.sampled_from(["red", 3])),
    Drawn(Any, st.none() | TEXT),
]
SAMPLES = [
    *LEAVES,
    Drawn(list[int], st.lists(LEAVES[2].values, max_size=2)),
    Drawn(list[float], st.lists(LEAVES[3].values, max_size=2)),
    Drawn(set[str], st.sets(TEXT, max_size=2)),
    Drawn(tuple[int, str], st.tuples(LEAVES[2].values, TEXT)),
    Drawn(tuple[int, ...], st.lists(LEAVES[2].values, max_size=2).map(tuple)),
    Drawn(dict[str, int], st.dictionaries(TEXT, LEAVES[2].values, max_size=2)),
    Drawn(dict[int, str], st.dictionaries(LEAVES[2].values, TEXT, max_size=2)),
    Drawn(dict[uuid.UUID, Color], st.dictionaries(st.uuids(), st.sampled_from(Color), max_size=2)),
    Drawn(Optional[int], st.none() | LEAVES[2].values),
    Drawn(Union[float, str], LEAVES[3].values | TEXT),
]


def test_of_each_sample_that_does_not_fit_another_one_a_value_is_not_decoded() -> None:
    """All pairs, each in a class of msgspec's and in one of pydantic's."""
    classes = [
        [made(kind, {"a": each.annotation}) for each in SAMPLES] for kind in ("dataclass", "model")
    ]
    every = [cls for of_kind in classes for cls in of_kind]
    refused = {(to, of): False for of in every for to in every if misfit(to, of)}

    @settings(
        max_examples=60,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.tuples(*[each.values for each in SAMPLES]))
    def check(values: tuple[Any, ...]) -> None:
        for of_kind in classes:
            for cls, value in zip(of_kind, values, strict=True):
                try:
                    stored = as_stored(codec_of(cls).encode(cls(a=value), "output"))
                except (Misfit, OutputError):  # such as bytes, which pydantic writes as text
                    continue
                for consumer in [to for to, of in refused if of is cls]:
                    try:
                        codec_of(consumer).decode(stored, "it")
                    except Misfit:
                        refused[consumer, cls] = True

    for _ in range(10):
        if not all(refused.values()):  # chance has not drawn a value that shows it
            check()
    hints = [[c.__annotations__ for c in pair] for pair, is_ in refused.items() if not is_]
    assert (hints, len(refused) > 200) == ([], True)
    assert all(misfit(cls, cls) is None for cls in every)


@pytest.mark.parametrize("annotation", [Color, TreeModel])
def test_a_codec_is_copied_with_its_flow(annotation: Any) -> None:
    copied = copy.deepcopy({"codec": codec_of(annotation)})

    assert copied["codec"].annotation is annotation
