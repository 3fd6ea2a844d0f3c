"""
`pgflowd demo`: runs four example flows in a real daemon, on an embedded PostgreSQL.

The data are in a directory below the current one, or in a temporary one if that cannot be
written. At the end they are removed, unless `--keep` is given.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import click
import psycopg

from pgflowd import __version__
from pgflowd.cli.app import App
from pgflowd.cli.local import children
from pgflowd.cli.terminal.screen import BAR
from pgflowd.client import Client
from pgflowd.core.documents.runs import Run
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.settings.load import MAX_SOCKET_PATH_BYTES, toml_value
from pgflowd.core.statuses import Marks, RunStatus
from pgflowd.core.text import between, duration
from pgflowd.db import schema
from pgflowd.db.connection import connect
from pgflowd.db.query import execute
from pgflowd.db.runs import attempts, run_steps
from pgflowd.embedded import EmbeddedPostgres

DIRECTORY = Path(".pgflowd", "demo")
CONFIG = """\
# The demo's configuration, for the commands it suggests.
[pgflowd]
name  = "demo"
flows = ["pgflowd.examples.analyze_website", "pgflowd.examples.resize_images",
         "pgflowd.examples.flaky_payment", "pgflowd.examples.undone_payment"]
[database]
url = "file:url"
[supervisor]
control = {control}
[logging]
format = "text"
"""
OWN_SERVER = "the demo has a PostgreSQL of its own; `pgflowd dev` takes --database-url"
_LAST_LINES = 2  # of the daemon's log, in the error that it did not start
RUN_TIMEOUT_S = 60.0  # the runs need about 5 s
POLL_S = 0.1  # often enough for a bar that moves
NEXT_RUN_S = 5.0  # who opens the dashboard then soon sees a run move
BAR_WIDTH = 20  # characters


def run_demo(app: App, *, once: bool, keep: bool) -> None:
    """Run the examples until Ctrl-C, or `once`; `keep` the data."""
    if app.flag_database_url is not None:
        raise click.UsageError(OWN_SERVER)
    # variables of pgflowd and libpq are for a project or its database
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]
    with (
        children.interrupted_by_term(),
        _data_directory() as directory,
        EmbeddedPostgres(directory, keep=keep) as postgres,
        ExitStack() as ends,
    ):
        socket = directory.absolute() / "run" / "demo.sock"
        if len(os.fsencode(socket)) > MAX_SOCKET_PATH_BYTES:
            short = ends.enter_context(tempfile.TemporaryDirectory(prefix="pgflowd-"))
            socket = Path(short, "demo.sock")
        began = time.monotonic()
        with connect(postgres.dsn) as connection:
            schema.migrate(connection)
        if not app.json:
            server = f"PostgreSQL {postgres.version} (embedded, {directory})"
            installed = f"schema installed in {duration(time.monotonic() - began)}"
            examples = f"{len(EXAMPLES)} example flows"
            text = f"pgflowd {__version__} demo   {server}   {installed}   {examples}"
            app.print(app.out.folded(text))
        config, url = directory / "pgflowd.toml", directory / "url"
        config.write_text(CONFIG.format(control=toml_value(str(socket))))
        url.touch(0o600)
        url.write_text(postgres.dsn)
        if not _serve(app, config, postgres, socket, once=once, keep=keep):
            app.exit(ExitCode.NO)


def _serve(
    app: App, config: Path, postgres: EmbeddedPostgres, socket: Path, *, once: bool, keep: bool
) -> bool:
    """Serve the examples until their runs have ended, or until Ctrl-C. Whether all went well."""
    log_path, words = config.with_name("daemon.log"), ["-c", str(config)]
    is_alone = once or app.json  # nobody opens a dashboard
    with (
        log_path.open("ab") as log,
        children.daemon(words, database_url=postgres.dsn, log=log) as process,
        nullcontext() if is_alone else children.local_web(app, words, postgres.dsn) as get_link,
    ):
        try:
            children.wait_until_settled(process, socket)
        except children.DaemonNotUp as error:  # with the end of its log, which is deleted
            lines = log_path.read_text(errors="replace").splitlines()
            end = " / ".join([line for line in lines if " info " not in line][-_LAST_LINES:])
            text = f"{error.message}: {end}" if end else error.message
            raise children.DaemonNotUp(text, error.daemon_exit_code) from None
        with connect(postgres.dsn) as connection:
            runs = DemoRuns(app, connection)
            went_well, summary = runs.watch(), runs.summary()
            versions = {"pgflowd": __version__, "postgresql": postgres.version}
            place = {"directory": str(config.parent), "dsn": postgres.dsn}
            with suppress(KeyboardInterrupt):
                link = get_link() if get_link else None
                next_steps = partial(_print_next_steps, app, config, summary, link, once, keep)
                app.print_result(next_steps, {**versions, **place, **summary})
                if not once:
                    runs.go_on(starts=link is not None)
    return went_well


def _print_next_steps(
    app: App, config: Path, summary: dict[str, Any], link: str | None, once: bool, keep: bool
) -> None:
    runs, tasks, retries = len(summary["runs"]), summary["tasks"], summary["retries"]
    counted = f"{runs} runs, {tasks} tasks, {retries} retries."
    ends = "ends it and " + ("keeps the data" if keep else "removes the data (--keep keeps them)")
    ended = f"  {counted}" if once else f"  {counted}  Still serving; Ctrl-C {ends}."
    app.print(app.out.folded(ended))
    steps = [("pgflowd new shop && cd shop && pgflowd dev", "your own project")]
    if once:
        steps.append(("pgflowd demo", "keep it running, and see its runs move in a browser"))
    else:
        steps.insert(0, (f"pgflowd -c {config} runs list", "list the runs, in another terminal"))
    if link:
        steps.append((link, f"see runs move, in a browser; one starts every {NEXT_RUN_S:g} s"))
    app.print("\n".join(app.out.commands("next", app.with_activation(steps))))


@contextmanager
def _data_directory() -> Iterator[Path]:
    """Yield a directory for the database, and remove its parent at the end if it is empty."""
    Path.cwd()  # raises if it was removed; another directory for the data would not help
    parent = DIRECTORY.parent
    with suppress(OSError):
        parent.mkdir(exist_ok=True)
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        parent = Path(tempfile.mkdtemp(prefix="pgflowd-demo-"))
        parent.chmod(0o711)  # the server may run as another user
    try:
        yield parent / DIRECTORY.name
    finally:
        with suppress(OSError):
            parent.rmdir()


class Example(NamedTuple):
    """A flow, the input of its run, and what it demonstrates."""

    flow: str
    input: dict[str, Any]
    about: str
    end: RunStatus = RunStatus.COMPLETED


EXAMPLES = (
    Example("analyze_website", {"url": "https://example.com"}, "a diamond: two steps in parallel"),
    Example("resize_images", {"count": 100}, "a map: 100 tasks, 10 at a time"),
    Example("flaky_payment", {"order": 7, "amount": 42}, "a failure and a timeout, on purpose"),
    Example(
        "undone_payment", {"order": 8, "amount": 12}, "a lost parcel: its payment is undone",
        RunStatus.UNDONE,
    ),
)  # fmt: skip


@dataclass
class _DemoRun:
    """One run, as it was last read."""

    example: Example
    run: Run
    tasks: int = 0
    done: int = 0

    @property
    def took_s(self) -> float:
        return between(self.run.started_at, self.run.ended_at) or 0.0


class DemoRuns:
    """The runs of the demo."""

    def __init__(self, app: App, connection: psycopg.Connection[Any]) -> None:
        self._app, self._connection = app, connection
        self._client = Client(connection)
        self._drawn: list[str] = []
        self._runs = [
            _DemoRun(example, self._client.start_flow(example.flow, example.input))
            for example in EXAMPLES
        ]

    def watch(self) -> bool:
        """Show the runs until they have ended; return whether all went well."""
        until = time.monotonic() + RUN_TIMEOUT_S
        while True:
            for each in self._runs:
                if not each.run.has_ended:
                    each.run = self._client.get_run(each.run.run_id)
                    steps = execute(self._connection, run_steps(each.run.run_id))
                    each.tasks = sum(max(step.tasks, 1) for step in steps)
                    each.done = sum(step.completed for step in steps)
            self._draw()
            if all(each.run.has_ended for each in self._runs) or time.monotonic() > until:
                return all(each.run.status is each.example.end for each in self._runs)
            time.sleep(POLL_S)

    def go_on(self, *, starts: bool) -> None:
        """Wait for Ctrl-C; start a run every few seconds, of one flow after the other."""
        for example in cycle(EXAMPLES):
            next_at = time.monotonic() + NEXT_RUN_S
            while time.monotonic() < next_at:
                time.sleep(POLL_S)  # a signal just before pause() would be missed
            if starts:
                self._client.start_flow(example.flow, example.input)

    def summary(self) -> dict[str, Any]:
        """The results for `--json`: runs, tasks, retries."""
        retries = sum(
            attempt.attempt > 1
            for each in self._runs
            for attempt in execute(self._connection, attempts(each.run.run_id))
        )
        runs = [
            {
                "flow": each.example.flow,
                "run_id": str(each.run.run_id),
                "status": each.run.status,
                "took_s": round(each.took_s, 3),
                "output": each.run.output,
            }
            for each in self._runs
        ]
        return {"runs": runs, "tasks": sum(s.done for s in self._runs), "retries": retries}

    def _draw(self) -> None:
        """Print the runs that have ended; on a terminal all, over the lines printed before."""
        if self._app.json:
            return
        is_live = self._app.out.redraws
        lines = [self._line(each) for each in self._runs if is_live or each.run.has_ended]
        if not is_live:
            self._app.print_lines(line for line in lines if line not in self._drawn)
        elif lines != self._drawn:
            up = f"\x1b[{len(self._drawn)}A\x1b[J" if self._drawn else ""
            self._app.print("\n".join(lines), cursor=up)
        self._drawn = lines

    def _line(self, demo_run: _DemoRun) -> str:
        """How a run has ended; of one that goes on a bar."""
        screen = self._app.out
        if not demo_run.run.has_ended:
            full, empty = map(screen.sign, BAR)
            name = f"  {screen.sign(Marks.ACTIVE)} {demo_run.example.flow:17}"
            count = f"{demo_run.done}/{demo_run.tasks}"
            room = min(BAR_WIDTH, (screen.width or 80) - len(f"{name}  {count}"))
            filled = room * demo_run.done // max(demo_run.tasks, 1)
            return f"{name} {full * filled}{empty * (room - filled)} {count}"[: screen.width]
        went_well = demo_run.run.status is demo_run.example.end
        sign = screen.marked((demo_run.example.end if went_well else RunStatus.FAILED).mark)
        error = self._app.hide(demo_run.run.error or demo_run.run.status)
        about = demo_run.example.about if went_well else error
        ended = f"{demo_run.run.status} in {duration(demo_run.took_s)}"
        room = (screen.width or 1_000) - 4
        return f"  {sign} {f'{demo_run.example.flow:17} {ended}     {about}'[:room]}"
