"""
Spawn: forks a child of the supervisor, and prepares it.

    child = fork(main, title="pgflowd: sweeper", keep=[log.fileno()])
    child.channel, child.pidfd, child.pid

`main(channel)` runs in the child and returns its exit code; the child leaves by `os._exit`,
so no library's exit function holds it up. Its first acts, with signals blocked: no wakeup
pipe, no inherited handlers, a death signal, a look whether the parent still lives, a Unix
session of its own, foreign descriptors closed, a title. It ignores SIGINT and SIGTERM, since
orders come by the channel, and SIGUSR1, unless it has something to say; a worker, whose death
signal is SIGTERM, sets a handler for it and then compares `os.getppid()` with `parent_pid()`.
Nothing is pickled.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import multiprocess  # type: ignore[import-untyped]
import setproctitle

from pgflowd.host.channel import Channel

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
BUG = 70

_fork = multiprocess.get_context("fork")
_parent: list[int] = [0]

Main = Callable[[Channel], int]


@dataclass
class ForkedChild:
    """A forked process, seen from its parent."""

    process: Any  # a multiprocess.Process, which collects the exit status
    pid: int  # also the id of its Unix session
    pidfd: int
    channel: Channel

    def has_ended(self) -> bool:
        """Whether it has ended. Ask the pidfd, which no copy of a pipe can deceive."""
        return bool(select.select([self.pidfd], [], [], 0)[0])

    def collect(self) -> int:
        """Reap it once it has ended; return the exit code, or minus the signal."""
        self.process.join()
        return int(self.process.exitcode)

    def close(self) -> None:
        """Give back the descriptors."""
        self.channel.close()
        os.close(self.pidfd)
        self.process.close()


def fork(
    main: Main,
    *,
    title: str,
    keep: Iterable[int] = (),
    death_signal: signal.Signals = signal.SIGKILL,
) -> ForkedChild:
    """Fork a child that runs `main` in a Unix session of its own."""
    ours, theirs = Channel.pair()  # OSError when there are no descriptors left
    parent = os.getpid()
    kept = {0, 1, 2, theirs.fileno(), *keep}

    def run() -> None:
        os._exit(_live(main, theirs, kept, title, death_signal, parent))

    process = _fork.Process(target=run, name=title, daemon=False)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        process.start()
    except OSError:
        ours.close()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
    return _held(process, ours)


def _held(process: Any, channel: Channel) -> ForkedChild:
    """Take hold of a new process; without a descriptor for it there is none to keep."""
    pid = int(process.pid)
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        channel.close()
        process.kill()
        process.join()
        raise
    return ForkedChild(process, pid, pidfd, channel)


def parent_pid() -> int:
    """Return the pid of the process that forked this one."""
    return _parent[0]


def set_death_signal(number: int) -> None:
    """Have the kernel send us this signal when our parent ends. Set it after a change of user."""
    _prctl(PR_SET_PDEATHSIG, number)


def become_subreaper() -> None:
    """Adopt orphaned descendants, so that none gets away (Linux)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def hide_memory(hidden: bool = True) -> None:
    """Keep other processes of this user out of our memory and environment, or let them in."""
    _prctl(PR_SET_DUMPABLE, 0 if hidden else 1)


def _live(
    main: Main,
    channel: Channel,
    keep: set[int],
    title: str,
    death_signal: signal.Signals,
    parent: int,
) -> int:
    """The child's whole life, from its first act to its exit code."""
    try:
        _first_acts(keep, title, death_signal, parent)
        return main(channel)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        with contextlib.suppress(OSError):
            os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
        return BUG


def _first_acts(keep: set[int], title: str, death_signal: signal.Signals, parent: int) -> None:
    _parent[0] = parent
    signal.set_wakeup_fd(-1)
    reset_handlers()
    set_death_signal(death_signal)
    if os.getppid() != parent:
        os._exit(1)
    os.setsid()
    close_all_but(keep)
    take_stdin()
    setproctitle.setproctitle(title)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def reset_handlers() -> None:
    """Give every signal its default action, but for SIGPIPE, which Python ignores."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
        with contextlib.suppress(OSError, ValueError):
            if signal.getsignal(number) not in (signal.SIG_DFL, None):
                signal.signal(number, signal.SIG_DFL)


def close_all_but(keep: set[int]) -> None:
    """Close all descriptors but these."""
    with os.scandir("/proc/self/fd") as entries:
        numbers = {int(entry.name) for entry in entries}
    for number in numbers - keep:
        with contextlib.suppress(OSError):
            os.close(number)


def take_stdin() -> None:
    """Let `sys.stdin` read descriptor 0; `multiprocess` gave it one that is closed by now."""
    with contextlib.suppress(OSError):
        sys.stdin = open(0, closefd=False)  # noqa: SIM115


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")
