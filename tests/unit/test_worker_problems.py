"""When a worker's flow stands still, and when it is only busy."""

from __future__ import annotations

from typing import Any

import pytest
from support.covers import covers

from pgflowd.core.documents.daemon_status import ChildFacts, problems_of_worker

RUN = "018f0000-0000-7000-8000-0000deadbeef"


def codes(numbers: dict[str, Any], **changes: Any) -> list[str]:
    return [each.code for each in judged(numbers, **changes)]


def judged(numbers: dict[str, Any], **changes: Any):
    facts = {"age_s": 0.0, "up_s": 3600.0, "late_s": 30.0, **changes}
    heard_at, started_at = -facts["age_s"], -facts["up_s"]
    worker = ChildFacts(1, started_at, None, 10, numbers, heard_at, facts["late_s"])
    return list(problems_of_worker(worker, 0.0))


WAITING = {"queued": 500, "oldest_queued_s": 900.0, "queue_age_s": 2.0, "running": 3}


@covers("database 1")
def test_a_task_that_waits_while_runners_are_free_is_named_with_its_run_and_age():
    numbers = {**WAITING, "claimed_s": 120.0, "oldest_queued_run": RUN}

    [problem] = judged(numbers)

    assert problem.code == "E318"
    assert problem.text == (
        "a task of run deadbeef waits for 15m02s, although 7 runners are free: no claim has "
        "brought a task for 2m00s"
    )
    assert "worker.error" in (problem.next or "")


@pytest.mark.parametrize(
    ("numbers", "changes"),
    [
        pytest.param({**WAITING, "claimed_s": 0.4}, {}, id="claims bring tasks"),
        pytest.param({**WAITING, "claimed_s": 25.0}, {}, id="a claim has brought one lately"),
        pytest.param({**WAITING, "claimed_s": 900.0, "running": 10}, {}, id="all are busy"),
        pytest.param({**WAITING, "claimed_s": 900.0, "running": 8, "stuck": 2}, {}, id="stuck"),
        pytest.param({**WAITING, "claimed_s": None}, {"up_s": 12.0}, id="it has just begun"),
        pytest.param({**WAITING, "claimed_s": 900.0, "oldest_queued_s": 3.0}, {}, id="young"),
        pytest.param({**WAITING, "claimed_s": 900.0}, {"late_s": 3600.0}, id="slow fallback"),
        pytest.param({"queued": 0, "oldest_queued_s": None, "claimed_s": 900.0}, {}, id="idle"),
        pytest.param({}, {}, id="nothing is known"),
        pytest.param({"oldest_queued_s": "x", "line_failing_s": []}, {}, id="rubbish"),
        pytest.param({"line_failures": 2, "line_failing_s": 1.0}, {}, id="a failure by chance"),
        pytest.param({"line_failures": 0, "line_failing_s": None}, {}, id="no failure"),
        pytest.param({"line_call_s": 6.0}, {"age_s": 5.0}, id="a call that has ended since"),
    ],
)
def test_a_busy_or_idle_worker_has_no_problem(numbers, changes):
    assert codes(numbers, **changes) == []


def test_numbers_that_have_grown_old_count_with_their_age():
    numbers = {**WAITING, "oldest_queued_s": 20.0, "claimed_s": 25.0}

    assert codes(numbers) == []
    assert codes(numbers, age_s=10.0) == ["E318"]


@covers("database 3")
def test_a_line_that_fails_is_a_problem_with_the_error_the_run_and_the_task():
    error = {"code": "57014", "text": "canceling statement", "run": RUN, "task": "big#3"}
    numbers = {"line_failures": 4, "line_failing_s": 9.0, "line_error": error}

    [problem] = judged(numbers, age_s=3.0)

    assert problem.code == "E322"
    assert problem.text == (
        "its last 4 calls failed, for 12s, for deadbeef/big#3: canceling statement (57014)"
    )
    assert problem.next == "see `pgflowd runs show deadbeef --attempts`"


def test_a_line_that_fails_without_a_known_task_sends_to_the_log():
    numbers = {"line_failures": 1, "line_failing_s": 9.0, "line_error": {"text": "no room"}}

    [problem] = judged(numbers)

    assert problem.text == "its last call failed, for 9s: no room"
    assert "worker.error" in (problem.next or "")


@covers("database 3")
def test_a_call_that_takes_long_is_a_problem_before_it_fails():
    [problem] = judged({"line_failures": 0, "line_failing_s": None, "line_call_s": 11.0}, age_s=3.0)

    assert problem.code == "E322"
    assert problem.text == "its call is under way for 14s: reports and claims wait"
    assert "pg_stat_activity" in (problem.next or "")


def test_a_call_that_takes_long_after_others_failed_is_one_problem():
    numbers = {"line_failures": 2, "line_failing_s": 40.0, "line_call_s": 11.0}

    [problem] = judged(numbers)

    assert "its last 2 calls failed" in problem.text
