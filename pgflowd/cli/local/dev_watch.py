"""
Watches a project's files, reloads the daemon after a change, and prints what the reload did.

Errors are in the daemon's log, which the same terminal shows.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any

import click

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
from pgflowd.processes.supervisor.discover import discover

POLL_MS = 500  # between two checks whether the daemon has ended
_UNWATCHED = {".pgflowd", ".venv", "venv", "node_modules", ".git", "__pycache__"}
_SUFFIXES = {".py", ".toml"}
Changes = Callable[[], list[str]]  # the files that changed
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
            self.app.print_lines(self.app.out.wrapped(text, head=start, indent=11))

    def reload(self, changed: list[str]) -> None:
        """Reload the daemon and print what changed.

        A flow that crashes at its start is not waited for: the next change may mend it.
        """
        before = self._shapes
        with connect(self.dsn, name="pgflowd dev") as connection:
            rows = execute(connection, list_runs(most=10_000))
        runs = Counter(row.flow_slug for row in rows)
        self._keep_as_versions()
        began_at = time.monotonic()
        with telling(self.app, socket_path(self.app), of_reload):
            answer = ask_to_reload(self.app)
        if answer.get("error"):
            print_time(self.app, f"{_listed(changed)} changed: not reloaded, {answer['error']}")
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
        print_time(
            self.app, f"{_listed(changed)} changed: {', '.join(results)} ({duration(took_s)})"
        )
        for slug in self.slugs:
            if slug in before and changes_between(before[slug], self._shapes[slug]):
                changes = "; ".join(changes_between(before[slug], self._shapes[slug]))
                lost = {0: "", 1: ", its run is deleted"}
                gone = lost.get(runs[slug], f", its {runs[slug]} runs are deleted")
                print_time(self.app, f"{slug}: shape changed ({changes}); recreated{gone}.")
                makes = "In production `pgflowd flows deploy` makes it the next version"
                self.app.print(self.app.out.folded(f"         {makes}, and runs stay"))

    def wait_for_valid_config(self, changes: Changes) -> None:
        """Wait for a change after which the config is valid; the log has the errors."""
        while True:
            print_time(self.app, "no flow can be served; waiting for a change")
            while not (changed := changes()):
                pass
            print_time(self.app, f"{_listed(changed)} changed: trying again")
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
            compared = [compare(connection, flow.slug, flow.shape or {}) for flow in flows]
            pairs = zip(flows, compared, strict=True)
            changed = [flow for flow, found in pairs if found.exists and found.is_new_version]
            if changed and self.keeps_runs is None:
                names = ", ".join(flow.slug for flow in changed)
                text = f"{names}: the shape has changed. Keep the runs, and make it a version?"
                self.keeps_runs = click.confirm(text, default=False, err=True)
            for flow in changed if self.keeps_runs else []:
                done = deploy(connection, flow.slug, flow.shape or {}, may_change=True)
                print_time(self.app, f"{flow.slug}: starts go to {done.flow_slug}")

    def _read_shapes(self, slugs: Iterable[str]) -> None:
        with connect(self.dsn, name="pgflowd dev") as connection:
            shapes = {slug: execute(connection, flow_shape(slug)) for slug in slugs}
        self._shapes = {slug: shape for slug, shape in shapes.items() if shape}
        self.slugs = list(self._shapes)


def follow_changes(project: Project, process: subprocess.Popen[bytes], changes: Changes) -> None:
    """Reload at each change, until the daemon ends, as it does when all its flows crash."""
    while process.poll() is None:
        if changed := changes():
            try:
                project.reload(changed)
            except NotRunning:
                process.wait()
            except PgflowdError as error:  # the database or the daemon may come back
                print_problems(project.app, error.problems)


@contextmanager
def watched(root: Path) -> Iterator[Changes]:
    """
    Watch the files of a project in a thread during the block. Yields a function that returns those
    that changed, none after half a second without a change, and raises the error that ended the
    thread, such as too few inotify watches.
    """
    found: Queue[list[str] | Exception] = Queue()
    end = Event()

    def watch() -> None:
        try:
            for changed in _changes(root, end):
                found.put(changed)
        except Exception as error:
            found.put(error)

    def changes() -> list[str]:
        try:
            changed = found.get(timeout=POLL_MS / 1000)
        except Empty:
            return []
        if isinstance(changed, Exception):
            raise changed
        return changed

    thread = Thread(target=watch, daemon=True)
    thread.start()
    found.put(found.get())  # it watches now, so that no later change is missed
    try:
        yield changes
    finally:
        end.set()
        thread.join()


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

    options: dict[str, Any] = {"rust_timeout": POLL_MS, "yield_on_timeout": True}
    for changes in watch(root, watch_filter=Ours(), stop_event=end, **options):
        yield sorted({str(Path(path).relative_to(root)) for _, path in changes})


def _listed(files: list[str]) -> str:
    return ", ".join(files[:3]) + (", …" if len(files) > 3 else "")
