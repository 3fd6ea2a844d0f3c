"""
Finds the runs, flows and tasks that the words of a command name.

RUN is an id, its last digits, or `@last`; TASK is `RUN/STEP#INDEX`. An unknown name raises
E409 or E415, with the nearest known name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from pgflowd.core.documents.flows import TaskKey
from pgflowd.core.suggest import did_you_mean, nearest
from pgflowd.core.text import short_id
from pgflowd.errors import AccessDenied, NotFound, UnknownFlow

if TYPE_CHECKING:
    import psycopg

    from pgflowd.core.documents.runs import RunWithStates

LAST = "@last"
_DIGITS = re.compile(r"[0-9a-f-]{1,36}")
_TASK = re.compile(r"(?P<run>[^/]+)/(?P<step>[A-Za-z_]\w*)#(?P<index>\d{1,9})")


def check_run_word(text: str) -> None:
    """Raise UsageError for a word that cannot name a run."""
    if not (_uuid(text) or text == LAST or _DIGITS.fullmatch(_digits(text))):
        raise click.UsageError(f"'{text}' is not a run: give an id, its last digits, or {LAST}")


def check_task_word(text: str) -> re.Match[str]:
    """Return the parts of a word for a task. UsageError if it cannot name one."""
    match = _TASK.fullmatch(text)
    if match is None:
        raise click.UsageError(f"'{text}' is not a task: write RUN/STEP#INDEX, such as @last/sum#0")
    check_run_word(match["run"])
    return match


def find_run(conn: psycopg.Connection[Any], text: str) -> UUID:
    """The id of the run that a word names."""
    from pgflowd.db import runs
    from pgflowd.db.query import execute

    if whole := _uuid(text):
        return whole
    check_run_word(text)
    digits = "" if text == LAST else _digits(text).replace("-", "")
    found = execute(conn, runs.find_runs(digits, 3))
    if not found and text == LAST:
        raise NotFound("there are no runs", next="start one with `pgflowd runs start FLOW`")
    if not found:
        raise NotFound(
            f"there is no run {text} among the newest 100,000",
            next="see `pgflowd runs list`, or give its whole id",
        )
    if len(found) > 1 and text != LAST:
        ids = ", ".join(str(run_id) for run_id, _ in found)
        raise click.UsageError(f"'{text}' fits more than one run: {ids}; give more digits")
    return found[0][0]


def find_runs(conn: psycopg.Connection[Any], texts: Iterable[str]) -> list[UUID]:
    """The ids of the runs that words name, each once."""
    return list(dict.fromkeys(find_run(conn, text) for text in texts))


def find_task(conn: psycopg.Connection[Any], text: str) -> TaskKey:
    """The key of the task that a word such as `7f3a9c12/summary#0` names."""
    match = check_task_word(text)
    return TaskKey(find_run(conn, match["run"]), match["step"], int(match["index"]))


def refuse_unknown_step(run: RunWithStates, step: str | None) -> None:
    """Raise NotFound, with the nearest slug, if a step is given that the run lacks."""
    if step is not None and step not in run.steps:
        hint = did_you_mean(step, run.steps) or f"it has {', '.join(run.steps)}"
        raise NotFound(f"run {short_id(run.run_id)} has no step '{step}'", next=hint)


def unknown_flow(slug: str, known: Iterable[str], otherwise: str | None = None) -> UnknownFlow:
    """The error about an unknown flow, with the nearest slug or another remedy."""
    close = nearest(slug, known)
    listed = f"see `pgflowd flows list`; `pgflowd flows deploy {slug}` adds it if your code has it"
    otherwise = otherwise or listed
    remedy = f"did you mean '{close}'?" if close else otherwise
    return UnknownFlow(f"there is no flow '{slug}' in the database", next=remedy)


def unknown_schedule(name: str, known: Iterable[str]) -> NotFound:
    """The error about an unknown schedule, with the nearest name."""
    close = nearest(name, known)
    remedy = f"did you mean '{close}'?" if close else "see `pgflowd schedules list`"
    return NotFound(f"there is no schedule '{name}'", next=remedy)


def flow_slugs(conn: psycopg.Connection[Any]) -> list[str]:
    """The slugs of all flows in the database; none if the role may not read them."""
    from pgflowd.db.flows import flow_names
    from pgflowd.db.query import execute

    try:
        return execute(conn, flow_names())
    except AccessDenied:
        return []


def _digits(text: str) -> str:
    return text.lower().removeprefix("…")


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
