"""
The flows of the chaos of undos: random ones, whose handlers write down what they do and undo.

A line of the ledger is: event, run, step, index, token, moment. The event is "start", then "did"
for what a task did, or "undid" for what an undo took back: of the run, step and index undone.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from typing import Any

from pgflowd import Context, Flow

FLOWS = 8
LONGEST_S = 0.15  # of a task


def note(event: str, run_id: str, step: str, index: int, token: int) -> None:
    """Write one line, in one piece."""
    at = time.clock_gettime(time.CLOCK_BOOTTIME)
    line = json.dumps([event, run_id, step, index, token, at]).encode() + b"\n"
    handle = os.open(os.environ["UNDO_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


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


flows = [_flow(number) for number in range(FLOWS)]
saga_0, saga_1, saga_2, saga_3, saga_4, saga_5, saga_6, saga_7 = flows
