"""Whatever the database has: no page writes a character that a browser obeys or hides."""

from __future__ import annotations

import re

from jinja2 import nodes
from support import web_states
from support.covers import covers
from support.hostile import taint

from pgflowd.core.redact import safe_lines
from pgflowd.web.pages import PAGES
from pgflowd.web.rendering import _TEMPLATES, _environment

_SENT_BACK = re.compile(r'<input type="hidden"[^>]*>')  # which nobody sees


@covers("row 105", "attack 14")
def test_each_page_shows_them_as_escapes_and_none_is_lost(web, shop):
    words = {**web_states.full(shop), "step": "website", "code": "E210"}
    waits = shop.value("select run_id from pgflowd.waits where kind = 'signal' limit 1")
    taint(shop.conn, spared={"pgflowd.settings.name"})

    for run in (words["run"], str(waits), words["map"]):
        words["run"] = run
        if run == words["map"]:
            words["step"] = "store"
        elif run == str(waits):
            words["step"] = "perform"
        for page in PAGES:
            for view in ("", *page.views):
                address = page.path.format(**words) + (f"?view={view}" if view else "")
                if page.path.endswith("/steps/{step}"):
                    address += "?task=0"
                answer = web.get(address)
                twin = web.get("/api/1" + ("/overview" if address == "/" else address))

                assert (answer.status_code, twin.status_code) == (200, 200), (address, twin.text)
                text = _SENT_BACK.sub("", answer.text)
                assert safe_lines(text) == text, (address, [c for c in text if safe_lines(c) != c])


def test_no_filter_of_a_template_belongs_to_the_last_word_of_a_choice_alone():
    """`a or b | line` filters b only."""
    wrong = [
        (template.name, choice.lineno)
        for template in _TEMPLATES.iterdir()
        for choice in _environment.parse(template.read_text("utf-8")).find_all(nodes.Or)
        if isinstance(choice.right, nodes.Filter)
    ]

    assert wrong == []
