"""
Makes HTML of documents.

A template gets a document and what belongs to the page, and nothing else. What it writes within
`{% call fragment(id) %}` is a fragment: an element with an id, which live updates replace as a
whole. Fragments do not nest.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FunctionLoader, StrictUndefined
from jinja2.filters import do_forceescape

from pgflowd.core import verbs
from pgflowd.core.documents.columns import headings
from pgflowd.core.documents.daemons import ListedDaemon, database_text
from pgflowd.core.documents.flows import ListedFlow, StalledTask
from pgflowd.core.documents.history import DeadLetter
from pgflowd.core.documents.runs import Attempt, ListedRun
from pgflowd.core.documents.schedules import ListedSchedule
from pgflowd.core.documents.waits import ListedSignal, SavedCheckpoint
from pgflowd.core.failure import place_of
from pgflowd.core.metrics.counters import is_number
from pgflowd.core.statuses import Marks, Outcome, RunStatus, child_mark
from pgflowd.core.text import ago, brief, counted, duration, short_id, size
from pgflowd.core.timeline import ends_by, reason, wait_text
from pgflowd.errors import TITLES
from pgflowd.web import svg
from pgflowd.web.actions import MANY_VERBS, flags_for, offered, shown_of
from pgflowd.web.assets import address_of
from pgflowd.web.pages.runs import STATUSES
from pgflowd.web.text import (
    JsonBranch,
    as_id,
    iso,
    number,
    of_markdown,
    shown,
    shown_lines,
    status_class,
    status_word,
    visible,
)

# The pages that each page leads to.
NAVIGATION = (
    ("/", "Overview"),
    ("/runs", "Runs"),
    ("/flows", "Flows"),
    ("/inbox", "Inbox"),
    ("/stalled", "Stalled"),
    ("/dead", "Dead letters"),
    ("/schedules", "Schedules"),
    ("/daemons", "Daemons"),
    ("/actions", "Actions"),
    ("/database", "Database"),
    ("/explain", "Explain"),
)


def _letters() -> dict[str, str]:
    """The key after `g` for each page: the first letter of its name that is free."""
    found: dict[str, str] = {}
    for path, name in NAVIGATION:
        free = [each for each in name.lower() if each.isalpha() and each not in found.values()]
        found[path] = free[0]
    return found


LETTERS = _letters()


DASH = "\N{EN DASH}"
_TEMPLATES = files("pgflowd.web") / "templates"


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
    defaults: dict[str, Any] = {
        "look": Look(), "frame": None, "command": [], "back": "/", "may_act": False,
        "read_only": "", "leaver": "",
    }  # fmt: skip
    values = {**defaults, "keep": rendered.keep, **values}
    rendered.html = page.render(**values)
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
    return shown(shlex.join(words))


def with_page(query: Mapping[str, str], after: str) -> dict[str, str]:
    """The parameters of the next page."""
    return {**query, "after": after}


def part_query(whose: Mapping[str, Any], branch: JsonBranch) -> dict[str, Any]:
    """The parameters of the address of a part of a value."""
    return {**whose, "path": branch.pointer, "start": branch.next}


def word_of(key: str) -> str:
    """A key of a document as people read it."""
    return shown(key.replace("_", " "), 60)


def child_status(state: str) -> dict[str, str]:
    """The sign and colour of a child's state."""
    mark = child_mark(state)
    return {"sign": mark.sign, "colour": mark.colour or "plain", "text": shown(state, 40)}


def number_of(document: Mapping[str, Any], key: str) -> str:
    """A number of a document that another version may have written."""
    value = document.get(key)
    return f"{value:,.6g}" if is_number(value) else DASH


def _source(name: str) -> str:
    return (_TEMPLATES / name).read_text("utf-8")


def _visible(value: Any) -> Any:
    """What an expression of a template gives, without characters that a browser obeys or hides."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


_environment = Environment(
    loader=FunctionLoader(_source),
    autoescape=True,
    finalize=_visible,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=["jinja2.ext.do"],
)
_environment.filters.update(
    ago=ago, brief=brief, counted=counted, duration=duration, iso=iso, clock=clock, short=short_id,
    size=size, line=shown, lines=shown_lines, as_id=as_id, word=status_word, shell=command_line,
    markdown=of_markdown, number=number, word_of=word_of, classes=status_class,
    typed=do_forceescape,  # as a form sends it back: nothing in it is made visible
)  # fmt: skip
_environment.globals.update(
    shown_of=shown_of,
    statuses=tuple(RunStatus), started=Outcome.STARTED,
    asset=address_of, address=address, navigation=NAVIGATION, letters=LETTERS,
    seconds_between=seconds_between, database_text=database_text,
    reason=reason, place_of=place_of, wait_text=wait_text, ends_by=ends_by, with_page=with_page,
    child_status=child_status, number_of=number_of, task_statuses=STATUSES, titles=TITLES,
    part_query=part_query, svg=svg, marks=Marks, verbs=verbs, many_verbs=MANY_VERBS,
    offered=offered, flags_for=flags_for, headings={
        "attempt": headings(Attempt), "checkpoint": headings(SavedCheckpoint),
        "daemon": headings(ListedDaemon), "dead": headings(DeadLetter),
        "flow": headings(ListedFlow), "run": headings(ListedRun),
        "schedule": headings(ListedSchedule), "signal": headings(ListedSignal),
        "stalled": headings(StalledTask),
    },
)  # fmt: skip
