"""
Watches a project's files, reloads the daemon after a change, and prints what the reload did.

Errors are in the daemon's log, which the same terminal shows.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any, Self

import click
import psycopg

from pgflowd.cli.app import App
from pgflowd.cli.daemon_client import NotRunning, ask, ask_to_reload, socket_path
from pgflowd.cli.local.children import of_reload, print_time, telling
from pgflowd.cli.problems import print_problems
from pgflowd.core.definition.shape import changes_between, undoable
from pgflowd.core.supervision.reload import ReloadResult
from pgflowd.core.supervision.tree import ChildState
from pgflowd.core.text import counted, duration
from pgflowd.db.connection import connect
from pgflowd.db.flows import compare, deploy, flow_shape
from pgflowd.db.query import execute
from pgflowd.db.runs import list_runs
from pgflowd.errors import ConfigError, PgflowdError
from pgflowd.processes.supervisor.discover import DiscoveredFlow, discover

POLL_MS = 500  # between two checks whether the daemon has ended
_UNWATCHED = {".pgflowd", ".venv", "venv", "node_modules", ".git", "__pycache__"}
_SUFFIXES = {".py", ".toml"}
_RESULTS = {
    "changed": "reloaded", "new": "added", "gone": "removed", "broken": "is broken",
    "retried": "started again",
}  # fmt: skip
_ENDS = {
    ReloadResult.PARKED: "is parked",
    ReloadResult.RESTARTING: "crashed at its start, and is tried again",
}


class Project:
    """The flows of a project, as the daemon serves them and the database defines them."""

    def __init__(self, app: App, root: Path, dsn: str) -> None:
        self.app, self.root = app, root
        self.dsn = dsn
        self.slugs: list[str] = []
        self._shapes: dict[str, Any] = {}
        self._broken: list[str] = []
        self.keeps_runs: bool | None = None  # when a shape changes; None: not asked yet

    def show(self, status: dict[str, Any]) -> None:
        """Print the flows that are served; errors of the others are in the log."""
        self._read_shapes(_flows_served(status))
        undo_flows = {flow["slug"] for flow in status["flows"] if flow["undoes"]}
        shown = [slug for slug in self.slugs if slug not in undo_flows]
        width = max(map(len, shown), default=0)
        for number, slug in enumerate(shown):
            start = "  flows    " if number == 0 else " " * 11
            steps = counted(len(self._shapes[slug]["steps"]), "step")
            undos = len(undoable(self._shapes[slug]))
            text = f"{slug:{width}}   {steps}{f', {undos} with undo' * bool(undos)}"
            for line in self.app.out.wrapped(text, head=start, indent=11):
                self.app.print(line)

    def reload(self, changed: list[str]) -> None:
        """Reload the daemon and print what changed.

        A flow that crashes at its start is not waited for: the next change may mend it.
        """
        before, runs = self._shapes, self._count_runs()
        self._keep_as_versions()
        began_at = time.monotonic()
        with telling(self.app, socket_path(self.app), of_reload):
            answer = ask_to_reload(self.app)
        if answer.get("error"):
            self._print_time(f"{_listed(changed)} changed: not reloaded, {answer['error']}")
            return
        took_s = time.monotonic() - began_at
        self._read_shapes(_flows_served(ask(self.app, "status")))
        ends = {flow["flow"]: _ENDS.get(flow["result"]) for flow in answer["flows"]}
        results = [
            f"{name} {ends.get(name) or text}"
            for key, text in _RESULTS.items()
            for name in answer.get(key, [])
        ]
        repaired = [name for name in self._broken if name not in answer["broken"]]
        results += [f"{name} is no longer broken" for name in repaired]
        self._broken = answer["broken"]
        results = results or ["nothing to do"]
        self._print_time(f"{_listed(changed)} changed: {', '.join(results)} ({duration(took_s)})")
        for slug in self.slugs:
            if slug in before and changes_between(before[slug], self._shapes[slug]):
                self._print_recreated(slug, before[slug], runs[slug])

    def wait_for_valid_config(self, changes: Changes) -> None:
        """Wait for a change after which the config is valid; the log has the errors."""
        while True:
            self._print_time("no flow can be served; waiting for a change")
            while not (changed := changes.next()):
                pass
            self._print_time(f"{_listed(changed)} changed: trying again")
            self.app.forget_settings()
            try:
                self.app.settings  # noqa: B018 - loads them here, where errors are caught
                return
            except ConfigError as error:
                print_problems(self.app, error.problems)

    def _keep_as_versions(self) -> None:
        """Make changed shapes versions, if that is the answer to the one question about it."""
        if self.keeps_runs is False or not sys.stdin.isatty():
            return
        try:
            settings = self.app.read_settings()  # the change may be one of the config
        except ConfigError:
            return  # the reload prints what is wrong
        flows = [flow for flow in discover(settings).flows if flow.shape is not None]
        with connect(self.dsn, name="pgflowd dev") as connection:
            changed = [flow for flow in flows if _is_changed(connection, flow)]
            if changed and self.keeps_runs is None:
                names = ", ".join(flow.slug for flow in changed)
                text = f"{names}: the shape has changed. Keep the runs, and make it a version?"
                self.keeps_runs = click.confirm(text, default=False, err=True)
            for flow in changed if self.keeps_runs else []:
                done = deploy(connection, flow.slug, flow.shape or {}, may_change=True)
                self._print_time(f"{flow.slug}: starts go to {done.flow_slug}")

    def _print_recreated(self, slug: str, before: Any, runs: int) -> None:
        changes = "; ".join(changes_between(before, self._shapes[slug]))
        lost = {0: "", 1: ", its run is deleted"}.get(runs, f", its {runs} runs are deleted")
        self._print_time(f"{slug}: shape changed ({changes}); recreated{lost}.")
        advice = "In production `pgflowd flows deploy` makes it the next version, and runs stay"
        self.app.print(self.app.out.folded(f"         {advice}"))

    def _read_shapes(self, slugs: Iterable[str]) -> None:
        with connect(self.dsn, name="pgflowd dev") as connection:
            shapes = {slug: execute(connection, flow_shape(slug)) for slug in slugs}
        self._shapes = {slug: shape for slug, shape in shapes.items() if shape}
        self.slugs = list(self._shapes)

    def _count_runs(self) -> Counter[str]:
        with connect(self.dsn, name="pgflowd dev") as connection:
            rows = execute(connection, list_runs(most=10_000))
        return Counter(row.flow_slug for row in rows)

    def _print_time(self, text: str) -> None:
        print_time(self.app, text)


def follow_changes(
    project: Project, process: subprocess.Popen[bytes], changes: Changes | None
) -> None:
    """Reload at each change, until the daemon ends, as it does when all its flows crash."""
    if changes is None:
        process.wait()
        return
    while process.poll() is None:
        if changed := changes.next():
            try:
                project.reload(changed)
            except NotRunning:
                process.wait()
            except PgflowdError as error:  # the database or the daemon may come back
                print_problems(project.app, error.problems)


def _is_changed(connection: psycopg.Connection[Any], flow: DiscoveredFlow) -> bool:
    found = compare(connection, flow.slug, flow.shape or {})
    return found.exists and found.is_new_version


class Changes:
    """Collects the files of a project that change during the block, in a thread."""

    def __init__(self, root: Path) -> None:
        self._found: Queue[list[str]] = Queue()
        self._is_watching, self._end = Event(), Event()
        self._error: Exception | None = None
        self._thread = Thread(target=self._watch, args=(root,), daemon=True)

    def __enter__(self) -> Self:
        """Start the thread, and return when it watches, so that no later change is missed."""
        self._thread.start()
        self._is_watching.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def next(self) -> list[str]:
        """The files that changed; none after half a second without a change.

        Raises the error that ended the thread, such as too few inotify watches.
        """
        if self._error is not None:
            raise self._error
        try:
            return self._found.get(timeout=POLL_MS / 1000)
        except Empty:
            return []

    def _watch(self, root: Path) -> None:
        try:
            for changed in _changes(root, self._end):
                self._is_watching.set()
                if changed:
                    self._found.put(changed)
        except Exception as error:
            self._error = error
        finally:
            self._is_watching.set()


def _flows_served(status: dict[str, Any]) -> list[str]:
    served = (ChildState.UP, ChildState.ASLEEP)
    return [flow["slug"] for flow in status["flows"] if flow["state"] in served]


def _changes(root: Path, end: Event) -> Iterator[list[str]]:
    """Yield lists of changed files; an empty list after each time without a change."""
    from watchfiles import DefaultFilter, watch

    class Ours(DefaultFilter):
        def __call__(self, change: Any, path: str) -> bool:
            inner = Path(path).relative_to(root)
            return (
                inner.suffix in _SUFFIXES
                and not _UNWATCHED.intersection(inner.parts)
                and super().__call__(change, path)
            )

    for changes in watch(
        root,
        watch_filter=Ours(),
        rust_timeout=POLL_MS,
        yield_on_timeout=True,
        stop_event=end,
    ):
        yield sorted({str(Path(path).relative_to(root)) for _, path in changes})


def _listed(files: list[str]) -> str:
    return ", ".join(files[:3]) + (", …" if len(files) > 3 else "")
