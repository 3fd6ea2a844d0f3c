"""The short soak of schedules; the long one is by hand: `make ticks MINUTES=10`."""

from __future__ import annotations

import random

import ticks as ticks_soak


def test_each_tick_has_one_run_while_processes_die() -> None:
    seed = random.SystemRandom().randrange(10**6)

    outcome = ticks_soak.survive(seed, seconds=6, daemons=2)

    assert ticks_soak.wrong(outcome) == [], f"make ticks SEED={seed}: {outcome}"
    assert outcome["ticks"] > 5 * ticks_soak.SCHEDULES
