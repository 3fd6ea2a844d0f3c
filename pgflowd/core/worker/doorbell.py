"""
The doorbell: whether messages that are sent to its queue are to notify this worker.

A worker that waits for work is *armed*: it has a row in the table of doorbells, and each insert
into its queue notifies. A busy one has no row, so that starts cost no notification: its reports
bring claims along, and while none is due it looks by itself. After it has armed it looks once
more, and again as long as transactions are open that may have missed its row. So no message waits
unseen, which docs/background/doorbells.md proves.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from pgflowd.core.worker.task import NEVER

LOOKS_S = (0.002, 0.005, 0.01)  # an unarmed worker looks so long after its last work,
ARM_S = 0.02  # and then arms
WRITERS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # between two looks at open transactions
MEASURE_S = 0.1  # for so long claims are counted
USELESS = 0.5  # it disarms if no more of those that brought tasks needed a wake,
USEFUL = 0.75  # and arms if so many did
UNMEASURED = 0.6  # neither
LEAST_ARMED_S = 0.25  # each arming leaves a dead row in the table of doorbells


class DoorbellRow(Enum):
    """What the worker knows of its row."""

    DOWN = "down"  # there is none
    UNKNOWN = "unknown"  # the connection was lost: perhaps there is one
    FRESH = "fresh"  # there is one, which open transactions may have missed
    UP = "up"  # each message notifies, or was seen
    DOUBTED = "doubted"  # the same, unless the server has lost the row


class DoorbellCall(Enum):
    """What a turn does with the doorbell, before it claims."""

    NONE = "none"
    ARM = "arm"
    DISARM = "disarm"
    LIST_WRITERS = "list writers"  # those whose transactions may have missed it


class Doorbell(NamedTuple):
    """What the worker knows of its doorbell, and of how useful that is."""

    row: DoorbellRow = DoorbellRow.DOWN
    call: DoorbellCall = DoorbellCall.NONE  # of the turn under way
    armed_at: float = -NEVER
    writers: tuple[str, ...] | None = None  # that may have missed the row; None: not listed yet
    lists: int = 0  # how often they were listed
    look_at: float = NEVER  # when to claim without any wake
    idle_since: float = -NEVER  # claims get less than they ask for; NEVER: the last one did not
    had_rested: bool = False  # before the claim under way there was no work for long
    needs_wake: bool = False  # nothing but a wake or a look leads to it
    counts_from: float = 0.0
    brought: int = 0  # claims since then that brought tasks
    needed: int = 0  # those of them that needed a wake
    usefulness: float = UNMEASURED  # share of these, when last measured

    @property
    def is_looking(self) -> bool:
        """Whether the worker looks by itself, and soon."""
        return self.row in (DoorbellRow.DOWN, DoorbellRow.UNKNOWN)

    def begin(self, now: float, *, has_claim: bool, needs_wake: bool) -> Doorbell:
        """A turn begins: choose what it does with the doorbell."""
        call, look_at = self._call(now, has_claim), self.look_at
        if has_claim and (self.is_looking or look_at <= now):
            look_at = NEVER  # this is the look
        had_rested = now >= self.idle_since + ARM_S
        return self._replace(
            call=call, look_at=look_at, had_rested=had_rested, needs_wake=needs_wake
        )

    def _call(self, now: float, has_claim: bool) -> DoorbellCall:
        is_idle = now >= self.idle_since + ARM_S
        is_useless = self.row is not DoorbellRow.DOWN and self.usefulness <= USELESS
        if not is_idle and is_useless and now >= self.armed_at + LEAST_ARMED_S:
            return DoorbellCall.DISARM
        if not has_claim:
            return DoorbellCall.NONE
        if self.is_looking and (is_idle or self.usefulness >= USEFUL):
            return DoorbellCall.ARM
        if self.row is DoorbellRow.DOUBTED:
            return DoorbellCall.ARM
        if self.row is DoorbellRow.FRESH and now >= self.look_at:
            return DoorbellCall.LIST_WRITERS
        return DoorbellCall.NONE

    def end(
        self, now: float, *, wanted: int, got: int, is_new: bool, writers: tuple[str, ...]
    ) -> Doorbell:
        """The database has answered. `is_new`: the row was not there before."""
        bell = self
        if self.call is DoorbellCall.DISARM:
            bell = self._replace(row=DoorbellRow.DOWN)
        elif self.call is DoorbellCall.LIST_WRITERS:
            # the claim behind the list has seen what the transactions that are gone have sent
            bell = self._replace(row=DoorbellRow.UP, writers=None, look_at=NEVER)
            if writers:
                look_at = now + WRITERS_S[min(self.lists, len(WRITERS_S) - 1)]
                bell = self._replace(writers=writers, look_at=look_at, lists=self.lists + 1)
        elif self.call is DoorbellCall.ARM and self.row is DoorbellRow.DOUBTED and not is_new:
            bell = self._replace(row=DoorbellRow.UP)
        elif self.call is DoorbellCall.ARM:
            bell = self._replace(
                row=DoorbellRow.FRESH,
                armed_at=now,
                look_at=now,
                writers=None,
                lists=0,
                usefulness=UNMEASURED,
            )
        bell = bell._replace(call=DoorbellCall.NONE)
        return bell._after_claim(now, wanted, got) if wanted else bell

    def _after_claim(self, now: float, wanted: int, got: int) -> Doorbell:
        bell = self._count(now) if got else self
        if got >= wanted:
            idle_since = NEVER
        elif got or self.idle_since == NEVER:
            idle_since = now
        else:
            idle_since = self.idle_since
        look_at = bell.look_at
        if bell.is_looking:
            looks = (idle_since + look_s for look_s in (*LOOKS_S, ARM_S))
            look_at = next((moment for moment in looks if moment > now), now)
        return bell._replace(idle_since=idle_since, look_at=look_at)

    def _count(self, now: float) -> Doorbell:
        """Count a claim that brought tasks."""
        if self.had_rested:
            return self._replace(counts_from=now, brought=1, needed=1, usefulness=UNMEASURED)
        brought, needed = self.brought + 1, self.needed + self.needs_wake
        if now < self.counts_from + MEASURE_S:
            return self._replace(brought=brought, needed=needed)
        share = needed / brought
        return self._replace(counts_from=now, brought=0, needed=0, usefulness=share)

    def doubted(self) -> Doorbell:
        """The server may have been away, and may have lost the row."""
        if self.row is DoorbellRow.UP:
            return self._replace(row=DoorbellRow.DOUBTED)
        return self.lost() if self.row is DoorbellRow.FRESH else self

    def lost(self) -> Doorbell:
        """The connection is lost; what its last turn did is unknown."""
        return self._replace(row=DoorbellRow.UNKNOWN, call=DoorbellCall.NONE, look_at=NEVER)


UNARMED = Doorbell()
