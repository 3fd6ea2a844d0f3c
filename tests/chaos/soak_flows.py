"""The flows of the soak: maps whose elements have keys, each with a random limit."""

from __future__ import annotations

import asyncio
import os
import random

from pgflowd import Flow, Limit

FLOWS, KEYS = 5, 200  # of each flow


def slots(seed: int, number: int) -> int:
    """How many tasks of one key of this flow may be at work."""
    return random.Random(f"{seed} {number}").randrange(1, 5)


def _flow(number: int) -> Flow:
    flow = Flow(f"soak_{number}", max_attempts=100, base_delay=0, timeout=20)
    limit = Limit(slots(int(os.environ.get("SOAK_SEED", "0")), number), key="item.key")

    @flow.map(limit=limit)
    async def work(item: dict[str, float]) -> None:
        await asyncio.sleep(item["s"])

    return flow


soak_0, soak_1, soak_2, soak_3, soak_4 = map(_flow, range(FLOWS))
