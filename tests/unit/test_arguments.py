"""The arguments of a handler, and the failures that its exceptions become."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from support.covers import covers

from pgflowd import Fail, Flow, RetryAfter
from pgflowd.core.definition.spec import arguments_for
from pgflowd.core.failure import failure_of
from pgflowd.core.json import SQL_NULL
from pgflowd.errors import OutputError, RunError

flow = Flow("f")


@flow.step
def a(run): ...


@flow.step(when_exhausted="skip")
def b(): ...


@flow.step
def c(a, b=None): ...


@flow.step
def d(run, b, ctx): ...


@flow.step(depends_on=["a", "b"], after="c")
def whole(input): ...


@flow.map(over="a")
def each(item, ctx): ...


def record(input: Any = None, flow_input: Any = SQL_NULL) -> Any:
    return SimpleNamespace(input={} if input is None else input, flow_input=flow_input)


def arguments(slug: str, claimed: Any, fetched: Any = "fetched", ctx: Any = None) -> Any:
    return arguments_for(flow.steps[slug], claimed, lambda: fetched, ctx)


def never() -> Any:
    raise AssertionError("the run's input was fetched and nobody had asked")


def test_deps_arrive_under_their_names_and_falsy_ones_as_they_are():
    assert arguments("c", record({"a": 0, "b": None})) == {"a": 0, "b": None}


def test_a_skipped_dep_leaves_its_default():
    assert arguments("c", record({"a": 1})) == {"a": 1}


@covers("E405")
def test_a_skipped_dep_without_default_is_e405_and_not_retried():
    with pytest.raises(RunError) as caught:
        arguments("d", record({}, flow_input=1))

    assert str(caught.value) == (
        "E405 step d: dep 'b' was skipped and has no default; give it one, such as b=None"
    )
    assert not failure_of(caught.value).retry


@pytest.mark.parametrize("value", [None, 0, {}, [], "x", {"run": 1}])
def test_the_input_of_a_root_step_comes_with_its_record(value):
    assert arguments_for(flow.steps["a"], record(flow_input=value), never, None) == {"run": value}


def test_the_input_of_older_cores_stands_under_run():
    assert arguments_for(flow.steps["a"], record({"run": None}), never, None) == {"run": None}
    old = record({"run": [1], "a": 1, "b": 2})
    assert arguments_for(flow.steps["c"], old, never, None) == {"a": 1, "b": 2}
    assert arguments("whole", old) == {"input": {"run": [1], "a": 1, "b": 2}}


def test_the_input_of_other_steps_is_fetched_only_if_they_ask():
    assert arguments_for(flow.steps["c"], record({"a": 1}), never, None) == {"a": 1}
    assert arguments("d", record({"b": 2}), ctx="ctx") == {"run": "fetched", "b": 2, "ctx": "ctx"}


def test_the_input_of_a_run_comes_with_each_record_that_has_it():
    claimed = record({"a": 1, "b": 2}, flow_input=0)

    assert arguments_for(flow.steps["whole"], claimed, never, None) == {
        "input": {"run": 0, "a": 1, "b": 2}
    }


def test_later_steps_whose_handlers_take_the_input_of_the_run_need_it():
    assert {slug for slug, step in flow.steps.items() if step.needs_run_input} == {"d", "whole"}


def test_the_whole_input_has_data_deps_and_not_those_for_the_order():
    claimed = record({"a": 1, "b": 2, "c": 3})

    assert arguments("whole", claimed) == {"input": {"run": "fetched", "a": 1, "b": 2}}


def test_an_item_is_handed_over_bare_even_if_it_looks_like_an_input():
    assert arguments("each", record({"run": 1}), ctx=9) == {"item": {"run": 1}, "ctx": 9}


class RudeError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_an_exception_becomes_its_type_and_text():
    failure = failure_of(TimeoutError("model did not answer"))

    assert failure.message == "TimeoutError: model did not answer"
    assert (failure.error_type, failure.retry, failure.delay_s) == ("TimeoutError", True, None)
    assert failure_of(KeyError()).message == "KeyError"


def test_wishes_of_handlers_are_kept():
    assert failure_of(Fail("nothing to analyse")).message == "nothing to analyse"
    assert failure_of(Fail("nothing to analyse")).retry is False
    assert failure_of(RetryAfter(30)).delay_s == 30
    assert failure_of(RetryAfter(timedelta(minutes=1), "busy")).delay_s == 60
    assert failure_of(RetryAfter(30, "busy")).message == "busy"
    assert failure_of(RetryAfter(1e300)).delay_s == 2**31 - 1
    assert failure_of(RetryAfter(timedelta.max)).delay_s == 2**31 - 1
    with pytest.raises(ValueError, match="0 or more"):
        RetryAfter(-1)


@covers("newcomer 16")
def test_a_wish_for_a_retry_in_the_last_attempt_promises_none():
    asked = "asked for a retry in 30 s"

    assert failure_of(RetryAfter(30)).message == asked
    last = failure_of(RetryAfter(30), is_last=True)
    assert last.message == f"{asked}, but no attempt is left"
    group = failure_of(ExceptionGroup("g", [RetryAfter(30)]), is_last=True)
    assert group.message.endswith("but no attempt is left")
    assert failure_of(RetryAfter(30, "busy"), is_last=True).message == "busy"


def test_the_message_of_an_exception_group_has_all_of_it_and_retries_as_they_ask():
    inner = ExceptionGroup("inner", [RetryAfter(30, "busy"), TypeError("b")])
    group = ExceptionGroup("outer", [ValueError("a"), inner])

    failure = failure_of(group)
    final = failure_of(ExceptionGroup("outer", [group, Fail("never")]))

    assert failure.message == "ExceptionGroup: outer: ValueError: a; busy; TypeError: b"
    assert (failure.retry, failure.delay_s) == (True, 30)
    assert not final.retry


def test_what_cannot_be_stored_in_an_error_is_cleaned_and_cut():
    assert failure_of(ValueError("a\0b\ud800c")).message == "ValueError: a\ufffdb\ufffdc"
    assert len(failure_of(ValueError("x" * 20_000_000)).message) == 4000
    assert failure_of(RudeError()).message == "RudeError: (str() of it raised RuntimeError)"


def test_an_output_error_keeps_its_code():
    assert failure_of(OutputError("output.x is NaN")).message == "E403 output.x is NaN"
