"""
`assert_started` and `assert_not_started`: which runs the tested code has asked for.

    run = assert_started(pgflow_db, "orders", input_contains={"customer": 7})

The first argument is the fixture `pgflow_db`, or whatever a client is made of: a URL, or the
connection of a test whose transaction is not committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pgflowd.core.documents.runs import Run
from pgflowd.core.json import as_stored, dumps

if TYPE_CHECKING:
    from pgflowd.client import Client

MAX_RUNS = 1000  # of a flow, that are looked at
MAX_LISTED = 10  # in a failure
MAX_CHARS = 200  # of a value there
ANY: Any = object()  # a run with whatever input


def assert_started(db: Any, flow_slug: str, *, input_contains: Any = ANY, count: int = 1) -> Run:
    """
    Return the newest run of a flow, if `count` of its runs have such an input; else fail.

    `input_contains`: the input, or if that is an object, keys and values that it has among others.
    """
    __tracebackhide__ = True
    runs = _runs(db, flow_slug)
    found = [run for run in runs if not list(_differences(input_contains, run.input))]
    if count < 1:
        raise ValueError("count is 1 or more; there is assert_not_started, too")
    if len(found) != count:
        wanted = f"expected {count} run{'s' if count > 1 else ''} of flow '{flow_slug}'"
        wanted += "" if input_contains is ANY else f" whose input contains {_shown(input_contains)}"
        lines = [f"{wanted}, found {len(found)}"]
        if not runs:
            raise AssertionError(f"{lines[0]}; the flow has no runs at all")
        lines += [f"its runs, newest first ({len(runs)}):", *map(_line, runs[:MAX_LISTED])]
        if input_contains is not ANY and not found:
            nearest = min(runs, key=lambda run: len(list(_differences(input_contains, run.input))))
            lines.append(f"nearest: {nearest.run_id}, which differs in")
            lines += [f"  {each}" for each in _differences(input_contains, nearest.input)]
        raise AssertionError("\n".join(lines))
    return found[0]


def assert_not_started(db: Any, flow_slug: str, *, input_contains: Any = ANY) -> None:
    """Fail if a run of a flow was started, or one whose input has these keys and values."""
    __tracebackhide__ = True
    runs = _runs(db, flow_slug)
    found = [run for run in runs if not list(_differences(input_contains, run.input))]
    if found:
        of_input = "" if input_contains is ANY else f" with {_shown(input_contains)}"
        listed = "\n".join(map(_line, found[:MAX_LISTED]))
        raise AssertionError(f"flow '{flow_slug}' was started{of_input}:\n{listed}")


def _runs(db: Any, flow_slug: str) -> list[Run]:
    """The runs of a flow, newest first."""
    from pgflowd.db.operations import as_operation
    from pgflowd.db.runs import started_runs

    return _client_of(db)._perform(as_operation(started_runs(flow_slug, MAX_RUNS)))


def deploy(db: Any, *flows: Any) -> None:
    """Create flows and jobs in the transaction of a test, so that their runs can be started."""
    from pgflowd.db.definitions import defining
    from pgflowd.db.operations import Operation
    from pgflowd.testing.drain import flows_of

    def operation() -> Operation[None]:
        for flow in flows_of(flows):
            yield defining(flow.slug, flow.shape())

    _client_of(db)._perform(operation())


def _client_of(db: Any) -> Client:
    from pgflowd.client import Client

    if isinstance(db, Client):
        return db
    of_fixture = getattr(db, "client", None)
    return of_fixture if isinstance(of_fixture, Client) else Client(db)


def _line(run: Run) -> str:
    return f"  {run.run_id} {run.status} {_shown(run.input)}"


def _shown(value: Any) -> str:
    text = dumps(value)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"


def _differences(wanted: Any, given: Any, place: str = "input") -> Iterator[str]:
    """What an input does not have that it should."""
    if wanted is ANY:
        return
    if place == "input":
        wanted = as_stored(wanted, what="input_contains")
    if isinstance(wanted, dict) and isinstance(given, dict):
        for key, value in wanted.items():
            if key not in given:
                yield f"{place}.{key} is missing, expected {_shown(value)}"
            else:
                yield from _differences(value, given[key], f"{place}.{key}")
    elif (type(wanted) is not type(given) and not _are_numbers(wanted, given)) or wanted != given:
        yield f"{place} is {_shown(given)}, expected {_shown(wanted)}"


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)
