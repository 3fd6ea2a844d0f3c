"""What no template of the dashboard may have: each would open a way for hostile texts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pgflowd.web

TEMPLATES = sorted((Path(pgflowd.web.__file__).parent / "templates").glob("*.html"))
FORBIDDEN = {
    r"\son[a-z]+\s*=": "our Content-Security-Policy refuses it",
    r"<script(?![^>]*\ssrc=)": "our Content-Security-Policy refuses it",
    r"(href|src|action)=\"\{\{ (?!root|address|base|here_path)": "an address begins with ours",
}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_nothing_that_a_hostile_text_could_use(template):
    text = template.read_text("utf-8")

    found = {why: match[0] for pattern, why in FORBIDDEN.items()
             if (match := re.search(pattern, text))}  # fmt: skip

    assert found == {}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_what_a_template_puts_into_an_attribute_is_in_quotes(template):
    text = re.sub(r"\{%.*?%\}|\{#.*?#\}", "", template.read_text("utf-8"), flags=re.DOTALL)
    text = re.sub(r"\{\{.*?\}\}", "VALUE", text, flags=re.DOTALL)
    text = re.sub(r"<[a-z][^<>]*>", lambda tag: re.sub(r'"[^"]*"', "QUOTED", tag[0]), text)

    assert re.findall(r"<[a-z][^<>]*=\s*VALUE[^<>]*>", text) == []
