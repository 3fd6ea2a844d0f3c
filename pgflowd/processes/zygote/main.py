"""
Imports a flow's module once, and forks the runners of one worker.

The zygote sends the flow's definition, then only waits on its socket and executes no line of user
code. It answers `fork` (with the runner's socket, stdout and stderr) by `forked` and a pidfd, or
by `refused`. The worker sends `reap` when a runner has ended. The answer has the exit status and
the resources that the runner used; until then no other process can get its pid or group. A module
that starts threads cannot be forked safely: the zygote reports them and ends, and the worker starts
another one, which leaves the import to each runner.
"""

from __future__ import annotations

import array
import contextlib
import errno
import gc
import mmap
import os
import resource
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import setproctitle

from pgflowd.core.definition.shape import facts_of, steps_of_version
from pgflowd.core.definition.spec import StepSpec
from pgflowd.core.json import dumps, loads
from pgflowd.errors import FlowError
from pgflowd.flow import Flow
from pgflowd.host import open_telemetry
from pgflowd.host.error_trackers import is_of_sdk
from pgflowd.host.fork import (
    NO_ROOM,
    become_subreaper,
    close_all_except,
    hide_memory,
    prepare_child,
    reopen_stdin,
    shared_streams,
    signals_blocked,
    start_process,
)
from pgflowd.processes.flow_loading import load_flow, prepare
from pgflowd.processes.runner.handler import is_async
from pgflowd.processes.runner.main import RunnerProcess, ZygoteOptions
from pgflowd.processes.runner.worker_socket import TaskStream, WorkerSocket

# The socket between a worker and its zygote, and the fork that begins it.
#
# A message is a JSON object that arrives whole or not at all (SOCK_SEQPACKET), with descriptors
# attached. The worker's end never blocks; the zygote's end only waits. The zygote stays in the
# worker's Unix session and dies with it.
MAX_MESSAGE = 64 * 1024
PART = MAX_MESSAGE // 5  # characters, up to four bytes each, of a text that may be longer
MAX_DESCRIPTORS = 4  # a runner's socket, stdout and stderr; a memory, where tasks share a runner


@dataclass(frozen=True)
class ZygoteMessage:
    """A message, and the descriptors that came with it."""

    message: dict[str, Any]
    descriptors: list[int]


@dataclass
class Zygote:
    """A forked zygote, seen from its worker."""

    pid: int
    pidfd: int
    socket: ZygoteSocket


def fork_zygote(main: Callable[[ZygoteSocket], int], title: str) -> Zygote:
    """Fork a process that runs `main`."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()

    def live() -> int:
        prepare_child(parent)
        close_all_except({0, 1, 2, theirs.fileno()})
        reopen_stdin()
        hide_memory(False)  # else its own oom_score_adj would be unwritable
        setproctitle.setproctitle(title)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        return main(ZygoteSocket(theirs))

    process = start_process(live, title)
    theirs.close()
    ours.setblocking(False)
    pid = int(process.pid)
    return Zygote(pid, os.pidfd_open(pid), ZygoteSocket(ours))


class ZygoteSocket:
    """One end of the socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._kept: deque[tuple[bytes, list[int]]] = deque()
        self._parts = ""
        self.at_end = False

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def is_waiting(self) -> bool:
        """Whether a message is kept until there is room."""
        return bool(self._kept)

    def send(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        """Send now, or keep until there is room. Descriptors are closed here once they are sent."""
        self._kept.append((dumps(message).encode(), descriptors or []))
        self.flush()

    def send_long(self, message: dict[str, Any]) -> None:
        """Send a message of any length, in parts."""
        text = dumps(message)
        for start in range(0, len(text), PART):
            is_last = start + PART >= len(text)
            self.send({"part": text[start : start + PART], "last": is_last})

    def flush(self) -> None:
        while self._kept:
            data, descriptors = self._kept[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            try:
                self._socket.sendmsg([data], rights if descriptors else [])
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.at_end = True
            self._kept.popleft()
            for number in descriptors:
                os.close(number)

    def receive(self) -> ZygoteMessage | None:
        """Return the next message; None: none now, or never again (`at_end`)."""
        while True:
            try:
                data, numbers, _, _ = socket.recv_fds(self._socket, MAX_MESSAGE, MAX_DESCRIPTORS)
            except (BlockingIOError, InterruptedError):
                return None
            except OSError:
                data, numbers = b"", []
            if not data:
                self.at_end = True
                return None
            message = loads(data)
            if "part" not in message:
                return ZygoteMessage(message, list(numbers))
            self._parts += message["part"]
            if message["last"]:
                whole, self._parts = self._parts, ""
                return ZygoteMessage(loads(whole), [])

    def close(self) -> None:
        for _, descriptors in self._kept:
            for number in descriptors:
                os.close(number)
        self._kept.clear()
        with contextlib.suppress(OSError):
            self._socket.close()


MAX_ERROR_CHARS = 5000  # JSON may make twelve times as many bytes of them


def main(worker_socket: ZygoteSocket, options: ZygoteOptions) -> int:
    """Import the flow, send its definition, then fork and reap at the worker's requests."""
    gc.freeze()  # memory shared with the worker stays untouched, and so shared
    prepare(options.python_path, options.secrets)
    knows_tasks = options.is_shared and options.is_captured
    open_stream = TaskStream.open if knows_tasks else _open_stream
    sys.stdout, sys.stderr = open_stream(1), open_stream(2)
    steps: dict[str, StepSpec] = {}
    flow: Flow | None = None
    if options.imports:
        try:
            before = shared_streams()
            flow = _load(options)
            worker_socket.send_long(_definition(flow, len(shared_streams() - before)))
        except FlowError as error:
            first = error.problems[0]
            text = "; ".join(f"{p.place}: {p.text}" if p.place else p.text for p in error.problems)
            failed = {"say": "failed", "code": first.code, "text": text[:MAX_ERROR_CHARS]}
            worker_socket.send(failed)
            return 1
        if not all(map(is_of_sdk, _threads())):
            return 0
        steps = flow.steps
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else the module takes our exit codes
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()  # else each runner would print what is left
    gc.collect()
    gc.freeze()
    while request := worker_socket.receive():
        if request.message["do"] == "fork":
            _fork(worker_socket, request, options, steps, flow)
        elif request.message["do"] == "serve_version":
            served = (request.message["shape"], request.message["version"])
            options = replace(options, version=served)
            steps = steps_of_version(flow.spec, *served) if flow else {}
        else:
            _reap(worker_socket, int(request.message["pid"]))
    return 0


def _load(options: ZygoteOptions) -> Flow:
    """Import the flow, and what exports the spans of its handlers, if there are traces."""
    flow = load_flow(options.served.entry, options.served.name)
    if options.service is not None:
        open_telemetry.load()
    return flow


def _open_stream(number: int) -> TextIO:
    """Open a text stream that writes whole lines to a descriptor, and never fails to encode."""
    return open(number, "w", buffering=1, errors="backslashreplace", closefd=False)


def _definition(flow: Flow, shared: int) -> dict[str, Any]:
    return {
        "say": "definition",
        "shape": flow.shape(),
        "with_run": [step.slug for step in flow.spec.steps if step.needs_run_input],
        "originals": {s.slug: s.parts for s in flow.spec.steps if s.undoes is not None},
        "async": [slug for slug, step in flow.steps.items() if is_async(step.handler)],
        "handlers": [asdict(facts) for facts in facts_of(flow.spec)],
        "warnings": [(p.code, p.text, p.place) for p in flow.check() if p.is_warning],
        "threads": _threads(),
        "streams": shared,
        "lifespan": flow.spec.lifespan.name if flow.spec.lifespan else None,
    }


def _threads() -> list[str]:
    """Return the names of the Python threads that the import started."""
    return [t.name for t in threading.enumerate() if t is not threading.main_thread()]


def _fork(
    worker_socket: ZygoteSocket,
    request: ZygoteMessage,
    options: ZygoteOptions,
    steps: dict[str, StepSpec],
    flow: Flow | None,
) -> None:
    runner = request.message["id"]
    parent = os.getpid()
    try:
        with signals_blocked():
            if len(request.descriptors) < 3 + options.is_shared:
                raise OSError(errno.EMFILE, "too many open files in the zygote")
            pid = os.fork()
            if pid == 0:
                _live(worker_socket, request.descriptors, options, steps, flow, parent)
            answer = {"say": "forked", "id": runner, "pid": pid}
            worker_socket.send(answer, [_open_pidfd(pid)])
    except OSError as error:
        needs_room = error.errno in NO_ROOM
        refusal = {"say": "refused", "id": runner, "text": str(error), "needs_room": needs_room}
        worker_socket.send(refusal)
    finally:
        for number in request.descriptors:
            os.close(number)


def _open_pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:  # without a descriptor the runner could not be watched
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _reap(worker_socket: ZygoteSocket, pid: int) -> None:
    status, cpu_s, peak_kb = 0, 0.0, 0
    with contextlib.suppress(ChildProcessError):
        _, status, used = os.wait4(pid, 0)
        cpu_s, peak_kb = round(used.ru_utime + used.ru_stime, 6), used.ru_maxrss
    usage = {"cpu_s": cpu_s, "peak_kb": peak_kb}
    worker_socket.send({"say": "ended", "pid": pid, "status": status, **usage})


def _live(
    worker_socket: ZygoteSocket,
    descriptors: list[int],
    options: ZygoteOptions,
    steps: dict[str, StepSpec],
    flow: Flow | None,
    parent: int,
) -> None:
    """Execute tasks as a runner until its worker is done with it. It never returns."""
    try:
        prepare_child(parent)
        os.setpgid(0, 0)
        become_subreaper()
        worker_socket.close()
        socket_to_worker = WorkerSocket(_take_descriptors(descriptors[:3]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(str(options.oom_score_adj))
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # after a fork Python reseeds its own `random`, but numpy does not
        if numpy_random := sys.modules.get("numpy.random"):
            with contextlib.suppress(Exception):
                numpy_random.seed()
        if flow is None:
            flow, ours = _load(options), options.version
            steps = steps_of_version(flow.spec, *ours) if ours else flow.steps
        memory: mmap.mmap | None = None  # in which it writes whose step it executes
        if options.is_shared:
            memory = mmap.mmap(descriptors[3], 0)
            os.close(descriptors[3])
        RunnerProcess(options, socket_to_worker, memory, flow.spec.lifespan).live(steps)
        os._exit(0)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "backslashreplace"))
    finally:
        os._exit(1)


def _take_descriptors(descriptors: list[int]) -> socket.socket:
    """Put stdin, stdout and stderr in their places, and return the socket to the worker."""
    number, out, err = descriptors
    os.set_inheritable(number, False)  # else programs that a handler starts could write to it
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (out, 1), (err, 2)):
        if source != target:
            os.dup2(source, target)
            os.close(source)
    return socket.socket(fileno=number)
