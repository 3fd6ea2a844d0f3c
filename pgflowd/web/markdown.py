"""Makes HTML of the Markdown of pages; it has no HTML of its own, and links are safe to follow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.token import Token
from markupsafe import Markup

from pgflowd.web.text import visible

_TARGET = re.compile(r"https?://|[^:/\\%][^:]*\Z", re.IGNORECASE)  # the web, and relative ones


def of_markdown(text: str) -> Markup:
    """The HTML of a text; what a browser would obey or hide is shown."""
    return Markup(_PARSER.render(visible(text)))


def _fence(_self: Any, tokens: Sequence[Token], at: int, _options: Any, _env: Any) -> str:
    kind = "printed" if tokens[at].info.strip() == "text" else "code"
    return f'<pre class="{kind}" tabindex="0">{escapeHtml(tokens[at].content)}</pre>\n'


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    parser.validateLink = lambda url: _TARGET.match(url) is not None  # type: ignore[method-assign]
    parser.add_render_rule("fence", _fence)
    return parser


_PARSER = _parser()
