"""
The `ctx` of a handler in a daemon; `core.context` describes its methods.

It requests from the worker the run's input, a step's output, checkpoints and the address of the
database. The connection of `conn()` belongs to the runner. When the handler has returned a value
that can be stored, the task is completed and committed there (`runner.completion`); it is rolled
back when the handler raises or waits. A memo is saved on it, and committed, if its function may
have changed something there; all other checkpoints are saved by the worker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from pgflowd.core.backoff import doubled_s
from pgflowd.core.context import refuse_unknown_step
from pgflowd.core.json import dumps, encode, loads
from pgflowd.core.output_stream import Pace
from pgflowd.core.progress import BURST, progress_of
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import size
from pgflowd.core.traces import CallerTrace, TaskTrace
from pgflowd.core.typed.codec import read_as
from pgflowd.core.undo import Original, Undo, original_of
from pgflowd.core.waiting import Checkpoint, Keep, Wait
from pgflowd.core.wishes import ChildRun, ChildStart, StartingContext
from pgflowd.errors import (
    BadDependency,
    KeyTaken,
    LeaseLost,
    MapInput,
    RunError,
    TooLarge,
    UnknownFlow,
    Unreachable,
)
from pgflowd.host.channel import Frame
from pgflowd.host.open_telemetry import starting
from pgflowd.processes.runner.handler import StopFlag
from pgflowd.processes.runner.task_stream import TaskOutput
from pgflowd.processes.runner.worker_socket import WorkerSocket

if TYPE_CHECKING:
    from pgflowd.processes.runner.completion import MemoWork
    from pgflowd.processes.runner.main import RunnerProcess

MIN_NAP_S, MAX_NAP_S = 0.1, 2.0  # between two tries to get a connection of a full server
LARGE = object()  # in place of data that is read when it is asked for
_ERRORS: dict[str, type[RunError]] = {
    each.default_code: each
    for each in (BadDependency, KeyTaken, LeaseLost, MapInput, TooLarge, UnknownFlow)
}  # by their code


class StopEvent(StopFlag):
    """The event `ctx.stopping`: each question checks the socket."""

    def __init__(self, worker_socket: WorkerSocket) -> None:
        self._socket = worker_socket

    def is_set(self) -> bool:
        return self._socket.check_stopping()


class RunnerContext(StartingContext):
    """One attempt of one task."""

    def __init__(self, runner: RunnerProcess, frame: Frame) -> None:
        head = frame.head
        self.run_id: str = head["run"]
        self.flow_slug = runner.flow
        self.step_slug: str = head["step"]
        self.task_index: int = head["index"]
        self.attempt: int = head["attempt"]
        self.max_attempts: int = head["max_attempts"]
        self.token: int = head["token"]
        self.caps, self.resources = runner.caps, runner.resources.value
        self.undo: Undo | None = None
        self.cancelled = StopFlag()
        self.is_over = False  # of a task that shares its runner: it has ended
        self._ends = time.time() + head["timeout"]
        self._runner, self._socket = runner, runner.socket
        self._conn: Any = None
        self._of_memos: MemoWork | None = None
        self.trace = TaskTrace(*head["trace"]) if "trace" in head else runner.trace
        self._lease_s = 0.0  # a memo that is saved there renews the lease for so long
        self.is_home = False  # whether it leads to the worker's database
        self._untold = b""  # a progress that was not sent, since others were just before

    # few handlers use these, so they are made on demand

    @cached_property
    def deadline(self) -> datetime:
        return datetime.fromtimestamp(self._ends, UTC)

    @property
    def log(self) -> logging.Logger:
        logger = logging.getLogger(f"pgflowd.{self.flow_slug}.{self.step_slug}")
        logger.disabled = False  # `dictConfig` disables every logger that it does not name
        return logger

    @cached_property
    def output(self) -> TaskOutput:
        """Where its lines go, if it shares its runner."""
        return TaskOutput(self._send_line)

    def _send_line(self, stream: str, text: str, is_late: bool) -> None:
        note = {"level": "info", "stream": stream, "text": text, "token": self.token}
        self._socket.note({**note, "late": True} if is_late else note)

    @cached_property
    def stopping(self) -> StopEvent:
        return StopEvent(self._socket)

    @cached_property
    def _wishes(self) -> Mapping[str, Any]:
        return self._ask("wishes") or {}

    @property
    def labels(self) -> Mapping[str, str]:
        return dict(self._wishes.get("labels") or {})

    @property
    def scheduled_for(self) -> datetime | None:
        at = self._wishes.get("start_at")
        return datetime.fromisoformat(at).astimezone(UTC) if at else None

    @cached_property
    def caller(self) -> CallerTrace | None:
        """The span of this attempt, if there are traces."""
        if self.trace is None:
            return None
        return self.trace.caller(self.run_id, self.step_slug, self.task_index, self.token)

    @property
    def traceparent(self) -> str | None:
        return self.caller and self.caller.traceparent

    @property
    def wants_changes(self) -> bool:
        """Whether the worker uses the changes of the run, as for its log."""
        return self._runner.wants_changes

    def flow_input(self, as_type: Any = None) -> Any:
        if self.undo is not None:
            value = self._ask("original", parts=["run"])["run"]
        else:
            value = self._ask("input")
        return read_as(value, as_type, "run")

    def read_original(self, parts: Sequence[str], known: Any = None) -> Original | None:
        """Read the task that this one undoes, as far as its handler takes it, if it is unknown."""
        original = original_of(known or self._ask("original", parts=parts))
        self.undo = original and original.undo
        return original

    def step_output(self, slug: str, as_type: Any = None) -> Any:
        refuse_unknown_step(slug, self._runner.steps, self.flow_slug)
        value = self._ask("output", step=slug)
        return None if value is None else read_as(value, as_type, slug)

    def conn(self) -> Any:
        if self._conn is None or self._conn.closed:
            where = self._ask("conn")
            self._lease_s = where["lease_s"]
            self._conn, database = self._connect_when_free(where["conninfo"], where["name"])
            self.is_home = database == where["database"]
        return self._conn

    def _connect_when_free(self, conninfo: str, name: str) -> tuple[Any, str]:
        """Wait while the server has too many clients, so that this costs no attempt."""
        nap_s = 0.0
        while True:
            try:
                return self._runner.connect(conninfo, name)
            except Unreachable as error:
                if error.code != "E310" or self.cancelled.is_set():
                    raise
                if not nap_s:
                    self.log.warning("ctx.conn() waits for a free connection: %s", error)
            nap_s = doubled_s(nap_s, MIN_NAP_S, MAX_NAP_S)
            self.cancelled.wait(nap_s)

    def database(self) -> str:
        """The URL of the daemon's database, for a `Client()` of the handler."""
        return str(self._ask("conn")["conninfo"])

    def take_conn(self) -> Any:
        """The connection that the handler used, if any: it is to be ended now."""
        conn, self._conn = self._conn, None
        if self._socket.is_copy:
            return None
        if self._of_memos is not None:
            self._of_memos.end()
        return conn

    def roll_back(self) -> None:
        """Undo what the handler did over its connection, and did not commit."""
        if conn := self.take_conn():
            conn.close()

    def tell_commit(self) -> None:
        """Tell the worker that the completion of the task is being committed here."""
        self._socket.send({"say": "committing", "token": self.token})

    def progress(
        self, done: float, total: float | None = None, text: str = "", **detail: Any
    ) -> None:
        self._refuse_copy()
        self._untold = encode(progress_of(done, total, text, detail)).encode()
        if self._pace.may_pass(time.monotonic()):
            self.tell_progress()

    def tell_progress(self) -> None:
        """Send the last value, if it was not sent."""
        if self._untold and not self.is_over:
            value, self._untold = self._untold, b""
            self._socket.tell({"say": "progress", "token": self.token}, value)

    @cached_property
    def _pace(self) -> Pace:
        return Pace(BURST, BURST)

    # checkpoints and waits

    @property
    def _version(self) -> int:
        return int(self._runner.steps[self.step_slug].options.get("version", 1))

    def _moment(self) -> datetime:
        return datetime.now(UTC)

    def _read_checkpoints(self) -> list[Checkpoint]:
        return [
            Checkpoint(each["name"], each["version"], each.get("data", LARGE))
            for each in self._ask("saved")
        ]

    def _data(self, name: str) -> Any:
        data = super()._data(name)
        return self._ask("saved", name=name)[0]["data"] if data is LARGE else data

    def _keep(self, checkpoint: Checkpoint) -> None:
        data = self._encoded(checkpoint)
        self._ask("save", data, name=checkpoint.name, version=checkpoint.version)

    def _forget(self, name: str) -> None:
        self._ask("drop", name=name)

    def _suspend(self, wait: Wait) -> NoReturn:
        self._refuse_copy()
        super()._suspend(wait)

    def _encoded(self, checkpoint: Checkpoint) -> bytes:
        return self._body_of(checkpoint.data, f"checkpoint '{checkpoint.name}'")

    def _body_of(self, value: Any, what: str) -> bytes:
        """The body of a question, if the worker accepts it."""
        data, most = dumps(value).encode(), self._runner.max_output_bytes
        if len(data) > most:
            text = f"{what} has {size(len(data))}, and {size(most)} are allowed"
            remedy = "give a reference to the data, or raise [worker] max_output"
            raise TooLarge(text, next=remedy)
        return data

    @contextmanager
    def _work_of_memo(self) -> Iterator[Keep]:
        """Commit what the function wrote over the connection with its result, or undo both."""
        before = self._memo_work()
        is_marked = before is not None and before.mark()
        try:
            yield self._keep_with_work
        except BaseException:
            if (work := self._memo_work()) is not None:
                work.undo(is_marked=is_marked and work is before)
            raise

    def _keep_with_work(self, checkpoint: Checkpoint) -> None:
        if (work := self._memo_work()) is not None and self.is_home:
            from pgflowd.db import handler_requests

            task, lease_s = (self.run_id, self.step_slug, self.task_index), self._lease_s
            name, data = checkpoint.name, self._encoded(checkpoint).decode()
            save = handler_requests.save(task, self.token, name, data, checkpoint.version, lease_s)
            if work.save(save, self._ends, self.cancelled.is_set):
                return
        self._keep(checkpoint)

    def _memo_work(self) -> MemoWork | None:
        """The connection that the handler uses, if it does."""
        if self._conn is None or self._socket.is_copy:
            return None
        if self._of_memos is None or self._of_memos.conn is not self._conn:
            from pgflowd.processes.runner.completion import MemoWork

            self._of_memos = MemoWork(self._conn)
        return self._of_memos

    # child runs

    def _read_children(self) -> Mapping[str, str]:
        return dict(self._ask("children"))

    def _start_child(self, child: ChildStart) -> str:
        """Start it in the trace of the handler, if there are traces."""
        with starting(child.flow) as trace:
            traced = child.in_trace(trace or self.caller)
            body = self._body_of(traced.as_json(), f"the start of flow {child.flow}")
            return str(self._ask("start", body, runs=[child.run_id]))

    def _read_runs(self, run_ids: Sequence[str]) -> list[ChildRun]:
        found: list[ChildRun] = []
        while len(found) < len(run_ids):  # an answer has as many as are not too large together
            for run_id, status, output, error in self._ask("runs", runs=run_ids[len(found) :]):
                found.append(ChildRun(run_id, RunStatus(status), output, error))
        return found

    # questions to the worker

    def _ask(self, what: str, body: bytes = b"", **fields: Any) -> Any:
        self._refuse_copy()
        if self.is_over:
            raise RunError("the task has ended, so its ctx answers nothing more", code="E411")
        answer = self._socket.ask({"token": self.token, "what": what, **fields}, body)
        if refusal := answer.head.get("refusal"):
            error = _ERRORS.get(refusal["code"], RunError)
            raise error(refusal["text"], code=refusal["code"], next=refusal["next"])
        return loads(answer.body) if answer.body else None

    def _refuse_copy(self) -> None:
        if self._socket.is_copy:
            raise RunError(
                "only the runner itself can ask its worker, not a process that the handler forked",
                code="E402",
            )
