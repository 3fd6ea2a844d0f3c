"""
The worker's runners: it asks its zygote for them, feeds them, kills them, and buries them.

A runner's end is told in this order: its socket and pipes are read to the end, what it left
behind is killed, and only then does the loop hear of it; then the zygote reaps it. When the
zygote dies the worker has adopted the runners, and reaps them by itself.
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
from pgflowd.core.worker.state import Task
from pgflowd.host.process_tree import children, kill_adopted, kill_tree, reap
from pgflowd.processes.worker.runner_socket import DeadRunner, Log, RunnerSocket
from pgflowd.processes.zygote.socket import Zygote

NAP_S = 0.005  # between two looks for adopted processes that are being killed


class RunnerProcesses:
    """All runners of a worker, and its zygote."""

    def __init__(
        self, zygote: Zygote, settings: WorkerSettings, tell: Callable[[Any], None], log: Log
    ) -> None:
        self.zygote = zygote
        self._settings = settings
        self._tell, self._log = tell, log
        self._loop = asyncio.get_running_loop()
        self._links: dict[int, RunnerSocket] = {}
        self._reaping: dict[int, int] = {}  # pid: runner
        self._zygote_is_dead = False
        self._loop.add_reader(zygote.socket, self._answered)
        self._loop.add_reader(zygote.pidfd, self._zygote_died)

    def link(self, id: int) -> RunnerSocket | None:
        """The runner's link; None if the zygote refused it, which the loop has yet to hear."""
        return self._links.get(id)

    def fork(self, id: int) -> None:
        link = RunnerSocket(id, self._heard, self._log, self._settings.max_output_bytes)
        try:
            ends = link.open(self._settings.handler_output)
        except OSError as error:
            self._tell(events.ForkRefused(id, str(error)))
            return
        self._links[id] = link
        self._ask({"do": "fork", "id": id}, ends)

    def send(self, id: int, task: Task) -> None:
        self._links[id].send(task)

    def bring(self, id: int, token: int, body: bytes | None, problem: str | None) -> None:
        if id in self._links:
            self._links[id].answer(token, body or b"", problem)

    def task_of(self, id: int) -> Task | None:
        return self._links[id].task if id in self._links else None

    def reap(self, id: int) -> None:
        link = self._links[id]
        assert link.pid is not None
        self._reaping[link.pid] = id
        if self._zygote_is_dead:
            self._reap_orphans()
        else:
            self._ask({"do": "reap", "pid": link.pid})

    def kill_zygote(self) -> None:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self.zygote.pidfd, signal.SIGKILL)

    def _ask(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        self.zygote.socket.send(message, descriptors)
        if self.zygote.socket.is_waiting:
            self._loop.add_writer(self.zygote.socket, self._flush)

    def _flush(self) -> None:
        self.zygote.socket.flush()
        if not self.zygote.socket.is_waiting:
            self._loop.remove_writer(self.zygote.socket)

    def _answered(self) -> None:
        while told := self.zygote.socket.receive():
            message = told.message
            if message["say"] == "forked":
                self._forked(message["id"], message["pid"], told.descriptors)
            elif message["say"] == "refused":
                self._links.pop(message["id"]).close()
                self._tell(events.ForkRefused(message["id"], message["text"]))
            elif message["say"] == "ended":
                usage = (message["cpu_s"], message["peak_kb"])
                self._reaped(message["pid"], message["status"], *usage)
        if self.zygote.socket.at_end:
            self._loop.remove_reader(self.zygote.socket)

    def _forked(self, id: int, pid: int, descriptors: list[int]) -> None:
        if not descriptors:  # we have no room for its pidfd
            os.kill(pid, signal.SIGKILL)
            self._ask({"do": "reap", "pid": pid})
            self._links.pop(id).close()
            self._tell(events.ForkRefused(id, "too many open files"))
            return
        self._links[id].begin(pid, descriptors[0])
        self._tell(events.Forked(id, pid))

    def _reaped(self, pid: int, status: int, cpu_s: float = 0.0, peak_kb: int = 0) -> None:
        id = self._reaping.pop(pid, None)
        if id is None:
            return
        link = self._links.pop(id)
        stack = link.stack
        link.close()
        self._tell(events.Reaped(id, status, cpu_s, peak_kb, stack))

    def _heard(self, event: Any) -> None:
        if isinstance(event, DeadRunner):
            self._sweep(event.id)
        else:
            self._tell(event)

    def _sweep(self, id: int) -> None:
        """Kill what a dead runner left behind; then tell that it ended."""
        link = self._links[id]
        is_clean = link.was_retired and not link.has_left
        if not is_clean and kill_adopted(self._own()):
            self._loop.call_later(NAP_S, self._sweep, id)
        else:
            self._tell(events.RunnerEnded(id))

    def _own(self) -> set[int]:
        """Children of ours that are no garbage: the zygote, and its runners if it is dead."""
        runners = {link.pid for link in self._links.values() if link.pid is not None}
        return {self.zygote.pid, *runners}

    def _zygote_died(self) -> None:
        self._loop.remove_reader(self.zygote.pidfd)
        self._answered()
        with contextlib.suppress(ChildProcessError):
            status = os.waitpid(self.zygote.pid, 0)[1]
            self._zygote_is_dead = True
            self._tell(events.ZygoteEnded(end_of(status)))
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
        """Kill whatever is left: zygote, runners, and what they left."""
        self._loop.remove_reader(self.zygote.pidfd)
        for link in self._links.values():
            link.kill()
        for pid in children():
            kill_tree(pid)
        deadline = self._loop.time() + within_s
        while self._loop.time() < deadline:
            if reap(self.zygote.pid) and not kill_adopted(()):
                return
            await asyncio.sleep(NAP_S)


def end_of(status: int) -> str:
    """Say how a process ended."""
    code, number = exit_of(status)
    if number is None:
        return f"it exited with code {code}"
    return f"killed by signal {number}, {signal_name(number)}"
