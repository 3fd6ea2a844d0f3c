"""
Dev watch: looks at a project's files, reloads the daemon, and says what that changed.

What is wrong is told by the daemon's log, which the same terminal shows.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any

from pgflowd.cli.app import App
from pgflowd.cli.daemon_client import ask, socket_path
from pgflowd.cli.local.local_daemon import wait_until_settled
from pgflowd.cli.problems import complain
from pgflowd.core.definition.shape import changes_between
from pgflowd.db import overview
from pgflowd.db.connection import connect
from pgflowd.db.query import execute as perform
from pgflowd.errors import ConfigError, PgflowdError, Problem

RELOAD_TIMEOUT_S = 120.0
LOOK_EVERY_MS = 500
_UNWATCHED = {".pgflowd", ".venv", "venv", "node_modules", ".git", "__pycache__"}
_SUFFIXES = {".py", ".toml"}


class Project:
    """The flows of a project as the daemon and its database know them."""

    def __init__(self, app: App, root: Path, dsn: str) -> None:
        self.app, self.root = app, root
        self.dsn = dsn
        self.slugs: list[str] = []
        self._shapes: dict[str, Any] = {}
        self._broken: list[str] = []

    def show(self, told: dict[str, Any]) -> None:
        """Say which flows there are; what is wrong with the others is in the log."""
        self._remember(flow["slug"] for flow in told["flows"] if flow["state"] == "up")
        for number, slug in enumerate(self.slugs):
            steps = len(self._shapes[slug]["steps"])
            start = "  flows    " if number == 0 else " " * 11
            self.app.print(f"{start}{slug}   {steps} step{'s' * (steps != 1)}")
        sys.stdout.flush()

    def reload(self, changed: list[str], process: subprocess.Popen[bytes]) -> None:
        """Let the daemon read everything anew; say what became of it."""
        before, runs = self._shapes, self._count_runs()
        began = time.monotonic()
        said = ask(self.app, "reload", RELOAD_TIMEOUT_S)
        if said.get("error"):
            self._say(f"{_listed(changed)} changed: not reloaded, {said['error']}")
            return
        told = wait_until_settled(process, socket_path(self.app))
        took_s = time.monotonic() - began
        self._remember(flow["slug"] for flow in told["flows"] if flow["state"] == "up")
        news = [f"{name} {word}" for word, name in _news(said)]
        whole = [name for name in self._broken if name not in said["broken"]]
        news += [f"{name} is no longer broken" for name in whole]
        self._broken = said["broken"]
        news = news or ["nothing to do"]
        self._say(f"{_listed(changed)} changed: {', '.join(news)} ({took_s:.1f} s)")
        for slug in self.slugs:
            if slug in before and before[slug] != self._shapes[slug]:
                self._say_recreated(slug, before[slug], runs.get(slug, 0))

    def wait_for_better(self, changes: Changes) -> None:
        """Nothing can be served, as the log has told; wait for a change and a sound config."""
        problems: list[Problem] = []
        while True:
            self.complain(problems)
            self._say("nothing can be served; waiting for a change")
            while not (changed := changes.next()):
                pass
            self._say(f"{_listed(changed)} changed: trying again")
            self.app.forget_settings()
            try:
                self.app.settings  # noqa: B018 - read here, so that what is wrong ends nothing
                return
            except ConfigError as error:
                problems = list(error.problems)

    def _say_recreated(self, slug: str, before: Any, runs: int) -> None:
        what = "; ".join(changes_between(before, self._shapes[slug]))
        deleted = "its run is deleted" if runs == 1 else f"its {runs} runs are deleted"
        self._say(f"{slug}: shape changed ({what}); created anew, {deleted}.")
        advice = f"Production refuses this: a new shape needs a new slug, such as {slug}_2"
        self.app.print(self.app.out.folded(f"         {advice}"))

    def _remember(self, slugs: Iterable[str]) -> None:
        with connect(self.dsn, name="pgflowd dev") as connection:
            shapes = {slug: perform(connection, overview.flow_shape(slug)) for slug in slugs}
        self._shapes = {slug: shape for slug, shape in shapes.items() if shape}
        self.slugs = list(self._shapes)

    def _count_runs(self) -> dict[str, int]:
        with connect(self.dsn, name="pgflowd dev") as connection:
            rows = perform(connection, overview.list_runs(most=10_000))
        counted: dict[str, int] = {}
        for row in rows:
            counted[row.flow_slug] = counted.get(row.flow_slug, 0) + 1
        return counted

    def complain(self, problems: Iterable[Problem]) -> None:
        if found := list(problems):
            complain(self.app, found)

    def _say(self, text: str) -> None:
        self.app.print(self.app.out.folded(f"{time.strftime('%H:%M:%S')} {text}"))
        sys.stdout.flush()


def follow_changes(
    project: Project, process: subprocess.Popen[bytes], changes: Changes | None
) -> None:
    """Reload at each change, until the daemon ends."""
    if changes is None:
        process.wait()
        return
    while process.poll() is None:
        if changed := changes.next():
            try:
                project.reload(changed, process)
            except PgflowdError as error:  # the database or the daemon may come back
                project.complain(error.problems)


class Changes:
    """The files that changed, as a thread sees them."""

    def __init__(self, root: Path) -> None:
        self._found: Queue[list[str]] = Queue()
        self._is_looking, self._end = Event(), Event()
        self._trouble: Exception | None = None
        self._thread = Thread(target=self._look, args=(root,), daemon=True)

    def begin(self) -> None:
        """Return when it looks, so that nothing is missed from then on."""
        self._thread.start()
        self._is_looking.wait()

    def end(self) -> None:
        self._end.set()
        self._thread.join()

    def next(self) -> list[str]:
        """What has changed; nothing, if nothing has for half a second.

        Raises what keeps us from looking, such as too few watches of the kernel.
        """
        if self._trouble is not None:
            raise self._trouble
        try:
            return self._found.get(timeout=LOOK_EVERY_MS / 1000)
        except Empty:
            return []

    def _look(self, root: Path) -> None:
        try:
            for changed in _changes(root, self._end):
                self._is_looking.set()
                if changed:
                    self._found.put(changed)
        except Exception as trouble:
            self._trouble = trouble
        finally:
            self._is_looking.set()


@contextmanager
def watching(root: Path, *, wanted: bool) -> Iterator[Changes | None]:
    """Look at the project's files until the block is left."""
    if not wanted:
        yield None
        return
    changes = Changes(root)
    changes.begin()
    try:
        yield changes
    finally:
        changes.end()


def _changes(root: Path, end: Event) -> Iterator[list[str]]:
    """Yield the files that changed, and nothing now and then."""
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
        rust_timeout=LOOK_EVERY_MS,
        yield_on_timeout=True,
        stop_event=end,
    ):
        yield sorted({str(Path(path).relative_to(root)) for _, path in changes})


def _listed(files: list[str]) -> str:
    return ", ".join(files[:3]) + (", …" if len(files) > 3 else "")


def _news(said: dict[str, Any]) -> Iterator[tuple[str, str]]:
    words = {"changed": "reloaded", "new": "added", "gone": "removed", "broken": "is broken",
             "retried": "tried again"}  # fmt: skip
    for key, word in words.items():
        for name in said.get(key) or []:
            yield word, name
