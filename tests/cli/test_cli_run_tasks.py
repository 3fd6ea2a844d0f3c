"""`pgflowd runs tasks`: the tasks of a map, page by page, and what is known of each."""

from __future__ import annotations

import pytest


@pytest.fixture
def run(shop):
    """A run of a map of six: one completed, one failed for good, one at work, three queued."""
    run = shop.start("store_items", ["a", "b", "c", "d", "e", "f"])
    worker = shop.worker("store_items")
    tasks = shop.claim("store_items", worker, 3)
    shop.complete(tasks[0])
    shop.fail(tasks[1], "no such shelf")
    return run


def test_a_page_is_followed_by_the_next(here, run):
    first = here("runs", "tasks", "@last", "store", "--limit", "4")
    second = here("runs", "tasks", "@last", "store", "--limit", "4", "--after", "3")

    assert [line.split()[0] for line in first.out.splitlines()[1:]] == ["#0", "#1", "#2", "#3"]
    assert f"`pgflowd runs tasks {str(run)[-8:]} store --after 3` goes on" in first.err
    assert [line.split()[0] for line in second.out.splitlines()[1:]] == ["#4", "#5"]
    assert second.err == ""


def test_only_tasks_of_a_status_are_listed(here, run):
    page = here("runs", "tasks", "@last", "store", "--status", "delayed", "--json").json

    (task,) = page["tasks"]
    known = {name: task[name] for name in ("task", "attempts", "attempt", "outcome", "error")}
    assert known == {
        "task": 1, "attempts": 1, "attempt": 1, "outcome": "failed", "error": "no such shelf",
    }  # fmt: skip
    assert page["after"] is None
    at_work = here("runs", "tasks", "@last", "store", "--status", "leased", "--json").json
    assert [(task["task"], task["outcome"]) for task in at_work["tasks"]] == [(2, None)]


def test_it_looks_at_a_limited_number_of_tasks(shop, run):
    query = "select task_index, searched_to from pgflowd.run_tasks(%s, 'store', %s, %s, 50, 2)"

    assert shop.rows(query, run, ["ready"], -1) == [(None, 1)]
    assert shop.rows(query, run, ["ready"], 2) == [(3, 4), (4, 4)]
    assert shop.rows(query, run, ["ready"], 4) == [(5, None)]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["@last", "stroe"], 4, "did you mean 'store'?"),
        (["@last", "store", "--after", "5"], 0, "it has no such tasks"),
        (["@last", "store", "--status", "completd"], 2, "'completd'"),
    ],
)
def test_it_says_what_it_does_not_find(here, run, words, code, text):
    ended = here("runs", "tasks", *words)

    assert (ended.code, text in ended.err) == (code, True), ended.err
