"""
How many connections a server allows, who holds them, and how many are left for a daemon.

`db.daemons` reads the facts. The listener tells the supervisor what is left, the sweeper
reports a server that has none, `check` and `doctor` compare what daemons may open with what the
server allows (docs/background/supervision.md, rule 56). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pgflowd.core.redact import one_line
from pgflowd.core.text import counted, duration
from pgflowd.errors import Problem

LEAST_AUTO = 8  # so that some flows can work at once, however little the server has left
MAX_NAMED = 5  # of those that hold connections
_MAX_CHARS = 40  # of a name that somebody chose
SHORT_NEXT = (
    "lower [database] max_connections, raise max_connections of the server, or let fewer other"
    " clients connect"
)
FULL_NEXT = (
    "raise what is allowed (max_connections of the server, or the connection limit of the role or"
    " database), or let fewer clients connect; [database] max_connections limits this daemon"
)


@dataclass(frozen=True)
class ConnectionHolder:
    """How many connections an application of a user has."""

    user: str
    application: str
    count: int

    def __str__(self) -> str:
        user = one_line(self.user, _MAX_CHARS)
        name = one_line(self.application, _MAX_CHARS)
        return f"{self.count} {name} (user {user})" if name else f"{self.count} of user {user}"


@dataclass(frozen=True)
class ServerConnections:
    """What the server, this role and this database allow, and what of it is left."""

    allowed: int
    left: int
    holders: Sequence[ConnectionHolder] = ()  # those with the most come first

    def held_by_daemon(self, name: str) -> int:
        """How many connections a daemon of this name has, without those of its handlers."""
        own = [each for each in self.holders if each.application.startswith(f"{name}: ")]
        return sum(each.count for each in own if not each.application.endswith(" handler"))

    @property
    def named(self) -> str:
        """Those with the most connections; all of one daemon together."""
        counts: dict[tuple[str, str], int] = {}
        for each in self.holders:
            key = each.user, each.application.partition(": ")[0]
            counts[key] = counts.get(key, 0) + each.count
        merged = [ConnectionHolder(*key, count) for key, count in counts.items()]
        merged.sort(key=lambda each: -each.count)
        names = ", ".join(str(each) for each in merged[:MAX_NAMED])
        others = sum(each.count for each in merged[MAX_NAMED:])
        return f"{names}, {others} others" if others else names


def automatic_budget(left: int) -> int:
    """How many connections a daemon opens at most without a setting."""
    return max(LEAST_AUTO, left // 2)


def most_of_daemon(flows: int, max_connections: int, *, exports: bool = False) -> int:
    """How many a daemon opens at most: two per flow, listener and sweeper, or what is set; and the
    exporter, where there are traces."""
    wanted = 2 * flows + 2 + exports
    return min(wanted, max_connections) if max_connections else wanted


def full_problem(server: ServerConnections) -> Problem | None:
    """E310 if the server has no connection left."""
    if server.left > 0:
        return None
    text = f"the server has no free connection: {server.allowed} are allowed; {server.named}"
    return Problem("E310", text, "database", FULL_NEXT)


def shortage(
    server: ServerConnections, *, daemon: int, held: int, handlers: int = 0
) -> Problem | None:
    """
    W320 if the server allows less than the daemon and all others need.

    `daemon`: what it opens at most, of which it holds some already; `handlers`: what its handlers
    may open by ctx.conn().
    """
    more = daemon - held + handlers
    if more <= server.left:
        return None
    in_handlers = f" and its handlers up to {handlers} more by ctx.conn()" if handlers else ""
    others = server.allowed - server.left - held
    needed = daemon + handlers + others
    text = (
        f"the daemon opens up to {counted(daemon, 'connection')}{in_handlers}, others have"
        f" {others}, so {needed} are needed, but the server allows {server.allowed}"
    )
    if server.named:
        text += f" (now {server.named})"
    return Problem("W320", text, "database", SHORT_NEXT)


# What hinders the work of a whole database: a full queue of notifications, and what holds dead
# rows.
#
# `db.daemons` reads the facts. The sweeper reports them to `status`; `doctor` prints them.
MAX_SHARE = 0.1  # of the notification queue; while all listeners read it is a thousandth
OLD_S = 300.0  # longer than any transaction of pgflowd
MANY_TRANSACTIONS = 100_000  # since a snapshot; fewer leave too few dead rows to slow claims down
MAX_HOLDERS = 2  # of those that may be guilty


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
        named = " or ".join(f"{each}, {each.since}" for each in oldest[:MAX_HOLDERS])
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
