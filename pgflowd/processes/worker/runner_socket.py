"""
The worker's end of a runner: its socket, its output, its pidfd.

It never blocks and parses heads only; bodies are passed on. What it reads becomes events. What its
tasks print and log goes to `RunnerRecords`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, NamedTuple

from pgflowd.core.failure import MAX_MESSAGE_CHARS, MAX_TRACEBACK_CHARS, clean
from pgflowd.core.progress import is_sound
from pgflowd.core.settings.sections import WorkerSettings
from pgflowd.core.worker import events, runner_ends
from pgflowd.core.worker.runner_ends import exit_of, signal_name
from pgflowd.core.worker.runner_result import (
    fault_of,
    is_token,
    left_behind,
    recorded_of,
    report_of,
    request_of,
)
from pgflowd.core.worker.task import Task
from pgflowd.host.channel import PIECE, STEP, BadFrame, Frame, Frames, pack, receive
from pgflowd.host.process_tree import children, kill_adopted, kill_tree, reap
from pgflowd.processes.worker.runner_records import MAX_PASSES, OutputStream, RunnerRecords
from pgflowd.processes.zygote.main import Zygote

_LEVELS = ("debug", "info", "warning", "error")
CLOSED_LIMIT_S = 0.5  # from the end of its socket to that of the runner


class Refusal(NamedTuple):
    """Why a handler does not get what it asked for."""

    text: str
    code: str = "E409"
    next: str | None = None


class RunnerSocket:
    """One runner, seen from its worker."""

    def __init__(
        self,
        id: int,
        on_end: Callable[[int], None],
        stream: OutputStream,
        settings: WorkerSettings,
    ) -> None:
        self.id = id
        self.pid: int | None = None
        self.is_doomed = False  # to be killed once it is forked
        self.was_retired = False
        self.has_left = False  # its last task left something behind
        self.has_ended = False
        self._loop = asyncio.get_running_loop()
        self._emit, self._on_end = stream.pass_on, on_end
        self._may_share = settings.tasks_per_runner > 1
        self._pidfd = -1
        self.tasks: dict[int, Task] = {}  # by token
        self._is_shared = False  # several tasks may share it, now or later
        self._stacks: dict[int, str] = {}  # where they were when they were asked to end, by token
        self._memory = -1  # in which it writes whose step it executes
        self._executed = 0  # whose it was when it got SIGTERM
        self._pinged_at_step = 0
        self._is_terminated = False
        self._frames = Frames(settings.max_output_bytes)
        self._unsent = bytearray()
        self._has_bad_frame = False
        self._request = 0  # the token of a question without an answer
        self._was_reset = False  # it died with something unread in its socket
        self._is_task_last = False  # nothing was sent after the task
        self._announced: set[int] = set()  # tokens of large results that wait, or are being read
        self._socket: socket.socket
        self._records = RunnerRecords(stream, settings)

    def open(self) -> list[int]:
        """Make socket and pipes; return the runner's ends: socket, stdout, stderr, and a memory
        if tasks may share the runner."""
        theirs: list[int] = []
        try:
            self._socket, end = socket.socketpair()
            theirs.append(end.detach())
            theirs += self._records.open()
            if self._may_share:
                self._memory = os.memfd_create("pgflowd", os.MFD_CLOEXEC)
                os.ftruncate(self._memory, STEP.size)
                theirs.append(os.dup(self._memory))
        except OSError:
            for number in theirs:
                os.close(number)
            self._records.close(self._loop)
            if self._memory >= 0:
                os.close(self._memory)
            if hasattr(self, "_socket"):
                self._socket.close()
            raise
        self._socket.setblocking(False)
        return theirs

    def begin(self, pid: int, pidfd: int) -> None:
        """It is forked: watch it."""
        self.pid, self._pidfd = pid, pidfd
        self._loop.add_reader(pidfd, self._on_exit)
        self._loop.add_reader(self._socket, self._read)
        self._records.begin(self._loop)
        if self.is_doomed:
            self.kill()

    def send(self, task: Task, is_shared: bool = False) -> None:
        """Give it a task."""
        known, body = task.for_runner()
        head = {"do": "task", **known, "shared": is_shared}
        if trace := task.trace_for_runner:
            head["trace"] = trace
        if not self.tasks:
            self._is_task_last, self._request = True, 0
        self.tasks[task.token] = task
        self._is_shared = is_shared
        self._records.begin_task(task, is_shared=is_shared)
        self._send(pack(head, body))

    def ping(self) -> None:
        _, self._pinged_at_step = self._step()
        self.order("ping")

    def answer(self, token: int, body: bytes, refusal: Refusal | None = None) -> None:
        """Send what a handler asked for, if it still waits for that."""
        if self._request == token:
            self._request = 0
            self.order("answer", body, refusal=refusal and refusal._asdict())

    def order(self, do: str, body: bytes = b"", **fields: Any) -> None:
        """Send it something else than a task."""
        self._is_task_last = False
        self._send(pack({"do": do, **fields}, body))

    def read_result(self, token: int) -> None:
        """Read what lies in the socket; if no result is there, report that."""
        for _ in range(MAX_PASSES):  # a handler may log on and on
            if not self._read():
                break
        if token == events.PING and self._step()[1] != self._pinged_at_step:
            self._emit(events.Ponged(self.id))  # the loop is slow, and not blocked
        elif token == events.PING or (token in self.tasks and token not in self._announced):
            self._emit(events.NoResultYet(self.id, token))

    def terminate(self) -> None:
        self._records.keep_stack()
        self._executed = self._executed or self._step()[0]
        self._is_terminated = True
        if self.pid is not None and not self.has_ended:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        if self.pid is None:
            self.is_doomed = True
        elif not self.has_ended:
            kill_tree(self.pid)

    def retire(self) -> None:
        """Close the socket: it reads the end and exits."""
        self.was_retired = True
        self._close_socket()

    def _step(self) -> tuple[int, int]:
        """Whose step it executes, and the number of the step."""
        if self._memory < 0:
            return 0, 0
        token, number = STEP.unpack(os.pread(self._memory, STEP.size, 0))
        return token, number

    def reaped(self, status: int, cpu_s: float, peak_kb: int) -> events.Reaped:
        """Give back all descriptors; return what is known of its end."""
        executing = self._executed or self._step()[0]  # or did when it was to end
        of_tasks = (self._records.stack, executing, self._stacks, self._records.kept)
        self.close()
        return events.Reaped(self.id, status, cpu_s, peak_kb, *of_tasks)

    def close(self) -> None:
        """Give back all descriptors."""
        self._close_socket()
        self._records.close(self._loop)
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _on_exit(self) -> None:
        """Its pidfd is readable: read everything to the end, then report it."""
        self._loop.remove_reader(self._pidfd)
        self.has_ended = True
        while self._read():
            pass
        self._records.end()
        if len(self.tasks) == 1 and self._was_reset and self._is_task_last:
            self._emit(events.Undelivered(self.id, *self.tasks))
        self._on_end(self.id)

    def _read(self) -> bool:
        """Read one piece; return whether there may be more."""
        if self._socket.fileno() < 0:
            return False
        try:
            piece = receive(self._socket)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self._was_reset = True
            piece = b""
        if not piece:
            self._loop.remove_reader(self._socket)
            if not self.was_retired:
                self._loop.call_later(CLOSED_LIMIT_S, self._on_closed)
            return False
        if self._has_bad_frame:
            return True
        self._frames.feed(piece)
        try:
            while frame := self._frames.take():
                self._on_frame(frame)
        except BadFrame as error:
            self._report_bad_frame("E404" if error.is_too_large else "E903", str(error))
        return True

    def _on_closed(self) -> None:
        """Its socket was closed a while ago, and it has not ended."""
        if not self.has_ended:
            self._report_bad_frame("E903", "the runner's socket was closed")

    def _on_frame(self, frame: Frame) -> None:
        head = frame.head
        kind, token, size = head.get("say"), head.get("token"), head.get("size")
        token = token if is_token(token) else None  # anything may stand there
        if kind == "done" and token in self.tasks:
            self._done(head, frame.body)
        elif kind == "note" and head.get("level") in _LEVELS:
            self._records.note(head)
        elif kind == "ready" and not self.tasks:
            self._emit(events.RunnerReady(self.id))
        elif kind == "unready" and not self.tasks:
            text = clean(str(head.get("text")), MAX_MESSAGE_CHARS)
            traceback = clean(str(head.get("traceback") or ""), MAX_TRACEBACK_CHARS)
            self._emit(runner_ends.RunnerUnready(self.id, text, traceback or None))
        elif kind == "ask" and not self._request and (self._is_shared or token in self.tasks):
            self._asked(frame)
        elif kind == "progress" and (self._is_shared or token in self.tasks):
            self._told(token, frame.body)
        elif kind == "committing" and token in self.tasks:
            self._emit(events.Committing(self.id, head["token"]))
        elif kind == "finished" and token in self.tasks and is_token(size) and size >= 0:
            self._announced.add(head["token"])
            self._emit(events.ResultAnnounced(self.id, head["token"], size))
        elif kind == "pong" and self._is_shared:
            self._emit(events.Ponged(self.id))
        elif kind == "stack" and self._is_shared and token in self.tasks:
            self._stacks[head["token"]] = clean(str(head.get("text")), MAX_TRACEBACK_CHARS)
        elif not (self._is_shared and kind == "stack"):  # of a task that has ended meanwhile
            self._report_bad_frame("E903", f"an unexpected frame: {str(head)[:200]}")

    def _asked(self, frame: Frame) -> None:
        request = request_of(self.id, frame.head, frame.body)
        if request is None:
            self._report_bad_frame("E903", f"an unknown question: {str(frame.head)[:200]}")
            return
        self._request = request.token
        self._emit(events.HandlerAsked(request))

    def _told(self, token: int | None, value: bytes) -> None:
        if not is_sound(value):
            self._report_bad_frame("E903", f"an unknown progress: {value[:200]!r}")
        elif token is not None and token in self.tasks:  # one that shares it may have ended
            self._emit(events.ProgressTold(token, value))

    def _done(self, head: dict[str, Any], body: bytes) -> None:
        fault = fault_of(head, body)
        if len(body) > PIECE and head["token"] not in self._announced:
            fault = f"an output of {len(body)} bytes that was not announced"
        if fault:
            self._report_bad_frame("E903", fault)
            return
        task, left = self.tasks[head["token"]], left_behind(head)
        # while its lines are still known to be of this task
        printed = self._records.end_task(task, head)
        self._announced.discard(task.token)
        del self.tasks[task.token]
        self.has_left = any(left)
        stack = self._stacks.get(task.token, "")
        if not self._is_terminated:  # else it is reported with the end of the runner
            self._stacks.pop(task.token, None)
        report, recorded = report_of(task, head, body), recorded_of(task, head)
        report.printed = printed
        self._emit(events.Done(self.id, report, left, stack, recorded))

    def _report_bad_frame(self, code: str, text: str) -> None:
        self._has_bad_frame = True
        self._emit(events.BadFrameReceived(self.id, code, text))

    def _send(self, data: bytes) -> None:
        if self._socket.fileno() < 0:
            return
        if not self._unsent:
            try:
                sent = self._socket.send(data, socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self._was_reset = True
                return  # it has ended; its pidfd shows that
            if sent == len(data):
                return
            data = data[sent:]
            self._loop.add_writer(self._socket, self._on_writable)
        self._unsent += data

    def _on_writable(self) -> None:
        try:
            sent = self._socket.send(self._unsent[:PIECE], socket.MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            sent = len(self._unsent)
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._socket)

    def _close_socket(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()


# The worker's runners: the zygote forks and reaps them, the worker feeds and kills them.
#
# A runner's end is reported to the engine in this order: its socket and pipes are read to the end,
# what it left behind is killed, and then the event is sent; then the zygote reaps it. When the
# zygote ends the worker has adopted the runners, and reaps them by itself.
NAP_S = 0.005  # between two checks for adopted processes that are being killed


class RunnerProcesses:
    """All runners of a worker, and its zygote."""

    def __init__(
        self,
        zygote: Zygote,
        settings: WorkerSettings,
        stream: OutputStream,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.zygote = zygote
        self._settings = settings
        self._emit, self._stream = stream.pass_on, stream
        self._loop = loop
        # without those that the zygote refused, of which the engine may have yet to learn
        self.sockets: dict[int, RunnerSocket] = {}
        self._reaping: dict[int, int] = {}  # pid: runner
        self._has_zygote_ended = False
        self._loop.add_reader(zygote.socket, self._on_zygote_message)
        self._loop.add_reader(zygote.pidfd, self._on_zygote_end)

    def fork(self, id: int) -> None:
        runner = RunnerSocket(id, self._sweep, self._stream, self._settings)
        try:
            ends = runner.open()
        except OSError as error:
            self._emit(events.ForkRefused(id, str(error)))
            return
        self.sockets[id] = runner
        self._send({"do": "fork", "id": id}, ends)

    def answer(self, id: int, token: int, body: bytes | None, refusal: Refusal | None) -> None:
        if id in self.sockets:
            self.sockets[id].answer(token, body or b"", refusal)

    def task_of(self, id: int, token: int) -> Task | None:
        return self.sockets[id].tasks.get(token) if id in self.sockets else None

    def reap(self, id: int) -> None:
        runner = self.sockets[id]
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
                self.sockets.pop(message["id"]).close()
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
            self.sockets.pop(id).close()
            self._emit(events.ForkRefused(id, "too many open files"))
            return
        self.sockets[id].begin(pid, descriptors[0])
        self._emit(events.Forked(id, pid))

    def _reaped(self, pid: int, status: int, cpu_s: float = 0.0, peak_kb: int = 0) -> None:
        id = self._reaping.pop(pid, None)
        if id is not None:
            self._emit(self.sockets.pop(id).reaped(status, cpu_s, peak_kb))

    def _sweep(self, id: int) -> None:
        """Kill what a runner that has ended left behind; then report its end."""
        runner = self.sockets[id]
        is_clean = runner.was_retired and not runner.has_left
        # no strays are the zygote, and its runners once it has ended
        if not is_clean and kill_adopted(
            {self.zygote.pid, *(each.pid for each in self.sockets.values() if each.pid)}
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
        for runner in self.sockets.values():
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
