"""Whatever a handler writes into the socket as a question, only sound ones reach the engine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgflowd.core.worker.runner_result import request_of
from pgflowd.core.worker.state import FetchRequest, HandlerRequest

RUN = "019bc0de-4a51-7c02-9f6e-12ab7f3a9c12"
START = {"token": 7, "what": "start", "runs": [RUN]}
SAVE = {"token": 7, "what": "save", "name": "page", "version": 2}
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
fields = st.sampled_from(["token", "what", "step", "name", "version", "runs", "parts"])


def test_questions_that_runners_ask_are_sound():
    assert request_of(1, {"token": 7, "what": "input"}, b"") == FetchRequest(
        1, 7, HandlerRequest.RUN_INPUT
    )
    assert request_of(1, {"token": 7, "what": "output", "step": "a"}, b"") == FetchRequest(
        1, 7, HandlerRequest.STEP_OUTPUT, "a"
    )
    assert request_of(1, SAVE, b"[1]") == FetchRequest(
        1, 7, HandlerRequest.SAVE, "", "page", 2, b"[1]"
    )
    assert request_of(1, {"token": 7, "what": "drop", "name": "page"}, b"") == FetchRequest(
        1, 7, HandlerRequest.DROP, "", "page"
    )
    assert request_of(1, START, b"{}") == FetchRequest(
        1, 7, HandlerRequest.START, data=b"{}", runs=(RUN,)
    )
    assert request_of(1, {**START, "what": "runs", "runs": 1000 * [RUN]}, b"") == FetchRequest(
        1, 7, HandlerRequest.RUNS, runs=1000 * (RUN,)
    )


def test_an_undo_handler_asks_for_parts_of_the_task_that_it_undoes():
    ask = {"token": 7, "what": "original"}
    for parts in ([], ["output"], ["item", "output", "run"]):
        request = FetchRequest(1, 7, HandlerRequest.ORIGINAL, parts=tuple(parts))
        assert request_of(1, {**ask, "parts": parts}, b"") == request
    for parts in (None, "run", ["secrets"], [["run"]], 4 * ["run"], {"run": 1}):
        assert request_of(1, {**ask, "parts": parts}, b"") is None
    assert request_of(1, {**ask, "parts": ["run"]}, b"{}") is None


@pytest.mark.parametrize(
    "runs", [None, RUN, [], [RUN.upper()], [None], [[RUN]], {RUN: 1}, [RUN, RUN], 1001 * [RUN]]
)
def test_e903_a_question_about_wrong_runs_is_refused(runs: Any):
    assert request_of(1, {**START, "runs": runs}, b"{}") is None
    if runs != [RUN, RUN]:
        assert request_of(1, {**START, "what": "runs", "runs": runs}, b"") is None


def test_e903_the_start_of_a_child_has_a_body_and_its_reading_has_none():
    assert request_of(1, START, b"") is None
    assert request_of(1, {**START, "what": "runs"}, b"{}") is None


def test_a_checkpoint_is_read_alone_by_any_name_that_it_can_have():
    saved = {"token": 7, "what": "saved"}

    for name in ("", "page", "signal " + "x" * 200 + " 1"):
        request = FetchRequest(1, 7, HandlerRequest.CHECKPOINTS, "", name)
        assert request_of(1, {**saved, "name": name}, b"") == request
    for name in (None, "x" * 221, "a\0", ["page"]):
        assert request_of(1, {**saved, "name": name}, b"") is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"token": None}, {"token": True}, {"token": "7"}, {"token": [7]}, {"what": "secrets"},
        {"what": ["save"]}, {"name": None}, {"name": ""}, {"name": "x" * 201}, {"name": "a\0"},
        {"name": "\ud800"}, {"name": "sleep 1"}, {"name": "signal paid 1"}, {"name": {"a": 1}},
        {"version": 0}, {"version": 2**31}, {"version": 1.0}, {"version": True},
        {"version": None},
    ],
)  # fmt: skip
def test_e903_a_question_with_a_wrong_field_is_refused(wrong: dict[str, Any]):
    assert request_of(1, {**SAVE, **wrong}, b"[1]") is None


@pytest.mark.parametrize("body", [b"", b"\xff", b'"\0"'])
def test_e903_only_text_can_be_saved(body: bytes):
    assert request_of(1, SAVE, body) is None


@pytest.mark.parametrize("what", ["input", "output", "conn", "wishes", "saved", "drop", "children"])
def test_e903_only_what_is_saved_has_a_body(what: str):
    assert request_of(1, {**SAVE, "what": what}, b"[1]") is None


@given(st.dictionaries(fields, anything), st.binary(max_size=4))
def test_no_question_is_more_than_its_fields(head: dict[str, Any], body: bytes):
    request = request_of(1, {**SAVE, **head}, body)

    assert request is None or (isinstance(request.token, int) and 1 <= request.version < 2**31)
