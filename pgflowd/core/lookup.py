"""
The words that name runs, and the errors about names that nothing has, with the nearest known one.

RUN is an id, its last digits, or `@last`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from pgflowd.core.suggest import did_you_mean, nearest
from pgflowd.core.text import short_id
from pgflowd.errors import NotFound, PgflowdError, UnknownFlow

if TYPE_CHECKING:
    from pgflowd.core.documents.runs import RunWithStates

LAST = "@last"
_DIGITS = re.compile(r"[0-9a-f-]{1,36}")


class UnclearRun(PgflowdError):
    """A word that cannot name a run, or that fits several."""


def check_run_word(text: str) -> None:
    """Raise UnclearRun for a word that cannot name a run."""
    if not (run_id_of(text) or text == LAST or _DIGITS.fullmatch(digits_of(text))):
        problem = f"'{text}' is not a run: give an id, its last digits, or {LAST}"
        raise UnclearRun(problem, code="E506")


def run_id_of(text: str) -> UUID | None:
    """The id that a word is; None if it is none."""
    try:
        return UUID(text)
    except ValueError:
        return None


def digits_of(text: str) -> str:
    """The last digits of a run that a word is."""
    return text.lower().removeprefix("…")


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
