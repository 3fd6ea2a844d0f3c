"""
The worker's runners: the zygote forks and reaps them, the worker feeds and kills them.

A runner's end is reported to the engine in this order: its socket and pipes are read to the end,
what it left behind is killed, and then the event is sent; then the zygote reaps it. When the
zygote ends the worker has adopted the runners, and reaps them by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

from pgflowd.core.settings.sections import WorkerSettings
from pgflowd.core.worker import events
from pgflowd.core.worker.failure_text import exit_of, signal_name
from pgflowd.core.worker.task import Task
from pgflowd.host.process_tree import children, kill_adopted, kill_tree, reap
from pgflowd.processes.worker.runner_records import LogOfRunners
from pgflowd.processes.worker.runner_socket import Refusal, RunnerSocket
from pgflowd.processes.zygote.socket import Zygote

NAP_S = 0.005  # between two checks for adopted processes that are being killed


class RunnerProcesses:
    """All runners of a worker, and its zygote."""

    def __init__(
        self,
        zygote: Zygote,
        settings: WorkerSettings,
        emit: Callable[[events.WorkerEvent], None],
        log: LogOfRunners,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.zygote = zygote
        self._settings = settings
        self._emit, self._log = emit, log
        self._loop = loop
        self._sockets: dict[int, RunnerSocket] = {}
        self._reaping: dict[int, int] = {}  # pid: runner
        self._has_zygote_ended = False
        self._loop.add_reader(zygote.socket, self._on_zygote_message)
        self._loop.add_reader(zygote.pidfd, self._on_zygote_end)

    def get(self, id: int) -> RunnerSocket | None:
        """The runner; None if the zygote refused it, of which the engine has yet to learn."""
        return self._sockets.get(id)

    def fork(self, id: int) -> None:
        runner = RunnerSocket(id, self._emit, self._sweep, self._log, self._settings)
        try:
            ends = runner.open()
        except OSError as error:
            self._emit(events.ForkRefused(id, str(error)))
            return
        self._sockets[id] = runner
        self._send({"do": "fork", "id": id}, ends)

    def send(self, id: int, task: Task, is_shared: bool) -> None:
        self._sockets[id].send(task, is_shared)

    def answer(self, id: int, token: int, body: bytes | None, refusal: Refusal | None) -> None:
        if id in self._sockets:
            self._sockets[id].answer(token, body or b"", refusal)

    def task_of(self, id: int, token: int) -> Task | None:
        return self._sockets[id].tasks.get(token) if id in self._sockets else None

    def reap(self, id: int) -> None:
        runner = self._sockets[id]
        assert runner.pid is not None
        self._reaping[runner.pid] = id
        if self._has_zygote_ended:
            self._reap_orphans()
        else:
            self._send({"do": "reap", "pid": runner.pid})

    def kill_zygote(self) -> None:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self.zygote.pidfd, signal.SIGKILL)

    def _send(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        self.zygote.socket.send(message, descriptors)
        if self.zygote.socket.is_waiting:
            self._loop.add_writer(self.zygote.socket, self._flush)

    def _flush(self) -> None:
        self.zygote.socket.flush()
        if not self.zygote.socket.is_waiting:
            self._loop.remove_writer(self.zygote.socket)

    def _on_zygote_message(self) -> None:
        while answer := self.zygote.socket.receive():
            message = answer.message
            if message["say"] == "forked":
                self._forked(message["id"], message["pid"], answer.descriptors)
            elif message["say"] == "refused":
                self._sockets.pop(message["id"]).close()
                refused = events.ForkRefused(message["id"], message["text"], message["needs_room"])
                self._emit(refused)
            elif message["say"] == "ended":
                usage = (message["cpu_s"], message["peak_kb"])
                self._reaped(message["pid"], message["status"], *usage)
        if self.zygote.socket.at_end:
            self._loop.remove_reader(self.zygote.socket)

    def _forked(self, id: int, pid: int, descriptors: list[int]) -> None:
        if not descriptors:  # no room for its pidfd
            os.kill(pid, signal.SIGKILL)
            self._send({"do": "reap", "pid": pid})
            self._sockets.pop(id).close()
            self._emit(events.ForkRefused(id, "too many open files"))
            return
        self._sockets[id].begin(pid, descriptors[0])
        self._emit(events.Forked(id, pid))

    def _reaped(self, pid: int, status: int, cpu_s: float = 0.0, peak_kb: int = 0) -> None:
        id = self._reaping.pop(pid, None)
        if id is None:
            return
        runner = self._sockets.pop(id)
        of_tasks = (runner.stack, runner.executing, runner.stacks, runner.printed)
        runner.close()
        self._emit(events.Reaped(id, status, cpu_s, peak_kb, *of_tasks))

    def _sweep(self, id: int) -> None:
        """Kill what a runner that has ended left behind; then report its end."""
        runner = self._sockets[id]
        is_clean = runner.was_retired and not runner.has_left
        # no strays are the zygote, and its runners once it has ended
        if not is_clean and kill_adopted(
            {self.zygote.pid, *(each.pid for each in self._sockets.values() if each.pid)}
        ):
            self._loop.call_later(NAP_S, self._sweep, id)
        else:
            self._emit(events.RunnerEnded(id))

    def _on_zygote_end(self) -> None:
        self._loop.remove_reader(self.zygote.pidfd)
        self._on_zygote_message()
        with contextlib.suppress(ChildProcessError):
            status = os.waitpid(self.zygote.pid, 0)[1]
            self._has_zygote_ended = True
            self._emit(events.ZygoteEnded(end_of(status)))
        self._loop.remove_reader(self.zygote.socket)
        self._reap_orphans()

    def _reap_orphans(self) -> None:
        for pid in list(self._reaping):
            try:
                _, status, used = os.wait4(pid, os.WNOHANG)
            except ChildProcessError:
                self._reaped(pid, signal.SIGKILL)
                continue
            self._reaped(pid, status, used.ru_utime + used.ru_stime, used.ru_maxrss)

    async def end(self, within_s: float) -> None:
        """Kill what is left: zygote, runners, and what they left behind."""
        self._loop.remove_reader(self.zygote.pidfd)
        for runner in self._sockets.values():
            runner.kill()
        for pid in children():
            kill_tree(pid)
        deadline = self._loop.time() + within_s
        while self._loop.time() < deadline:
            if reap(self.zygote.pid) and not kill_adopted(()):
                return
            await asyncio.sleep(NAP_S)


def end_of(status: int) -> str:
    """How a process ended, in words."""
    code, number = exit_of(status)
    if number is None:
        return f"it exited with code {code}"
    return f"killed by signal {number}, {signal_name(number)}"
