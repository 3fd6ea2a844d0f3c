"""
Makes HTML of documents.

A template gets a document and what belongs to the page, and nothing else. What it writes within
`{% call fragment(id) %}` is a fragment: an element with an id, which live updates replace as a
whole. Fragments do not nest.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import urlencode

from jinja2 import Environment, FunctionLoader, StrictUndefined
from jinja2.filters import do_forceescape
from starlette.requests import Request

from pgflowd.core import verbs
from pgflowd.core.documents import headings
from pgflowd.core.documents.daemons import ListedDaemon, database_text
from pgflowd.core.documents.flows import ListedFlow, StalledTask
from pgflowd.core.documents.run_tasks import DeadLetter, ListedSignal, SavedCheckpoint
from pgflowd.core.documents.runs import Attempt, ListedRun
from pgflowd.core.documents.schedules import ListedSchedule
from pgflowd.core.failure import place_of
from pgflowd.core.metrics.definitions import is_number
from pgflowd.core.payloads import Payloads
from pgflowd.core.statuses import Marks, Outcome, RunStatus, child_mark
from pgflowd.core.text import ago, brief, counted, duration, short_id, size
from pgflowd.core.timeline import ends_by, reason, wait_text
from pgflowd.errors import TITLES, PgflowdError
from pgflowd.web import svg, text
from pgflowd.web.actions import MANY_VERBS, flags_for, offered, shown_of
from pgflowd.web.pages import Page, PageRequest
from pgflowd.web.pages.page import Connection, read_frame
from pgflowd.web.pages.runs import STATUSES

# The pages that each page leads to, and the key after `g` for each.
NAVIGATION = (
    ("/", "Overview", "o"),
    ("/runs", "Runs", "r"),
    ("/flows", "Flows", "f"),
    ("/inbox", "Inbox", "i"),
    ("/stalled", "Stalled", "s"),
    ("/dead", "Dead letters", "d"),
    ("/schedules", "Schedules", "c"),
    ("/daemons", "Daemons", "a"),
    ("/actions", "Actions", "t"),
    ("/database", "Database", "b"),
    ("/explain", "Explain", "e"),
)

DASH = "\N{EN DASH}"
_FILES = files("pgflowd.web")
_TEMPLATES = _FILES / "templates"


# The few files that pages load: script, style, icon. Their addresses hold a hash of what is in
# them, so browsers may keep them for ever.
class Asset(NamedTuple):
    """A file that pages load."""

    address: str  # below the address of the dashboard
    type: str
    body: bytes


def _asset(name: str, type: str) -> Asset:
    body, (stem, _, ending) = (_FILES / "assets" / name).read_bytes(), name.rpartition(".")
    return Asset(f"assets/{stem}.{hashlib.sha256(body).hexdigest()[:12]}.{ending}", type, body)


_BY_NAME = {
    "pgflowd.css": _asset("pgflowd.css", "text/css; charset=utf-8"),
    "pgflowd.js": _asset("pgflowd.js", "text/javascript; charset=utf-8"),
    "icon.svg": _asset("icon.svg", "image/svg+xml"),
}
BY_ADDRESS = {each.address: each for each in _BY_NAME.values()}


def address_of(name: str) -> str:
    """Where a page loads it from."""
    return _BY_NAME[name].address


@dataclass
class Rendered:
    """A page, and its fragments by id."""

    html: str = ""
    fragments: dict[str, str] = field(default_factory=dict)
    now: datetime | None = None  # by the database's clock, which its times are of

    def keep(self, id: str, html: str) -> str:
        """Remember a fragment; return its HTML."""
        assert id not in self.fragments, f"two fragments of a page are called {id}"
        self.fragments[id] = html
        return html


@dataclass(frozen=True)
class Look:
    """How somebody wants pages to look: a cookie says so."""

    theme: str = ""  # light or dark; empty: as the system is
    times: str = ""  # local or, if empty, UTC


def render(template: str, **values: Any) -> Rendered:
    """Render a template of a page."""
    rendered = Rendered()
    page = _environment.get_template(template)
    rendered.html = page.render(keep=rendered.keep, **values)
    return rendered


def clock(at: datetime) -> str:
    """A moment as people read it, in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def seconds_between(start: datetime, end: datetime) -> float:
    return max((end - start).total_seconds(), 0.0)


def address(path: str, query: Mapping[str, object]) -> str:
    """An address with the parameters that are not empty."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def command_line(words: Iterable[str]) -> str:
    return text.shown(shlex.join(words))


def word_of(key: str) -> str:
    """A key of a document as people read it."""
    return text.shown(key.replace("_", " "), 60)


def child_status(state: str) -> dict[str, str]:
    """The sign and colour of a child's state."""
    mark = child_mark(state)
    return {"sign": mark.sign, "colour": mark.colour or "plain", "text": text.shown(state, 40)}


def number_of(document: Mapping[str, Any], key: str) -> str:
    """A number of a document that another version may have written."""
    value = document.get(key)
    return f"{value:,.6g}" if is_number(value) else DASH


def _visible(value: Any) -> Any:
    """What an expression of a template gives, without characters that a browser obeys or hides."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return text.visible(value) if is_text else value


_environment = Environment(
    loader=FunctionLoader(lambda name: (_TEMPLATES / name).read_text("utf-8")),
    autoescape=True,
    finalize=_visible,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=["jinja2.ext.do"],
)
_environment.filters.update(
    ago=ago, brief=brief, counted=counted, duration=duration, iso=text.iso, clock=clock,
    short=short_id, size=size, line=text.shown, lines=text.shown_lines, as_id=text.as_id,
    word=text.status_word, shell=command_line, markdown=text.of_markdown, number=text.number,
    word_of=word_of, classes=text.status_class,
    typed=do_forceescape,  # as a form sends it back: nothing in it is made visible
)  # fmt: skip
_environment.globals.update(
    # of pages that are told nothing else
    look=Look(), frame=None, command=(), back="/", may_act=False, read_only="", leaver="",
    shown_of=shown_of,
    statuses=tuple(RunStatus), started=Outcome.STARTED,
    asset=address_of, address=address, navigation=NAVIGATION,
    seconds_between=seconds_between, database_text=database_text,
    reason=reason, place_of=place_of, wait_text=wait_text, ends_by=ends_by,
    child_status=child_status, number_of=number_of, task_statuses=STATUSES, titles=TITLES,
    svg=svg, marks=Marks, verbs=verbs, many_verbs=MANY_VERBS,
    offered=offered, flags_for=flags_for, headings={
        "attempt": headings(Attempt), "checkpoint": headings(SavedCheckpoint),
        "daemon": headings(ListedDaemon), "dead": headings(DeadLetter),
        "flow": headings(ListedFlow), "run": headings(ListedRun),
        "schedule": headings(ListedSchedule), "signal": headings(ListedSignal),
        "stalled": headings(StalledTask),
    },
)  # fmt: skip


# What a request tells about the page that answers it: where it is, and how it shall look.
THEMES, TIMES = ("light", "dark"), ("local",)


def root_of(request: Request) -> str:
    """The path below which the dashboard is mounted."""
    return str(request.scope.get("root_path", ""))


def back_of(request: Request) -> str:
    """The address of this page below the dashboard's, with its parameters."""
    path = request.scope["path"].removeprefix(root_of(request)) or "/"
    query = request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def look_of(request: Request) -> Look:
    """How the user wants pages to look, as cookies say."""
    theme, times = request.cookies.get("theme", ""), request.cookies.get("times", "")
    return Look(theme if theme in THEMES else "", times if times in TIMES else "")


def leaver_of(request: Request) -> str:
    """The name of who can log out."""
    user = getattr(request.state, "user", None)
    return str(user.name) if user is not None and user.may_leave else ""


def wants_json(request: Request) -> bool:
    """Whether the answer is for a program or a script."""
    path = str(request.scope["path"]).removeprefix(root_of(request))
    return path.startswith(("/api/", "/live/", "/fragments/"))


# What somebody looks at: a page with its words and parameters, and how it is shown to them.
#
# Equal views show the same, so the watcher reads and renders one of them for all tabs. The page
# itself and its live updates are read and rendered here, by the same functions.
@dataclass(frozen=True)
class View:
    """A page as somebody sees it."""

    page: Page
    words: tuple[tuple[str, str], ...]  # of the path
    query: tuple[tuple[str, str], ...]
    root: str  # the path below which the dashboard is mounted
    read_only: str  # why there are no forms of actions; empty: there are
    payloads: Payloads = field(compare=False, default=Payloads())  # the same for all

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
    return View(chosen, words, tuple(sorted(query)), root, read_only, payloads)
