"""
`pgflowd dev`: serves a project during its development.

It runs an embedded PostgreSQL below `.pgflowd/` and a daemon that logs to this terminal, and
watches the project's files. A change reloads the daemon, and what the reload did is printed; errors
are in the log. A flow whose shape has changed is
recreated, with a warning. Commands in other terminals find the database while this runs.

`--database-url` names another database. Its data may be needed elsewhere, so there a changed shape
is refused, as in production.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Thread
from typing import IO, Any

import click

from pgflowd import __version__
from pgflowd.cli.app import App
from pgflowd.cli.daemon_client import NotRunning, ask, ask_to_reload, socket_path
from pgflowd.cli.local import children
from pgflowd.cli.local.children import print_time
from pgflowd.cli.local.new import TEMPLATES
from pgflowd.cli.problems import print_problems
from pgflowd.cli.terminal.texts import call_lines, error_lines, folded_lines
from pgflowd.core.definition.shape import changes_between, undoable
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.failure import last_calls
from pgflowd.core.settings.load import missing_flows
from pgflowd.core.statuses import ChildState, RunStatus
from pgflowd.core.supervision.reload import ReloadResult
from pgflowd.core.text import counted, duration, short_id
from pgflowd.db import schema
from pgflowd.db.connection import connect
from pgflowd.db.flows import compare, deploy, flow_shape
from pgflowd.db.query import execute
from pgflowd.db.runs import list_runs
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.errors import ConfigError, PgflowdError
from pgflowd.host.config import DevAlreadyRunning, announce_url, unset_libpq_variables
from pgflowd.processes.supervisor.discover import discover

ENVIRON = {"PGFLOWD__LOGGING__FORMAT": "json", "PGFLOWD__LOGGING__LEVEL": "debug"}
READ_TIMEOUT_S = 2.0  # for the rest of the log, after the daemon has ended
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
_RECORD_KEYS = {"time", "level", "event", "process", "pid"}
_OUTPUT = {"task.log", "task.output"}
_FAILED_ATTEMPTS = {"task.failed", "task.timed_out", "task.crashed"}
_RUN_EVENTS = {
    "run.started", "run.completed", "run.failed", "run.cancelled", "run.undone", "run.undo_failed",
}  # fmt: skip
_REDUNDANT = {"step.failed", "child.exited"}  # other records have the same facts and more


def serve_project(
    app: App, port: int | None, *, no_reload: bool, ephemeral: bool, reset: bool
) -> None:
    """Serve the project of the working directory until Ctrl-C."""
    if not app.settings.file and (problems := missing_flows(app.settings, "pgflowd.toml")):
        raise ConfigError(problems)  # no project: a server and its data would be of no use
    began_at = time.monotonic()
    root = Path(app.settings.file).absolute().parent if app.settings.file else Path.cwd()
    try:
        with (
            children.interrupted_by_term(),
            suppress(KeyboardInterrupt),
            dev_database(app, root, port, ephemeral=ephemeral, reset=reset) as (url, server),
            announce_url(root, url),
            children.local_web(app, _config(app), url) as link,
        ):
            changes = None if no_reload else watched(root)
            project = Project(app, url)
            app.print(app.out.folded(f"pgflowd {__version__} development   {server}"))
            app.print(f"  database {app.hide(url) or 'of the environment'}")
            while not _serve(app, project, changes, link, began_at):
                began_at = time.monotonic()
    except DevAlreadyRunning:
        app.note(f"another `pgflowd dev` runs in {root}")
        app.exit(ExitCode.TRY_LATER)
    app.note("  stopped")


def _config(app: App) -> list[str]:
    """The words that name the project's config to a child."""
    return ["-c", app.settings.file] if app.settings.file else []


def _serve(
    app: App,
    project: Project,
    changes: Changes | None,
    link: Callable[[], str | None],
    began_at: float,
) -> bool:
    """Serve until the daemon ends. False: no flow could be served; try again after a change."""
    socket, entries = socket_path(app), app.settings.pgflowd.flows
    limit_s = min(app.settings.supervisor.drain_timeout_s, children.STOP_TIMEOUT_S)
    with (
        # the important records, or with -v all
        nullcontext() if app.verbose else log_pipe(partial(print_record, app)) as log,
        children.daemon(
            _config(app),
            database_url=project.dsn,
            log=log,
            environ={} if app.verbose else ENVIRON,
            may_recreate=app.flag_database_url is None,
            ending=partial(children.telling_the_end, app, socket, limit_s),
        ) as process,
    ):
        try:
            with children.telling(app, socket, partial(children.of_start, entries)):
                status = children.wait_until_settled(process, socket)
            project.show(status)
            _print_ready(app, project, link(), time.monotonic() - began_at)
            while changes is not None and process.poll() is None:  # as when all its flows crash
                try:
                    if changed := changes():
                        project.reload(changed)
                except NotRunning:
                    process.wait()
                except PgflowdError as error:  # the database or the daemon may come back
                    print_problems(app, error.problems)
            if (code := process.wait()) != 0:  # it ended without `pgflowd stop`
                raise children.DaemonNotUp(f"the daemon ended with exit code {code}", code)
        except children.DaemonNotUp as error:
            if changes is None or error.daemon_exit_code not in {ExitCode.CONFIG, ExitCode.NO}:
                raise
            project.wait_for_valid_config(changes)
            return False
    return True


def _print_ready(app: App, project: Project, link: str | None, took_s: float) -> None:
    flow = next(iter(project.shapes), "")
    inputs = {kind.flow: kind.input for kind in TEMPLATES.values()}
    app.print(f"{time.strftime('%H:%M:%S')} ready in {duration(took_s)}")
    commands = []
    if flow:
        command = f"pgflowd runs start {flow} {shlex.quote(inputs.get(flow, '{}'))} --follow"
        commands.append((command, "in another terminal"))
    if link:
        commands.append((link, "in a browser"))
    if commands:
        app.print("\n".join(app.out.commands("try", commands)))


@contextmanager
def dev_database(
    app: App, root: Path, port: int | None, *, ephemeral: bool, reset: bool
) -> Iterator[tuple[str, str]]:
    """
    The URL of the database that --database-url names, or else of one of an embedded server; and
    what the first line says of it.
    """
    with ExitStack() as ends:
        if app.flag_database_url is not None:
            if port or ephemeral or reset:
                text = "--port, --ephemeral and --reset are for dev's own PostgreSQL"
                raise click.UsageError(f"{text}, not --database-url")
            url, about = app.database_url, "given; a changed shape is refused"
        else:
            unset_libpq_variables()
            (root / ".pgflowd").mkdir(exist_ok=True)
            directory = root / ".pgflowd" / "pg"
            about = "embedded, .pgflowd/pg, kept; --ephemeral deletes it"
            if ephemeral:
                directory = Path(tempfile.mkdtemp(prefix="pg-", dir=root / ".pgflowd"))
                about = "embedded, .pgflowd/pg, deleted at the end"
                ends.callback(shutil.rmtree, directory, ignore_errors=True)
            elif reset and not EmbeddedPostgres(directory).discard():
                raise DevAlreadyRunning(str(root))
            server = EmbeddedPostgres(directory, keep=not ephemeral, port=port or 0)
            postgres = ends.enter_context(server)
            if port and postgres.port != port:
                text = f"PostgreSQL already runs here on port {postgres.port}"
                raise click.UsageError(f"{text}; stop it, or omit --port")
            url = postgres.dsn
        with connect(url, name="pgflowd dev") as connection:
            schema.migrate(connection)
            version = connection.info.server_version
        yield url, f"PostgreSQL {version // 10_000}.{version % 10_000} ({about})"


class Project:
    """The flows of a project, as the daemon serves them and the database defines them."""

    def __init__(self, app: App, dsn: str) -> None:
        self.app, self.dsn = app, dsn
        self.shapes: dict[str, Any] = {}  # of the flows that are served
        self._broken: list[str] = []
        self.keeps_runs: bool | None = None  # when a shape changes; None: not asked yet

    def show(self, status: dict[str, Any]) -> None:
        """Print the flows that are served; errors of the others are in the log."""
        self._read_shapes(status)
        undo_flows = {flow["slug"] for flow in status["flows"] if flow["undoes"]}
        shown = [slug for slug in self.shapes if slug not in undo_flows]
        width = max(map(len, shown), default=0)
        for number, slug in enumerate(shown):
            start = "  flows    " if number == 0 else " " * 11
            steps = counted(len(self.shapes[slug]["steps"]), "step")
            undos = len(undoable(self.shapes[slug]))
            text = f"{slug:{width}}   {steps}{f', {undos} with undo' * bool(undos)}"
            self.app.print_lines(self.app.out.wrapped(text, head=start, indent=11))

    def reload(self, changed: list[str]) -> None:
        """Reload the daemon and print what changed.

        A flow that crashes at its start is not waited for: the next change may mend it.
        """
        before = self.shapes
        with connect(self.dsn, name="pgflowd dev") as connection:
            rows = execute(connection, list_runs(most=10_000))
        runs = Counter(row.flow_slug for row in rows)
        self._keep_as_versions()
        began_at = time.monotonic()
        with children.telling(self.app, socket_path(self.app), children.of_reload):
            answer = ask_to_reload(self.app)
        if answer.get("error"):
            print_time(self.app, f"{_listed(changed)} changed: not reloaded, {answer['error']}")
            return
        took_s = time.monotonic() - began_at
        self._read_shapes(ask(self.app, "status"))
        ends = {flow["flow"]: _ENDS.get(flow["result"]) for flow in answer["flows"]}
        results = [
            f"{name} {ends.get(name) or text}"
            for key, text in _RESULTS.items()
            for name in answer.get(key, [])
        ]
        repaired = [name for name in self._broken if name not in answer["broken"]]
        results += [f"{name} is no longer broken" for name in repaired]
        self._broken = answer["broken"]
        done = ", ".join(results or ["nothing to do"])
        print_time(self.app, f"{_listed(changed)} changed: {done} ({duration(took_s)})")
        for slug, shape in self.shapes.items():
            if slug in before and (changes := changes_between(before[slug], shape)):
                lost = {0: "", 1: ", its run is deleted"}
                gone = lost.get(runs[slug], f", its {runs[slug]} runs are deleted")
                text = f"{slug}: shape changed ({'; '.join(changes)}); recreated{gone}."
                print_time(self.app, text)
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

    def _read_shapes(self, status: dict[str, Any]) -> None:
        """Read the shapes of the flows that the daemon serves."""
        served = (ChildState.UP, ChildState.ASLEEP)
        slugs = [flow["slug"] for flow in status["flows"] if flow["state"] in served]
        with connect(self.dsn, name="pgflowd dev") as connection:
            shapes = {slug: execute(connection, flow_shape(slug)) for slug in slugs}
        self.shapes = {slug: shape for slug, shape in shapes.items() if shape}


def watched(root: Path) -> Changes:
    """
    Watch the files of a project from now on. Returns a function that returns those that changed
    since its last call, none after half a second without a change.
    """
    from watchfiles import DefaultFilter, watch

    is_usual = DefaultFilter()
    # not filtered there, where only a change that passes, and no other, would end half a second
    found = watch(root, watch_filter=None, rust_timeout=POLL_MS, yield_on_timeout=True)
    next(found)  # it watches now, so that no later change is missed

    def changes() -> list[str]:
        files = (Path(path).relative_to(root) for kind, path in next(found) if is_usual(kind, path))
        ours = (file for file in files if not _UNWATCHED.intersection(file.parts))
        return sorted({str(file) for file in ours if file.suffix in _SUFFIXES})

    return changes


def _listed(files: list[str]) -> str:
    return ", ".join(files[:3]) + (", …" if len(files) > 3 else "")


@contextmanager
def log_pipe(write: Callable[[str], None]) -> Iterator[IO[bytes]]:
    """Yield a pipe for the daemon's log, whose lines are given to `write` as they come."""
    reading, writing = os.pipe()

    def write_lines() -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                with suppress(OSError):  # the output is closed; the daemon must go on
                    write(line.rstrip("\n"))

    reader = Thread(target=write_lines, daemon=True)
    reader.start()
    try:
        with os.fdopen(writing, "wb") as log:
            yield log
    finally:
        reader.join(timeout=READ_TIMEOUT_S)  # a stray process may keep the pipe open


def print_record(app: App, line: str) -> None:
    """Print what is to be seen of a line of the log; further lines of its text are indented."""
    try:
        record = json.loads(line)
        is_ours = record.keys() >= _RECORD_KEYS  # a user's module may also print JSON
        at = datetime.fromisoformat(record["time"]).astimezone() if is_ours else None
        text = _text(record["event"], record) if is_ours else None
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        is_ours = False
    if not is_ours:
        app.print(app.out.folded(app.shorten_paths(app.hide(line))))
        return
    if text is None:
        return
    head = f"{at:%H:%M:%S} "
    if record["event"] in _FAILED_ATTEMPTS:
        text = "\n".join(error_lines(app, text))
    calls = last_calls(record.get("traceback"), str(record.get("error")))
    lines = [*folded_lines(app, text, len(head)), *call_lines(app, calls, len(head))]
    app.print_lines([head + lines[0][len(head) :], *lines[1:]])


def _text(event: str, record: dict[str, Any]) -> str | None:
    flow = record.get("flow")
    if event in _OUTPUT:
        return f"{_name(record)}: {record.get('text')}"
    if event in _FAILED_ATTEMPTS:
        code = record.get("code")
        failed = "" if event == "task.timed_out" else "failed: "
        task = f"task {flow}/{_task(record)} {failed}{record.get('error') or ''}"
        return f"{code} {task}" if code else task
    if event in _RUN_EVENTS:
        word, took_s = RunStatus(event.partition(".")[2]), record.get("took_s")
        ended = word.replace("_", " ")
        if took_s is not None:
            is_good = word in (RunStatus.COMPLETED, RunStatus.UNDONE)
            ended += f" {'in' if is_good else 'after'} {duration(took_s)}"
        if word is RunStatus.UNDO_FAILED:
            ended += f": {record.get('error')}; {record.get('next')}"
        return f"run {short_id(record.get('run', ''))} {flow} {ended}"
    if event == "flow.changed":  # in the database, by a worker that starts
        return f"{flow}: {record.get('text')}"
    if event == "listener.regained":
        return "the database is back"
    if event in _REDUNDANT or record.get("level") not in {"warning", "error"}:
        return None
    where = f"{record['place']}  " if record.get("place") else ""
    text = str(next(filter(None, map(record.get, ("error", "text", "reason"))), event))
    code = record.get("code")
    text = text.removeprefix(f"{code} ")
    subject, child = "", record.get("child")  # what it is about, unless its text names that
    if flow:
        subject = "" if text.startswith(f"{flow}:") else f"{_name(record)}: "
    elif child and not text.startswith(f"{child} "):
        subject = f"{child}: "
    remedy = f"; {record['next']}" if record.get("next") else ""
    return f"{where}{f'{code} ' if code else ''}{subject}{text}{remedy}"


def _name(record: dict[str, Any]) -> str:
    """The task, the step, or the flow; a lifespan prints without a task."""
    inner = _task(record) if record.get("task") else record.get("step")
    return f"{record.get('flow')}/{inner}" if inner else str(record.get("flow"))


def _task(record: dict[str, Any]) -> str:
    return str(record.get("task", "?")).removesuffix("#0")
