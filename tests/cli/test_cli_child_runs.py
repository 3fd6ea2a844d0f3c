"""The family of a run, on the command line."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import UUID

from support.shop import Shop

from pgflowd.core.ids import child_id
from pgflowd.core.text import short_id

START = "select pgflowd.start_child(%s, %s, %s, %s, %s, %s)"


def start_child(shop: Shop, task: Any, flow: str, **wishes: Any) -> UUID:
    run = child_id(str(task.run_id), task.step_slug, task.task_index, flow, "nr 1")
    given = json.dumps({"flow": flow, "input": [1], "wishes": wishes})
    shop.value(START, *task, run, given)
    return UUID(run)


def test_runs_show_tree_prints_the_family_of_a_run(here, shop):
    parent = shop.start(input={"url": "x"})
    mail = start_child(shop, shop.claim_all()["website#0"], "send_email")
    (task,) = shop.claim_all("send_email").values()
    stored = start_child(shop, task, "store_items")
    planned = start_child(shop, task, "analyze_website", delay_s=3600)

    shown = here("runs", "show", str(mail), "--tree").out

    assert f" parent  run {short_id(parent)}\n" in shown
    tree = [
        re.sub(r"[^\w#()└├─ ] | \d+s ago", "", line).rstrip() for line in shown.splitlines()[-4:]
    ]
    assert tree == [
        f" {short_id(parent)} analyze_website started",
        f" └─ {short_id(mail)} send_email started  by website#0  (this run)",
        f"    ├─ {short_id(stored)} store_items started  by perform#0",
        f"    └─ {short_id(planned)} analyze_website scheduled  by perform#0",
    ]

    found = here("runs", "show", str(parent), "--tree", "--json").json
    assert found["parent_run_id"] is None
    keys = ("run_id", "parent_run_id", "parent_step")
    assert [tuple(each[key] for key in keys) for each in found["family"]] == [
        (str(parent), None, None),
        (str(mail), str(parent), "website"),
        (str(stored), str(mail), "perform"),
        (str(planned), str(mail), "perform"),
    ]  # fmt: skip
    assert "family" not in here("runs", "show", str(parent), "--json").json


def test_a_run_without_a_family_says_so(here, shop):
    run = shop.start()
    assert "it has no children" in here("runs", "show", str(run), "--tree").err
