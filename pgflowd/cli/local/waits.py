"""
Tells what the daemon of `pgflowd dev` waits for: imports, starts, and running tasks.

A thread reads the daemon's status while a command waits for the daemon, and prints a line when that
waits for another kind of thing. What is over soon is not told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from pgflowd.cli.app import App
from pgflowd.core.supervision.lifecycle import ChildState
from pgflowd.core.text import counted, duration

Status = dict[str, Any]

LONG_S = 2.0  # an ordinary start or reload is over by then
STOP_S = 0.5  # an end without running tasks is
POLL_S = 0.5
_STARTING = {ChildState.STARTING.value, ChildState.RESTARTING.value}


def print_time(app: App, text: str) -> None:
    head = f"{time.strftime('%H:%M:%S')} "
    for line in app.out.wrapped(text, head=head, indent=len(head)):
        app.print(line)


@contextmanager
def telling(
    app: App, socket: Path, what: Callable[[Status], str], after_s: float = LONG_S
) -> Iterator[None]:
    """Tell what is waited for, as long as the block takes."""
    ended = Event()
    thread = Thread(target=_tell, args=(app, socket, what, after_s, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _tell(
    app: App, socket: Path, what: Callable[[Status], str], pause_s: float, ended: Event
) -> None:
    from pgflowd.host import control

    told = ""
    while not ended.wait(pause_s):
        pause_s = POLL_S
        with suppress(OSError, ValueError):
            text = what(control.ask(socket, "status", 1.0))
            kind = text.partition(" ")[0]
            if kind not in ("", told) and not ended.is_set():
                print_time(app, text)
            told = kind


def of_start(entries: Sequence[str]) -> Callable[[Status], str]:
    """What a start waits for; `entries` are the modules of the config."""

    def what(status: Status) -> str:
        starting = [flow["slug"] for flow in status["flows"] if flow["state"] in _STARTING]
        if not status["flows"]:
            return f"importing {', '.join(entries)} …"
        return f"starting {', '.join(starting)} …" if starting else ""

    return what


def of_reload(status: Status) -> str:
    """What a reload waits for."""
    draining = [flow for flow in status["flows"] if flow["state"] == ChildState.DRAINING]
    starting = [flow["slug"] for flow in status["flows"] if flow["state"] in _STARTING]
    if tasks := _tasks_of(draining):
        return f"waiting for {tasks} with the old code …"
    return f"starting {', '.join(starting)} …" if starting else "importing the changed code …"


@contextmanager
def telling_the_end(app: App, socket: Path, limit_s: float) -> Iterator[None]:
    """Tell what the end waits for; `limit_s` is the longest time that it gives running tasks."""

    def what(status: Status) -> str:
        tasks = _tasks_of(status["flows"])
        limit = f"at most {duration(limit_s)}"
        return f"waiting for {tasks}, {limit}; Ctrl-C again stops now" if tasks else ""

    try:
        with telling(app, socket, what, STOP_S):
            yield
    except KeyboardInterrupt:
        print_time(app, "stopping now; running tasks are given back")
        raise


def _tasks_of(flows: Sequence[dict[str, Any]]) -> str:
    running = {flow["slug"]: flow["running"] for flow in flows if flow["running"]}
    return ", ".join(f"{counted(each, 'task')} of {slug}" for slug, each in running.items())
