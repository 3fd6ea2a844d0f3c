"""
The `ctx` of a handler in a daemon; `core.context` describes its methods.

It requests from the worker the run's input, a step's output, checkpoints and the address of the
database. The connection of `conn()` belongs to the runner. When the handler has returned a value
that can be stored, the task is completed and committed there (`runner.completion`); it is rolled
back when the handler raises or waits. A memo is saved on it, and committed, if its function may
have changed something there; all other checkpoints are saved by the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from pgflowd.core.backoff import doubled_s
from pgflowd.core.context import Context, refuse_unknown_step
from pgflowd.core.definition.spec import StepSpec, arguments_for, undo_arguments
from pgflowd.core.failure import MAX_TRACEBACK_CHARS, UNSPENT, clean, failure_of
from pgflowd.core.json import SQL_NULL, decode, dumps, encode, loads
from pgflowd.core.output_stream import Pace
from pgflowd.core.progress import BURST, Document
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import size
from pgflowd.core.traces import CallerTrace, TaskTrace
from pgflowd.core.undo import Original, Undo, original_of
from pgflowd.core.waiting import Checkpoint, Keep, Wait, suspension_of
from pgflowd.core.wishes import ChildRun, ChildStart
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
from pgflowd.host import open_telemetry
from pgflowd.host.channel import Frame, pack
from pgflowd.host.open_telemetry import starting
from pgflowd.processes.runner.handler import StopFlag
from pgflowd.processes.runner.worker_socket import TaskOutput, WorkerSocket

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


class RunnerContext(Context):
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
        self.cancelled: StopFlag = StopFlag()
        self.is_over = False  # of a task that shares its runner: it has ended
        self._ends = time.time() + head["timeout"]
        self._runner, self._socket = runner, runner.socket
        self._conn: Any = None
        self._of_memos: MemoWork | None = None
        self.trace = TaskTrace(*head["trace"]) if "trace" in head else runner.trace
        self._lease_s = 0.0  # a memo that is saved there renews the lease for so long
        self.is_home = False  # whether it leads to the worker's database
        self._untold = b""  # a progress that was not sent, since others were just before

    # few handlers use these, so they are made on demand; mypy wants plain attributes

    @cached_property
    def deadline(self) -> datetime:  # type: ignore[override]
        return datetime.fromtimestamp(self._ends, UTC)

    @property
    def log(self) -> logging.Logger:  # type: ignore[override]
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
    def stopping(self) -> StopEvent:  # type: ignore[override]
        return StopEvent(self._socket)

    @cached_property
    def _wishes(self) -> Mapping[str, Any]:
        return self._ask("wishes") or {}

    @cached_property
    def labels(self) -> Mapping[str, str]:  # type: ignore[override]
        return dict(self._wishes.get("labels") or {})

    @cached_property
    def scheduled_for(self) -> datetime | None:  # type: ignore[override]
        at = self._wishes.get("start_at")
        return datetime.fromisoformat(at).astimezone(UTC) if at else None

    @cached_property
    def caller(self) -> CallerTrace | None:
        """The span of this attempt, if there are traces."""
        if self.trace is None:
            return None
        return self.trace.caller(self.run_id, self.step_slug, self.task_index, self.token)

    @cached_property
    def traceparent(self) -> str | None:  # type: ignore[override]
        return self.caller and self.caller.traceparent

    @property
    def wants_changes(self) -> bool:
        """Whether the worker uses the changes of the run, as for its log."""
        return self._runner.wants_changes

    def _read_input(self) -> Any:
        if self.undo is not None:
            return self._ask("original", parts=["run"])["run"]
        return self._ask("input")

    def read_original(self, parts: Sequence[str], known: Any = None) -> Original | None:
        """Read the task that this one undoes, as far as its handler takes it, if it is unknown."""
        original = original_of(known or self._ask("original", parts=parts))
        self.undo = original and original.undo
        return original

    def _read_output(self, slug: str) -> Any:
        refuse_unknown_step(slug, self._runner.steps, self.flow_slug)
        return self._ask("output", step=slug)

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

    def _tell_progress(self, told: Document) -> None:
        self._refuse_copy()
        self._untold = encode(told).encode()
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

    @cached_property
    def _version(self) -> int:  # type: ignore[override]
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
            from pgflowd.db import workers

            task, lease_s = (self.run_id, self.step_slug, self.task_index), self._lease_s
            name, data = checkpoint.name, self._encoded(checkpoint).decode()
            save = workers.save(task, self.token, name, data, checkpoint.version, lease_s)
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


# What each execution of a handler begins and ends with: its arguments, and how it is told.

# Writes the traceback of what a handler raised: the user's calls, and those of libraries below.
#
# Calls of pgflowd are left out wherever they stand, and what asyncio does before it enters the
# handler. A failed attempt is reported with it, and `run_flow` shows it.
MAX_FRAMES = 1000  # Python's own recursion limit

_PACKAGE = Path(__file__).parents[2]
_OURS, _EXAMPLES = f"{_PACKAGE}/", f"{_PACKAGE}/examples/"
_ASYNCIO = f"{Path(asyncio.__file__).parent}/"
_HEAD_WITHOUT_CALLS = re.compile(r"^Traceback \(most recent call last\):\n(?! )", re.M)


def traceback_of(error: BaseException) -> str:
    """Return the traceback; of a long one, its beginning and its end."""
    try:
        whole = traceback.TracebackException(
            type(error), error, error.__traceback__, limit=-MAX_FRAMES, compact=True
        )
        _leave_out_ours(whole)
        text = _HEAD_WITHOUT_CALLS.sub("", "".join(whole.format()))
    except BaseException as trouble:
        return f"(no traceback: {type(trouble).__name__})"
    return clean(shortened(text, MAX_TRACEBACK_CHARS), MAX_TRACEBACK_CHARS)


def shortened(text: str, longest: int) -> str:
    """The text, or its beginning and its end, where the calls and the error are."""
    if len(text) <= longest:
        return text
    half = (longest - 3) // 2
    return f"{text[:half]}\n…\n{text[len(text) - half :]}"


def _leave_out_ours(whole: traceback.TracebackException) -> None:
    """Do so in this exception, in those before it, and in those of a group."""
    pending = [whole]
    for each in pending:  # grows while it is read
        calls = dropwhile(
            lambda call: _is_ours(call) or call.filename.startswith(_ASYNCIO), each.stack
        )
        each.stack[:] = [call for call in calls if not _is_ours(call)]
        inside = (each.__cause__, each.__context__, *(each.exceptions or ()))
        pending += [one for one in inside if one is not None]


def _is_ours(call: traceback.FrameSummary) -> bool:
    return call.filename.startswith(_OURS) and not call.filename.startswith(_EXAMPLES)


SHORT_TRACEBACK = 2000  # characters


class TaskGiven(NamedTuple):
    """The decoded input of a task, of which arguments are made."""

    input: Any
    flow_input: Any


def arguments_of(step: StepSpec, frame: Frame, ctx: RunnerContext) -> dict[str, Any] | None:
    """Make the arguments of a handler from the frame of its task; None: there is nothing to do."""
    arguments: dict[str, Any] | None
    if step.undoes is not None:
        known = decode(frame.body) if frame.head["is_original"] else None
        arguments = undo_arguments(step, ctx.read_original(step.parts, known), ctx)
    else:
        split = frame.head["split"]
        of_flow = SQL_NULL if split is None else decode(frame.body[split:])
        given = TaskGiven(decode(frame.body[:split]), of_flow)
        arguments = arguments_for(step, given, ctx.flow_input, ctx)
    if step.codec is None or arguments is None:
        return arguments
    return step.codec.decoded(arguments)


@contextlib.contextmanager
def traced(ctx: RunnerContext) -> Iterator[None]:
    """Let the span of the attempt be current, for a handler that uses OpenTelemetry."""
    is_used = ctx.trace is not None and open_telemetry.is_imported()
    token = open_telemetry.attach(*ctx.caller) if is_used and ctx.caller else None
    try:
        yield
    finally:
        if token is not None:
            open_telemetry.detach(token)


def head_of_error(error: BaseException, ctx: RunnerContext) -> dict[str, Any]:
    """Return the head of `done` for an exception, which may say that the handler waits."""
    if suspended := suspension_of(error):
        return {"outcome": "suspended", "wait": suspended.wait.as_json()}
    failure = failure_of(error, is_last=ctx.attempt >= ctx.max_attempts)
    if failure.at_most_s is not None:
        return {
            "outcome": "released",
            "error_type": UNSPENT,
            "error_message": failure.message,
            "delay_s": failure.delay_s,
            "at_most_s": failure.at_most_s,
        }
    head: dict[str, Any] = {
        "outcome": "failed",
        "error_type": failure.error_type,
        "error_message": failure.message,
        "traceback": traceback_of(error),
    }
    if not failure.retry:
        head["retry"] = False
    if failure.delay_s is not None:
        head["delay_s"] = failure.delay_s
    return head


def packed_result(head: dict[str, Any], body: bytes) -> bytes:
    """The frame of `done`; of a traceback that is too long for a head, a part."""
    try:
        return pack(head, body)
    except ValueError:  # by characters of several bytes
        short = shortened(head.get("traceback", ""), SHORT_TRACEBACK)
        return pack({**head, "traceback": short}, body)


def leave(error: BaseException) -> NoReturn:
    """End a process that the handler forked, as Python ends one that an exception leaves."""
    code = error.code if isinstance(error, SystemExit) else error
    if not isinstance(code, int | None):
        with contextlib.suppress(Exception):
            sys.stderr.write(f"{code}\n" if isinstance(error, SystemExit) else traceback_of(error))
        code = 1
    flush_streams()
    os._exit((code or 0) & 0xFF)


def flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105  half a microsecond
            stream.flush()
        except Exception:
            pass
