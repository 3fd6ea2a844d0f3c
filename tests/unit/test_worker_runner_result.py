"""A handler can write anything into its runner's socket, and harms its own task only."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine import task

from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.events import LeftBehind
from pgflowd.core.worker.runner_result import fault_of, left_behind, report_of
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
        ({"outcome": "released"}, b""),
        ({}, b"1"),
        ({"outcome": "completed"}, b"\xff\xfe"),
        ({"outcome": "completed"}, b'"a\0b"'),
        ({"outcome": "completed"}, b""),
        ({"outcome": ["completed"]}, b"1"),
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
