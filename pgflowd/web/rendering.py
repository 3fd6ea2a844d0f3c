"""
Makes HTML of documents.

A template gets a document and what belongs to the page, and nothing else. What it writes within
`{% call fragment(id) %}` is a fragment: an element with an id, which live updates replace as a
whole. Fragments do not nest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from pgflowd.core.redact import one_line
from pgflowd.core.text import ago, brief, counted, duration, short_id, size
from pgflowd.web.assets import address_of

_TEMPLATES = files("pgflowd.web") / "templates"


@dataclass
class Rendered:
    """A page, and its fragments by id."""

    html: str = ""
    fragments: dict[str, str] = field(default_factory=dict)

    def keep(self, id: str, html: str) -> str:
        """Remember a fragment; return its HTML."""
        self.fragments[id] = html
        return html


def render(template: str, **values: Any) -> Rendered:
    """Render a template of a page."""
    rendered = Rendered()
    page = _environment.get_template(template)
    rendered.html = page.render(keep=rendered.keep, **values)
    return rendered


def moment(at: datetime) -> str:
    """A moment as `<time datetime>` has it."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _source(name: str) -> str:
    return (_TEMPLATES / name).read_text("utf-8")


_environment = Environment(
    loader=FunctionLoader(_source),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=["jinja2.ext.do"],
)
_environment.filters.update(
    ago=ago, brief=brief, counted=counted, duration=duration, moment=moment, short=short_id,
    size=size, line=one_line,
)  # fmt: skip
_environment.globals.update(asset=address_of)
