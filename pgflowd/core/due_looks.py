"""
When the sweeper looks for what is due, and until when its row says that it sleeps.

A sweeper that sleeps has a row, and whoever makes something due before its end notifies; so a
sleeper misses nothing (docs/background/doorbells.md, section 4). While there is work all the time
the row says that it is awake: it looks every few milliseconds, and nobody notifies. When it lies
down it looks once more, and again while transactions are open that may have missed its row. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

APART_S = 0.005  # between the beginnings of two looks
AWAKE_S = 0.02  # so long after its last work, and before a known moment, it does not lie down
ROW_S = (
    300.0  # for so long the row of one who knows of nothing lasts: to renew it costs three calls
)
BUSY_S = 0.1  # of work without a pause: then notifications save no time
WRITERS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # between two looks at open transactions
NEVER = float("inf")


@dataclass
class DueLooks:
    """All moments are those of one monotonic clock."""

    longest_s: float  # it looks at least so often
    look_at: float = -NEVER
    sleeps_until: float = -NEVER  # as its row says; a moment that has passed: it is awake
    writers: tuple[str, ...] = ()  # open transactions that may have missed the row
    _writers_looks: int = 0
    _next_at: float = NEVER  # the next moment that is known
    _began_at: float = -NEVER  # of the last look
    _worked_at: float = -NEVER
    _busy_since: float = NEVER
    _is_rung: bool = False
    _is_rung_in_vain: bool = False
    _is_refused: bool = False  # the last look, since another sweeper was at it

    def connected(self, now: float) -> None:
        """Notifications were missed, and the server may have lost the row."""
        self.look_at, self.sleeps_until, self.writers = now, -NEVER, ()

    def rung(self, now: float) -> None:
        """A notification came."""
        self._is_rung = True
        self.look_at = min(self.look_at, max(now, self._began_at + APART_S))

    def looked(self, began_at: float, now: float, done: int | None, next_s: float | None) -> None:
        """A look has ended. `done` None: another sweeper is at it; `next_s` None: nothing known."""
        self._began_at = began_at
        self._is_rung_in_vain = self._is_rung and not done
        self._is_rung, self._is_refused = False, done is None
        if done:
            self._worked_at = now
            self._busy_since = min(self._busy_since, now)
        elif self._is_idle(now):
            self._busy_since = NEVER
        self._next_at = NEVER if next_s is None else now + next_s
        self.look_at = min(max(self._next_at, began_at + APART_S), now + self.longest_s)
        if self.sleeps_until > now:
            self.look_at = min(self.look_at, self.sleeps_until)
        if self.writers:
            pause_s = WRITERS_S[min(self._writers_looks, len(WRITERS_S) - 1)]
            self.look_at = min(self.look_at, now + pause_s)

    def next_row_s(self, now: float) -> float | None:
        """
        For how long the row is to say from now on that it sleeps; None: the row stays as it is.

        Asked after each look. An answer above 0 is carried out by `lay_down` and another look, if
        the row has to be put up later than it was.
        """
        if self._is_refused:
            return None
        if self.sleeps_until > now:
            if now - self._busy_since >= BUSY_S:
                self._look_soon(now)
                return 0.0
            is_too_long = self.look_at < self.sleeps_until - AWAKE_S
            return self.look_at - now if self._is_rung_in_vain and is_too_long else None
        if self._is_idle(now) and self._next_at > now + AWAKE_S:
            return min(self._next_at - now, ROW_S)
        self._look_soon(now)
        return None

    def lay_down(self, now: float, for_s: float, writers: tuple[str, ...]) -> None:
        """The row was put up; these transactions are open that may have missed it. Look now."""
        self.sleeps_until = now + for_s
        self.writers, self._writers_looks = writers, 0
        self.look_at = now

    def shortened(self, now: float, for_s: float) -> None:
        """The row says that it sleeps less, or not at all."""
        self.sleeps_until = now + for_s

    def still_open(self, writers: tuple[str, ...]) -> None:
        """Of the transactions that may have missed the row these are open."""
        self.writers = writers
        self._writers_looks += 1

    def _look_soon(self, now: float) -> None:
        """Nobody notifies one that is awake."""
        self.look_at = min(self.look_at, max(now, self._began_at + APART_S))

    def _is_idle(self, now: float) -> bool:
        return now >= self._worked_at + AWAKE_S
