"""
What hinders the work of a whole database: a full queue of notifications, and what holds dead rows.

`db.obstacles` reads the facts. The sweeper reports them to `status`; `doctor` prints them. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pgflowd.core.redact import one_line
from pgflowd.core.text import duration
from pgflowd.errors import Problem

MAX_SHARE = 0.1  # of the notification queue; while all listeners read it is a thousandth
OLD_S = 300.0  # longer than any transaction of pgflowd
MANY_TRANSACTIONS = 100_000  # since a snapshot; fewer leave too few dead rows to slow claims down
MAX_NAMED = 2  # of those that may be guilty
_MAX_CHARS = 40  # of a name that somebody chose


class HolderKind(StrEnum):
    SESSION = "session"
    PREPARED = "prepared"
    STANDBY = "standby"  # its queries hold rows on the primary, by hot_standby_feedback
    SLOT = "slot"


@dataclass(frozen=True)
class Holder:
    """
    A transaction, or a replication slot.

    Whoever may not see the sessions of others gets no state and no age.
    """

    kind: str
    name: str  # of a session: its pid
    application: str | None = None
    user: str | None = None
    database: str | None = None
    state: str | None = None
    age_s: float | None = None  # since the transaction began
    transactions: int | None = None  # begun since its snapshot was taken

    def __str__(self) -> str:
        parts = [self.application, self.user and f"user {self.user}"]
        parts.append(self.database and f"database {self.database}")
        words = ", ".join(one_line(part, _MAX_CHARS) for part in parts if part)
        return f"{_TITLES[self.kind]} {one_line(self.name, _MAX_CHARS)}" + (words and f" ({words})")

    @property
    def since(self) -> str:
        """What it does, and for how long."""
        state = self.state or "in a transaction"
        return state if self.age_s is None else f"{state} for {duration(self.age_s)}"

    @property
    def remedy(self) -> str:
        return _REMEDIES[self.kind].format(self.name.replace("'", "''"))


_TITLES: dict[str, str] = {
    HolderKind.SESSION: "pid",
    HolderKind.PREPARED: "prepared transaction",
    HolderKind.STANDBY: "standby with pid",
    HolderKind.SLOT: "replication slot",
}
_REMEDIES: dict[str, str] = {
    HolderKind.SESSION: "end that session: `select pg_terminate_backend({})`",
    HolderKind.PREPARED: "end it: `commit prepared '{0}'` or `rollback prepared '{0}'`",
    HolderKind.STANDBY: "end the long queries on that standby",
    HolderKind.SLOT: "let its standby catch up, or `select pg_drop_replication_slot('{}')`",
}


def is_overfull(share: float) -> bool:
    """Whether the notification queue is fuller than it ever is while all listeners read it."""
    return share >= MAX_SHARE


def queue_problem(share: float, oldest: Sequence[Holder]) -> Problem:
    """
    A notification queue that is overfull.

    PostgreSQL does not tell which sessions listen. One that does and has the oldest transaction
    is it that keeps the queue from shrinking.
    """
    text = f"the server's notification queue is {share:.0%} full; once full, nothing starts or ends"
    remedy = "end the session that listens and stays in a transaction; a superuser sees it in "
    remedy += "pg_stat_activity"
    if oldest:
        named = " or ".join(f"{each}, {each.since}" for each in oldest[:MAX_NAMED])
        text += f"; a listener does not read it: {named}"
        remedy = oldest[0].remedy
    return Problem("E319", text, "database", remedy)


def is_harmful(holder: Holder) -> bool:
    """Whether it holds so many dead rows, for so long, that claims slow down."""
    if holder.transactions is None or holder.transactions < MANY_TRANSACTIONS:
        return False
    return holder.age_s is None or holder.age_s >= OLD_S


def snapshot_problem(holder: Holder) -> Problem:
    """A transaction or slot that keeps dead rows from being removed."""
    since = "" if holder.kind == HolderKind.SLOT else f", {holder.since},"
    text = f"{holder}{since} keeps the dead rows of the last {holder.transactions} transactions"
    return Problem("E321", f"{text}: claims slow down", "database", holder.remedy)
