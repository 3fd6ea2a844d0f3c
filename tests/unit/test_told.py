"""Told: a handler can write what it likes into its runner's socket, and harms its own task only."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgflowd.core.worker.runner_result import fault_of, fields_of, left_of

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(
    ["error_type", "error_message", "traceback", "delay_s", "cpu_s", "peak_kb", "retry", "left"]
)


@given(st.dictionaries(names, anything))
def test_whatever_is_said_becomes_fields_that_can_be_stored(head):
    fields = fields_of(head)

    assert all(isinstance(each, str) for each in left_of(head))
    text = json.dumps(fields, allow_nan=False, ensure_ascii=False)
    assert "\\u0000" not in text
    assert text.encode("utf-8")


def test_numbers_beyond_reason_are_dropped():
    assert fields_of({"peak_kb": 10**400, "cpu_s": float("nan"), "delay_s": float("inf")}) == {}


def test_what_a_runner_says_stays_as_it_is():
    head = {
        "error_type": "ValueError", "error_message": "no", "traceback": "File …", "retry": False,
        "delay_s": 30.0, "cpu_s": 0.25, "peak_kb": 2048,
    }  # fmt: skip

    assert fields_of(head) == head


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
