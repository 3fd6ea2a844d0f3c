"""
Each public function that changes something keeps an action, or is known not to be a person's.

The functions are read from their files; `tests/sql/leases/test_actions.py` calls the verbs.
"""

from __future__ import annotations

import re

from support.pages import ROOT
from support.verbs import KEPT_AS, NO_VERBS, VERBS
from unit.test_sql_callers import FUNCTIONS, SQL

from pgflowd.core import verbs

RECORD = re.compile(r"pgflowd\._record_\w+\(")
STABLE = re.compile(r"\blanguage \w+ (stable|immutable)\b")


def test_each_public_function_that_changes_something_is_a_verb_or_known_to_be_none() -> None:
    public = [one for one in FUNCTIONS if one.schema == "pgflowd" and one.name[0] != "_"]
    texts = {one.name: (SQL / one.path).read_text() for one in public}

    assert {name for name, text in texts.items() if RECORD.search(text)} == set(VERBS)
    changing = {name for name, text in texts.items() if not STABLE.search(text)}
    assert changing - set(VERBS) == NO_VERBS


def test_the_page_has_each_action_that_is_kept() -> None:
    page = (ROOT / "docs/operate/history.md").read_text()
    table = page.partition("| action | is left by |")[2].partition("\n\n")[0]
    named = {
        name for row in table.splitlines() for name in re.findall("`(\\w+)`", row.split(" | ")[0])
    }

    named |= {verb.function for verb in verbs.VERBS} - KEPT_AS.keys()
    assert named == {KEPT_AS.get(verb, verb) for verb in VERBS} | {"reject"}


def test_a_verb_whose_arguments_the_dashboard_must_ask_for_has_a_form() -> None:
    for verb in verbs.VERBS:
        asks = [each for each in verb.arguments if each.is_required]
        assert not verb.path or not asks or (verb.sends and all(each.label for each in asks))
        assert not asks or verb.help, "who has no command of a row needs no words of it"
