"""
Whether what one step returns fits what another one takes: by structure, with three answers.

`fits` means that every value of the producer, encoded, is decoded as the consumer. What cannot be
known is `UNKNOWN`, and nobody hears of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pgflowd.core.typed.annotations import contents, type_name
from pgflowd.core.typed.structure import (
    Anything,
    Array,
    Limited,
    Member,
    OneOf,
    Opaque,
    Record,
    Scalar,
    Structure,
    Table,
    Tuple,
    Typed,
    Values,
    structure_of,
)


class Answer(Enum):
    FITS = "fits"
    MISFIT = "does not fit"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Judgement:
    answer: Answer
    why: str = ""  # of a misfit


FITS, UNKNOWN = Judgement(Answer.FITS), Judgement(Answer.UNKNOWN)

_TEXTS = {"str", "datetime", "date", "time", "timedelta", "uuid", "decimal", "bytes", "path"}
_KEYS = {"str", "int", "uuid", "date"}  # that are decoded from keys just as from values
_OWN_TEXTS = {"bytes", "timedelta"}  # each library writes them in its own way: base64, P365D or P1Y
_NUMBERS_FIT = {("float", "int"), ("decimal", "int"), ("decimal", "float")}


def fits(consumer: Any, producer: Any) -> Judgement:
    """Whether each value of the producer's annotation is one of the consumer's."""
    taken = Typed(consumer, bool(contents(consumer).of_pydantic))
    given = Typed(producer, bool(contents(producer).of_pydantic))
    return _compare(taken, given, [])


def _compare(taken: Typed, given: Typed, above: list[tuple[Any, Any]]) -> Judgement:
    pair = (taken, given)
    if pair in above:  # recursive types: it is decided further up
        return FITS
    consumer = structure_of(taken, of_output=False)
    producer = structure_of(given, of_output=True)
    found = _compared(taken, consumer, given, producer, [*above, pair])
    is_same = taken == given and not isinstance(producer, Anything)
    return FITS if is_same and found.answer is Answer.UNKNOWN else found


def _compared(
    taken: Typed,
    consumer: Structure,
    given: Typed,
    producer: Structure,
    above: list[tuple[Any, Any]],
) -> Judgement:
    if isinstance(consumer, Anything):
        return FITS
    if isinstance(consumer, Opaque) or isinstance(producer, Anything | Opaque):
        return UNKNOWN
    if isinstance(producer, OneOf):
        return _all(_compare(taken, each, above) for each in producer.types)
    if isinstance(consumer, OneOf):
        return _any([_compare(each, given, above) for each in consumer.types])
    if isinstance(consumer, Limited):
        inner = _compare(consumer.type, given, above)
        return UNKNOWN if inner.answer is Answer.FITS else inner
    other = Judgement(
        Answer.MISFIT, f"{type_name(given.annotation)} is not {type_name(taken.annotation)}"
    )
    if isinstance(consumer, Scalar | Values) and isinstance(producer, Scalar | Values):
        return _scalars(taken, consumer, given, producer, other)
    found = _containers(consumer, producer, other, above)
    return UNKNOWN if isinstance(consumer, Record) and consumer.may_accept else found


def _containers(
    consumer: Structure, producer: Structure, other: Judgement, above: list[tuple[Any, Any]]
) -> Judgement:
    match consumer, producer:
        case Record(), Record():
            return _records(consumer, producer, above)
        case Table(), Table():
            return _tables(consumer, producer, above)
        case Table(), Record():
            found = _all(_compare(consumer.value, each.type, above) for each in producer.members)
            takes_all = isinstance(structure_of(consumer.value, of_output=False), Anything)
            return found if takes_all or found.answer is Answer.MISFIT else UNKNOWN
        case Array(), Array():
            return _arrays(consumer, producer.element, above)
        case Array(), Tuple():
            return _all(_arrays(consumer, each, above) for each in producer.elements)
        case Tuple(), Tuple():
            return _tuples(consumer, producer, other, above)
        case (Record(), Table()) | (Tuple(), Array()):
            return UNKNOWN
    return other


def _records(consumer: Record, producer: Record, above: list[tuple[Any, Any]]) -> Judgement:
    offered = {name: each for each in producer.members for name in each.names}
    found = [_member(each, offered, producer, above) for each in consumer.members]
    if consumer.tag != producer.tag and consumer.tag is not None:
        found.append(UNKNOWN)
    if consumer.is_closed:
        known = {name for each in consumer.members for name in each.names}
        more = [
            name
            for name, each in offered.items()
            if name not in known | {(consumer.tag or ("",))[0]}
        ]
        why = f"field '{more[0]}' is refused" if more else ""
        is_sure = more and not offered[more[0]].may_be_missing
        found.append(Judgement(Answer.MISFIT, why) if is_sure else UNKNOWN)
    verdict = _all(found)
    return UNKNOWN if consumer.may_refuse and verdict.answer is Answer.FITS else verdict


def _member(
    taken: Member, offered: dict[str, Member], producer: Record, above: list[tuple[Any, Any]]
) -> Judgement:
    name = next((each for each in taken.names if each in offered), None)
    if name is None:
        if producer.has_more or (producer.tag and producer.tag[0] in taken.names):
            return UNKNOWN
        why = f"field '{taken.names[0]}' is missing"
        return Judgement(Answer.MISFIT, why) if taken.is_required else FITS
    given = offered[name]
    if given.may_be_missing and taken.is_required:
        return Judgement(Answer.MISFIT, f"field '{name}' may be missing")
    found = _compare(taken.type, given.type, above)
    if found.answer is Answer.MISFIT:
        return Judgement(Answer.MISFIT, f"field '{name}': {found.why}")
    return found


def _tables(consumer: Table, producer: Table, above: list[tuple[Any, Any]]) -> Judgement:
    values = _compare(consumer.value, producer.value, above)
    taken = structure_of(consumer.key, of_output=False)
    given = structure_of(producer.key, of_output=True)
    is_text = taken in (Scalar("str"), Anything())
    is_known = isinstance(taken, Scalar) and taken == given and taken.kind in _KEYS
    return values if is_text or is_known else _all([values, UNKNOWN])


def _arrays(consumer: Array, element: Typed, above: list[tuple[Any, Any]]) -> Judgement:
    found = _compare(consumer.element, element, above)
    if found.answer is Answer.MISFIT:
        return Judgement(Answer.MISFIT, f"an element: {found.why}")
    inside = structure_of(consumer.element, of_output=False)
    has_hash = not consumer.is_set or isinstance(inside, Scalar | Values)
    return found if has_hash else UNKNOWN


def _tuples(
    consumer: Tuple, producer: Tuple, other: Judgement, above: list[tuple[Any, Any]]
) -> Judgement:
    if not consumer.required <= len(producer.elements) <= len(consumer.elements):
        return other
    pairs = zip(consumer.elements, producer.elements, strict=False)
    return _all(_compare(taken, given, above) for taken, given in pairs)


def _scalars(
    taken: Typed,
    consumer: Scalar | Values,
    given: Typed,
    producer: Scalar | Values,
    other: Judgement,
) -> Judgement:
    may_convert = taken.by_pydantic  # which makes an int of "3"
    if isinstance(producer, Values):
        if isinstance(consumer, Scalar):
            kinds = {_kind(value) for value in producer.values}
            each = [_kinds(consumer.kind, kind, other, may_convert) for kind in sorted(kinds)]
            return _all(each)
        known = {(type(value), value) for value in consumer.values}
        if all((type(value), value) in known for value in producer.values):
            return FITS
        return UNKNOWN if consumer.is_open or may_convert else other
    if isinstance(consumer, Values):
        kinds = {_kind(value) for value in consumer.values}
        is_near = may_convert or any(
            producer.kind == kind or (kind == "str" and producer.kind in _TEXTS) for kind in kinds
        )
        return UNKNOWN if is_near or consumer.is_open else other
    is_same = consumer.kind == producer.kind
    if is_same and consumer.kind in _OWN_TEXTS and taken.by_pydantic != given.by_pydantic:
        return UNKNOWN
    return _kinds(consumer.kind, producer.kind, other, may_convert)


def _kinds(taken: str, given: str, other: Judgement, may_convert: bool) -> Judgement:
    """Whether the JSON of one scalar is decoded as another one."""
    if taken == given or (taken, given) in _NUMBERS_FIT:
        return FITS
    if "null" in (taken, given):
        return other
    if given in _TEXTS and taken in ("str", "path"):
        return FITS
    if (
        may_convert
        or (given in ("str", "path", "bytes") and taken in _TEXTS)
        or (taken == "bytes" and given in _TEXTS)
    ):
        return UNKNOWN
    return other


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return next(kind.__name__ for kind in (bool, int, str) if isinstance(value, kind))


def _all(found: Iterable[Judgement]) -> Judgement:
    """The verdict for what must fit in each part."""
    verdicts = list(found)
    for answer in (Answer.MISFIT, Answer.UNKNOWN):
        for each in verdicts:
            if each.answer is answer:
                return each
    return FITS


def _any(verdicts: list[Judgement]) -> Judgement:
    """The verdict for what must fit in one part."""
    for answer in (Answer.FITS, Answer.UNKNOWN):
        for each in verdicts:
            if each.answer is answer:
                return each
    return next((each for each in verdicts if "field" in each.why), verdicts[0])
