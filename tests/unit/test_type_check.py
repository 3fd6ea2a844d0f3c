"""
The type check from producer to consumer: the table of docs/guides/typed-handlers.md, for all
libraries, and its promise: where it says that a type fits, each value of the producer is decoded.
"""
# ruff: noqa: UP007, UP045  the unions are of values, for which Python 3.11 has no other spelling

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import typing
import uuid
from collections import Counter
from typing import Any, Literal, NamedTuple, Optional, Union

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, Phase, assume, given, reject, settings
from hypothesis import strategies as st
from typing_extensions import TypedDict

from pgflowd.core.definition.type_check import Answer, fits
from pgflowd.core.json import as_stored
from pgflowd.core.typed.codec import Misfit, Undecodable, codec_of

FITS, MISFIT, UNKNOWN = Answer.FITS, Answer.MISFIT, Answer.UNKNOWN


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

    assert fits(small, large).answer is FITS  # an extra key is ignored
    missing = fits(made(kind, {"id": int, "total": float}), made(other, {"id": int}))
    assert (missing.answer, missing.why) == (MISFIT, "field 'total' is missing")
    assert fits(lax, made(other, {"id": int})).answer is FITS
    wrong = fits(small, made(other, {"id": list[int]}))
    assert (wrong.answer, wrong.why) == (MISFIT, "field 'id': list[int] is not int")
    assert fits(small, small).answer is FITS
    assert fits(list[small], large).answer is MISFIT
    assert fits(small, str).answer is MISFIT
    unsure = fits(small, made("typed dict", {"id": int}, frozenset({"id"})))
    assert (unsure.answer, unsure.why) == (MISFIT, "field 'id' may be missing")


@pytest.mark.parametrize(
    ("consumer", "producer", "answer"),
    [
        (Any, int, FITS),
        (int, Any, UNKNOWN),
        (float, int, FITS),
        (int, float, MISFIT),
        (int, bool, MISFIT),
        (Optional[int], int, FITS),
        (int, Optional[int], MISFIT),
        (Union[int, str], Union[str, int], FITS),
        (Union[int, str], Union[str, list[int]], MISFIT),
        (list[float], list[int], FITS),
        (set[int], list[int], FITS),
        (tuple[int, ...], set[int], FITS),
        (list[str], list[int], MISFIT),
        (tuple[int, str], tuple[int, str], FITS),
        (tuple[int, str], list[int], UNKNOWN),
        (tuple[int, str], tuple[int], MISFIT),
        (dict[str, float], dict[str, int], FITS),
        (dict[str, int], dict[str, str], MISFIT),
        (Literal["a", "b"], str, UNKNOWN),
        (str, Literal["a", "b"], FITS),
        (Literal["a", "b"], Literal["a"], FITS),
        (Literal["a"], Literal["a", "b"], MISFIT),
        (Color, str, UNKNOWN),
        (str, Color, FITS),
        (Color, Shade, FITS),
        (Shade, Color, MISFIT),
        (Color, int, MISFIT),
        (datetime.datetime, str, UNKNOWN),
        (str, datetime.datetime, FITS),
        (datetime.date, datetime.datetime, MISFIT),
        (decimal.Decimal, int, FITS),
        (uuid.UUID, uuid.UUID, FITS),
        (uuid.UUID, None, MISFIT),
    ],
)
def test_the_table(consumer: Any, producer: Any, answer: Answer) -> None:
    assert fits(consumer, producer).answer is answer


def test_what_may_refuse_values_is_unknown_unless_it_is_the_same() -> None:
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
    assert [fits(cls, one).answer for cls in (Positive, Even, Checked, Closed)] == [UNKNOWN] * 4
    assert [fits(cls, cls).answer for cls in (Positive, Even, Checked, Closed)] == [FITS] * 4
    more = made("struct", {"n": int, "m": int})
    assert fits(Closed, more).why == "field 'm' is refused"


def test_names_are_compared_as_json_has_them() -> None:
    class Camel(msgspec.Struct, rename="camel"):
        user_id: int

    class Model(pydantic.BaseModel):
        user_id: int = pydantic.Field(alias="userId")

    class OneWay(pydantic.BaseModel):
        user_id: int = pydantic.Field(serialization_alias="userId")

    assert fits(Camel, Model).answer is fits(Model, Camel).answer is FITS
    assert fits(made("dataclass", {"user_id": int}), Camel).why == "field 'user_id' is missing"
    assert fits(OneWay, OneWay).why == "field 'user_id' is missing"


def test_tags_tell_structs_apart() -> None:
    class Cat(msgspec.Struct, tag=True):
        name: str

    class Dog(msgspec.Struct, tag=True):
        name: str

    assert fits(Union[Cat, Dog], Cat).answer is FITS
    assert fits(Cat, Dog).answer is not FITS


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
    assert fits(TreeModel, Tree).answer is FITS
    assert fits(Tree, TreeModel).why == "field 'value': float is not int"
    assert fits(Page[float], Page[int]).answer is FITS
    assert fits(Page[str], Page[int]).answer is MISFIT


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
NAMES = ("a", "b", "c")


@st.composite
def drawn_types(draw: st.DrawFn, depth: int = 2) -> Drawn:
    kinds = ["leaf"] * 2 + ["list", "set", "row", "dict", "union", "record", "record"] * (depth > 0)
    kind = draw(st.sampled_from(kinds))
    if kind == "leaf":
        return draw(st.sampled_from(LEAVES))
    inner = draw(drawn_types(depth - 1))
    if kind == "list":
        return Drawn(list[inner.annotation], st.lists(inner.values, max_size=3))
    if kind == "set":
        leaf = draw(st.sampled_from(LEAVES))
        return Drawn(set[leaf.annotation], st.sets(leaf.values, max_size=3))
    if kind == "row":
        second = draw(drawn_types(depth - 1))
        both = st.tuples(inner.values, second.values)
        return Drawn(tuple[inner.annotation, second.annotation], both)
    if kind == "dict":
        key = draw(st.sampled_from([LEAVES[2], LEAVES[4], LEAVES[5], LEAVES[11]]))
        annotation = dict[key.annotation, inner.annotation]
        return Drawn(annotation, st.dictionaries(key.values, inner.values, max_size=3))
    if kind == "union":
        other = draw(drawn_types(depth - 1))
        return Drawn(Union[inner.annotation, other.annotation], inner.values | other.values)
    return draw(records(depth - 1))


@st.composite
def records(draw: st.DrawFn, depth: int) -> Drawn:
    fields = {name: draw(drawn_types(depth)) for name in NAMES if draw(st.booleans())}
    optional = frozenset(name for name in fields if draw(st.booleans()))
    hints = {
        name: Optional[each.annotation] if name in optional else each.annotation
        for name, each in fields.items()
    }
    cls = made_or_rejected(draw, hints, optional)
    required = {name: each.values for name, each in fields.items() if name not in optional}
    free = {name: each.values for name, each in fields.items() if name in optional}
    return Drawn(cls, st.fixed_dictionaries(required, optional=free).map(lambda it: cls(**it)))


def made_or_rejected(draw: st.DrawFn, fields: dict[str, Any], optional: frozenset[str]) -> Any:
    try:
        return made(draw(st.sampled_from(KINDS)), fields, optional)
    except pydantic.errors.PydanticSchemaGenerationError:  # a model with classes of others
        reject()


def widened(draw: st.DrawFn, annotation: Any) -> Any:
    """Another annotation that is near to this one."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if draw(st.integers(0, 5)) == 0:
        return draw(drawn_types()).annotation
    if origin in (list, set):
        element = widened(draw, inside[0])
        return draw(st.sampled_from([list[element], set[element], tuple[element, ...]]))
    if origin is tuple:
        return tuple[tuple(widened(draw, each) for each in inside)]
    if origin is dict:
        return dict[draw(st.sampled_from([inside[0], str])), widened(draw, inside[1])]
    if origin is Union:
        return Union[tuple(widened(draw, each) for each in inside)]
    if isinstance(annotation, type) and annotation.__name__ == "Made":
        hints = typing.get_type_hints(annotation)
        kept = {n: widened(draw, each) for n, each in hints.items() if draw(st.integers(0, 3))}
        optional = frozenset(name for name in kept if draw(st.booleans()))
        kept = {n: Optional[each] if n in optional else each for n, each in kept.items()}
        return made_or_rejected(draw, kept, optional)
    near = {int: [float, decimal.Decimal], Shade: [Color, str], Color: [str]}
    others = [annotation, *near.get(annotation, ()), Optional[annotation]]
    return draw(st.sampled_from(others) | st.sampled_from([each.annotation for each in LEAVES]))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Drawn]:
    producer = draw(drawn_types())
    return widened(draw, producer.annotation), producer


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


def test_each_sample_that_fits_another_one_is_decoded_by_both_libraries() -> None:
    """All pairs, each in a class of msgspec's and in one of pydantic's."""
    classes = [
        [made(kind, {"a": each.annotation}) for each in SAMPLES] for kind in ("dataclass", "model")
    ]
    every = [cls for of_kind in classes for cls in of_kind]
    fitting = {
        producer: [each for each in every if fits(each, producer).answer is FITS]
        for producer in every
    }

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
                except Misfit:  # pydantic writes bytes as text, which not all are
                    continue
                for consumer in fitting[cls]:
                    codec_of(consumer).decode(stored, f"{consumer.__annotations__} of {value!r}")

    check()
    assert sum(map(len, fitting.values())) > 200


def test_whatever_fits_is_decoded() -> None:
    answers: Counter[Answer] = Counter()

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(pairs(), st.data())
    def check(pair: tuple[Any, Drawn], data: st.DataObject) -> None:
        consumer, producer = pair
        try:
            taken, made_by = codec_of(consumer), codec_of(producer.annotation)
        except Undecodable:
            assume(False)
        verdict = fits(consumer, producer.annotation).answer
        answers[verdict] += 1
        if verdict is not FITS:
            return
        for _ in range(3):
            value = data.draw(producer.values)
            try:
                plain = made_by.encode(value, "output")
            except Misfit:  # the attempt fails (E418), and nobody gets it
                continue
            taken.decode(as_stored(plain), "it")

    check()

    assert answers[FITS] > 50 and answers[MISFIT] > 20
