"""
The verbs of the contract tests: a connection with short verbs for flows, runs and tasks.

A `ContractSession` calls the functions of schema `pgflow` by name, as workers do, and reads the
tables, as the upstream suite does. `stub_platform` builds what the hosted platform offers besides
(realtime, vault, net, cron), as recording stand-ins.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from support.database import Connection, Database
from support.invariants import broken

PLATFORM = """
create schema realtime;
create table realtime.messages (
  id bigint generated always as identity, payload jsonb, event text, topic text, private boolean);
create function realtime.send(payload jsonb, event text, topic text, private boolean default true)
returns void language sql as $$
  insert into realtime.messages (payload, event, topic, private)
  values (payload, event, topic, private) $$;
create schema vault;
create table vault.secrets (name text, decrypted_secret text);
create view vault.decrypted_secrets as select name, decrypted_secret from vault.secrets;
create schema net;
create table net.posted (
  id bigint generated always as identity, url text, body jsonb, params jsonb, headers jsonb,
  timeout_milliseconds int);
create function net.http_post(
  url text, body jsonb default '{}', params jsonb default '{}',
  headers jsonb default '{"Content-Type": "application/json"}',
  timeout_milliseconds int default 5000)
returns bigint language sql as $$
  insert into net.posted (url, body, params, headers, timeout_milliseconds)
  values (url, body, params, headers, timeout_milliseconds) returning id $$;
create schema cron;
create table cron.job (
  jobid bigint generated always as identity primary key, schedule text, command text,
  jobname text unique);
create table cron.job_run_details (
  jobid bigint, runid bigint generated always as identity, status text, end_time timestamptz);
create function cron.schedule(job_name text, schedule text, command text)
returns bigint language sql as $$
  insert into cron.job (jobname, schedule, command) values (job_name, schedule, command)
  on conflict (jobname) do update set schedule = excluded.schedule, command = excluded.command
  returning jobid $$;
create function cron.unschedule(job_name text) returns boolean language plpgsql as $$
begin
  delete from cron.job where jobname = job_name;
  if not found then raise exception 'could not find valid entry for job ''%''', job_name; end if;
  return true;
end $$;
create function cron.unschedule(job_id bigint) returns boolean language plpgsql as $$
begin
  delete from cron.job where jobid = job_id;
  if not found then raise exception 'could not find valid entry for job %', job_id; end if;
  return true;
end $$;
"""

STEP_NAMES = {
    "deps_slugs": "text[]",
    "max_attempts": "int",
    "base_delay": "int",
    "timeout": "int",
    "start_delay": "int",
    "step_type": "text",
    "required_input_pattern": "jsonb",
    "forbidden_input_pattern": "jsonb",
    "when_unmet": "text",
    "when_exhausted": "text",
}


def stub_platform(conn: Connection) -> None:
    """Create recording stand-ins for what the hosted platform has besides the schema."""
    conn.execute(PLATFORM)


class ContractSession(Database):
    """One connection, and the verbs of a worker that calls schema `pgflow`; rows are dicts."""

    row_factory = staticmethod(dict_row)

    def __init__(self, conn: Connection) -> None:
        super().__init__(conn)
        self.workers: dict[str, uuid.UUID] = {}

    def error(self, query: str, *args: Any) -> psycopg.Error:
        """The error that a statement raises, undone."""
        try:
            with self.conn.transaction():
                self.conn.execute(query, args or None)
        except psycopg.Error as error:
            return error
        raise AssertionError(f"no error from {query}")

    # -- defining -------------------------------------------------------------
    def flow(self, slug: str, *steps: tuple[str, dict[str, Any]] | str, **options: int) -> str:
        """Create a flow; a step is 'b: a' (deps after the colon, * is a map) or (text, options)."""
        names = "".join(f", {name} => %s" for name in options)
        self.do(f"select pgflow.create_flow(%s{names})", slug, *options.values())
        for step in steps:
            text, opts = (step, {}) if isinstance(step, str) else step
            self.step(slug, text, **opts)
        return slug

    def step(self, flow_slug: str, text: str, **options: Any) -> dict[str, Any]:
        name, _, deps = text.partition(":")
        if name.strip().endswith("*"):
            options = {"step_type": "map", **options}
        options = {"deps_slugs": re.findall(r"\w+", deps), **options}
        values = [
            Jsonb(value) if STEP_NAMES[key] == "jsonb" and value is not None else value
            for key, value in options.items()
        ]
        names = "".join(f", {key} => %s::{STEP_NAMES[key]}" for key in options)
        return self.row(
            f"select * from pgflow.add_step(%s, %s{names})", flow_slug, name.strip(" *"), *values
        )

    # -- running --------------------------------------------------------------
    def worker(self, slug: str, worker_id: uuid.UUID | None = None) -> uuid.UUID:
        """The worker of a flow, registered when first asked for; or register this one."""
        if worker_id is not None or slug not in self.workers:
            self.workers[slug] = super().worker(slug, worker_id)
        return self.workers[slug]

    def read(self, slug: str, qty: int = 100, vt: int = 5) -> list[int]:
        return self.column("select msg_id from pgmq.read(%s, %s, %s) order by 1", slug, vt, qty)

    def start_tasks(self, slug: str, msg_ids: Any, worker: Any = None) -> list[dict[str, Any]]:
        return self.rows(
            "select * from pgflow.start_tasks(%s, %s::bigint[], %s::uuid)"
            " order by step_slug, task_index, run_id",
            slug,
            msg_ids,
            worker or self.worker(slug),
        )

    def claim(self, slug: str, qty: int = 100) -> list[dict[str, Any]]:
        """Read messages and start their tasks."""
        return self.start_tasks(slug, self.read(slug, qty))

    def complete(
        self, run: Any, step: str, output: Any = None, index: int = 0, *, sql_null: bool = False
    ) -> list[dict[str, Any]]:
        return self.rows(
            "select * from pgflow.complete_task(run_id => %s, step_slug => %s, task_index => %s,"
            " output => %s::jsonb)",
            run,
            step,
            index,
            None if sql_null else Jsonb(output),
        )

    def fail(self, run: Any, step: str, message: str = "boom", index: int = 0) -> list[Any]:
        return self.rows(
            "select * from pgflow.fail_task(run_id => %s, step_slug => %s, task_index => %s,"
            " error_message => %s)",
            run,
            step,
            index,
            message,
        )

    # -- reading --------------------------------------------------------------
    def run(self, run: Any) -> dict[str, Any]:
        return self.row("select * from pgflow.runs where run_id = %s", run)

    def state(self, run: Any, step: str) -> dict[str, Any]:
        return self.row(
            "select * from pgflow.step_states where run_id = %s and step_slug = %s", run, step
        )

    def statuses(self, run: Any) -> dict[str, str]:
        found = self.rows("select step_slug, status from pgflow.step_states where run_id = %s", run)
        return {row["step_slug"]: row["status"] for row in found}

    def tasks(self, run: Any, step: str | None = None) -> list[dict[str, Any]]:
        return self.rows(
            "select * from pgflow.step_tasks where run_id = %s"
            " and (%s::text is null or step_slug = %s) order by step_slug, task_index",
            run,
            step,
            step,
        )

    def queue(self, slug: str) -> list[dict[str, Any]]:
        """The active messages, oldest first."""
        return self.rows(f"select * from pgmq.q_{slug.lower()} order by msg_id")

    def archive(self, slug: str) -> list[int]:
        return self.column(f"select msg_id from pgmq.a_{slug.lower()} order by msg_id")

    def active(self, slug: str) -> list[int]:
        return [row["msg_id"] for row in self.queue(slug)]

    def delay(self, slug: str, msg_id: int | None) -> float:
        """Seconds until a message becomes visible."""
        return float(
            self.value(
                f"select extract(epoch from vt - clock_timestamp()) from pgmq.q_{slug.lower()}"
                " where msg_id = %s",
                msg_id,
            )
        )

    def show(self, slug: str) -> None:
        """Make all active messages visible now."""
        self.do(f"update pgmq.q_{slug.lower()} set vt = clock_timestamp()")

    def events(self, run: Any = None) -> list[str]:
        """Names of the events sent so far, in order."""
        return [row["event"] for row in self.payloads(run)]

    def payloads(self, run: Any = None, event: str | None = None) -> list[dict[str, Any]]:
        return self.rows(
            "select * from realtime.messages where (%s::text is null or topic = %s)"
            " and (%s::text is null or event = %s) order by id",
            run and str(run),
            f"pgflow:run:{run}",
            event,
            event,
        )

    def payload(self, run: Any, event: str) -> dict[str, Any]:
        """The one payload of an event."""
        (found,) = self.payloads(run, event)
        payload: dict[str, Any] = found["payload"]
        return payload

    def snapshot(self) -> str:
        """All rows of all tables that a run has, and its messages, for 'nothing changed'."""
        parts = [
            f"select 'pgflow.{table}', to_jsonb(t)::text from pgflow.{table} t"
            for table in ("flows", "steps", "deps", "runs", "step_states", "step_tasks")
        ]
        for queue in self.column("select queue_name from pgmq.list_queues() order by 1"):
            for kind in "qa":
                name = f"{kind}_{queue.lower()}"
                parts.append(f"select '{name}', to_jsonb(t)::text from pgmq.{name} t")
        found = self.rows(" union all ".join(parts) + " order by 1, 2")
        return json.dumps([list(row.values()) for row in found], default=str, indent=0)

    def finish(self, slug: str, outputs: dict[str, Any] | None = None) -> None:
        """Claim and complete everything until nothing is visible."""
        while tasks := self.claim(slug):
            for task in tasks:
                output = (outputs or {}).get(task["step_slug"], task["task_index"])
                self.complete(task["run_id"], task["step_slug"], output, task["task_index"])


class ContractDatabase(ContractSession):
    """A database of one test, for several sessions; its own session commits each statement."""

    def __init__(self, dsn: str) -> None:
        super().__init__(psycopg.connect(dsn, autocommit=True))
        self.dsn = dsn
        self.sessions: list[Connection] = [self.conn]

    def session(self, *, autocommit: bool = False) -> ContractSession:
        """Another connection; a transaction opens with its first statement."""
        conn = psycopg.connect(self.dsn, autocommit=True)
        conn.execute("set lock_timeout = '20s'")
        conn.execute("set statement_timeout = '30s'")
        conn.autocommit = autocommit
        self.sessions.append(conn)
        session = ContractSession(conn)
        session.workers = self.workers
        return session

    def close(self) -> None:
        for conn in self.sessions:
            conn.close()


def while_open(session: ContractSession, runs: list[Any], within_s: float = 30) -> Iterator[None]:
    """Yield as long as one of these runs is open; AssertionError when time is up."""
    open_runs = "select count(*) from pgflow.runs where run_id = any (%s) and status = 'started'"
    deadline = time.monotonic() + within_s
    while session.value(open_runs, runs):
        assert time.monotonic() < deadline, "runs are still open"
        yield


def broken_invariants(session: ContractSession) -> list[str]:
    """Return the invariants that do not hold; none after any test."""
    return broken(session.conn, has_leases=False)
