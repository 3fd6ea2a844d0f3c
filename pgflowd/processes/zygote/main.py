"""
Zygote: imports a flow's module once, and forks its runners.

It answers with the definition, then waits on one socket and runs no line of user code: `fork`
(with the runner's socket, stdout and stderr) is answered by `forked` and a pidfd, or `refused`;
`reap`, sent when a runner is known to be dead, by its status and what it used. Until then no
pid or group can belong to another. A module that starts threads cannot be forked safely: the
zygote says so and ends, and another one leaves the import to each runner.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from pgflowd.core.definition.spec import StepSpec
from pgflowd.core.supervision.served_flow import ServedFlow
from pgflowd.errors import FlowError
from pgflowd.flow import Flow
from pgflowd.host.fork import become_subreaper, reset_handlers, set_death_signal
from pgflowd.host.proc import streams
from pgflowd.processes.flow_loading import load_flow, prepare
from pgflowd.processes.runner.main import RunnerProcess
from pgflowd.processes.runner.worker_socket import WorkerSocket
from pgflowd.processes.zygote.socket import ZygoteAnswer, ZygoteSocket

MOST_SAID = 5000  # characters, of which JSON may make twelve times as many bytes


@dataclass(frozen=True)
class ZygoteOptions:
    """What a zygote and its runners are told at their birth."""

    served: ServedFlow
    python_path: Sequence[str]
    secrets: Sequence[str]  # names of variables
    most_output: int
    oom_score_adj: int
    name: str = "pgflowd"  # of the daemon
    is_debug: bool = False
    imports: bool = True  # False: each runner imports the module by itself


def main(line: ZygoteSocket, brood: ZygoteOptions) -> int:
    """Import, tell, fork."""
    gc.freeze()  # what we share with the worker stays untouched, and so shared
    prepare(brood.python_path, brood.secrets)
    sys.stdout, sys.stderr = _stream(1), _stream(2)
    steps: dict[str, StepSpec] = {}
    if brood.imports:
        try:
            before = streams()
            flow = load_flow(brood.served.entry, brood.served.slug)
            line.send_long(_definition(flow, len(streams() - before)))
        except FlowError as error:
            first = error.problems[0]
            text = "; ".join(f"{p.place}: {p.text}" if p.place else p.text for p in error.problems)
            line.send({"say": "failed", "code": first.code, "text": text[:MOST_SAID]})
            return 1
        if _threads():
            return 0
        steps = flow.steps
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()  # else each runner would print what is left
    gc.collect()
    gc.freeze()
    _serve(line, brood, steps)
    return 0


def _stream(number: int) -> TextIO:
    """A text stream that writes whole lines to a descriptor, whatever they hold."""
    return open(number, "w", buffering=1, errors="backslashreplace", closefd=False)


def _definition(flow: Flow, shared: int) -> dict[str, Any]:
    return {
        "say": "definition",
        "shape": flow.shape(),
        "warnings": [(p.code, p.text, p.place) for p in flow.check() if p.is_warning],
        "threads": _threads(),
        "streams": shared,
    }


def _threads() -> list[str]:
    """The Python threads that the import left."""
    return [t.name for t in threading.enumerate() if t is not threading.main_thread()]


def _serve(line: ZygoteSocket, brood: ZygoteOptions, steps: dict[str, StepSpec]) -> None:
    while True:
        told = line.receive()
        if told is None:
            return
        if told.message["do"] == "fork":
            _fork(line, told, brood, steps)
        else:
            _reap(line, int(told.message["pid"]))


def _fork(
    line: ZygoteSocket, told: ZygoteAnswer, brood: ZygoteOptions, steps: dict[str, StepSpec]
) -> None:
    runner = told.message["id"]
    parent = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        if len(told.descriptors) < 3:
            raise OSError(24, "too many open files in the zygote")
        pid = os.fork()
        if pid == 0:
            _live(line, told.descriptors, brood, steps, parent)
        line.send({"say": "forked", "id": runner, "pid": pid}, [_pidfd(pid)])
    except OSError as error:
        line.send({"say": "refused", "id": runner, "text": str(error)})
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number in told.descriptors:
            os.close(number)


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _reap(line: ZygoteSocket, pid: int) -> None:
    try:
        _, status, used = os.wait4(pid, 0)
    except ChildProcessError:
        line.send({"say": "ended", "pid": pid, "status": 0, "cpu_s": 0.0, "peak_kb": 0})
        return
    cpu_s = round(used.ru_utime + used.ru_stime, 6)
    ended = {"say": "ended", "pid": pid, "status": status, "cpu_s": cpu_s}
    line.send({**ended, "peak_kb": used.ru_maxrss})


def _live(
    line: ZygoteSocket,
    descriptors: list[int],
    brood: ZygoteOptions,
    steps: dict[str, StepSpec],
    parent: int,
) -> None:
    """The runner's whole life. It never returns."""
    try:
        end = _become_runner(line, descriptors, brood, parent)
        _seed_numpy()
        flow = brood.served
        if not brood.imports:
            steps = load_flow(flow.entry, flow.slug).steps
        title = f"{brood.name}: runner {flow.slug}"
        runner = RunnerProcess(flow.slug, title, WorkerSocket(end), brood.most_output)
        runner.live(steps, is_debug=brood.is_debug)
        os._exit(0)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "backslashreplace"))
    finally:
        os._exit(1)


def _become_runner(
    line: ZygoteSocket, descriptors: list[int], brood: ZygoteOptions, parent: int
) -> socket.socket:
    signal.set_wakeup_fd(-1)
    reset_handlers()
    set_death_signal(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.setpgid(0, 0)
    become_subreaper()
    line.close()
    number, out, err = descriptors
    os.set_inheritable(number, False)  # else what a handler starts could speak for it
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (out, 1), (err, 2)):
        if source != target:
            os.dup2(source, target)
            os.close(source)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(brood.oom_score_adj))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return socket.socket(fileno=number)


def _seed_numpy() -> None:
    """Python seeds its own `random` anew in a fork; numpy's would be the same in all runners."""
    if found := sys.modules.get("numpy.random"):
        with contextlib.suppress(Exception):
            found.seed()
