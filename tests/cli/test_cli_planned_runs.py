"""Runs that begin later, on the command line."""

from __future__ import annotations

import re

import pytest
from support.covers import covers
from support.shop import Shop


def process(shop: Shop, *columns: str) -> None:
    """Let the time of all planned runs come, as far as these columns say."""
    for column in columns:
        shop.do(
            f"update pgflowd.runs set {column} = now(), due_at = now() where due_at is not null"
        )
    shop.do("select pgflowd.process_due()")


def test_a_run_is_planned_shown_and_listed_and_then_begins(here, shop):
    args = ("send_email", "7", "--delay", "2h", "--expires", "1d", "--label", "customer=42")
    run = here("runs", "start", *args).out.strip()

    shown = here("runs", "show", "@last").out
    assert re.search(rf"run {run} +send_email +\S scheduled in (2h|1h59m)", shown)
    assert "labels  customer=42" in shown
    assert re.search(r"expires  in (1d|23h59m)", shown)
    listed = here("runs", "list", "--status", "scheduled", "--label", "customer=42").out
    assert re.search(r"send_email +\S scheduled +in (2h|1h59m)", listed)
    assert "no such runs" in here("runs", "list", "--label", "customer=4").err
    (found,) = here("runs", "list", "--label", "customer=42", "--json").json["runs"]
    assert found["labels"] == {"customer": "42"}
    assert (found["status"], found["started_at"]) == ("scheduled", None)
    assert found["start_at"] > "2026"

    process(shop, "start_at")
    assert "started" in here("runs", "show", run).out
    process(shop, "expires_at")
    shown = here("runs", "show", run).out
    assert "expired after" in shown
    assert "its time was over" in shown


def test_a_planned_run_is_rescheduled_cancelled_and_not_retried(here, shop):
    run = here("runs", "start", "send_email", "--at", "2090-01-01T08:00Z", "--key", "a").out.strip()
    assert here("runs", "start", "send_email", "--key", "a").out.strip() == run

    moved = here("runs", "reschedule", "@last", "--at", "2091-01-01T08:00+01:00", "--json").json
    assert moved["runs"][0]["start_at"] == "2091-01-01T07:00:00Z"
    assert f"run {run} cancelled" in here("runs", "cancel", run, "--reason", "no").out
    assert "cancelled before it began" in here("runs", "show", run).out
    refused = here("runs", "retry", run, "--even-if-cancelled")
    assert (refused.code, "has never begun" in refused.err) == (6, True)
    assert here("runs", "reschedule", run, "--delay", "1h").code == 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--at", "tomorrow"), "is not a moment"),
        (("--delay", "2"), "it has no unit"),
        (("--expires", "2026-13-01"), "is not a moment"),
        (("--label", "customer"), "is not a label"),
    ],
)
def test_wrong_times_and_labels_are_refused(here, words, said):
    ended = here("runs", "start", "send_email", *words)
    assert (ended.code, said in ended.err) == (2, True)


def test_who_waits_for_a_planned_run_sees_its_end(here, shop):
    run = here("runs", "start", "send_email", "--delay", "1h").out.strip()
    here("runs", "cancel", run, "--reason", "enough")

    waited = here("runs", "wait", run)
    assert (waited.code, "enough" in waited.out) == (1, True)
    followed = here("runs", "follow", run)
    assert (followed.code, "cancelled" in followed.out) == (1, True)
    (line,) = here("runs", "follow", run, "--json").out.splitlines()
    assert '"run:cancelled"' in line


def test_one_run_at_a_time_has_a_key_and_the_next_one_names_it(here, shop):
    args = ("send_email", "7", "--singleton", "customer 42")
    first = here("runs", "start", *args).out.strip()
    second = here("runs", "start", *args).out.strip()

    shown = here("runs", "show", second).out
    assert re.search(rf"run {second} +send_email +\S blocked +input", shown)
    assert "singleton key  customer 42" in shown
    assert f"waits for  run {first[-8:]}" in shown
    assert "started by  " in shown
    (listed,) = here("runs", "list", "--status", "blocked", "--json").json["runs"]
    assert (listed["run_id"], listed["started_at"]) == (second, None)
    document = here("runs", "show", second, "--json").json
    assert (document["singleton"], document["blocked_by"]) == ("customer 42", [first])
    taken = here("runs", "start", *args, "--on-conflict", "reject")
    assert (taken.code, f"run {first} has the singleton key" in taken.err) == (6, True)
    assert here("runs", "start", *args, "--on-conflict", "existing").out.strip() == first
    assert here("runs", "start", "send_email", "--on-conflict", "wait").code != 0

    here("runs", "cancel", first)
    process(shop)
    assert re.search(r"send_email +\S started", here("runs", "show", second).out)


@covers("E422")
def test_a_run_begins_after_others(here, shop):
    first, second = (here("runs", "start", "send_email", "7").out.strip() for _ in range(2))
    after = ("--after", first, "--after", second[-12:])
    strict = here("runs", "start", "send_email", "7", *after).out.strip()
    ended = here("runs", "start", "send_email", "7", *after, "--after-mode", "ended").out.strip()

    shown = here("runs", "show", strict).out
    assert re.search(rf"run {strict} +send_email +\S blocked +input", shown)
    names = sorted((first, second))
    assert f"waits for  run {names[0][-8:]}, run {names[1][-8:]}" in shown
    assert here("runs", "show", ended, "--json").json["blocked_by"] == names
    unknown = here(
        "runs", "start", "send_email", "7", "--after", first.replace(first[-6:], "000000")
    )
    assert (unknown.code, "E422" in unknown.err) == (4, True)
    assert here("runs", "start", "send_email", "7", "--after-mode", "ended").code != 0

    here("runs", "cancel", first, second)
    process(shop)
    process(shop)
    shown = here("runs", "show", strict).out
    assert "cancelled before it began" in shown
    assert re.search(r"run \S+ did not complete: it\s+is\s+cancelled\s+\(E428\)", shown)
    assert "started" in here("runs", "show", ended).out


def test_flows_list_counts_planned_runs(here, shop):
    assert "PLANNED" not in here("flows", "list").out
    here("runs", "start", "send_email", "--delay", "2h")

    lines = here("flows", "list").out.splitlines()
    at = lines[0].split().index("PLANNED")
    found = {line.split()[0]: line.split()[at] for line in lines[1:]}
    assert found == {"analyze_website": "0", "send_email": "1", "store_items": "0"}
    assert "1 planned run," in here("flows", "show", "send_email").out
    flows = here("flows", "list", "--json").json["flows"]
    assert [flow["planned"] for flow in flows] == [0, 1, 0]
