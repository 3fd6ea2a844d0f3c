"""The short soak; the long one is by hand: `make soak MINUTES=10`."""

from __future__ import annotations

import random

import soak


def test_no_key_exceeds_its_limit_while_processes_die_and_runs_are_paused() -> None:
    seed = random.SystemRandom().randrange(10**6)

    seen = soak.soak(seed, seconds=4, daemons=2)

    assert seen.wrong == [], f"make soak SEED={seed}"
    assert seen.seen["keys seen at their limit"] > 100, seen.seen
