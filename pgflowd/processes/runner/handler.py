"""
Calls a user's handler, sync or async, so that SIGTERM can end it gently.

SIGTERM sets `StopFlag`, which is `ctx.cancelled`, and cancels an async handler. The stack is
written to stderr even when the handler computes in C and holds the interpreter. A coroutine that
awaits is on no stack, so its awaited frames are written too. SIGTERM ends the process between
tasks, and before a handler has begun, but not while a result is on its way. An async handler gets a
new event loop, which is gone before the next handler runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import faulthandler
import inspect
import os
import signal
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pgflowd.core.definition.spec import LifespanSpec

# What a flow's lifespan yields, `ctx.resources`, and the event loop in which an async one lives.
#
# A sync lifespan leaves the loops of async handlers as they are: each has one of its own, or shares
# one with others. An async lifespan is begun and ended by one asyncio task, so that it may hold a
# task group; its loop stays as long as the process, and async handlers run in it. What they leave
# in the loop is cancelled, and what the lifespan has begun is not.
CLOSE_LIMIT_S = 0.2  # for what handlers left in the loop to end
_NO_YIELD = "it ended without a yield"


class Resources:
    """The lifespan of one process; without a function there is nothing to enter."""

    def __init__(self, lifespan: LifespanSpec | None = None) -> None:
        self.value: Any = None
        self.loop: asyncio.AbstractEventLoop | None = None  # in which an async lifespan lives
        self._lifespan = lifespan
        self._generator: Generator[Any, None, None] | None = None
        self._holder: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._kept: set[asyncio.Task[Any]] = set()  # that the lifespan has begun
        self._executor: ThreadPoolExecutor | None = None

    def enter(self) -> None:
        """Execute the lifespan up to its yield. Raises what it raises."""
        if self._lifespan is None:
            return
        function = self._lifespan.function
        if inspect.isasyncgenfunction(function):
            self.loop = asyncio.new_event_loop()
            self._renew_executor()
            self.loop.run_until_complete(self._begin(function))
            self._kept = asyncio.all_tasks(self.loop)
            return
        generator = function()
        try:
            self.value = next(generator)
        except StopIteration:
            raise RuntimeError(_NO_YIELD) from None
        self._generator = generator

    def leave(self) -> None:
        """Execute the rest of it. Raises what that raises."""
        generator, self._generator = self._generator, None
        if generator is not None:
            with contextlib.suppress(StopIteration):
                next(generator)
                generator.close()
        holder, self._holder = self._holder, None
        if self.loop is not None and holder is not None:
            self._leave.set()
            self.loop.run_until_complete(holder)

    @property
    def is_spoiled(self) -> bool:
        """Whether the next task needs another process: the lifespan has ended by itself, or what a
        handler has left in its loop goes on."""
        return self._holder is not None and (self._holder.done() or bool(self.pending()))

    def pending(self) -> set[asyncio.Task[Any]]:
        """What handlers have left in the loop."""
        return asyncio.all_tasks(self.loop) - self._kept if self.loop else set()

    def run(
        self,
        coroutine: Coroutine[Any, Any, Any],
        began: Callable[[asyncio.Task[Any]], None] = lambda task: None,
    ) -> Any:
        """Return what a coroutine returns, in the loop or a new one; tell its task to `began`."""
        with contextlib.ExitStack() as stack:
            if (loop := self.loop) is not None:
                stack.callback(self.settle)
            else:  # by a factory, or the thread would have "no current event loop" from then on
                runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
                loop = stack.enter_context(runner).get_loop()
            task = loop.create_task(coroutine)
            began(task)
            return loop.run_until_complete(task)

    def settle(self) -> None:
        """End what handlers left in the loop, as far as it ends by itself."""
        assert self.loop is not None
        if pending := self.pending():
            for task in pending:
                task.cancel()
            self.loop.run_until_complete(asyncio.wait(pending, timeout=CLOSE_LIMIT_S))
        if self._executor is not None and (threads := self._executor._threads):
            self._executor.shutdown(wait=False, cancel_futures=True)
            limit = time.monotonic() + CLOSE_LIMIT_S
            while any(each.is_alive() for each in threads) and time.monotonic() < limit:
                time.sleep(0.001)
            self._renew_executor()

    def _renew_executor(self) -> None:
        """Threads of `asyncio.to_thread` end with the handler that used them."""
        assert self.loop is not None
        self._executor = ThreadPoolExecutor(thread_name_prefix="asyncio")
        self.loop.set_default_executor(self._executor)

    async def _begin(self, function: Callable[[], AsyncGenerator[Any, None]]) -> None:
        began = asyncio.Event()
        self._holder = asyncio.create_task(self._hold(function(), began))
        waiting = asyncio.create_task(began.wait())
        await asyncio.wait({self._holder, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not began.is_set():
            waiting.cancel()
            await self._holder

    async def _hold(self, generator: AsyncGenerator[Any, None], began: asyncio.Event) -> None:
        async with contextlib.aclosing(generator):
            try:
                self.value = await anext(generator)
            except StopAsyncIteration:
                raise RuntimeError(_NO_YIELD) from None
            began.set()
            await self._leave.wait()
            with contextlib.suppress(StopAsyncIteration):
                await anext(generator)


_SLICE_S = 0.02  # so soon a wait notices SIGTERM
_MAX_FRAMES = 100  # as many as faulthandler writes
EXIT_BY_TERM = 128 + signal.SIGTERM  # as shells report it


class StopFlag:
    """An event that SIGTERM sets. It has no lock: the signal may arrive while one is held."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        while not (is_set := self.is_set()):
            left_s = _SLICE_S if end is None else min(_SLICE_S, end - time.monotonic())
            if left_s <= 0:
                break
            time.sleep(left_s)
        return is_set

    def set(self) -> None:
        self._is_set = True


class Caller:
    """Calls one handler at a time."""

    def __init__(self) -> None:
        self._stop: StopFlag | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._end_all: Callable[[], None] | None = None  # tasks that share a loop
        self._is_busy = False  # with handlers, or what they returned
        self._forking = threading.local()
        self.resources = Resources()  # whose loop async handlers use, if it has one

    def be_idle(self) -> None:
        """The results are sent: SIGTERM may end the process again."""
        self._is_busy = False

    @contextlib.contextmanager
    def shared(self, end_all: Callable[[], None]) -> Iterator[None]:
        """Let SIGTERM end all tasks that share an event loop."""
        self._end_all, self._is_busy = end_all, True
        try:
            yield
        finally:
            self._end_all = None

    def catch_sigterm(self) -> None:
        """Handle SIGTERM, after the stack was written to stderr."""
        signal.signal(signal.SIGTERM, self._terminated)
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            faulthandler.register(signal.SIGTERM, file=2, all_threads=True, chain=True)
        os.register_at_fork(
            before=self._hold_sigterm,
            after_in_parent=self._release_sigterm,
            after_in_child=self._reset_sigterm,
        )

    def _hold_sigterm(self) -> None:
        """Block SIGTERM: Python loses signals that arrive before a new process is set up."""
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))

    def _release_sigterm(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)

    def _reset_sigterm(self) -> None:
        """Let SIGTERM end a process that the handler forked, as a pool expects of its workers."""
        if signal.getsignal(signal.SIGTERM) == self._terminated:
            faulthandler.unregister(signal.SIGTERM)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._release_sigterm()

    def call(self, handler: Callable[..., Any], arguments: dict[str, Any], stop: StopFlag) -> Any:
        """Return what the handler returns, or raise what it raises."""
        self._stop, self._is_busy = stop, True
        try:  # in its own context: the next task must not see context variables of this one
            return contextvars.copy_context().run(self._run, handler, arguments)
        finally:
            self._stop = None

    def _run(self, handler: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        value = handler(**arguments)
        if not inspect.iscoroutine(value):
            return value
        try:
            return self.resources.run(value, self._began)
        finally:
            self._loop = self._task = None

    def _began(self, task: asyncio.Task[Any]) -> None:
        self._loop, self._task = task.get_loop(), task

    def _terminated(self, number: int, frame: object) -> None:
        if self._end_all is not None:
            self._end_all()
            return
        if not self._is_busy:
            os._exit(EXIT_BY_TERM)
        if self._stop is not None:
            self._stop.set()
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(OSError):
                text = awaited_stack(self._task)
                os.write(2, text.encode("utf-8", "backslashreplace"))
            self._loop.call_soon_threadsafe(self._task.cancel)


def is_async(handler: Callable[..., Any]) -> bool:
    """Whether a handler is a coroutine function, or an object whose call is one."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004
    )


def awaited_stack(task: asyncio.Task[Any]) -> str:
    """The frames that a task awaits, as `faulthandler` writes stacks."""
    lines: list[str] = []
    each: Any = task.get_coro()
    while (code := getattr(each, "cr_code", None)) and len(lines) < _MAX_FRAMES:
        frame = each.cr_frame
        line = "???" if frame is None else frame.f_lineno
        lines.append(f'  File "{code.co_filename}", line {line} in {code.co_name}\n')
        each = each.cr_await
    return "\nCurrent task (most recent call first):\n" + "".join(reversed(lines))
