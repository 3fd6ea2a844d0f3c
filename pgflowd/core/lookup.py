"""
The words that name runs, daemons and workers, and the errors about names that nothing has, with the
nearest known one.

RUN is an id, its last digits, `@last`, or `@last:FLOW`. DAEMON is NAME@HOST, one of both, an id,
or its last digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from pgflowd.core.text import did_you_mean, short_id
from pgflowd.errors import NotFound, PgflowdError, UnknownFlow

if TYPE_CHECKING:
    from pgflowd.core.documents.daemons import ListedDaemon
    from pgflowd.core.documents.runs import RunWithStates

LAST = "@last"  # the newest run that somebody has started; with :FLOW the newest of that flow
_LAST_OF = re.compile(r"@last:([a-zA-Z_][a-zA-Z0-9_]*)")
_DIGITS = re.compile(r"[0-9a-f-]{1,36}")


class UnclearWord(PgflowdError):
    """A word that cannot name anything, or that fits several things."""


def check_run_word(text: str) -> None:
    """Raise UnclearWord for a word that cannot name a run."""
    if not (run_id_of(text) or is_last(text) or _DIGITS.fullmatch(digits_of(text))):
        problem = f"'{text}' is not a run: give an id, its last digits, or {LAST}"
        raise UnclearWord(problem, code="E506")


def is_last(text: str) -> bool:
    """Whether a word means the newest run, of all flows or of one."""
    return text == LAST or _LAST_OF.fullmatch(text) is not None


def flow_of_last(text: str) -> str | None:
    """The flow whose newest run a word means."""
    match = _LAST_OF.fullmatch(text)
    return match[1] if match else None


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
    listed = f"see `pgflowd flows list`; `pgflowd flows deploy {slug}` adds it if your code has it"
    remedy = did_you_mean(slug, known) or otherwise or listed
    return UnknownFlow(f"there is no flow '{slug}' in the database", next=remedy)


def unknown_schedule(name: str, known: Iterable[str]) -> NotFound:
    """The error about an unknown schedule, with the nearest name."""
    remedy = did_you_mean(name, known) or "see `pgflowd schedules list`"
    return NotFound(f"there is no schedule '{name}'", next=remedy)


def find_daemon(daemons: Sequence[ListedDaemon], text: str) -> ListedDaemon:
    """The daemon that a word names; of several the one that is not silent."""
    digits = digits_of(text)
    found = [
        each
        for each in daemons
        if text in (each.place, each.name, each.host)
        or (_DIGITS.fullmatch(digits) and str(each.daemon_id).endswith(digits))
    ]
    if not found:
        known = [name for each in daemons for name in (each.place, each.name, each.host)]
        remedy = did_you_mean(text, known) or "see `pgflowd daemons list -v`"
        raise NotFound(f"there is no daemon '{text}'", next=remedy)
    living = [each for each in found if not each.is_silent]
    chosen = living or found
    if len(chosen) > 1:
        listed = ", ".join(f"{each.place} {each.daemon_id}" for each in chosen)
        raise UnclearWord(f"'{text}' fits more than one daemon: {listed}", code="E506")
    return chosen[0]


def check_worker_word(text: str) -> None:
    """Raise UnclearWord for a word that cannot name a worker."""
    if not (run_id_of(text) or _DIGITS.fullmatch(digits_of(text))):
        raise UnclearWord(f"'{text}' is not a worker: give an id, or its last digits", code="E506")


def find_worker(daemons: Sequence[ListedDaemon], text: str) -> UUID:
    """The id of the worker of a daemon that ends with these digits."""
    ids = [str(flow.get("worker_id") or "") for each in daemons for flow in each.flows]
    found = sorted({one for one in ids if one.endswith(digits_of(text)) and run_id_of(one)})
    if not found:
        remedy = "see `pgflowd daemons list -v`"
        raise NotFound(f"no daemon has told of a worker {text}", next=remedy)
    if len(found) > 1:
        problem = f"'{text}' fits more than one worker: {', '.join(found)}; give more digits"
        raise UnclearWord(problem, code="E506")
    return UUID(found[0])
