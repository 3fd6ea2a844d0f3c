"""
Executes what is due on a real database, in this process: `pgflow_db.drain(flows)`.

Claims, reports and all that happens in between is the database's, and what a handler gets is a
runner's: its `ctx`, and a connection on which its rows and its completion commit together. Worker
and runner are one process, so no timeout of a step is enforced, and nothing is cleaned up after a
handler. All needs of steps are met. Ticks of schedules start nothing.

`let_time_pass` lets what is to happen later happen now: delays of tasks and of starts, pauses
between attempts, and the ends of sleeps and of the patience with signals and runs. A run's expiry
is left alone. Only tests change these tables.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import psycopg

from pgflowd.core import context
from pgflowd.core.completion import is_busy
from pgflowd.core.definition.shape import Code, facts_of, with_run
from pgflowd.core.definition.spec import StepSpec
from pgflowd.core.documents.runs import Run
from pgflowd.core.json import as_stored
from pgflowd.core.statuses import Outcome
from pgflowd.core.supervision.tree import ServedFlow
from pgflowd.core.waiting import Suspended
from pgflowd.core.worker.events import Verdict
from pgflowd.core.worker.runner_result import report_of, request_of
from pgflowd.core.worker.state import HandlerRequest
from pgflowd.core.worker.task import Task, TaskReport
from pgflowd.db import operations, performing, tasks, waits, workers
from pgflowd.db.connection import connect
from pgflowd.db.definitions import define, find_version
from pgflowd.db.query import Query, database_identity, execute
from pgflowd.errors import NotFound, PgflowdError, UnknownFlow
from pgflowd.flow import Flow
from pgflowd.host.channel import Frame
from pgflowd.processes.runner.handler import Caller
from pgflowd.processes.runner.main import RunnerProcess, ZygoteOptions
from pgflowd.testing.run_flow import apart

MAX_TASKS = 10_000  # a test with more of them would never end
MAX_OUTPUT_BYTES = 64 << 20
LEASE_S = 3600.0  # nobody renews it
LOCKED_S = 5.0  # so long a drain waits for who has locked a run
NAP_S = 0.01
Flows = Flow | Callable[..., Any] | Iterable[Flow | Callable[..., Any]]


def flows_of(given: Flows) -> list[Flow]:
    """Flows and jobs as flows, with those that undo them."""
    several = [given] if isinstance(given, Flow) or hasattr(given, "flow") else given
    if not isinstance(several, Iterable):
        raise TypeError(f"a drain takes flows and jobs, not {given!r}")
    found: list[Flow] = []
    for each in several:
        flow = getattr(each, "flow", each)
        if not isinstance(flow, Flow):
            raise TypeError(f"a drain takes flows and jobs, not {each!r}")
        found += [flow, flow.undo_flow] if flow.undo_flow else [flow]
    return found


def deploy(conn: psycopg.Connection[Any], flows: Flows) -> None:
    """Create flows in the database, or let their options follow the code."""
    for flow in flows_of(flows):
        define(conn, Code(flow.slug, flow.shape(), facts_of(flow.spec)), "version")


def drain(dsn: str, flows: Flows, *, hurry: bool = False) -> list[Run]:
    """Execute all that is due; return the runs of which a task was executed, as they are then."""

    def drained() -> list[Run]:
        with connect(dsn, name="pgflowd test") as conn, ExitStack() as lifespans:
            deploy(conn, flows)
            drainers = [Drainer(conn, dsn, flow) for flow in flows_of(flows)]
            for each in drainers:
                lifespans.enter_context(each.lifespan())
            run_ids: dict[str, None] = {}
            while True:
                did = bool(execute(conn, waits.process_due()).done)
                for each in drainers:
                    for task in each.claim():
                        did = True
                        run_ids[task.run_id] = None
                        each.execute(task)
                if sum(each.executed for each in drainers) > MAX_TASKS:
                    raise RuntimeError(f"{MAX_TASKS} tasks were executed, and there are more")
                if not did and not (hurry and let_time_pass(conn)):
                    break
            for each in drainers:
                execute(conn, workers.mark_stopped(each.worker_id, keeps_doorbell=False))
            return [performing.run_sync(conn, operations.get(UUID(run_id))) for run_id in run_ids]

    done: list[Run] = apart(drained)  # async handlers need a loop of their own
    return done


class Drainer:
    """The worker of one flow. It is its runner's socket, too, and answers from the database."""

    is_copy = is_stopping = False

    def __init__(self, conn: psycopg.Connection[Any], dsn: str, flow: Flow) -> None:
        self._conn, self._dsn = conn, dsn
        self._task: Task | None = None
        self.worker_id, self.executed = uuid4(), 0
        shape = flow.shape()
        self._slug = find_version(conn, flow.slug, shape) or flow.slug
        self._steps: Mapping[str, StepSpec] = flow.steps
        self._with_run = sorted(with_run(shape, facts_of(flow.spec), 1))
        needs = (step.options.get("needs") or () for step in flow.steps.values())
        self._caps = sorted({need for each in needs for need in each})
        workers.insert_row(conn, self.worker_id, self._slug, flow.slug, self._caps)
        self._runner = InProcessRunner(flow, self, frozenset(self._caps))
        self.lifespan = self._runner.lifespan

    def claim(self) -> list[Task]:
        query = tasks.claim(self._slug, self.worker_id, 10, None, self._with_run, self._caps)
        return execute(self._conn, query)

    def execute(self, task: Task) -> None:
        """Execute an attempt, and report it."""
        self.executed += 1
        self._task = task
        done, body = self._runner.execute(self._steps, Frame(*task.for_runner()))
        if not done.get("recorded"):
            self._report(report_of(task, done, body))

    def _report(self, report: TaskReport) -> None:
        until = time.monotonic() + LOCKED_S
        while True:
            [answer] = execute(self._conn, tasks.report([report]))
            if not is_busy(answer) or time.monotonic() > until:
                break
            time.sleep(NAP_S)
        if answer.verdict is Verdict.ERROR and report.outcome is Outcome.COMPLETED:
            text = f"the database refused the completion: {answer.message} ({answer.sqlstate})"
            self._report(
                TaskReport(report.task, Outcome.FAILED, error_message=text, error_type="Refused")
            )
        elif answer.verdict is Verdict.ERROR:
            raise RuntimeError(f"an attempt could not be reported: {answer.message}")

    # what the runner has of its socket

    def check_stopping(self) -> bool:
        return False

    def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Nobody waits for it."""

    def note(self, head: dict[str, Any]) -> None:
        """pytest catches what handlers log."""

    def tell(self, head: dict[str, Any], body: bytes = b"") -> None:
        if head["say"] == "progress":
            execute(self._conn, tasks.write_progress(self.worker_id, {head["token"]: body}))

    def ask(self, head: dict[str, Any], body: bytes = b"") -> Frame:
        try:
            return Frame({"refusal": None}, self._answer(head, body) or b"")
        except PgflowdError as error:
            if head["what"] == HandlerRequest.START and isinstance(error, NotFound):
                error = UnknownFlow(error.text, next="give the flow to drain(), too")
            refusal = {"text": error.text, "code": error.code, "next": error.next}
            return Frame({"refusal": refusal}, b"")

    def _answer(self, head: dict[str, Any], body: bytes) -> bytes | None:
        request, task = request_of(0, as_stored(head), body), self._task  # tuples become lists
        assert request is not None and task is not None
        if request.kind is HandlerRequest.CONNECTION:
            database = execute(self._conn, database_identity())
            way_in = {"conninfo": self._dsn, "name": "pgflowd test handler", "database": database}
            return json.dumps({**way_in, "lease_s": LEASE_S}).encode()
        query: Query[Any] | None = workers.reading(request, task)
        if query is not None:
            found: bytes | None = execute(self._conn, query)
            return found
        until = time.monotonic() + LOCKED_S
        while not (done := execute(self._conn, workers.changing(request, task, LEASE_S))):
            if time.monotonic() > until:
                raise PgflowdError("another session has locked the run", code="E411")
            time.sleep(NAP_S)
        return done if isinstance(done, bytes) else None


class InProcessRunner(RunnerProcess):
    """A runner that leaves this process as it is."""

    def __init__(self, flow: Flow, socket: Any, caps: frozenset[str]) -> None:
        served = ServedFlow(flow.slug, "", "")
        options = ZygoteOptions(served, (), (), MAX_OUTPUT_BYTES, 0, caps=caps)
        super().__init__(options, socket, None, flow.spec.lifespan)
        self.caller = self._raising = RaisingCaller()
        self.caller.resources = self.resources
        # the process goes on with whatever a handler has left
        self.leftovers = SimpleNamespace(found=lambda peak_kb: {})  # type: ignore[assignment]
        self.log_forwarder.setLevel(100)

    @contextmanager
    def lifespan(self) -> Iterator[None]:
        self.resources.enter()
        try:
            yield
        finally:
            self.resources.leave()

    def execute(self, steps: Mapping[str, StepSpec], frame: Frame) -> tuple[dict[str, Any], bytes]:
        """Return what a runner sends at the end of a task."""
        before, self.steps = context.database_of_task, steps
        try:
            result = self.run(frame)
        finally:
            context.database_of_task = before
        if self.sessions is not None:
            self.sessions.clean()
            self.sessions.close_kept()
        if raised := self._raising.interrupt:
            raise raised
        return result

    def _title(self, what: str, joint: str = " ") -> None:
        """The process is pytest's."""


# what ends an attempt, as in `run_flow`
_OF_HANDLERS = (Exception, SystemExit, asyncio.CancelledError, Suspended, BaseExceptionGroup)


class RaisingCaller(Caller):
    """Remembers what ends the test, and no attempt: Ctrl-C, and the outcomes of pytest."""

    interrupt: BaseException | None = None

    def call(self, handler: Any, arguments: Any, stop: Any) -> Any:
        try:
            return super().call(handler, arguments, stop)
        except BaseException as error:
            if not isinstance(error, _OF_HANDLERS):
                self.interrupt = error
            raise


_LATER = """
select 'wait' as kind, wait.run_id, wait.due_at as at, null::bigint as message_id, null as queue
  from pgflowd.waits as wait where wait.due_at > now()
union all
select 'start', run.run_id, run.due_at, null, null
  from pgflowd.runs as run where run.state = 'planned' and run.due_at > now()
union all
select 'message', task.run_id, message.vt, task.message_id, flow.flow_slug
  from pgflow.flows as flow
 cross join lateral pg_temp.pgflowd_testing_messages(flow.flow_slug) as message
  join pgflow.step_tasks as task on task.message_id = message.msg_id
                                and task.flow_slug = flow.flow_slug
 where task.status = 'queued' and message.vt > now()
"""
# a temporary function, since each queue is a table of its own
_MESSAGES = """
create or replace function pg_temp.pgflowd_testing_messages(queue text)
returns table (msg_id bigint, vt timestamptz) language plpgsql as $$
begin
  if to_regclass('pgmq.' || quote_ident('q_' || lower(queue))) is not null then
    return query execute format('select msg_id, vt from pgmq.%I', 'q_' || lower(queue));
  end if;
end $$
"""
_END_WAIT = "update pgflowd.waits set due_at = now() where run_id = %s and due_at = %s"
_START = "update pgflowd.runs set due_at = now(), start_at = now() where run_id = %s"
_SHOW = "select pgmq.set_vt(%s, %s, 0)"


def let_time_pass(conn: psycopg.Connection[Any], run_id: UUID | None = None) -> bool:
    """
    Let all that is to happen in a run later happen now; without a run, the first thing of all.

    Return whether there was anything.
    """
    conn.execute(_MESSAGES)
    query = f"select * from ({_LATER}) as later where %s::uuid is null or run_id = %s order by at"
    found = conn.execute(query, (run_id, run_id)).fetchall()
    for kind, of_run, at, message_id, queue in found if run_id else found[:1]:
        if kind == "message":
            conn.execute(_SHOW, (queue, message_id))
        elif kind == "wait":
            conn.execute(_END_WAIT, (of_run, at))
        else:
            conn.execute(_START, (of_run,))
    return bool(found)
