"""`pgflowd docs`: a page of the documentation, its contents, and where words stand in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from support.covers import covers
from support.shop import on_a_terminal

import pgflowd as package
from pgflowd.cli.commands.docs import docs
from pgflowd.core.documents.documentation import TableOfContents, found_in
from pgflowd.host.pages import page_text

DOCS = Path(__file__).parents[2] / "docs"
INDEX = """\
# Shop

## Guides

- [Waits](guides/waits.md): how tasks
  wait
- [Observe](guides/observe.md): what to look at

## Operate

- [Observe it](operate/observe.md)
- [Codes](errors/README.md): all of them
- [Elsewhere](https://example.org): no page of ours
"""


def test_without_a_topic_all_pages_are_listed_by_parts(pgflowd):
    shown, parts = pgflowd("docs"), pgflowd("docs", "--json").json["parts"]
    pages = {page["topic"]: page for part in parts for page in part["pages"]}

    listed = {page.path for page in TableOfContents(page_text("index.md")).pages}
    assert listed | {"index.md"} == {
        str(path.relative_to(DOCS))
        for path in DOCS.rglob("*.md")
        if path.parent.name != "errors" or path.stem == "README"
    }
    assert pages["waits"]["title"] == "Waits"
    assert [part["title"] for part in parts] == [
        line for line in shown.out.splitlines() if line and not line.startswith(" ")
    ]
    assert "`pgflowd docs TOPIC` shows a page" in shown.err


@pytest.mark.parametrize(
    "word", ["waits", "WAITS", "guides/waits", "guides/waits.md", "docs/guides/waits.md"]
)
def test_a_page_is_shown_however_it_is_named(word, pgflowd):
    shown = pgflowd("docs", word)

    assert (shown.code, shown.err) == (0, "")
    assert shown.out == page_text("guides/waits.md")
    assert pgflowd("docs", word, "--json").json["text"] == page_text("guides/waits.md")


def test_topics_are_names_of_pages_with_the_directory_where_two_have_one():
    contents = TableOfContents(INDEX)
    both = ["guides/observe", "operate/observe"]

    assert [page.topic for page in contents.pages] == ["waits", *both, "errors"]
    assert contents.pages[0].about == "how tasks wait"
    assert contents.find("observe") is None
    assert [page.topic for page in contents.nearest("observe")] == both


def test_titles_come_first_then_headings_then_texts_then_words_that_are_apart():
    contents = TableOfContents(INDEX)
    texts = [
        "# Waits\n\nA pager wakes people.\n",
        "# Observe\n\n## Call a pager\n\nIt rings.\n",
        "# Observe it\n\nNothing.\n",
        "# Codes\n\n| E1 | a Pager |\n|---|---|\n",
    ]
    pages = list(zip(contents.pages, texts, strict=True))

    assert [(each.topic, each.heading, each.text) for each in found_in(pages, "pager")] == [
        ("guides/observe", "Call a pager", "It rings."),
        ("waits", None, "A pager wakes people."),
        ("errors", None, "E1 | a Pager"),
    ]
    apart = (contents.pages[0], "E1\n\nA pager")
    assert [each.topic for each in found_in([apart, *pages], "e1 pager")] == ["errors", "waits"]
    titled = [each.topic for each in found_in(pages, "observe it")]
    assert titled == ["operate/observe", "guides/observe"]


def test_words_are_sought_and_shown_with_page_and_heading(pgflowd):
    words = ["Wait", "for", "a", "PERSON"]
    shown, found = pgflowd("docs", *words), pgflowd("docs", *words, "--json").json["found"]

    assert (found[0]["topic"], found[0]["heading"]) == ("waits", "Wait for a person")
    assert shown.out.startswith("waits  Waits\n  Wait for a person: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("wiats", "there is no topic 'wiats'; the nearest are waits (Waits)"),
        ("guides/wiats.md", "the nearest are waits"),
        ("zebra crossing", "no page has 'zebra crossing'; `pgflowd docs` lists all pages"),
        ("e210", "`pgflowd explain E210` shows the page of a code"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(words, said, pgflowd):
    ended = pgflowd("docs", *words.split())

    assert (ended.code, ended.out) == (4, "")
    assert said in ended.err


def test_a_blank_asks_for_no_words(pgflowd):
    assert pgflowd("docs", " ").out == pgflowd("docs").out


def test_topics_are_completed():
    suggested = docs.params[0].shell_complete(click.Context(docs), "wa")

    assert [(item.value, item.help) for item in suggested] == [("waits", "Waits")]


def test_a_long_page_goes_through_the_pager_of_a_terminal(elsewhere):
    pager = elsewhere / "pager"
    pager.write_text("#!/bin/sh\nsed 's/^/paged: /'\n")
    pager.chmod(0o755)

    long = on_a_terminal("docs", "waits", columns=60, PAGER=str(pager), LINES="24")
    short = on_a_terminal("docs", "waits", columns=60, PAGER=str(pager), LINES="5000")
    missing = on_a_terminal("docs", "waits", columns=60, PAGER="no-such-pager", LINES="24")
    torn = on_a_terminal("docs", "waits", columns=60, PAGER="less 'R", LINES="24")

    assert all(line.startswith("paged: ") for line in long.splitlines())
    assert "paged: " not in short + missing + torn
    for shown in (missing, torn, short):
        assert click.unstyle(shown) == long.replace("paged: ", "")


def test_without_a_pager_a_long_page_is_printed(elsewhere):
    shown = [on_a_terminal("docs", "waits", columns=80, LINES="24", PAGER=each, NO_COLOR="1")
             for each in ("", "cat")]  # fmt: skip

    assert shown[0] == shown[1]
    assert "goes into memo" in shown[0] and "Wait for a signal" in shown[0]


def test_a_terminal_without_unicode_gets_the_text_itself(elsewhere):
    poor = on_a_terminal("docs", "supervision", columns=80, PAGER="cat", LC_ALL="C")

    assert "# Supervision\n" in poor


@pytest.mark.parametrize("colour", ["0", "1"])
def test_a_painted_page_has_the_words_of_the_plain_one(colour, elsewhere):
    shown = on_a_terminal("docs", "waits", columns=80, PAGER="cat",
                          **({"NO_COLOR": "1"} if colour == "0" else {}))  # fmt: skip

    assert ("\x1b[" in shown) == (colour == "1")
    assert "A task can wait for a time, for a signal" in click.unstyle(shown)


@covers("E115")
def test_an_installation_without_pages_says_what_to_do(elsewhere):
    ignored = shutil.ignore_patterns("__pycache__", "docs")
    shutil.copytree(Path(package.__file__).parent, elsewhere / "pgflowd", ignore=ignored)

    for words in (["docs"], ["docs", "waits"], ["explain", "E210"]):
        assert "No such file" in refused(elsewhere, *words)


@covers("E115")
def test_a_page_that_was_not_copied_whole_says_what_to_do(elsewhere):
    ignored = shutil.ignore_patterns("__pycache__", "docs")
    shutil.copytree(Path(package.__file__).parent, elsewhere / "pgflowd", ignore=ignored)
    shutil.copytree(DOCS, elsewhere / "docs")
    page = elsewhere / "docs/guides/waits.md"

    page.write_bytes(b"# Waits\n\n```python\nhandlers\n")
    assert "a block does not end" in refused(elsewhere, "docs", "waits")
    page.write_bytes(b"")
    assert "it is empty" in refused(elsewhere, "docs", "waits")
    page.write_bytes(b"# Waits \xff\n")
    assert "it is not UTF-8" in refused(elsewhere, "docs", "zebra crossing")


def refused(place: Path, *words: str) -> str:
    """What the copy of pgflowd that lies there says of its own pages."""
    ended = subprocess.run(
        [sys.executable, "-m", "pgflowd", *words],
        env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 78
    assert "E115" in ended.stderr and "cannot be read: " in ended.stderr
    assert "pip install --force-reinstall pgflowd" in ended.stderr
    return ended.stderr
