"""How much one call takes, and what a supervisor thinks of a sweeper by its parts."""

from __future__ import annotations

from typing import Any

import pytest

from pgflowd.core.documents.daemon_status import ChildFacts, due_late_s, problems_of_sweeper
from pgflowd.core.sweeper import Parts, PartState, SweeperPart, may_be_too_large, whole
from pgflowd.core.worker.task import HEALTHY, MAX_REPORTS, FailedTurn, TurnError

ERROR = {"code": "E331", "text": "too slow", "next": "wait"}


def test_a_portion_is_a_tenth_after_each_failure_and_grows_again():
    portion = whole(100)
    sizes = []
    for _ in range(3):
        portion = portion.cut()
        sizes.append(portion.size)
    for _ in range(3):
        portion = portion.grown()
        sizes.append(portion.size)

    assert sizes == [10, 1, 1, 10, 100, 100]


@pytest.mark.parametrize("state", ["57014", "53200", "53400", "54000", "55P03", None])
def test_less_may_mend_what_size_can_cause(state):
    assert may_be_too_large(state)


@pytest.mark.parametrize("state", ["42501", "23503", "40P01", "P0001"])
def test_less_mends_nothing_else(state):
    assert not may_be_too_large(state)


def test_a_worker_s_reports_have_the_same_portions():
    failed = HEALTHY.count_failure(0.0, TurnError("slow")).after_failure(
        FailedTurn(MAX_REPORTS, had_claim=False, is_serious=True), 1.0, 1.0, 30.0
    )

    assert failed.most_reports == MAX_REPORTS // 2


def test_one_row_that_fails_alone_is_put_off_and_a_part_without_portions_waits_longer_and_longer():
    state = PartState(0.0, whole(100))
    for now in (1.0, 2.0):
        state.failed(now, ERROR, "57014", 0.25, 30.0)
    assert (state.portion.size, state.put_off) == (1, "")
    state.failed(3.0, ERROR, "57014", 0.25, 30.0)
    assert state.put_off == "too slow"
    state.failed(4.0, ERROR, "57014", 0.25, 30.0)
    assert state.retry_at > 4.1, "even that failed"

    state.put_off = ""
    state.succeeded(5.0)
    assert (state.portion.size, state.due(1.0), state.error) == (10, 1.0, None)

    other = PartState(0.0)
    pauses = []
    for now in (10.0, 20.0, 30.0):
        other.failed(now, ERROR, "42501", 0.25, 30.0)
        pauses.append(other.retry_at - now)
    assert pauses == [0.25, 0.5, 1.0]


def told(at: float = 100.0, **numbers: Any) -> dict[str, Any]:
    parts = Parts(at, {}).numbers()
    return {"interval_s": 10.0, "parts": parts, **numbers}


def judged(numbers: dict[str, Any], now: float, started_at: float = 0.0) -> list[tuple[str, str]]:
    found = problems_of_sweeper(ChildFacts(1, started_at, numbers=numbers), now)
    return [(each.code, each.text) for each in found]


def test_a_part_is_late_after_three_intervals_whether_it_fails_or_says_nothing():
    numbers = told()
    assert judged(numbers, 129.0) == []

    numbers["parts"][SweeperPart.PRUNE.value]["at"] = 99.0
    numbers["parts"][SweeperPart.PRUNE.value] |= ERROR
    ((code, text),) = judged(numbers, 129.5)
    assert code == "E331"
    assert text.startswith("the sweeper has not got done for 30")
    assert text.endswith("retention; the last error (retention): too slow")

    ((_, text),) = judged(numbers, 131.0)
    assert "stalled tasks, " in text and "what is due, " in text, "all of them: it hangs"
    assert judged({}, 14.0) == []
    ((_, text),) = judged({}, 16.0)
    assert "stalled tasks" in text, "it has never told anything"
    del numbers["parts"][SweeperPart.SWEEP.value]
    assert "stalled tasks" in judged(numbers, 129.0)[0][1]


def test_an_error_with_a_code_of_its_own_is_told_at_once():
    numbers = told()
    numbers["parts"]["retention"] |= {"code": "E305", "text": "no", "next": None}

    assert judged(numbers, 101.0) == [("E305", "retention: no")]


def test_what_is_due_is_late_by_as_much_as_nobody_has_looked():
    numbers = told(due_late_s=0.0)

    assert due_late_s(ChildFacts(1, 0.0, numbers=numbers), 110.0) == 0.0
    assert due_late_s(ChildFacts(1, 0.0, numbers=numbers), 190.0) == 90.0
    assert due_late_s(ChildFacts(1, 100.0), 190.0) == 90.0
    numbers["due_late_s"] = 40.0
    assert judged(numbers, 110.0) == [("E331", "what is due is late by 40s")]


@pytest.mark.parametrize(
    "rubbish", [None, [], "x", {"what is due": 7}, {"what is due": {"at": "x"}}]
)
def test_rubbish_is_late(rubbish):
    assert judged({"interval_s": "x", "parts": rubbish}, 20.0)
