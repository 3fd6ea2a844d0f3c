"""
How the turns of a worker go, and so how large the next one may be.

A turn is one call on the main connection: reports, and a claim. After a turn that another try
alone does not mend, reports and claims travel apart, so that no outcome waits for a claim that
fails. Reports that failed are sent again in halves; a claim that failed is tried again with one
task, after a growing pause. Each success doubles the sizes again.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from pgflowd.core.backoff import doubled_s
from pgflowd.core.portions import larger, smaller

MAX_REPORTS = 200  # of one call
MAX_BYTES = 16 * 1024 * 1024  # of the outputs of one call; a larger one goes alone
MAX_TASKS = 1_000_000  # no limit: `batch_size` is one
SERIOUS_FROM = 3  # failures in a row, of whatever kind
MAX_TRIES = 3  # of a single report that takes too long


class Suspect(IntEnum):
    """What made the last turns fail."""

    NOTHING = 0
    REPORTS = 1
    CLAIM = 2  # perhaps: there was one


class TurnError(NamedTuple):
    """What went wrong last, and with which task, if that is known."""

    text: str
    sqlstate: str | None = None
    run_id: str | None = None
    task: str | None = None


class FailedTurn(NamedTuple):
    """A turn that failed: how large it was, and whether another try alone may mend it."""

    reports: int
    had_claim: bool
    is_serious: bool


class Turns(NamedTuple):
    """How the last turns went. Without any failure it is HEALTHY."""

    failures: int = 0  # in a row, attempts to connect included
    failing_since: float = 0.0
    error: TurnError | None = None
    suspect: Suspect = Suspect.NOTHING
    most_reports: int = MAX_REPORTS
    most_tasks: int = MAX_TASKS
    claims_from: float = 0.0  # no claim before that moment; 0: at any time
    claim_pause_s: float = 0.0
    slow_token: int = 0  # of the report that took too long alone
    slow_tries: int = 0

    def count_failure(self, began: float, error: TurnError) -> Turns:
        """After a call that failed. `began`: when it was sent."""
        since = self.failing_since if self.failures else began
        return self._replace(failures=self.failures + 1, failing_since=since, error=error)

    def after_failure(self, turn: FailedTurn, now: float, min_s: float, max_s: float) -> Turns:
        """After a turn that failed, and was counted."""
        if not turn.is_serious and self.failures < SERIOUS_FROM:
            return self
        turns = self
        if turn.reports:
            turns = turns._replace(most_reports=smaller(turn.reports))
        if not turn.had_claim:
            return turns._replace(suspect=max(turns.suspect, Suspect.REPORTS))
        turns = turns._replace(suspect=Suspect.CLAIM, most_tasks=1)
        if turn.reports:  # perhaps the claim is innocent
            return turns
        pause_s = doubled_s(turns.claim_pause_s, min_s, max_s)
        return turns._replace(claims_from=now + pause_s, claim_pause_s=pause_s)

    def after_slow_report(self, token: int) -> Turns:
        """After a report took too long, although it was alone."""
        tries = self.slow_tries + 1 if token == self.slow_token else 1
        return self._replace(slow_token=token, slow_tries=tries)

    def after_success(self, *, had_reports: bool, claimed: int, is_all_done: bool) -> Turns:
        """After a turn that the database answered. `claimed`: for how many tasks it asked."""
        turns = self
        if had_reports:
            most = larger(turns.most_reports, MAX_REPORTS)
            turns = turns._replace(most_reports=most, slow_token=0, slow_tries=0)
        if claimed:
            most = larger(turns.most_tasks, MAX_TASKS)
            turns = turns._replace(most_tasks=most, claims_from=0.0, claim_pause_s=0.0)
        if claimed or turns.suspect is Suspect.REPORTS:
            turns = turns._replace(suspect=Suspect.NOTHING)
        if is_all_done and turns.suspect is Suspect.NOTHING:
            turns = turns._replace(failures=0, failing_since=0.0, error=None)
        return turns


HEALTHY = Turns()


def deadline(turns: Turns) -> float:
    """When claims are allowed again."""
    return turns.claims_from or float("inf")
