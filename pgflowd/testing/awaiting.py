"""Runs async handlers and lifespans in tests, which may be async themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from pgflowd.processes.runner.handler import Resources


def awaited(coroutine: Coroutine[Any, Any, Any], resources: Resources) -> Any:
    """What an async handler returns; it gets a new event loop, unless the lifespan has one."""

    def execute() -> Any:
        if resources.loop is not None:
            return resources.run(coroutine, lambda task: None)
        # a factory, since `asyncio.run` would take away the thread's own loop
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(coroutine)

    return apart(execute)


def apart(execute: Callable[[], Any]) -> Any:
    """Call a function that runs an event loop: in a thread where one is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return execute()
    with ThreadPoolExecutor(1, "async handler") as thread:
        return thread.submit(copy_context().run, execute).result()
