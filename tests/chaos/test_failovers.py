"""A short one of tests/chaos/failovers.py: a real Patroni loses its leader."""

from __future__ import annotations

import failovers
from support.covers import covers


@covers("row 69")
def test_a_leader_is_killed_frozen_and_switched_over_and_nothing_acknowledged_is_lost():
    failovers.fail_over(["switch over", "kill", "freeze"])
