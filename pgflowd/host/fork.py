"""
Forks the processes of pgflowd, and prepares each child in the same way.

    child = fork(main, title="pgflowd: sweeper", keep=[log.fileno()])
    child.channel, child.pidfd, child.pid

`main(channel)` runs in the child and returns its exit code; the child leaves by `os._exit`, so no
exit function of a library delays it. All signals are blocked during the fork, and every child
begins with `prepare_child`: no wakeup pipe, no inherited handlers, a death signal, a check that
the parent still lives. A child of the supervisor then gets a Unix session of its own. Its orders
come through the channel, so it ignores SIGINT, SIGTERM and SIGUSR1. The death signal of a worker is
SIGTERM: it sets a handler for it and then compares `os.getppid()` with `parent_pid()`. Nothing is
pickled.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import stat
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import multiprocess  # type: ignore[import-untyped]
import setproctitle

from pgflowd.host.channel import Channel

# options of prctl(2)
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
NO_ROOM = (errno.EAGAIN, errno.ENOMEM)  # for another process, as long as others are there
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h

_fork = multiprocess.get_context("fork")
_parent: list[int] = [0]


@dataclass
class ForkedChild:
    """A forked process, seen from its parent."""

    process: Any  # a multiprocess.Process, which collects the exit status
    pid: int  # also the id of its Unix session
    pidfd: int
    channel: Channel

    def has_ended(self) -> bool:
        """Ask the pidfd, which no inherited copy of a pipe can keep open."""
        return bool(select.select([self.pidfd], [], [], 0)[0])

    def collect(self) -> int:
        """Reap the child once it has ended; return the exit code, or minus the signal."""
        self.process.join()
        return int(self.process.exitcode)

    def close(self) -> None:
        """Close our descriptors of it."""
        self.channel.close()
        os.close(self.pidfd)
        self.process.close()


def fork(
    main: Callable[[Channel], int],
    *,
    title: str,
    keep: Iterable[int] = (),
    death_signal: signal.Signals = signal.SIGKILL,
) -> ForkedChild:
    """Fork a child that runs `main` in a Unix session of its own."""
    ours, theirs = Channel.pair()  # OSError when there are no descriptors left
    parent = os.getpid()
    kept = {0, 1, 2, theirs.fileno(), *keep}

    def live() -> int:
        prepare_child(parent, death_signal)
        os.setsid()
        close_all_except(kept)
        reopen_stdin()
        setproctitle.setproctitle(title)
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(ignored, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        return main(theirs)

    try:
        process = start_process(live, title)
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError:  # without a descriptor it could not be watched
            process.kill()
            process.join()
            raise
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return ForkedChild(process, int(process.pid), pidfd, ours)


def start_process(live: Callable[[], int], title: str) -> Any:
    """Fork a process that calls `live`, with all signals blocked, and leaves with its result."""

    def run() -> None:
        try:
            code = live()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        except BaseException:
            with contextlib.suppress(OSError):
                os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
            code = EXIT_BUG
        os._exit(code)

    process = _fork.Process(target=run, name=title, daemon=False)
    with signals_blocked():
        process.start()
    return process


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Block all signals, so that a new process gets none before it is prepared."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def prepare_child(parent: int, death_signal: signal.Signals = signal.SIGKILL) -> None:
    """Prepare a forked process, as its first step; end if the parent is gone already."""
    _parent[0] = parent
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
        with contextlib.suppress(OSError, ValueError):  # Python ignores SIGPIPE, and so do we
            if signal.getsignal(number) not in (signal.SIG_DFL, None):
                signal.signal(number, signal.SIG_DFL)
    set_death_signal(death_signal)
    if os.getppid() != parent:
        os._exit(1)


def parent_pid() -> int:
    """Return the pid of the process that forked this one."""
    return _parent[0]


def set_death_signal(number: int) -> None:
    """Have the kernel send us this signal when our parent ends. Set it after a change of user."""
    _prctl(PR_SET_PDEATHSIG, number)


def become_subreaper() -> None:
    """Adopt orphaned descendants, so that none escapes (Linux)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def hide_memory(hidden: bool = True) -> None:
    """Forbid or allow other processes of this user to read our memory and environment."""
    _prctl(PR_SET_DUMPABLE, 0 if hidden else 1)


def close_all_except(keep: set[int]) -> None:
    """Close all descriptors except these."""
    with os.scandir("/proc/self/fd") as entries:
        numbers = {int(entry.name) for entry in entries}
    for number in numbers - keep:
        with contextlib.suppress(OSError):
            os.close(number)


def reopen_stdin() -> None:
    """Let `sys.stdin` read descriptor 0; `multiprocess` gave it one that is closed by now."""
    with contextlib.suppress(OSError):
        sys.stdin = open(0, closefd=False)  # noqa: SIM115


def shared_streams() -> set[int]:
    """Return our descriptors that are sockets or pipes, which a fork would share."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  no need for paths
            with contextlib.suppress(OSError):
                mode = os.fstat(int(name)).st_mode
                if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
                    found.add(int(name))
    return found


def count_streams(count: int) -> str:
    """Write a number of shared streams in words."""
    return "1 socket or pipe" if count == 1 else f"{count} sockets or pipes"


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


# Turns signals into bytes in a pipe, so that a loop can wait for them.
#
# The handlers are empty. Python writes each signal's number into the pipe (`set_wakeup_fd`), and
# `received` reads them in order. So SIGINT and SIGTERM interrupt no code.
class SignalPipe:
    """The signals that arrived since the last call of `received`."""

    def __init__(self, wanted: Iterable[signal.Signals]) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._wanted = tuple(wanted)
        for number in self._wanted:
            signal.signal(number, lambda number, frame: None)  # the number is in the pipe

    def fileno(self) -> int:
        return self._read

    def ignore(self) -> None:
        """Ignore the signals from now on, for a process that ends.

        Python restores the default actions while it ends, and one more signal would then
        become our exit status.
        """
        for number in self._wanted:
            signal.signal(number, signal.SIG_IGN)

    def received(self) -> list[signal.Signals]:
        """Return the signals that have arrived, without waiting."""
        try:
            return [signal.Signals(number) for number in os.read(self._read, 4096)]
        except BlockingIOError:
            return []


def stacks() -> dict[str, str]:
    """Return the stack of each thread of this process, by the thread's name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return {
        names.get(ident, str(ident)): "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()
    }
