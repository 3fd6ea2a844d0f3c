"""A handler can write anything into its runner's socket, and harms its own task only."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine import task

from pgflowd.core.failure import AT_MOST_S, MAX_DELAY_S, MIN_UNSPENT_S, RetryAfter, failure_of
from pgflowd.core.statuses import Outcome
from pgflowd.core.waiting import MAX_WAIT_S, Wait, WaitKind
from pgflowd.core.worker.events import LeftBehind, RunChange, Verdict
from pgflowd.core.worker.runner_result import fault_of, left_behind, recorded_of, report_of, wait_of
from pgflowd.core.worker.task import TaskReport

TASK = task(1)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(
    ["error_type", "error_message", "traceback", "delay_s", "cpu_s", "peak_kb", "retry", "left"]
)


@given(st.dictionaries(names, anything))
def test_any_output_becomes_fields_that_can_be_stored(head):
    report = report_of(TASK, {"outcome": "failed", **head}, b"")

    assert all(isinstance(each, str) for names in left_behind(head) for each in names)
    text = json.dumps(asdict(report) | {"task": None}, allow_nan=False, ensure_ascii=False)
    assert "\\u0000" not in text
    assert text.encode("utf-8")


def test_numbers_beyond_reason_are_dropped():
    head = {"outcome": "failed", "peak_kb": 10**400, "cpu_s": float("nan"), "delay_s": float("inf")}

    assert report_of(TASK, head, b"") == TaskReport(TASK, Outcome.FAILED)


@pytest.mark.parametrize("spend", [True, False])
def test_the_longest_delay_that_a_handler_may_ask_for_is_kept(spend):
    """It was dropped: a task that was not spent began again at once, thirty times a second."""
    failure = failure_of(RetryAfter(1e12, spend=spend))
    outcome = "failed" if spend else "released"

    report = report_of(TASK, {"outcome": outcome, "delay_s": failure.delay_s}, b"")

    assert report.delay_s == MAX_DELAY_S


@pytest.mark.parametrize("given", [{}, {"delay_s": 0}, {"delay_s": "x"}, {"delay_s": 1e300}])
def test_an_attempt_that_is_not_spent_is_followed_by_a_pause(given):
    """A handler may change `delay_s` of what it raises."""
    report = report_of(TASK, {"outcome": "released", **given}, b"")

    assert (report.delay_s, report.at_most_s) == (MIN_UNSPENT_S, AT_MOST_S)


def test_the_facts_of_a_runners_result_are_kept():
    head = {
        "error_type": "ValueError", "error_message": "no", "traceback": "File …", "retry": False,
        "delay_s": 30.0, "cpu_s": 0.25, "peak_kb": 2048,
    }  # fmt: skip

    assert report_of(TASK, {"outcome": "failed", **head}, b"") == TaskReport(
        TASK, Outcome.FAILED, **head
    )


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ({"outcome": "crashed"}, b""),
        ({}, b"1"),
        ({"outcome": "completed"}, b"\xff\xfe"),
        ({"outcome": "completed"}, b'"a\0b"'),
        ({"outcome": "completed"}, b""),
        ({"outcome": ["completed"]}, b"1"),
        ({"outcome": "completed", "recorded": True}, b"1"),
        ({"outcome": "completed", "recorded": True, "verdict": ["completed"]}, b"1"),
        ({"outcome": "completed", "recorded": 1, "verdict": "late"}, b"1"),
        ({"outcome": "failed", "recorded": True, "verdict": "completed"}, b""),
    ],
)
def test_e903_a_done_that_no_runner_sends_is_refused(head, body):
    assert fault_of(head, body)


def test_a_sound_done_is_not():
    assert fault_of({"outcome": "completed"}, b"null") is None
    assert fault_of({"outcome": "failed"}, b"\xff") is None


@pytest.mark.parametrize("left", [None, [], ["child processes"], "children", {"children": "sh"}])
def test_only_well_formed_data_names_leftovers(left):
    assert left_behind({"left": left}) == LeftBehind()


def test_children_and_other_leftovers_are_distinguished():
    left = {"children": ["sleep"], "reset": ["child processes", "threads"]}

    assert left_behind({"left": left}) == LeftBehind(("sleep",), ("child processes", "threads"))


SLEEP = {"kind": "sleep", "checkpoint": "sleep 1", "in_s": 60}
SIGNAL = {"kind": "signal", "name": "paid", "checkpoint": "signal paid 1"}
RUN = "019bc0de-4a51-7c02-9f6e-12ab7f3a9c12"
RUNS = {"kind": "runs", "checkpoint": "runs 1", "runs": [RUN]}


def test_a_suspension_says_what_the_task_waits_for():
    at = datetime(2027, 1, 1, tzinfo=UTC)
    until = {"kind": "sleep", "checkpoint": "sleep x", "until": at.isoformat()}

    assert wait_of(SLEEP) == Wait(WaitKind.SLEEP, None, "sleep 1", 60.0)
    assert wait_of(until) == Wait(WaitKind.SLEEP, None, "sleep x", until=at)
    assert wait_of({**SIGNAL, "in_s": 0.5}) == Wait(WaitKind.SIGNAL, "paid", "signal paid 1", 0.5)
    assert wait_of({**RUNS, "why": "run x"}) == Wait(
        WaitKind.RUNS, None, "runs 1", why="run x", runs=(RUN,)
    )
    assert wait_of({"kind": "sleep", "in_s": 30.0, "why": "E425 newer"}) == Wait(
        WaitKind.SLEEP, in_s=30.0, why="E425 newer"
    )
    report = report_of(TASK, {"outcome": "suspended", "wait": SIGNAL}, b"")
    assert report == TaskReport(TASK, Outcome.SUSPENDED, wait=wait_of(SIGNAL))
    assert fault_of({"outcome": "suspended", "wait": SIGNAL}, b"") is None


@pytest.mark.parametrize("until", ["2027-01-01T00:00:00+00:00", "0001-01-01T00:00:00+00:00"])
def test_every_wait_of_a_handler_is_sound(until: str):
    for wait in (Wait(WaitKind.SLEEP, None, "sleep 1", MAX_WAIT_S),
                 Wait(WaitKind.SLEEP, None, "sleep 1", until=datetime.fromisoformat(until)),
                 Wait(WaitKind.SIGNAL, "x" * 200, "signal " + "x" * 200 + " 10000"),
                 Wait(WaitKind.RUNS, None, "runs 10000", 0.5, runs=1000 * (RUN,))):  # fmt: skip
        assert wait_of(wait.as_json()) == wait


@pytest.mark.parametrize(
    "wait",
    [
        None, "sleep", [SLEEP], {}, {"kind": "sleep"}, {"kind": "nap", "in_s": 1},
        {"kind": ["sleep"], "in_s": 1}, {**SLEEP, "in_s": -1}, {**SLEEP, "in_s": float("nan")},
        {**SLEEP, "in_s": float("inf")}, {**SLEEP, "in_s": 1e11}, {**SLEEP, "in_s": True},
        {**SLEEP, "in_s": "60"}, {**SLEEP, "until": "2027-01-01T00:00:00Z"},
        {**SLEEP, "in_s": None, "until": "2027-01-01T00:00:00"},
        {**SLEEP, "in_s": None, "until": 5}, {**SLEEP, "in_s": None, "until": "tomorrow"},
        {**SLEEP, "name": "x"}, {**SLEEP, "checkpoint": ""}, {**SLEEP, "checkpoint": "x" * 221},
        {**SLEEP, "why": 1}, {**SLEEP, "more": 1}, {**SIGNAL, "name": None},
        {**SIGNAL, "name": "x" * 201}, {**SIGNAL, "name": "a\0b"}, {**SIGNAL, "checkpoint": None},
        {**SIGNAL, "runs": [RUN]}, {**SLEEP, "runs": []}, {**RUNS, "runs": []},
        {**RUNS, "runs": RUN},
        {**RUNS, "runs": [RUN[:-1]]}, {**RUNS, "runs": 1001 * [RUN]}, {**RUNS, "name": "x"},
        {**RUNS, "checkpoint": None},
    ],
)  # fmt: skip
def test_e903_a_wait_that_no_runner_sends_is_refused(wait: Any):
    assert fault_of({"outcome": "suspended", "wait": wait}, b"")


@given(st.dictionaries(st.sampled_from([*SIGNAL, "in_s", "until", "why", "runs"]), anything))
def test_any_wait_is_refused_or_can_be_stored(wait: dict[str, Any]):
    if (found := wait_of({**SLEEP, **wait})) is not None:
        text = json.dumps(found.as_json(), allow_nan=False, ensure_ascii=False)
        assert "\\u0000" not in text
        assert text.encode("utf-8")


@given(
    st.fixed_dictionaries(
        {"recorded": st.just(True), "verdict": st.just("completed")},
        optional={"run_status": anything, "changes": anything},
    )
)
def test_whatever_is_told_of_a_recorded_result_can_be_logged(head):
    recorded = recorded_of(TASK, head)

    assert recorded is not None
    assert recorded.answer.run_status in (None, "completed", "failed")
    for change in recorded.changes:
        fields = [change.step, change.status, change.took_s, change.error, change.ended_at]
        json.dumps(fields, allow_nan=False)


def test_what_the_database_made_of_a_recorded_result_is_kept():
    rows = [
        ["work", "completed", 0.5, None],
        [None, "failed", 1.5, "no"],
        ["x", "gone", 1, None],
        ["x", "completed", 1],
    ]
    head = {"recorded": True, "verdict": "repeated", "run_status": "failed", "changes": rows}

    recorded = recorded_of(TASK, head)

    assert recorded is not None
    assert (recorded.answer.verdict, recorded.answer.run_status) == (Verdict.REPEATED, "failed")
    assert recorded.changes == (
        RunChange(TASK.run_id, "work", "completed", 0.5, None),
        RunChange(TASK.run_id, None, "failed", 1.5, "no"),
    )
