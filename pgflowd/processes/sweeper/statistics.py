"""
Counts what waits, for `status` and the metrics, and adds old minutes of the statistics up to hours.

What waits for a person is a problem: tasks in quarantine (W329), needs that no worker has (W328),
a flow that is paused (W330), runs that wait for each other (W332).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

from pgflowd.core.undecided import problem_of
from pgflowd.db.due import due_late
from pgflowd.db.flows import unserved_queues
from pgflowd.db.statistics import roll_up_minutes
from pgflowd.db.waits import undecided_tasks, waiting_tasks
from pgflowd.errors import Problem

ROLL_UP_EVERY_S = 3600.0


class Statistics:
    """The numbers of the last look, and when minutes are added up next."""

    def __init__(self, numbers: dict[str, Any], execute: Callable[..., Any]) -> None:
        self._numbers, self._execute = numbers, execute
        self._roll_up_at = 0.0
        self.problems: list[Problem] = []

    def look(self, conn: psycopg.Connection[Any]) -> None:
        """Look after a sweep."""
        self._numbers["waiting"] = self._execute(conn, waiting_tasks())
        self._numbers["unserved"] = self._execute(conn, unserved_queues())
        self._numbers["due_late_s"] = self._execute(conn, due_late())
        self.problems = [problem_of(each) for each in self._execute(conn, undecided_tasks())]
        if time.monotonic() >= self._roll_up_at:
            self._execute(conn, roll_up_minutes())
            self._roll_up_at = time.monotonic() + ROLL_UP_EVERY_S
