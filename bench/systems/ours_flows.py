"""
The flows of `ours`: sixteen alike with a single task, a chain of three, the same chain with steps
that also take the run's input, a map with its join, and async ones whose tasks share runners.
"""

from __future__ import annotations

import asyncio

from pgflowd import Flow
from systems.effects import mark

FLOWS = 16


def single(number: int) -> Flow:
    flow = Flow(f"single_{number}", timeout=60)

    @flow.step
    def only(run: int) -> int:
        mark(run)
        return run

    return flow


globals().update({f"single_{number}": single(number) for number in range(FLOWS)})

chain = Flow("chain", timeout=60)


@chain.step
def first(run: int) -> int:
    mark(run)
    return run


@chain.step
def second(first: int) -> int:
    mark(first + 1)
    return first


@chain.step
def third(second: int) -> int:
    mark(second + 2)
    return second


chain_with_run = Flow("chain_with_run", timeout=60)


@chain_with_run.step(slug="first")
def first_of_run(run: int) -> int:
    mark(run)
    return 1


@chain_with_run.step(slug="second")
def second_of_run(first: int, run: int) -> int:
    mark(run + first)
    return 2


@chain_with_run.step(slug="third")
def third_of_run(second: int, run: int) -> int:
    mark(run + second)
    return 3


waits = Flow("waits", timeout=60)


@waits.step
async def wait(run: int) -> int:
    await asyncio.sleep(1)
    mark(run)
    return run


quick = Flow("quick", timeout=60)


@quick.step
async def at_once(run: int) -> int:
    mark(run)
    return run


spread = Flow("spread", timeout=60)


@spread.map
def element(item: int) -> int:
    mark(item)
    return item


@spread.step
def join(element: list[int]) -> int:
    mark(element[0] + len(element))
    return len(element)
