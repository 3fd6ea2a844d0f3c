"""
The worker: claims one flow's tasks, has its runners run them, and reports what came of them.

It forks its zygote, registers with the database, sends Ready, and then works in one loop: events,
the decisions of `core.worker.decide`, and actions which are started and never waited for. So a
deadline holds even while the database hangs. It runs no user code and takes orders from its
channel alone; when the supervisor has ended it kills its runners and ends. It is the only process
with asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import time
import traceback
import uuid
from collections.abc import Callable
from typing import Any

import setproctitle

from pgflowd.core.messages import (
    ConnectionRefused,
    Drain,
    Failed,
    Follow,
    Heartbeat,
    Leaving,
    MakeRoom,
    Message,
    QuickStop,
    Ready,
)
from pgflowd.core.metrics.definitions import LOG_RECORDS_DROPPED, portions
from pgflowd.core.redact import one_line, redact
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.tree import (
    EXIT_ASKED,
    EXIT_BUG,
    EXIT_CANNOT,
    EXIT_REPLACE,
    ServedFlow,
)
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.decide import HANDLERS, decide
from pgflowd.core.worker.events import Event, Tick
from pgflowd.core.worker.state import WorkerState
from pgflowd.core.worker.task import NEVER
from pgflowd.host.channel import Channel
from pgflowd.host.fork import NO_ROOM, become_subreaper, hide_memory, parent_pid
from pgflowd.host.logs import Log
from pgflowd.host.process_tree import children, kill_tree, reap
from pgflowd.processes.worker.database import MAIN, DatabaseConnections
from pgflowd.processes.worker.metrics import WorkerMetrics
from pgflowd.processes.worker.runner_records import OutputStream
from pgflowd.processes.worker.runner_socket import RunnerProcesses, RunnerSocket
from pgflowd.processes.worker.startup import (
    CannotStart,
    LoadedFlow,
    RegistrationSession,
    StoppedAtStart,
    load_flow_in_zygote,
)


# The mailbox: events that the engine has not seen yet, for a loop of asyncio.
#
# A loop that takes events which are there does not let other tasks run; only an empty mailbox
# waits.
class Mailbox:
    """Events that the engine has not seen yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._events: list[Event] = []
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = loop

    def put(self, event: Event) -> None:
        self._events.append(event)
        self._wake()

    async def next(self, until: float) -> list[Event]:
        """Return all that came, or a Tick at that moment, and now and then before."""
        if not self._events:
            self._waiter = self._loop.create_future()
            # an earlier timer stays, since a new one each time is expensive
            if until != NEVER and (self._timer is None or self._timer.when() > until):
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._loop.call_at(until, self._on_time)
            await self._waiter
            self._waiter = None
        arrived, self._events = self._events, []
        return arrived or [Tick()]

    def _on_time(self) -> None:
        self._timer = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


HEARTBEAT_S = 5.0  # between two heartbeats to the supervisor
ORPHAN_LIMIT_S = 3  # kept by the kernel
END_LIMIT_S = 1.0  # for killing what is left
MAX_CHARS = 1000  # about a bug of ours
TITLE_S = 0.05  # from a change to the title that shows it, so that short tasks do not pay for it


def main(
    channel: Channel,
    settings: Settings,
    log: Log,
    served: ServedFlow,
    worker_id: str | None = None,
) -> int:
    """The worker's whole life; returns its exit code. One that has slept has its id already."""
    gc.freeze()  # what we share with the supervisor stays untouched, and so shared
    become_subreaper()
    hide_memory()
    signal.signal(signal.SIGTERM, _on_sigterm)
    if os.getppid() != parent_pid():
        return 1
    try:
        loaded = load_flow_in_zygote(channel, settings, served)
    except StoppedAtStart:
        return EXIT_ASKED
    except CannotStart as why:
        channel.send(why.failed)
        return EXIT_CANNOT
    except OSError as error:
        log.error("worker.error", error=f"no process could be started: {error}")
        if error.errno in NO_ROOM:
            channel.send(MakeRoom())
        return 1
    # four descriptors for each runner; after the zygote's fork, so that handlers keep their limit
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loop = asyncio.new_event_loop()  # never closed: that would wait for helper threads
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(lambda _, context: _end_as_bug(channel, log, context))
    try:
        id = uuid.UUID(worker_id) if worker_id else uuid.uuid4()
        return loop.run_until_complete(_Worker(channel, settings, log, served, loaded, id).live())
    except Exception as error:
        _end_as_bug(channel, log, {"exception": error})
        raise


def _on_sigterm(number: int, frame: object) -> None:
    """The death signal. While the supervisor lives it is ignored: orders come by the channel."""
    if os.getppid() != parent_pid():
        _end_with_all()


def _end_as_bug(channel: Channel, log: Log, context: dict[str, Any]) -> None:
    """A bug of ours: log it with the traceback, and end with all processes below."""
    error = context.get("exception") or RuntimeError(context.get("message", "no message"))
    trace = "".join(traceback.format_exception(error))
    text = one_line(redact(f"{type(error).__name__}: {error}"), MAX_CHARS)
    log.error("worker.error", code="E901", error=text, trace=trace)
    channel.send(Failed("E901", text))
    _end_with_all(EXIT_BUG)


def _end_with_all(code: int = 1) -> None:
    """Kill all processes below, and end, in time. Without an exit code: as an orphan."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(ORPHAN_LIMIT_S)
    while pids := [pid for pid in children() if not reap(pid)]:
        for pid in pids:
            kill_tree(pid)
    os._exit(code)


class _Worker:
    """The loop, and what it uses."""

    def __init__(
        self,
        channel: Channel,
        settings: Settings,
        log: Log,
        served: ServedFlow,
        loaded: LoadedFlow,
        worker_id: uuid.UUID,
    ) -> None:
        self._loop = asyncio.get_event_loop()
        self._channel, self._settings = channel, settings
        self._served, self._zygote, self._worker_id = served, loaded.zygote, worker_id
        name = settings.worker_for(served.name).worker_name or None
        self._log = log.bind(worker=str(self._worker_id), worker_name=name)
        self._title = f"{settings.pgflowd.name}: worker {served.slug}"
        self._mailbox = Mailbox(self._loop)
        self._database = DatabaseConnections(
            settings,
            served,
            self._worker_id,
            self._title,
            self._mailbox.put,
            lambda: self._send(ConnectionRefused()),
        )
        self._output = OutputStream(self._log, self._mailbox.put)
        keys = settings.worker_for(served.name)
        self._runners = RunnerProcesses(self._zygote, keys, self._output, self._loop)
        self._session = RegistrationSession(
            settings, self._log, served, loaded, self._worker_id, self._title
        )
        self._metrics = WorkerMetrics(loaded.import_s)
        self._state: WorkerState
        self._leave: actions.Leave | None = None
        self._next_heartbeat: asyncio.TimerHandle | None = None  # none before the first
        self._shown, self._is_title_due = -1, False  # running tasks in the title; or they change

    async def live(self) -> int:
        """Start, work, end; return the exit code."""
        self._loop.add_reader(self._channel, self._on_message)
        try:
            options = await self._session.register(self._database, self._send)
        except StoppedAtStart:
            return await self._end(EXIT_ASKED)
        except CannotStart as why:
            self._send(why.failed)
            return await self._end(EXIT_CANNOT)
        self._database.with_run = sorted(self._session.loaded.with_run)
        self._database.originals = self._session.loaded.originals
        for run_id in self._session.followed:
            self._output.follow(run_id)
        self._state = WorkerState(options, worked_at=time.monotonic())
        self._metrics.problems = self._session.warnings
        for warning in self._session.warnings:
            self._log.warning("worker.warning", code=warning.code, text=str(warning))
        self._show_title()
        self._send(Ready(str(self._worker_id)))
        self._log.info("worker.started", zygote=self._zygote.pid)
        self._send_heartbeat()
        self._mailbox.put(events.Tick())  # claim what was queued before
        return await self._end(await self._work())

    # the loop

    async def _work(self) -> int:
        perform = self._performers()
        while self._leave is None:
            if not self._is_title_due and self._state.runners.count_running() != self._shown:
                self._is_title_due = True
                self._loop.call_later(TITLE_S, self._show_title)
            arrived = await self._mailbox.next(self._state.due_at)
            self._state, wanted = decide(self._state, arrived, time.monotonic())
            for action in wanted:
                perform[type(action)](action)
        return self._leave.code

    def _performers(self) -> dict[type, Callable[[Any], None]]:
        database, runners, start = self._database, self._runners, self._database.start
        output, metrics = self._output, self._metrics

        def of_runner(do: Callable[[RunnerSocket, Any], None]) -> Callable[[Any], None]:
            def perform(action: actions.RunnerAction) -> None:
                if runner := runners.sockets.get(action.id):  # it may be gone already
                    do(runner, action)

            return perform

        return {
            actions.Connect: lambda a: start(a.connection, database.connect(a.connection)),
            actions.CloseConnection: database.close,
            actions.CutConnection: database.cut,
            actions.ReportAndClaim: lambda a: start(MAIN, database.report_and_claim(a)),
            actions.ReadNextDue: lambda a: start(MAIN, database.read_next_due()),
            actions.RenewLeases: lambda a: start(a.connection, database.renew_leases(a, output)),
            actions.Fetch: self._fetch,
            actions.PublishOutput: lambda a: start(a.connection, database.publish(a, output)),
            actions.WriteProgress: lambda a: start(a.connection, database.write_progress(a)),
            actions.AddMinute: lambda a: start(a.connection, database.add_minute(a, metrics)),
            actions.SignOff: lambda a: start(a.connection, database.sign_off(a, metrics)),
            actions.SendMessage: lambda action: self._send(action.message),
            actions.ForkRunner: lambda action: runners.fork(action.id),
            actions.SendTask: lambda a: runners.sockets[a.id].send(a.task, a.is_shared),
            actions.ReapRunner: lambda action: runners.reap(action.id),
            actions.KillZygote: lambda action: runners.kill_zygote(),
            actions.WriteLog: lambda a: self._log.write(a.level, a.event, **a.fields),
            actions.Count: self._metrics.count,
            actions.Observe: self._metrics.observe,
            actions.Leave: self._prepare_to_leave,
            actions.AnnounceStop: of_runner(lambda runner, _: runner.order("stopping")),
            actions.ReadResult: of_runner(lambda runner, a: runner.read_result(a.token)),
            actions.TakeResult: of_runner(lambda runner, a: runner.order("take", token=a.token)),
            actions.CancelTask: of_runner(lambda runner, a: runner.order("cancel", token=a.token)),
            actions.PingRunner: of_runner(lambda runner, _: runner.ping()),
            actions.TerminateRunner: of_runner(lambda runner, _: runner.terminate()),
            actions.KillRunner: of_runner(lambda runner, _: runner.kill()),
            actions.CloseRunner: of_runner(lambda runner, _: runner.retire()),
        }

    def _fetch(self, action: actions.Fetch) -> None:
        task = self._runners.task_of(action.request.runner_id, action.request.token)
        call = self._database.fetch(action, task, self._runners.answer)
        self._database.start(action.connection, call)

    def _prepare_to_leave(self, action: actions.Leave) -> None:
        self._leave = action
        if action.failure is not None:
            self._send(Failed(*action.failure))
        elif action.code == EXIT_REPLACE:
            self._send(Leaving(action.why))
        self._log.info("worker.stopped", code=action.code, reason=action.why or None)

    async def _end(self, code: int) -> int:
        await self._runners.end(END_LIMIT_S)
        self._output.end()
        self._channel.flush()
        return code

    # the supervisor

    def _on_message(self) -> None:
        for message in self._channel.receive():
            if isinstance(message, Follow):
                self._output.follow(message.run_id)
            elif isinstance(message, Message) and type(message) in HANDLERS:
                self._mailbox.put(message)
            if isinstance(message, Drain | QuickStop):
                self._session.stop()
            if isinstance(message, Drain) and self._next_heartbeat:
                self._next_heartbeat.cancel()  # what the drain waits for is told at once
                self._send_heartbeat()
        if self._channel.at_end:
            _end_with_all()

    def _send(self, message: Message) -> None:
        self._channel.send(message)
        if self._channel.is_waiting:
            self._loop.add_writer(self._channel, self._flush)

    def _flush(self) -> None:
        self._channel.flush()
        if not self._channel.is_waiting:
            self._loop.remove_writer(self._channel)

    def _send_heartbeat(self) -> None:
        numbers = self._metrics.now(self._state, self._zygote.pid, self._database.claimed_at)
        numbers[LOG_RECORDS_DROPPED.key] = self._log.lost
        for portion in portions(numbers):
            self._send(Heartbeat(portion))
        pause_s = min(HEARTBEAT_S, self._settings.supervisor.hang_timeout_s / 3)
        self._next_heartbeat = self._loop.call_later(pause_s, self._send_heartbeat)

    def _show_title(self) -> None:
        self._is_title_due, self._shown = False, self._state.runners.count_running()
        title = f"{self._title} {self._shown}/{self._state.options.max_concurrency}"
        setproctitle.setproctitle(title)
