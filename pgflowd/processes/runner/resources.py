"""
What a flow's lifespan yields, `ctx.resources`, and the event loop in which an async one lives.

A sync lifespan leaves the loops of async handlers as they are: each has one of its own, or shares
one with others. An async lifespan is begun and ended by one asyncio task, so that it may hold a
task group; its loop stays as long as the process, and async handlers run in it. What they leave in
the loop is cancelled, and what the lifespan has begun is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pgflowd.core.definition.spec import LifespanSpec

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

    def run(self, handler: Coroutine[Any, Any, Any], began: Callable[[Any], None]) -> Any:
        """Return what a handler returns, in the loop; tell its task to `began`."""
        assert self.loop is not None
        task = self.loop.create_task(handler)
        began(task)
        try:
            return self.loop.run_until_complete(task)
        finally:
            self.settle()

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
