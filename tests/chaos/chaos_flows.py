"""
The flows of the chaos, and their ledger: a file that only grows, and outlives every database.

Each execution of a task writes what it does: "start", "tick" while it works, "ran" in the function
of a memo, "kept" with what a memo or a wait returned, and "end" with its output. In the end the
database is compared with that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from pgflowd import BadDependency, Context, Flow, Limit, RetryAfter, Schedule

LEDGER = Path(os.environ["CHAOS_LEDGER"])
DAEMON = os.environ["CHAOS_DAEMON"]
SLEEP = os.environ["CHAOS_SLEEP"]  # an argument of sleep(1) by which what was left is found
SURVIVES = {"max_attempts": 100, "base_delay": 0}


def note(ctx: Context, event: str, output: Any = None) -> None:
    """Write one line, in one piece."""
    write(event, [ctx.run_id, ctx.flow_slug, ctx.step_slug, ctx.task_index, ctx.token], output)


def note_life(event: str) -> None:
    """The same of the runner itself; its start tells it from others of its pid."""
    write(event, [None] * 5, Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])


def write(event: str, task: list[Any], output: Any) -> None:
    at = time.clock_gettime(time.CLOCK_BOOTTIME)
    line = json.dumps([event, *task, DAEMON, os.getpid(), at, output]).encode() + b"\n"
    handle = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


def work(ctx: Context, seconds: float) -> None:
    note(ctx, "start")
    go_on(ctx, seconds)


def go_on(ctx: Context, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(0.1, left))
        note(ctx, "tick")
        ctx.progress(seconds - left, seconds, str(ctx.token))
        sys.stdout.write(f"{ctx.token} ticks\n")
        sys.stdout.flush()


def done(ctx: Context, output: Any) -> Any:
    note(ctx, "end", output)
    return output


chain = Flow(
    "chain",
    timeout=5,
    title="chain {run.n} of {run.nobody}",
    labels={"n": "run.n"},
    **SURVIVES,
)


@chain.step
def first(run: dict[str, Any], ctx: Context) -> int:
    work(ctx, run["s"])
    return done(ctx, run["n"])


@chain.step
async def second(first: int, ctx: Context) -> int:
    work(ctx, 0.01)
    return done(ctx, first + 1)


@chain.step
def third(second: int, ctx: Context) -> int:
    work(ctx, random.random() / 4)
    return done(ctx, second + 1)


maps = Flow("Maps", timeout=5, **SURVIVES)


@maps.step
def items(run: dict[str, Any], ctx: Context) -> list[int]:
    work(ctx, 0)
    return done(ctx, list(range(run["n"])))


@maps.map(over=items)
def double(item: int, ctx: Context) -> int:
    work(ctx, random.random() / 10)
    return done(ctx, item * 2)


@maps.step
def total(double: list[int], ctx: Context) -> int:
    work(ctx, 0)
    return done(ctx, sum(double))


doomed = Flow("doomed", max_attempts=2, base_delay=0, timeout=5)


@doomed.step
def fails(run: dict[str, Any], ctx: Context) -> None:
    work(ctx, run["s"])
    raise ValueError("as it must")


@doomed.step
def beside(run: dict[str, Any], ctx: Context) -> int:
    work(ctx, 0.3)
    return done(ctx, 1)


unlucky = Flow("unlucky", timeout=2, **SURVIVES)


@unlucky.lifespan
def loaded() -> Iterator[int]:
    note_life("entered")
    if random.random() < 0.05:
        raise ConnectionError("as it happens")
    yield os.getpid()
    note_life("left")


@unlucky.map
def dice(item: int, ctx: Context) -> int:
    work(ctx, random.random() / 20)
    if ctx.resources != os.getpid():
        note(ctx, "stranger", ctx.resources)
    thrown = random.random()
    if thrown < 0.10:
        raise ValueError("bad luck")
    if thrown < 0.15:
        os._exit(3)
    if thrown < 0.20:
        os.kill(os.getpid(), signal.SIGKILL)
    if thrown < 0.23:
        os.abort()
    if thrown < 0.24:
        raise RetryAfter(1)
    if thrown < 0.26:
        note(ctx, "asked")
        raise RetryAfter(1, "as it was asked", spend=False)
    if thrown < 0.28:
        go_on(ctx, 60)
    return done(ctx, item)


shared = Flow("shared", timeout=3, **SURVIVES)


@shared.lifespan
async def one_loop() -> AsyncIterator[asyncio.AbstractEventLoop]:
    async with asyncio.TaskGroup() as group:
        beat = group.create_task(asyncio.sleep(3600))
        note_life("entered")
        yield asyncio.get_running_loop()
        beat.cancel()
        note_life("left")


@shared.map
async def waits(item: int, ctx: Context) -> int:
    if ctx.resources is not asyncio.get_running_loop():
        note(ctx, "stranger")
    """Waits beside others in one event loop, which it now and then ends or blocks."""
    note(ctx, "start")
    for _ in range(3):
        await asyncio.sleep(random.random() / 10)
        note(ctx, "tick")
    thrown = random.random()
    if thrown < 0.01:
        time.sleep(60)
    if thrown < 0.02:
        os._exit(3)
    if thrown < 0.03:
        os.kill(os.getpid(), signal.SIGKILL)
    if thrown < 0.04:
        os.abort()
    if thrown < 0.05:
        subprocess.Popen(["sleep", SLEEP], start_new_session=True)
    if thrown < 0.07:
        await asyncio.sleep(60)
    while thrown > 0.99:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
    return done(ctx, item)


waiting = Flow("waiting", timeout=5, **SURVIVES)


def mishap(ctx: Context) -> None:
    """Now and then something ends the attempt."""
    thrown = random.random()
    if thrown < 0.03:
        raise ValueError("bad luck")
    if thrown < 0.06:
        os._exit(3)
    if thrown < 0.09:
        os.kill(os.getpid(), signal.SIGKILL)
    if thrown < 0.10:
        go_on(ctx, 60)


def drawn(ctx: Context) -> float:
    value = random.random()
    note(ctx, "ran", ["drawn", value])
    return value


def inserted(ctx: Context) -> float:
    """Its row and its memo are there, or neither."""
    value = random.random()
    note(ctx, "ran", ["row", value])
    insert(ctx, "memo", value)
    mishap(ctx)
    return value


def insert(ctx: Context, what: str, value: float | None = None) -> None:
    row = (ctx.run_id, ctx.step_slug, ctx.task_index, ctx.token, what, value)
    ctx.conn().execute("insert into chaos_rows values (%s, %s, %s, %s, %s, %s)", row)


@waiting.step
def prepares(run: dict[str, Any], ctx: Context) -> list[int]:
    note(ctx, "start")
    note(ctx, "kept", ["drawn", ctx.memo("drawn", drawn, ctx)])
    mishap(ctx)
    ctx.sleep(run["s"])
    mishap(ctx)
    note(ctx, "kept", ["row", ctx.memo("row", inserted, ctx)])
    mishap(ctx)
    return done(ctx, list(range(run["n"])))


@waiting.map(over=prepares)
def asks(item: int, ctx: Context) -> Any:
    note(ctx, "start")
    mishap(ctx)
    got = ctx.wait_signal("go", timeout=0.5 + item, default="none")
    note(ctx, "kept", ["signal", got])
    mishap(ctx)
    return done(ctx, got)


@waiting.step
def writes(asks: list[Any], ctx: Context) -> int:
    note(ctx, "start")
    insert(ctx, "step")
    mishap(ctx)
    return done(ctx, len(asks))


drowsy = Flow("drowsy", timeout=3, **SURVIVES)


@drowsy.map
async def dozes(item: int, ctx: Context) -> float:
    """Waits beside others in one event loop, and leaves it meanwhile."""
    note(ctx, "start")

    async def thought() -> float:
        await asyncio.sleep(random.random() / 10)
        return drawn(ctx)

    note(ctx, "kept", ["drawn", value := await ctx.memo("drawn", thought)])
    mishap(ctx)
    ctx.sleep(item / 10)
    mishap(ctx)
    return done(ctx, value)


single = Flow("single", timeout=5, **SURVIVES)


@single.step
def alone(run: dict[str, Any], ctx: Context) -> int:
    """Works while no other run of its key does."""
    work(ctx, run["s"])
    mishap(ctx)
    return done(ctx, 1)


parents = Flow("parents", timeout=5, **SURVIVES)


@parents.step
def begets(run: dict[str, Any], ctx: Context) -> list[Any]:
    """Every other child begins a little later."""
    note(ctx, "start")
    with contextlib.suppress(BadDependency):  # each would wait for the other
        ctx.start("begotten", {"n": -1}, key="after its parent", after=[ctx.run_id])
        raise AssertionError("a child may begin after its parent")
    runs = [ctx.start("begotten", {"n": n}, key=str(n), delay=n % 2 / 5) for n in range(run["n"])]
    mishap(ctx)
    ended = [[each.status, each.output] for each in ctx.wait(*runs)]
    mishap(ctx)
    return done(ctx, ended)


begotten = Flow("begotten", timeout=3, **SURVIVES)


@begotten.step
def grows(run: dict[str, Any], ctx: Context) -> int:
    note(ctx, "start")
    mishap(ctx)
    return done(ctx, run["n"] * 2)


gated = Flow("gated", timeout=5, **SURVIVES)


@gated.map(limit=Limit(2, key="item", name="hosts"))
def visits(item: int, ctx: Context) -> int:
    """Works while at most one other task of its host does."""
    note(ctx, "start")
    note(ctx, "host", item)
    go_on(ctx, random.random() / 10)
    mishap(ctx)
    return done(ctx, item)


@gated.step(needs=["gpu"])
def trains(visits: list[int], ctx: Context) -> int:
    note(ctx, "start")
    note(ctx, "caps", sorted(ctx.caps))
    mishap(ctx)
    if random.random() < 0.3:
        ctx.hand_on(needs=["gpu", "80gb"])
    return done(ctx, len(visits))


ticking = Flow(
    "ticking", timeout=5, **SURVIVES,
    schedules=[
        Schedule("@every 1s", {"n": 1}, overlap="allow", catchup="all"),
        Schedule("@every 2s", {"n": 2}, overlap="wait", name="in_line"),
    ],
)  # fmt: skip


@ticking.step
def tells(run: dict[str, Any], ctx: Context) -> int:
    note(ctx, "start")
    note(ctx, "tick of", [ctx.labels["schedule"], ctx.labels["scheduled_for"]])
    mishap(ctx)
    return done(ctx, run["n"])


saga = Flow("saga", timeout=5, **SURVIVES)


@saga.step
def books(run: dict[str, Any], ctx: Context) -> list[int]:
    work(ctx, run["s"] / 5)
    return done(ctx, list(range(run["n"])))


@saga.map(over=books)
def sends(item: int, ctx: Context) -> int:
    work(ctx, random.random() / 5)
    mishap(ctx)
    return done(ctx, item)


@saga.step
def charges(books: list[int], ctx: Context) -> int:
    work(ctx, random.random() / 5)
    mishap(ctx)
    return done(ctx, len(books))


@saga.step(max_attempts=1, after=["books"])
def breaks(run: dict[str, Any], ctx: Context) -> None:
    """Fails while the others are at work."""
    work(ctx, run["s"] / 5)
    raise ValueError("as it must")


def undoes(ctx: Context) -> str:
    assert ctx.undo is not None
    note(ctx, "start")
    mishap(ctx)
    step = ctx.step_slug.removeprefix("undo_")
    note(ctx, "undid", [ctx.undo.run_id, step, ctx.undo.task_index])
    mishap(ctx)
    return str(done(ctx, "undone"))


for _step in (books, sends, charges):
    saga.undo(_step)(undoes)


wide = Flow("wide", timeout=5, **SURVIVES)


@wide.map
def spreads(item: int, ctx: Context) -> int:
    """One of many elements of many runs of one moment."""
    note(ctx, "start")
    return done(ctx, item)


late = Flow("late", max_attempts=1, timeout=1)


@late.step(when_exhausted="skip")
def never(run: dict[str, Any], ctx: Context) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    work(ctx, 60)
    return done(ctx, 1)


forks = Flow("forks", timeout=3, **SURVIVES)


@forks.step
def leaves(run: dict[str, Any], ctx: Context) -> int:
    work(ctx, 0)
    subprocess.Popen(["sleep", SLEEP], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        os.execvp("sleep", ["sleep", SLEEP])
    go_on(ctx, 60 if random.random() < 0.2 else 0.02)
    return done(ctx, 7)


floods = Flow("floods", timeout=5, **SURVIVES)


@floods.step
def prints(run: dict[str, Any], ctx: Context) -> str:
    work(ctx, 0)
    for _ in range(30):
        sys.stdout.write(f"{'a line of no use ' * 500}\n" * 10)
        ctx.log.info("%s", "x" * 10_000)
    return done(ctx, "y" * 20_000)
