"""
The short chaos: everything is beaten on for a while, and nothing is lost or done twice.

The long one is by hand: `make chaos MINUTES=30`. A failure prints the seed and how to repeat it.
G1 to G9, and the rows of failures.md that random kills, freezes, cuts and restarts bring about.
"""

from __future__ import annotations

import random

import chaos


def test_daemons_database_and_lines_are_broken_at_random_and_every_guarantee_holds():
    seen = chaos.survive(random.SystemRandom().randrange(10**6), seconds=25, daemons=2)

    assert seen["runs"]["completed"] > 20, seen
