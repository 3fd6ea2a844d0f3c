"""`pgflowd runs output`, and what other commands say of progress and of output that is kept."""

from __future__ import annotations

import re

import pytest
from support.pages import blocks_of


@pytest.fixture
def failed(shop):
    """A run whose first step has failed twice, the first attempt with its worker."""
    run = shop.start(input={"url": "x"})
    task = shop.claim_all()["website#0"]
    print_lines(shop, task, "0 cut earlier lines are not kept\n1.5 stdout page 7\n2.000 error no\n")
    return run


def print_lines(shop, task, text: str) -> None:
    """Let an attempt fail that has printed this."""
    token = task[3]
    worker = shop.value("select worker_id from pgflowd.attempts where token = %s", token)
    with shop.conn.transaction():
        shop.fail(task, "no such page", retry=False)
        query = "select pgflowd.keep_last(%s, %s, array[null], %s, %s)"
        shop.conn.execute(query, (worker, [token], [text], [text.count("\n") - 1]))


def test_the_output_of_a_failed_attempt_is_printed(here, failed):
    ended = here("runs", "output", "@last")

    assert ended.code == 0
    lines = [re.split(r"s  +", line, maxsplit=1) for line in ended.out.splitlines()]
    assert [text for _, text in lines] == ["website     │ page 7", "website     │ error: no"]
    assert [round(float(since_s), 1) for since_s, _ in lines] == pytest.approx([1.5, 2.0], abs=0.3)
    assert re.search(r"website#0, attempt 1, failed \d+s ago; earlier lines are not", ended.err)
    shown = here("runs", "show", "@last").out
    command = f"`pgflowd runs output {str(failed)[-8:]} --step website`"
    assert f"output kept  2 lines of website#0, attempt 1; {command}" in " ".join(shown.split("\n"))


def test_it_is_a_document_for_programs(here, failed):
    (attempt,) = here("runs", "output", "@last", "--task", "0", "--json").json["attempts"]

    lines = attempt.pop("lines")
    assert lines == [
        {"since_s": 1.5, "stream": "stdout", "level": "info", "text": "page 7"},
        {"since_s": 2.0, "stream": "log", "level": "error", "text": "no"},
    ]
    assert set(attempt) == {
        "step", "task", "token", "attempt", "outcome", "started_at", "ended_at", "cut",
    }  # fmt: skip
    assert (attempt["cut"], attempt["outcome"]) == (True, "failed")
    other = here("runs", "output", "@last", "--attempt", "2", "--json").json
    assert other["attempts"] == []


def test_it_says_why_there_is_nothing(here, shop):
    shop.run_through()

    ended = here("runs", "output", "@last")
    unknown = here("runs", "output", "@last", "--step", "web")

    assert ended.code == 0
    assert "nothing is kept: attempts that fail keep what they print" in ended.out
    assert unknown.code == 4
    assert "has no step 'web'" in unknown.err and "website" in unknown.err


def test_a_worker_that_died_has_taken_its_output_along(here, shop):
    shop.start()
    shop.claim_all()
    worker = shop.value("select worker_id from pgflowd.attempts")
    shop.conn.execute("select pgflowd.sweep_dead(%s, 'it was killed')", (worker,))

    ended = here("runs", "output", "@last")

    assert re.search(r"website#0, attempt 1, stalled \d+s ago: its worker died", ended.err)


def test_with_follow_it_goes_on_until_the_run_has_ended(here, failed):
    ended = here("runs", "output", "@last", "-f")

    assert ended.code == 1  # as the run has failed
    assert "page 7" in ended.out


def test_progress_is_shown_as_a_bar_and_as_a_share(here, shop):
    shop.start()
    task = shop.claim_all()["website#0"]
    worker = shop.value("select worker_id from pgflowd.attempts where token = %s", task[3])
    told = ['{"done": 12, "total": 30, "text": "pages"}']
    query = "select * from pgflowd.progress(%s, %s, %s::jsonb[])"
    shop.conn.execute(query, (worker, [task[3]], told))

    (bar,) = blocks_of("docs/guides/progress.md", "text")
    assert bar.replace("pages", "website", 1) in here("runs", "show", "@last").out
    (listed,) = here("runs", "list", "--json").json["runs"]
    assert listed["share"] == pytest.approx(0.4 / listed["steps"])
    assert f"{listed['share']:.0%}" in here("runs", "list").out
    step = here("runs", "show", "@last", "--json").json["steps"][0]
    assert (step["share"], step["progress"]["done"]) == (0.4, 12)
