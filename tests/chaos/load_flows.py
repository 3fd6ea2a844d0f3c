"""The flows of the load: mixed work that is quick, so that an hour of it fits into minutes."""

from __future__ import annotations

import os
import random
import time

from pgflowd import Context, Flow

ODD = {"max_attempts": 20, "base_delay": 0}

fan = Flow("fan", timeout=20, **ODD)


@fan.step
def numbers(run: dict[str, int]) -> list[int]:
    return list(range(run["n"]))


@fan.map(over=numbers)
def square(item: int, ctx: Context) -> int:
    if random.random() < 0.002:
        raise ValueError("once in a while")
    return item * item


@fan.step
async def added(square: list[int]) -> int:
    return sum(square)


diamond = Flow("diamond", timeout=20, **ODD)


@diamond.step
def top(run: dict[str, int]) -> dict[str, str]:
    return {"text": "x" * 500}


@diamond.step
def left(top: dict[str, str], ctx: Context) -> int:
    ctx.log.info("left of %d", len(top["text"]))
    return len(top["text"])


@diamond.step
def right(top: dict[str, str]) -> str:
    print("right")  # noqa: T201
    return top["text"]


@diamond.step
def bottom(left: int, right: str) -> int:
    return left + len(right)


rough = Flow("rough", timeout=1, **ODD)


@rough.map
def tumble(item: int) -> int:
    dice = random.random()
    if dice < 0.01:
        os._exit(1)
    if dice < 0.012:
        time.sleep(30)
    if dice < 0.02:
        os.environ["LEFT_BEHIND"] = str(dice)
    return item
