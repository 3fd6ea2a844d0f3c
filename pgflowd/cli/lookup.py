"""
Finds the runs, flows, tasks, daemons and workers that the words of a command name.

RUN is an id, its last digits, `@last`, or `@last:FLOW`; TASK is `RUN/STEP#INDEX`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from pgflowd.core import lookup
from pgflowd.core.documents.flows import TaskKey

if TYPE_CHECKING:
    import psycopg

    from pgflowd.core.documents.daemons import ListedDaemon
    from pgflowd.errors import UnknownFlow

_TASK = re.compile(r"(?P<run>[^/]+)/(?P<step>[A-Za-z_]\w*)#(?P<index>\d{1,9})")


def check_run_word(text: str) -> None:
    """Raise UsageError for a word that cannot name a run."""
    with _as_usage():
        lookup.check_run_word(text)


def check_task_word(text: str) -> re.Match[str]:
    """Return the parts of a word for a task. UsageError if it cannot name one."""
    match = _TASK.fullmatch(text)
    if match is None:
        raise click.UsageError(f"'{text}' is not a task: write RUN/STEP#INDEX, such as @last/sum#0")
    check_run_word(match["run"])
    return match


def find_run(conn: psycopg.Connection[Any], text: str) -> UUID:
    """The id of the run that a word names."""
    from pgflowd.db import run_search as stored

    with _as_usage():
        return stored.find_run(conn, text)


def find_runs(conn: psycopg.Connection[Any], texts: Iterable[str]) -> list[UUID]:
    """The ids of the runs that words name, each once."""
    return list(dict.fromkeys(find_run(conn, text) for text in texts))


def find_task(conn: psycopg.Connection[Any], text: str) -> TaskKey:
    """The key of the task that a word such as `7f3a9c12/summary#0` names."""
    match = check_task_word(text)
    return TaskKey(find_run(conn, match["run"]), match["step"], int(match["index"]))


def flow_slugs(conn: psycopg.Connection[Any]) -> list[str]:
    """The slugs of all flows in the database; none if the role may not read them."""
    from pgflowd.db import run_search as stored

    return stored.flow_slugs(conn)


def unknown_to(conn: psycopg.Connection[Any], slug: str) -> UnknownFlow:
    """The error about a flow that the database does not have."""
    return lookup.unknown_flow(slug, flow_slugs(conn))


def find_daemon(daemons: Sequence[ListedDaemon], text: str) -> ListedDaemon:
    """The daemon that a word names."""
    with _as_usage():
        return lookup.find_daemon(daemons, text)


def check_worker_word(text: str) -> None:
    """Raise UsageError for a word that cannot name a worker."""
    with _as_usage():
        lookup.check_worker_word(text)


def find_worker(read: Callable[[], Sequence[ListedDaemon]], text: str) -> UUID:
    """The id of the worker that a word names. A whole id is not looked up."""
    with _as_usage():
        return lookup.run_id_of(text) or lookup.find_worker(read(), text)


@contextmanager
def _as_usage() -> Iterator[None]:
    """A word that names no run is a fault of the command line."""
    try:
        yield
    except lookup.UnclearWord as error:
        raise click.UsageError(error.text) from error
