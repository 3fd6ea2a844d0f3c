"""
Calls the SQL function of a row of `core.verbs`, by the names of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from pgflowd.core.documents.schedules import Fired
from pgflowd.core.ids import run_id_of
from pgflowd.core.verbs import Argument, Kind, Returned, SignalReceipt, Target, Verb
from pgflowd.core.wishes import NEVER
from pgflowd.db.query import Query, Rows, only

MOMENT = "coalesce(%s::timestamptz, clock_timestamp() + make_interval(secs => %s::float8))"
_PLACES = {Kind.MOMENT: MOMENT, Kind.JSON: "%s::jsonb", Kind.WORDS: "%s::text[]",
           Kind.RUNS: "%s::uuid[]"}  # fmt: skip
_ACTOR = "actor => coalesce(%s::text, session_user)"
_REPEATED = "repeated"  # the answer to what had been done before


def calling(verb: Verb[Any], *target: Any, actor: str | None = None, **given: Any) -> Query[Any]:
    """
    The call of a verb's function; an argument that is not given is null, or false.

    Without an actor it is the user of the session.
    """
    if verb.target in (Target.RUN, Target.TASK):
        target = (run_id_of(target[0]), *target[1:])
    places = [f"{name} => %s" for name in verb.target.value]
    params = list(target)
    for each in verb.arguments:
        places.append(f"{each.name} => {_PLACES.get(each.kind, '%s')}")
        params += _values(each, given.pop(each.name, None))
    if given:
        raise TypeError(f"`{verb.command}` has no argument {', '.join(given)}")
    call = f"pgflowd.{verb.function}({', '.join([*places, _ACTOR])})"
    sql, read = _ANSWERS.get(verb.answer, ("select {call}", only))
    return Query(sql.format(call=call), [*params, actor], read)


def _values(argument: Argument, value: Any) -> list[Any]:
    """The parameters of an argument."""
    match argument.kind:
        case Kind.FLAG:
            return [bool(value)]
        case Kind.MOMENT:
            return [(value or NEVER).at, (value or NEVER).in_s]
        case Kind.DURATION:
            return [None if value is None else timedelta(seconds=value)]
        case Kind.WORDS:
            return [list(value) if value else None]
        case Kind.RUNS:
            return [None if value is None else list(value)]
    return [value]


_ANSWERS: dict[Returned, tuple[str, Callable[[Rows], Any]]] = {
    Returned.CHANGED: ("select {call}", lambda rows: only(rows) != _REPEATED),
    Returned.SIGNAL: ("select {call}, now()", lambda rows: SignalReceipt(*rows[0])),
    Returned.FIRED: (
        "select run_id::text, status from {call}",
        lambda rows: Fired(UUID(rows[0][0]), rows[0][1]),
    ),
}
