"""
The short chaos: random faults for a while, and nothing is lost or done twice.

The long one is by hand: `make chaos MINUTES=30`. A failure prints the seed and how to repeat it.
It shows G1 to G9, and the rows of docs/background/failures.md that random kills, freezes, cuts and
restarts can bring about.
"""

from __future__ import annotations

import random

import chaos
import load
from support.covers import covers


def test_daemons_database_and_lines_are_broken_at_random_and_every_guarantee_holds():
    seen = chaos.survive(random.SystemRandom().randrange(10**6), seconds=45, daemons=2)

    assert seen["runs"].get("completed", 0) + seen["pruned runs"] > 20, seen


@covers("D7")
def test_memory_and_descriptors_of_every_process_stay_flat_and_queues_are_vacuumed():
    """A small one of `make load`."""
    results = load.bear(4000)

    assert load.wrong_in(results) == []
    assert results.attempts["completed"] == results.tasks >= 4000
