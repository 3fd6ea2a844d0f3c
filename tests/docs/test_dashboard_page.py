"""docs/operate/dashboard.md names each action of the dashboard, with its fields."""

from __future__ import annotations

import re
from pathlib import Path

from pgflowd.web.actions import ACTIONS
from pgflowd.web.actions.run_verbs import RUN_VERBS

PAGE = Path(__file__).parents[2] / "docs/operate/dashboard.md"
_MANY = "/runs/many/{verb}"


def test_each_action_is_there_with_its_fields():
    rows = re.findall(r"^\| `(/\S+)` \| (.+) \|$", PAGE.read_text(), re.M)
    told = {path: frozenset(re.findall(r"`(\w+)`", fields)) for path, fields in rows}

    assert told.pop(_MANY) == {"runs", "reason"}
    assert told == {action.path: action.fields for action in ACTIONS}


def test_each_verb_for_many_runs_is_named():
    (text,) = re.findall(rf"`{re.escape(_MANY)}` (.+?) up to", PAGE.read_text(), re.S)
    assert all(verb[:4] in text for verb in RUN_VERBS)
