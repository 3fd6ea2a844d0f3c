"""
The flows of `ours`: sixteen alike with a single task, a chain of three, and a map with its join.
"""

from __future__ import annotations

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


spread = Flow("spread", timeout=60)


@spread.map
def element(item: int) -> int:
    mark(item)
    return item


@spread.step
def join(element: list[int]) -> int:
    mark(element[0] + len(element))
    return len(element)
