"""
Each public function that changes something keeps an action, or is known not to be a person's.

The functions are read from their files; `tests/sql/leases/test_actions.py` calls the verbs.
"""

from __future__ import annotations

import re

from support.verbs import NO_VERBS, VERBS
from unit.test_sql_callers import FUNCTIONS, SQL

RECORD = re.compile(r"pgflowd\._record_\w+\(")
STABLE = re.compile(r"\blanguage \w+ (stable|immutable)\b")


def test_each_public_function_that_changes_something_is_a_verb_or_known_to_be_none() -> None:
    public = [one for one in FUNCTIONS if one.schema == "pgflowd" and one.name[0] != "_"]
    texts = {one.name: (SQL / one.path).read_text() for one in public}

    assert {name for name, text in texts.items() if RECORD.search(text)} == set(VERBS)
    changing = {name for name, text in texts.items() if not STABLE.search(text)}
    assert changing - set(VERBS) == NO_VERBS
