"""
Black-box tests of the daemon: flows in a temporary module, a config of profile T, and
`pgflowd serve` as a subprocess. Tests read the process table, the database, the log and the
daemon's status.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pgflowd.host import control
from pgflowd.host.process_tree import ProcessStat, command_line, descendants, read_stat
from pgflowd.testing.until import until
from support import documents, oracle

PGFLOWD = [sys.executable, "-c", "from pgflowd.cli.main import main; main()"]
PROFILE_T: dict[str, dict[str, Any]] = {
    "pgflowd": {"name": "t"},
    "database": {
        "connect_timeout": "1s",
        "statement_timeout": "6s",
        "tcp_user_timeout": "5s",
        "reconnect_min": "100ms",
        "reconnect_max": "1s",
    },
    "worker": {
        "heartbeat_interval": "500ms",
        "runner_idle": "2s",
        "notify_fallback": "30s",
        "kill_grace": "500ms",
    },
    "supervisor": {"hang_timeout": "12s", "start_timeout": "10s", "drain_timeout": "3s"},
    "recovery": {"lease": "2s", "recovery_interval": "500ms", "stale_threshold": "2s"},
    "logging": {"format": "json", "level": "debug"},
}
FLOW = """
import os, time
from oracle import note
from pgflowd import Flow
flow = Flow("{slug}", max_attempts={attempts}, base_delay=0, timeout=60)

def mark(run, what):
    if "marks" in run:
        with open(run["marks"], "a") as file:
            file.write(f"{{what}} {{os.getpid()}} {{time.time()}}\\n")

@flow.step
def work(run, ctx):
    note(ctx, "start")
    mark(run, "start")
    until = time.monotonic() + run.get("s", 0)
    gate = run.get("gate")
    while time.monotonic() < until or gate and not os.path.exists(gate):
        time.sleep(0.02)
        note(ctx, "tick")
        mark(run, "tick")
    note(ctx, "end", os.getpid())
    mark(run, "end")
    return os.getpid()
"""


class DaemonSetup:
    """A directory with flows and a config, for one or more daemons."""

    def __init__(self, directory: Path, dsn: str) -> None:
        self.directory = directory
        self.dsn = dsn
        self.entries: list[str] = []
        self.inside: list[str] = []  # put before a daemon's command, as `ip netns exec …`
        self.daemons: list[Daemon] = []
        self.oracle = directory / "oracle"
        self.breaks_invariants = False  # the test writes into the tables
        self.was_frozen = False  # beyond its lease: then its executions may overlap with others
        self.environ = {key: value for key, value in os.environ.items() if key != "NOTIFY_SOCKET"}
        self.environ[oracle.VARIABLE] = str(self.oracle)

    def module(self, name: str, source: str) -> str:
        """Write a module and serve it; a module written again becomes newer."""
        path = self.directory / f"{name}.py"
        path.write_text(source)
        if name not in self.entries:
            self.entries.append(name)
        return name

    def flow(self, slug: str, attempts: int = 3) -> None:
        self.module(f"flow_{slug.lower()}", FLOW.format(slug=slug, attempts=attempts))

    def config(self, name: str = "t", **sections: dict[str, Any]) -> Path:
        """Write the config: profile T, changed by `sections`."""
        merged = {
            key: {**PROFILE_T.get(key, {}), **sections.get(key, {})}
            for key in {**PROFILE_T, **sections}
        }
        merged["pgflowd"] = {
            "flows": self.entries,
            "python_path": [str(self.directory), str(Path(oracle.__file__).parent)],
            **merged["pgflowd"],
            "name": name,
        }
        merged["database"] = {"url": self.dsn, **merged["database"]}
        merged["supervisor"] = {"control": str(self.control(name)), **merged["supervisor"]}
        path = self.directory / f"{name}.toml"
        path.write_text("".join(_section(key, values) for key, values in merged.items()))
        path.chmod(0o600)
        return path

    def control(self, name: str = "t") -> Path:
        return self.directory / f"run-{name}" / "control"

    def start(self, name: str = "t", *args: str, **sections: dict[str, Any]) -> Daemon:
        """Start a daemon; it ends with the test."""
        daemon = Daemon(self, name, self.config(name, **sections), args)
        self.daemons.append(daemon)
        return daemon

    def serve(self, name: str = "t", **sections: dict[str, Any]) -> Daemon:
        """Start a daemon and wait until it is ready."""
        daemon = self.start(name, **sections)
        daemon.until("supervisor.ready")
        return daemon

    def close(self) -> None:
        for daemon in self.daemons:
            daemon.close()


class Daemon:
    """One running daemon."""

    def __init__(self, setup: DaemonSetup, name: str, config: Path, args: tuple[str, ...]) -> None:
        self.setup = setup
        self.config = config
        self.control = setup.control(name)
        self.log = setup.directory / f"{name}-{len(setup.daemons)}.log"
        command = [*setup.inside, *PGFLOWD, "serve", "-c", str(config), *args]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stderr=log, stdout=log, cwd=setup.directory, env=setup.environ
            )
        self.pid = self.process.pid
        self.descendants: set[tuple[int, int]] = set()  # pid and start

    def events(self, event: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """The log records so far, of this event and with these fields."""
        found = []
        for line in whole_lines(self.log):
            if line.startswith("{"):
                record = json.loads(line)
                wanted = {**({"event": event} if event else {}), **fields}
                if wanted.items() <= record.items():
                    found.append(record)
        return found

    def until(self, event: str, count: int = 1, within_s: float = 30, **fields: Any) -> list[Any]:
        """Wait for so many records of an event."""
        try:
            return until(lambda: _enough(self.events(event, **fields), count), within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log.read_text()[-6000:]}") from None

    def ask(self, command: str = "status", **arguments: Any) -> dict[str, Any]:
        return control.ask(self.control, command, **arguments)

    def pid_of(self, child: str) -> int:
        """The pid of listener, sweeper, or of a flow's worker."""
        return self.pids()[child]

    def state_of(self, slug: str) -> str:
        return next(flow["state"] for flow in self.ask()["flows"] if flow["slug"] == slug)

    def pids(self) -> dict[str, int]:
        status = self.ask()
        flows = {flow["slug"]: flow["pid"] for flow in status["flows"]}
        singles = {child: status[child]["pid"] for child in ("listener", "sweeper")}
        return {**singles, **flows}

    def kill(self, child: str, number: int = signal.SIGKILL) -> int:
        pid = until(lambda: self.pid_of(child))  # it may be starting again just now
        os.kill(pid, number)
        return pid

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def family(self) -> list[ProcessStat]:
        """The supervisor's descendants; remembered for the clean-up."""
        found = descendants(self.pid)
        self.descendants |= {(seen.pid, seen.started_ticks) for seen in found}
        return found

    def titles(self) -> list[str]:
        return sorted(filter(None, (command_line(seen.pid) for seen in self.family())))

    def ended(self, within_s: float = 30) -> int:
        """Wait for its end; return the exit code."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended\n{self.log.read_text()[-6000:]}") from None

    def command(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command with this daemon's config; with `--json` it must print what it should."""
        done = subprocess.run(
            [*PGFLOWD, *args, "-c", str(self.config)],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.setup.directory,
            env=self.setup.environ,
            check=False,
        )
        documents.check(args, done.stdout, done.stderr)
        return done

    def close(self) -> None:
        if self.process.poll() is None:
            family = self.family()
            self.process.kill()
            self.process.wait()
            self.descendants |= {(seen.pid, seen.started_ticks) for seen in family}
        for pid, born in self.descendants:
            seen = read_stat(pid)
            if seen and seen.started_ticks == born:
                with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                    os.kill(pid, signal.SIGKILL)


def is_gone(seen: ProcessStat) -> bool:
    """Whether this very process has ended."""
    now = read_stat(seen.pid)
    return now is None or now.started_ticks != seen.started_ticks or now.is_zombie


def whole_lines(path: Path) -> list[str]:
    """The lines of a growing file, without a last line that is not whole yet."""
    return path.read_text(errors="replace").rpartition("\n")[0].splitlines()


def marks(path: Path) -> list[tuple[str, int, float]]:
    """What handlers wrote: event, pid, time."""
    if not path.exists():
        return []
    lines = [line.split() for line in whole_lines(path)]
    return [(what, int(pid), float(at)) for what, pid, at in lines]


def passed(since: float) -> float:
    return time.monotonic() - since


def _enough(found: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    return found if len(found) >= count else []


def _section(name: str, values: dict[str, Any]) -> str:
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    return f"[{name}]\n{lines}"


def start_run(database, slug, **input_):
    return database.client.start_flow(slug, input_).run_id


def is_completed(database, run_id):
    return database.client.get_run(run_id).status == "completed"


def attempts(database, run_id):
    query = "select attempts_count from pgflow.step_tasks where run_id = %s"
    return [row[0] for row in database.connect().execute(query, (run_id,))]


def is_completed_soon(database, run_id):
    return until(lambda: is_completed(database, run_id), 5)


def start_marked(setup, database, slug="alpha", **input_):
    """Start a run and wait until its handler runs."""
    path = setup.directory / "marks"
    run_id = start_run(database, slug, marks=str(path), **input_)
    until(lambda: marks(path))
    return run_id


def unreachable_url():
    """A server that refuses connections: a port that is bound without a listener."""
    line = socket.socket()
    line.bind(("127.0.0.1", 0))
    return line, f"postgresql://postgres@127.0.0.1:{line.getsockname()[1]}/none"


def black_hole():
    """A server that accepts each connection and never answers."""
    line = socket.socket()
    line.bind(("127.0.0.1", 0))
    line.listen(100)
    return line, f"postgresql://postgres@127.0.0.1:{line.getsockname()[1]}/none"


def terminate_all(database, like="t: %"):
    query = """
        select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and application_name like %s
    """
    with database.connect() as conn:
        return conn.execute(query, (like,)).rowcount


def connected(database):
    query = """
        select count(*) from pg_stat_activity
         where datname = current_database() and application_name like 't: %'
    """
    with database.connect() as conn:  # called often, so closed at once
        return conn.execute(query).fetchone()[0]
