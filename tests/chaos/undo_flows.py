"""
The flows of the chaos of undos: random ones, whose handlers write down what they do and undo.

A line of the ledger is: event, run, step, index, token, moment, the same as wall time, and the
processes that must live until its result is taken: runner, zygote, worker, supervisor. The event is
"start", then "did" for what a task did, which is the last that its handler does, or "undid" for
what an undo took back: of the run, step and index undone.

In the races all branches end at about the moment at which one of them fails, and most of them go on
though they are asked to end.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from pgflowd import Context, Flow

FLOWS = 8
LONGEST_S = 0.15  # of a task


def note(event: str, run_id: str, step: str, index: int, token: int) -> None:
    """Write one line, in one piece."""
    at = time.clock_gettime(time.CLOCK_BOOTTIME)
    known = [event, run_id, step, index, token, at, time.time(), json.dumps(_family(os.getpid()))]
    line = json.dumps(known).encode() + b"\n"
    handle = os.open(os.environ["UNDO_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


@cache
def _family(pid: int) -> list[int]:
    """A process, and those above it."""
    found = [pid]
    for _ in range(3):
        stat = Path(f"/proc/{found[-1]}/stat").read_text()
        found.append(int(stat.rpartition(")")[2].split()[1]))
    return found


def _handler(slug: str) -> Callable[..., Any]:
    def does(ctx: Context) -> list[int]:
        run = ctx.flow_input()
        note("start", ctx.run_id, slug, ctx.task_index, ctx.token)
        time.sleep(random.random() * LONGEST_S)
        if run["fails"] == slug:
            raise ValueError("as it must")
        note("did", ctx.run_id, slug, ctx.task_index, ctx.token)
        return list(range(run["n"]))

    return does


def _undo(slug: str) -> Callable[..., None]:
    def undoes(ctx: Context) -> None:
        assert ctx.undo is not None
        task = (ctx.undo.run_id, slug, ctx.undo.task_index, ctx.token)
        note("undo", *task)
        if ctx.undo.generation == 1 and ctx.flow_input()["refuses"] == slug:
            raise PermissionError("not yet")
        time.sleep(random.random() * LONGEST_S / 2)
        thrown = random.random()
        if thrown < 0.02:
            os._exit(3)
        note("undid", *task)
        if thrown > 0.96:
            raise ConnectionError("failed after its effect")

    return undoes


def _flow(number: int) -> Flow:
    chance = random.Random(f"{os.environ.get('UNDO_SEED', '0')} {number}")
    flow = Flow(f"saga_{number}", max_attempts=2, base_delay=0, timeout=20)
    slugs: list[str] = []
    singles: list[str] = []
    for nr in range(chance.randrange(3, 8)):
        slug = f"s{nr}"
        if singles and chance.random() < 0.3:
            flow.map(over=chance.choice(singles), slug=slug)(_handler(slug))
        else:
            after = chance.sample(slugs, min(len(slugs), chance.randrange(3)))
            flow.step(slug=slug, after=after)(_handler(slug))
            singles.append(slug)
        slugs.append(slug)
        if chance.random() < 0.8:
            on: Any = chance.choice(["completed", "completed", "attempted"])
            flow.undo(slug, on=on, max_attempts=3, base_delay=0)(_undo(slug))
    return flow


OUTPUTS: list[Any] = [None, 0, False, "", [], {"paid": 1}, "x" * 400_000]
WAYS = ("plain", "plain", "plain", "deaf", "eager")  # how a handler takes it that it is to end


def _racer(slug: str) -> Callable[..., Any]:
    def races(ctx: Context) -> Any:
        note("start", ctx.run_id, slug, ctx.task_index, ctx.token)
        way = random.choice(WAYS)
        if way == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif way == "eager":
            ctx.cancelled.wait(random.random())
        time.sleep(random.random() * LONGEST_S)
        output = random.choice(OUTPUTS)
        note("did", ctx.run_id, slug, ctx.task_index, ctx.token)
        return output

    return races


def _async_racer(slug: str) -> Callable[..., Any]:
    async def races(ctx: Context) -> Any:
        note("start", ctx.run_id, slug, ctx.task_index, ctx.token)
        try:
            await asyncio.sleep(random.random() * 2 * LONGEST_S)
        except asyncio.CancelledError:
            if random.random() < 0.3:
                raise
        output = random.choice(OUTPUTS)
        note("did", ctx.run_id, slug, ctx.task_index, ctx.token)
        return output

    return races


def _breaker(slug: str) -> Callable[..., Any]:
    def breaks(ctx: Context) -> int:
        note("start", ctx.run_id, slug, ctx.task_index, ctx.token)
        time.sleep(random.random() * LONGEST_S)
        if ctx.flow_input()["fails"] == slug:
            raise ValueError("as it must")
        note("did", ctx.run_id, slug, ctx.task_index, ctx.token)
        return 1

    return breaks


def _race_undo(slug: str) -> Callable[..., None]:
    def undoes(ctx: Context) -> None:
        assert ctx.undo is not None
        task = (ctx.undo.run_id, slug, ctx.undo.task_index, ctx.token)
        note("undo", *task)
        note("undid", *task)

    return undoes


def _race(name: str, racer: Callable[[str], Callable[..., Any]]) -> Flow:
    flow = Flow(name, max_attempts=1, base_delay=0, timeout=60)

    @flow.step
    def parts(run: dict[str, Any], ctx: Context) -> list[int]:
        note("start", ctx.run_id, "parts", ctx.task_index, ctx.token)
        note("did", ctx.run_id, "parts", ctx.task_index, ctx.token)
        return list(range(3))

    slugs = ["parts"]
    for nr in range(3):
        flow.step(slug=f"s{nr}", after="parts")(racer(f"s{nr}"))
        slugs.append(f"s{nr}")
    flow.map(over=parts, slug="m")(racer("m"))
    for slug in ("breaks", "tears"):
        flow.step(slug=slug, after="parts")(_breaker(slug))
    for slug in (*slugs, "m", "tears"):
        flow.undo(slug, max_attempts=3, base_delay=0)(_race_undo(slug))
    return flow


flows = [_flow(number) for number in range(FLOWS)]
saga_race, saga_async = _race("saga_race", _racer), _race("saga_async", _async_racer)
RACES = ("saga_race", "saga_async")
saga_0, saga_1, saga_2, saga_3, saga_4, saga_5, saga_6, saga_7 = flows
