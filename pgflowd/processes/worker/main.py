"""
Worker: runs one flow's tasks: claims them, has its runners run them, reports what came of it.

It forks its zygote, sees to it that the database knows the flow, writes its row, says Ready,
and then turns in one loop: an event, what `core.worker.decide` decides, and actions which are
started and never waited for. So a deadline holds even while the database hangs. It runs no
user code and takes orders from its channel alone; if the supervisor is gone it kills its
runners and ends. The only process with asyncio.
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

from pgflowd.core.messages import Drain, Failed, Follow, Heartbeat, Leaving, QuickStop, Ready, Wake
from pgflowd.core.metrics.counters import portions
from pgflowd.core.redact import one_line, redact
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.exits import EXIT_ASKED, EXIT_BUG, EXIT_CANNOT, EXIT_REPLACE
from pgflowd.core.supervision.served_flow import ServedFlow
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.decide import decide
from pgflowd.core.worker.state import WorkerState
from pgflowd.host.channel import Channel
from pgflowd.host.fork import become_subreaper, hide_memory, parent_pid
from pgflowd.host.logs import Log
from pgflowd.host.process_tree import children, kill_tree, reap
from pgflowd.processes.worker.database import DatabaseConnections
from pgflowd.processes.worker.mailbox import Mailbox
from pgflowd.processes.worker.metrics import WorkerMetrics
from pgflowd.processes.worker.output_stream import OutputStream
from pgflowd.processes.worker.registration import RegistrationSession
from pgflowd.processes.worker.runner_socket import RunnerSocket
from pgflowd.processes.worker.runners import RunnerProcesses
from pgflowd.processes.worker.startup import (
    CannotStart,
    LoadedFlow,
    StoppedAtStart,
    load_flow_in_zygote,
)

BEAT_S = 5.0  # between two Beats to the supervisor
ORPHAN_LIMIT_S = 3  # kept by the kernel
END_LIMIT_S = 1.0  # for killing what is left
MOST_SAID = 1000  # characters about a bug of ours
TITLE_S = 0.05  # from a change to the title that shows it, so that short tasks do not pay for it


def main(channel: Channel, settings: Settings, log: Log, served: ServedFlow) -> int:
    """The worker's whole life; returns its exit code."""
    gc.freeze()  # what we share with the supervisor stays untouched, and so shared
    become_subreaper()
    hide_memory()
    signal.signal(signal.SIGTERM, _on_sigterm)
    if os.getppid() != parent_pid():
        return 1
    try:
        hatched = load_flow_in_zygote(channel, settings, served)
    except StoppedAtStart:
        return EXIT_ASKED
    except CannotStart as why:
        channel.send(why.failed)
        return EXIT_CANNOT
    _allow_many_descriptors()
    loop = asyncio.new_event_loop()  # never closed: that would wait for helper threads
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(lambda _, context: _end_as_bug(channel, log, context))
    try:
        return loop.run_until_complete(_Worker(channel, settings, log, served, hatched).live())
    except Exception as error:
        _end_as_bug(channel, log, {"exception": error})
        raise


def _allow_many_descriptors() -> None:
    """Four for each runner. After the zygote's fork, so that handlers keep their limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _on_sigterm(number: int, frame: object) -> None:
    """Our death signal. While the supervisor lives it is ignored: orders come by the channel."""
    if os.getppid() != parent_pid():
        _end_as_orphan()


def _end_as_bug(channel: Channel, log: Log, context: dict[str, Any]) -> None:
    """A bug of ours: say so, with the traceback, and end with everything below us."""
    error = context.get("exception") or RuntimeError(context.get("message", "no message"))
    trace = "".join(traceback.format_exception(error))
    text = one_line(redact(f"{type(error).__name__}: {error}"), MOST_SAID)
    log.error("worker.error", code="E901", error=text, trace=trace)
    channel.send(Failed("E901", text))
    _end_with_all(EXIT_BUG)


def _end_as_orphan() -> None:
    _end_with_all(1)


def _end_with_all(code: int) -> None:
    """Kill everything below us, and end, in time."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(ORPHAN_LIMIT_S)
    while pids := [pid for pid in children() if not reap(pid)]:
        for pid in pids:
            kill_tree(pid)
    os._exit(code)


class _Worker:
    """The loop, and what it holds."""

    def __init__(
        self,
        channel: Channel,
        settings: Settings,
        log: Log,
        served: ServedFlow,
        hatched: LoadedFlow,
    ) -> None:
        self._channel, self._settings, self._log = channel, settings, log
        self._served, self._hatched = served, hatched
        self._worker_id = uuid.uuid4()
        self._worker = settings.worker_for(served.slug)
        self._mailbox: Mailbox
        self._mind: WorkerState
        self._lines: DatabaseConnections
        self._audience: OutputStream
        self._runners: RunnerProcesses
        self._entrance: RegistrationSession
        self._numbers = WorkerMetrics()
        self._left: actions.Leave | None = None
        self._shown = -1  # running tasks, in the title
        self._is_title_due = False

    async def live(self) -> int:
        """Start, turn, end; return the exit code."""
        loop = asyncio.get_running_loop()
        self._mailbox = Mailbox()
        name = f"{self._settings.pgflowd.name}: worker {self._served.slug}"
        self._lines = DatabaseConnections(
            self._settings, self._served.slug, self._worker_id, name, self._mailbox.put
        )
        self._log = self._log.bind(worker=str(self._worker_id))
        self._audience = OutputStream(self._log, self._mailbox.put)
        self._runners = RunnerProcesses(
            self._hatched.zygote, self._worker, self._audience.heard, self._audience.write
        )
        self._entrance = RegistrationSession(
            self._settings, self._log, self._served, self._hatched, self._worker_id
        )
        loop.add_reader(self._channel, self._heard)
        try:
            self._mind = WorkerState(await self._entrance.pass_through(self._lines, self._send))
        except StoppedAtStart:
            return await self._end(EXIT_ASKED)
        except CannotStart as why:
            self._send(why.failed)
            return await self._end(EXIT_CANNOT)
        self._numbers.problems = self._entrance.warnings
        for warning in self._entrance.warnings:
            self._log.warning("worker.warning", code=warning.code, text=str(warning))
        self._show_title()
        self._send(Ready(str(self._worker_id)))
        self._log.info("worker.started", zygote=self._hatched.zygote.pid)
        self._beat()
        self._mailbox.put(events.WokenUp())  # what was queued before we came, nobody tells us of
        await self._turn()
        assert self._left is not None
        return await self._end(self._left.code)

    # the loop

    async def _turn(self) -> None:
        perform = self._acts()
        while self._left is None:
            if self._mind.running != self._shown and not self._is_title_due:
                self._is_title_due = True
                asyncio.get_running_loop().call_later(TITLE_S, self._show_title)
            events = await self._mailbox.next(self._mind.nap_s(time.monotonic()))
            self._numbers.saw(events, self._mind)
            self._mind, actions = decide(self._mind, events, time.monotonic())
            for action in actions:
                perform[type(action)](action)

    def _acts(self) -> dict[type, Any]:
        lines, runners = self._lines, self._runners

        def to(id: int, do: Callable[[RunnerSocket], None]) -> None:
            if link := runners.link(id):
                do(link)

        return {
            actions.Connect: lambda action: lines.connect(action.line),
            actions.CutConnection: lambda action: lines.cut(action.line),
            actions.ReportAndClaim: lines.turn,
            actions.AskNextDue: lambda action: lines.ask_due(),
            actions.RenewLeases: lines.beat,
            actions.Fetch: lambda a: lines.fetch(a, runners.task_of(a.id), runners.bring),
            actions.PublishOutput: lambda action: lines.tell(self._audience),
            actions.SignOff: lambda action: lines.goodbye(),
            actions.ForkRunner: lambda action: runners.fork(action.id),
            actions.SendTask: lambda action: runners.send(action.id, action.task),
            actions.AnnounceStop: lambda action: to(action.id, lambda link: link.tell_stopping()),
            actions.ReadResult: lambda action: to(action.id, lambda link: link.peek(action.token)),
            actions.TerminateRunner: lambda action: to(action.id, lambda link: link.term()),
            actions.KillRunner: lambda action: to(action.id, lambda link: link.kill()),
            actions.CloseRunner: lambda action: to(action.id, lambda link: link.retire()),
            actions.ReapRunner: lambda action: runners.reap(action.id),
            actions.KillZygote: lambda action: runners.kill_zygote(),
            actions.WriteLog: lambda a: self._log.write(a.level, a.event, **a.fields),
            actions.ClaimCheckDue: lambda action: self._numbers.woken(action.reason),
            actions.CountRunsEnded: lambda action: self._numbers.ended(action.status, action.count),
            actions.Leave: self._leave,
        }

    def _leave(self, action: actions.Leave) -> None:
        self._left = action
        if action.failure is not None:
            self._send(Failed(*action.failure))
        elif action.code == EXIT_REPLACE:
            self._send(Leaving(action.why))
        self._log.info("worker.stopped", code=action.code, reason=action.why or None)

    async def _end(self, code: int) -> int:
        await self._runners.end(END_LIMIT_S)
        self._channel.flush()
        return code

    # the supervisor

    def _heard(self) -> None:
        for message in self._channel.receive():
            if isinstance(message, Wake):
                self._numbers.woken("notification")
                self._mailbox.put(events.WokenUp())
            elif isinstance(message, Follow):
                self._audience.follow(message.run_id)
            elif isinstance(message, Drain):
                self._entrance.stop()
                self._mailbox.put(events.DrainAsked(message.within_s))
            elif isinstance(message, QuickStop):
                self._entrance.stop()
                self._mailbox.put(events.StopAsked())
        if self._channel.at_end:
            _end_as_orphan()

    def _send(self, message: Any) -> None:
        self._channel.send(message)
        if self._channel.is_waiting:
            loop = asyncio.get_running_loop()
            loop.add_writer(self._channel, self._flush)

    def _flush(self) -> None:
        self._channel.flush()
        if not self._channel.is_waiting:
            asyncio.get_running_loop().remove_writer(self._channel)

    def _beat(self) -> None:
        now = self._numbers.now(self._mind, self._lines.standing, self._hatched.zygote.pid)
        for portion in portions(now):
            self._send(Heartbeat(portion))
        pause_s = min(BEAT_S, self._settings.supervisor.hang_timeout_s / 3)
        asyncio.get_running_loop().call_later(pause_s, self._beat)

    def _show_title(self) -> None:
        self._is_title_due, self._shown = False, self._mind.running
        running = f"{self._shown}/{self._mind.options.max_concurrency}"
        title = f"{self._settings.pgflowd.name}: worker {self._served.slug} {running}"
        setproctitle.setproctitle(title)
