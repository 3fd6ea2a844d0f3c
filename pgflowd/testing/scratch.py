"""
A fresh database for every test, on one server for all of them.

The schema is installed once, into a template whose name holds a digest of its SQL; a database is a
copy of the template, made in a few hundredths of a second, and dropped when the next one ends.
Several test runs may share the server: each holds an advisory lock. The databases that a killed run
left are dropped by the next run, which finds their lock free. The last run to end drops the
templates.

`daemon_of` is a real daemon on such a database: `pgflowd serve` with the project's own config;
database, name, control socket and log are the test's. It is ready when all its workers are up, and
is stopped without a drain, or killed, at the end. Its log is printed then, and pytest shows it
under a failure.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote
from uuid import UUID

import psycopg
from psycopg import conninfo, errors, sql

import pgflowd.db.schema
from pgflowd.db.query import uuid_of
from pgflowd.resources import shipped
from pgflowd.testing.until import until

if TYPE_CHECKING:
    from pgflowd.client import Client
    from pgflowd.core.documents.runs import Run
    from pgflowd.testing.drain import Flows

_OTHER_RUNS = """
select count(*) from pg_locks
 where locktype = 'advisory' and classid::bigint = %s and pid <> pg_backend_pid()
"""

_KEPT = [
    "pgflow.deps", "pgflow.flows", "pgflow.steps", "pgflowd.flow_options", "pgflowd.schedules",
    "pgflowd.schema_history", "pgflowd.settings", "pgflowd.step_options", "pgflowd.versions",
    "pgmq.meta", "pgmq.notify_insert_throttle", "pgmq.topic_bindings",
]  # fmt: skip
_TABLES = """
select format('%%I.%%I', namespace.nspname, class.relname)
  from pg_catalog.pg_class as class
  join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
 where class.relkind in ('r', 'p') and not class.relispartition
   and namespace.nspname not like 'pg\\_%%' and namespace.nspname <> 'information_schema'
   and namespace.nspname || '.' || class.relname <> all (%s)
 order by class.oid
"""

Connection: TypeAlias = psycopg.Connection[Any]

_TEMPLATE = "pgflowd_template_"
_SCRATCH = "pgflowd_scratch_"
_LOCK_S = 5  # for connections of earlier tests that just end
_TEMPLATES_KEPT = 4  # of older SQL, for test runs that began before it changed
_RUNS, _TEMPLATES = 0x70670001, 0x70670002  # first halves of advisory locks


class ScratchDatabase:
    """A database of one test: its `dsn`, a URL, and a client and connections that end with it."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._connections: list[Connection] = []

    @property
    def name(self) -> str:
        return str(conninfo.conninfo_to_dict(self.dsn)["dbname"])

    def connect(self, **kwargs: Any) -> Connection:
        """Open a connection, in autocommit unless `autocommit=False`."""
        connection: Connection = psycopg.connect(self.dsn, **{"autocommit": True, **kwargs})
        self._connections.append(connection)
        return connection

    @cached_property
    def client(self) -> Client:
        """A client of this database, as applications have one."""
        from pgflowd.client import Client

        return Client(self.dsn)

    def deploy(self, flows: Flows) -> None:
        """Create flows and jobs here, so that their runs can be started."""
        from pgflowd.testing.drain import deploy

        deploy(self._own, flows)

    def drain(self, flows: Flows, *, hurry: bool = False) -> list[Run]:
        """
        Execute all tasks of these flows that are due, in this process; return their runs.

        `hurry`: delays, pauses between attempts and timers count as over, the first one first.
        """
        from pgflowd.testing.drain import drain

        return drain(self.dsn, flows, hurry=hurry)

    def hurry(self, run: Run | UUID | str) -> None:
        """Let the delays, the pauses between attempts and the timers of a run be over."""
        from pgflowd.testing.drain import let_time_pass

        let_time_pass(self._own, uuid_of(run if isinstance(run, UUID | str) else run.run_id))

    def truncate(self) -> None:
        """Delete all rows but the schema's own; flows, their options and schedules stay."""
        tables = [name for (name,) in self._own.execute(_TABLES, (_KEPT,)).fetchall()]
        if not tables:
            return
        self._own.execute(f"set lock_timeout = '{_LOCK_S}s'".encode())
        try:
            self._own.execute(f"truncate {', '.join(tables)} restart identity".encode())
        except errors.LockNotAvailable as error:
            raise RuntimeError(
                "the database cannot be emptied: a connection of an earlier test is still in a"
                " transaction; end that with its test"
            ) from error

    @cached_property
    def _own(self) -> Connection:
        return self.connect()

    def close(self) -> None:
        if "client" in self.__dict__:
            self.client.close()
        for connection in self._connections:
            connection.close()


class ScratchServer:
    """A server on which tests may make databases: the DSN of a superuser."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._admin: Connection = psycopg.connect(dsn, autocommit=True)
        self._run = secrets.randbelow(2**31)
        self._made = 0
        self._ended: list[str] = []
        self._admin.execute("select pg_advisory_lock(%s, %s)", (_RUNS, self._run))
        self._drop_databases_of_killed_runs()

    def close(self) -> None:
        """End this test run; the last one on the server leaves no template behind."""
        with suppress(psycopg.Error):  # the server may be gone
            self._drop_ended()
            self._admin.execute("select pg_advisory_lock(%s, 0)", (_TEMPLATES,))
            if self._admin.execute(_OTHER_RUNS, (_RUNS,)).fetchone() == (0,):
                for template in self._names(f"{_TEMPLATE}%"):
                    self._drop(template)
        self._admin.close()

    def dsn_for(self, database: str) -> str:
        """A URL of another database, since frameworks understand nothing else."""
        return url_of(conninfo.conninfo_to_dict(self.dsn, dbname=database))

    @contextmanager
    def database(self, *, schema: bool = True) -> Iterator[ScratchDatabase]:
        """A new database, dropped at the end; with our schema, or empty."""
        self._made += 1
        name = f"{_SCRATCH}{self._run}_{self._made}"
        try:
            self._create(name, self._template if schema else "template0")
        except errors.InvalidCatalogName:
            self._make_template(self._template, then=lambda: self._create(name, self._template))
        database = ScratchDatabase(self.dsn_for(name))
        try:
            yield database
        finally:
            database.close()
            self._drop_ended()
            # it is left to be dropped later: now that would wait 0.1 s for its sessions
            query = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
            self._admin.execute(query, (name,))
            self._ended.append(name)

    def _drop_ended(self) -> None:
        """Drop the databases that no test uses any more."""
        while self._ended:
            self._drop(self._ended.pop())

    @cached_property
    def _template(self) -> str:
        """Its name has a digest of all that decides how a fresh database looks: our SQL, its
        installer, and pgmq. It is made once, since this reads hundreds of files."""
        digest = hashlib.sha256(importlib.metadata.version("pgmq").encode())
        for directory in (shipped("sql"), Path(pgflowd.db.schema.__file__).parent):
            for file in sorted(directory.rglob("*")):
                if file.suffix in {".sql", ".txt", ".py"}:
                    digest.update(f"\0{file.relative_to(directory.parent)}\0".encode())
                    digest.update(file.read_bytes())
        return f"{_TEMPLATE}{digest.hexdigest()[:16]}"

    def _make_template(self, template: str, then: Callable[[], None]) -> None:
        self._admin.execute("select pg_advisory_lock(%s, 0)", (_TEMPLATES,))
        try:
            if not self._names(template):
                making = f"{_SCRATCH}{self._run}_making"
                self._drop(making)
                self._create(making, "template0")
                with psycopg.connect(self.dsn_for(making), autocommit=True) as connection:
                    pgflowd.db.schema.migrate(connection)
                rename = sql.SQL("alter database {} rename to {}")
                self._admin.execute(rename.format(sql.Identifier(making), sql.Identifier(template)))
                psycopg.connect(self.dsn_for(template)).close()  # copies get what it has cached
                for old in self._names(f"{_TEMPLATE}%")[:-_TEMPLATES_KEPT]:
                    self._drop(old)
            then()
        finally:
            self._admin.execute("select pg_advisory_unlock(%s, 0)", (_TEMPLATES,))

    def _create(self, name: str, template: str) -> None:
        # copying files is the quicker strategy for a template of some ten megabytes
        create = sql.SQL("create database {} template {} strategy file_copy")
        self._admin.execute(create.format(sql.Identifier(name), sql.Identifier(template)))

    def _drop(self, name: str) -> None:
        drop = sql.SQL("drop database if exists {} with (force)")
        self._admin.execute(drop.format(sql.Identifier(name)))

    def _names(self, pattern: str) -> list[str]:
        """The databases whose names are like the pattern, oldest first."""
        query = "select datname from pg_database where datname like %s order by oid"
        return [name for (name,) in self._admin.execute(query, (pattern,))]

    def _drop_databases_of_killed_runs(self) -> None:
        for name in self._names(f"{_SCRATCH}%"):
            run = int(name.removeprefix(_SCRATCH).split("_")[0])
            lock = (_RUNS, run)
            row = self._admin.execute("select pg_try_advisory_lock(%s, %s)", lock).fetchone()
            if run != self._run and row == (True,):
                self._drop(name)
                self._admin.execute("select pg_advisory_unlock(%s, %s)", lock)


def url_of(values: dict[str, Any]) -> str:
    """The parameters of libpq as a URL; those that have no place of their own are its query."""
    quoted = {key: quote(str(value), safe="") for key, value in values.items()}
    database, authority = quoted.pop("dbname"), ""
    if "user" in quoted:
        authority = ":".join(quoted.pop(key) for key in ("user", "password") if key in quoted) + "@"
    if re.fullmatch(r"[\w.-]+", str(values.get("host", ""))):  # one host: no directory, no list
        authority += ":".join(quoted.pop(key) for key in ("host", "port") if key in quoted)
    url = f"postgresql://{authority}/{database}"
    return f"{url}?{'&'.join(f'{key}={value}' for key, value in quoted.items())}" if quoted else url


START_S = 60.0  # on a busy machine the flows' imports alone take seconds
STOP_S = 10.0  # a stop without a drain takes less than 1 s
LOG_CHARS = 20_000  # printed of the log, from its end


@dataclass(frozen=True)
class StartedDaemon:
    """A running daemon: its `pid`, and its `log` so far."""

    pid: int
    _log_path: Path

    @property
    def log(self) -> str:
        return self._log_path.read_text(errors="replace")


@contextmanager
def daemon_of(project: Path, dsn: str) -> Iterator[StartedDaemon]:
    """A daemon that serves the flows of the project, in the database."""
    with tempfile.TemporaryDirectory(prefix="pgflowd-test-") as directory:
        environ = {key: value for key, value in os.environ.items() if key != "NOTIFY_SOCKET"}
        own = {
            "DATABASE__URL": dsn,
            "DATABASE__LISTEN_URL": "",
            "PGFLOWD__NAME": "test",
            "PGFLOWD__DEFINITIONS": "create",
            "SUPERVISOR__CONTROL": f"{directory}/control",
            "SUPERVISOR__DRAIN_TIMEOUT": "0s",
            "LOGGING__FORMAT": "text",
        }
        log_path = Path(directory, "log")
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pgflowd", "serve"],
                stdout=log,
                stderr=log,
                cwd=project,
                env={**environ, **{f"PGFLOWD__{key}": value for key, value in own.items()}},
            )
        daemon = StartedDaemon(process.pid, log_path)
        try:
            until(
                lambda: "supervisor.ready" in daemon.log or process.poll() is not None,
                within_s=START_S,
            )
            if process.poll() is not None:
                raise AssertionError(f"the daemon did not start:\n{daemon.log[-LOG_CHARS:]}")
            yield daemon
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            sys.stdout.write(daemon.log[-LOG_CHARS:])
