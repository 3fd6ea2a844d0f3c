"""
What somebody looks at: a page with its words and parameters, and how it is shown to them.

Equal views show the same, so the watcher reads and renders one of them for all tabs. The page
itself and its live updates are read and rendered here, by the same functions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from pgflowd.core.payloads import Payloads
from pgflowd.errors import PgflowdError
from pgflowd.web.connections import Connection
from pgflowd.web.pages import Page, PageRequest
from pgflowd.web.pages.page import read_frame
from pgflowd.web.rendering import Rendered, render


@dataclass(frozen=True)
class View:
    """A page as somebody sees it."""

    page: Page = field(compare=False)  # path, words and parameters say which
    path: str
    words: tuple[tuple[str, str], ...]  # of the path
    query: tuple[tuple[str, str], ...]
    root: str  # the path below which the dashboard is mounted
    read_only: str  # why there are no forms of actions; empty: there are
    payloads: Payloads = field(compare=False, default=Payloads())  # the same for all

    @property
    def shows_output(self) -> bool:
        """Whether it shows what the handlers of a run print from now on."""
        return ("view", "output") in self.query

    @property
    def shows_daemons(self) -> bool:
        """Whether it shows what daemons tell of themselves."""
        return self.path.startswith("/daemons")

    def read(self, conn: Connection) -> Any:
        """Read the document, with its values as they may be shown."""
        return self.payloads.of(self.page.read(self._asked(conn)))

    def read_with(self, conn: Connection, shown: Collection[str]) -> tuple[Any, Collection[str]]:
        """Read the document, with the rows that are shown if it is a list; and which it added."""
        if self.page.with_rows is None or not shown:
            return self.read(conn), ()
        document = self.page.read(self._asked(conn))
        document, others = self.page.with_rows(conn, document, shown)
        return self.payloads.of(document), others

    def render(self, conn: Connection, document: Any, **more: Any) -> Rendered:
        """The page that shows a document. What `more` says is in no fragment."""
        asked, frame = self._asked(conn), None if conn is None else read_frame(conn)
        rendered = render(
            self.page.template, root=self.root, doc=document, query=asked.query, frame=frame,
            command=self.page.command(asked), may_act=not self.read_only,
            read_only=self.read_only, **more,
        )  # fmt: skip
        rendered.now = None if frame is None else frame.now
        return rendered

    def _asked(self, conn: Connection) -> PageRequest:
        return PageRequest(conn, dict(self.words), dict(self.query))


def view_of(page: Page, request: Request, payloads: Payloads, others: Collection[str] = ()) -> View:
    """
    The view that is asked for. An unknown or repeated parameter is an error, except those of
    `others`, which are left out.
    """
    chosen, given = page.chosen(request.query_params.get("view")), request.query_params
    query = []
    for name in given:
        if name in others:
            continue
        if name not in chosen.parameters:
            known = ", ".join(sorted(chosen.parameters)) or "no parameters"
            text = f"this page has no parameter '{name}'"
            raise PgflowdError(text, code="E506", next=f"it has {known}")
        if (times := len(given.getlist(name))) > 1 and name not in chosen.lists:
            raise PgflowdError(f"the parameter '{name}' is given {times} times", code="E506")
        query.append((name, ",".join(given.getlist(name))))
    words = tuple((name, str(word)) for name, word in request.path_params.items())
    root = str(request.scope.get("root_path", ""))
    read_only = request.state.read_only
    return View(chosen, chosen.path, words, tuple(sorted(query)), root, read_only, payloads)
