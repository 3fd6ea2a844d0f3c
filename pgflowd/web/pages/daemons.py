"""The daemons of all machines, and each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgflowd.core.documents import Hidden, Inline
from pgflowd.core.documents.daemons import ListedDaemon, is_alone, silence
from pgflowd.core.suggest import nearest
from pgflowd.db.daemons import list_daemons
from pgflowd.db.query import execute
from pgflowd.errors import NotFound
from pgflowd.web.pages.page import Page, PageRequest


@dataclass(frozen=True)
class ShownDaemons:
    """The daemons that have told of themselves within a day."""

    daemons: Sequence[ListedDaemon]

    def silence(self, daemon: ListedDaemon) -> str:
        """What became of one that is silent."""
        return silence(daemon, is_alone=is_alone(self.daemons))


@dataclass(frozen=True)
class ShownDaemon:
    """One daemon."""

    daemon: Inline[ListedDaemon]
    silence: Hidden[str]


def daemon_list(request: PageRequest) -> ShownDaemons:
    daemons = execute(request.conn, list_daemons())
    return ShownDaemons(daemons)


def daemon_page(request: PageRequest) -> ShownDaemon:
    """A daemon by its id."""
    wanted, found = request.path["daemon"], execute(request.conn, list_daemons())
    for daemon in found:
        if str(daemon.daemon_id) == wanted:
            return ShownDaemon(daemon, silence(daemon, is_alone=is_alone(found)))
    close = nearest(wanted, [str(each.daemon_id) for each in found])
    remedy = f"did you mean '{close}'?" if close else "rows are deleted after a day of silence"
    raise NotFound(f"there is no daemon {wanted}", next=remedy)


def _command(_: PageRequest) -> list[str]:
    return ["pgflowd", "daemons", "list"]


PAGES = (
    Page("/daemons", "daemons.html", daemon_list, _command),
    Page("/daemons/{daemon}", "daemon.html", daemon_page, _command),
)
