"""Every event that the log promises (surface, section 11) is met by a test of real processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PROMISED = """
    supervisor.started|ready|reloaded|draining|stopped|gave_up
    child.started|ready|exited|restarted|parked|killed
    worker.started|stopped|poll|error|deprecated
    run.started|completed|failed|cancelled
    step.started|completed|failed|skipped
    task.started|completed|failed|retried|timed_out|crashed|released|output
    listener.lost|regained
    sweeper.recovered|given_up
"""
EVENTS = [
    f"{who}.{what}"
    for line in PROMISED.split()
    for who, _, whats in [line.partition(".")]
    for what in whats.split("|")
]
REAL = [path for room in ("worker", "process", "cli") for path in (TESTS / room).glob("test_*.py")]


@pytest.mark.parametrize("event", EVENTS)
def test_each_event_of_the_log_is_expected_by_a_test_of_real_processes(event: str):
    quoted = re.compile(f"[\"']{re.escape(event)}[\"']")

    assert any(quoted.search(path.read_text()) for path in REAL)
