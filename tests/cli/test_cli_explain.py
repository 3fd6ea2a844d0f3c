"""`pgflowd explain`: the page of a code, lists of codes, and the remark that names the command."""

from __future__ import annotations

import re

import click
import pytest
from support.shop import on_a_terminal

from pgflowd.cli.commands.docs import explain
from pgflowd.core.documents.documentation import nearest_codes, page_of
from pgflowd.errors import GROUPS, TITLES
from pgflowd.host.pages import error_page


def test_a_code_is_explained_however_it_is_written(pgflowd):
    shown, same = pgflowd("explain", "E210"), pgflowd("explain", "e210")

    assert shown == same and (shown.code, shown.err) == (0, "")
    assert shown.out == f"{error_page('E210').markdown}\n"
    assert shown.out.startswith("# E210: a flow module cannot be imported\n\n")
    assert "\n$ pgflowd check --offline\n" in shown.out
    assert "\n- `pgflowd explain E211`: a flow module takes too long to import\n" in shown.out


def test_a_code_without_a_page_is_explained_by_its_row(pgflowd):
    shown, page = pgflowd("explain", "W330"), pgflowd("explain", "W330", "--json").json

    assert shown.out.startswith("# W330: a flow is paused\n\nSomebody has paused the flow:")
    assert "\n## What to do\n\nAsk who paused it;" in shown.out
    assert (page["related"], page["pages"]) == ([], [])


def test_without_a_code_all_are_listed_by_groups(pgflowd):
    listed = pgflowd("explain")

    assert re.findall(r"^  ([EW]\d+)  ", listed.out, re.MULTILINE) == list(TITLES)
    assert set(GROUPS.values()) <= set(listed.out.splitlines())
    assert "explain CODE" in listed.err


def test_words_are_sought_in_the_pages_and_a_title_comes_first(pgflowd):
    found = pgflowd("explain", "Is", "PAUSED", "--json").json["codes"]
    nothing = pgflowd("explain", "zebra crossing")

    assert found[0] == {"code": "W330", "title": "a flow is paused", "group": "the database"}
    assert nothing.code == 4 and "no code has 'zebra crossing'" in nothing.err


@pytest.mark.parametrize(
    ("word", "nearest"),
    [("E299", "E209"), ("310", "E310"), ("E120", "E102"), ("E2100", "E210"), ("w210", "E210")],
)
def test_of_an_unknown_code_the_nearest_are_named(word, nearest, pgflowd):
    ended = pgflowd("explain", word)

    assert nearest in nearest_codes(word)
    assert ended.code == 4
    assert f"there is no code '{word}'; the nearest are" in ended.err
    assert f"{nearest} ({TITLES[nearest]})" in ended.err


def test_the_document_has_the_text_and_what_is_related(pgflowd):
    page = pgflowd("explain", "E306", "--json").json

    assert error_page("E306").markdown.startswith(f"# E306: {page['title']}\n\n{page['text']}\n")
    assert "## What to do" in page["text"] and "See also" not in page["text"]
    assert page["related"][0] == "W322"
    assert page["pages"] == ["docs/guides/changing-flows.md"]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_terminal_shows_a_page_as_rich_renders_it(columns, elsewhere):
    shown = on_a_terminal("explain", "E302", columns=columns, NO_COLOR="1", LINES="500")
    lines = shown.splitlines()

    assert lines[0].strip() == "E302: the schema is missing or older" or columns < 60
    assert max(map(len, lines)) <= columns
    assert "`pgflowd db status`" not in shown and "#" not in shown
    assert " • pgflowd db status" in shown


def test_a_terminal_shows_the_text_itself_where_rich_is_not_installed(elsewhere):
    (elsewhere / "sitecustomize.py").write_text("import sys; sys.modules['rich'] = None\n")
    shown = on_a_terminal("explain", "E302", columns=80, LINES="500", PYTHONPATH=str(elsewhere))

    assert shown.splitlines() == error_page("E302").markdown.splitlines()


def test_a_page_with_another_title_is_refused():
    with pytest.raises(ValueError, match="does not begin with its title"):
        page_of("E210", "# E210: another title\n")


def test_codes_are_completed():
    ctx = click.Context(explain)
    suggested = explain.params[0].shell_complete(ctx, "w31")

    assert [item.value for item in suggested] == [code for code in TITLES if code[:3] == "W31"]
    assert suggested[0].help == TITLES[suggested[0].value]


def test_on_a_terminal_errors_name_the_command_that_says_more(elsewhere):
    (elsewhere / "pgflowd.toml").write_text("[worker]\nbatch_size = 0\nx = 1\n")

    one = on_a_terminal("runs", "list", "--config", "no.toml", columns=80)
    many = on_a_terminal("runs", "list", columns=80)
    quiet = on_a_terminal("runs", "list", "-q", columns=80)

    assert "`pgflowd explain E101` says more" in one
    assert "`pgflowd explain CODE` says more" in many
    assert "E102" in quiet and "says more" not in quiet
