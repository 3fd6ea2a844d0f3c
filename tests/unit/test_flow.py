"""Definitions: what decorators make of functions."""

from __future__ import annotations

import functools
import subprocess
import sys
import time

import pytest
from support.covers import covers

from pgflowd import Flow, job
from pgflowd.core.definition.shape import changes_between
from pgflowd.core.json import jsonb_text
from pgflowd.testing import run_flow

NO_PATTERN = {"defined": False}


def diamond() -> Flow:
    flow = Flow("analyze_website", max_attempts=3, base_delay=0, timeout=60)

    @flow.step
    def save_to_db(sentiment, summary=None): ...

    @flow.step
    def website(run, ctx): ...

    @flow.step(timeout=20)
    def sentiment(website): ...

    @flow.step(timeout=5, when_exhausted="skip")
    async def summary(website): ...

    return flow


def test_decorated_functions_stay_plain_callables():
    flow = Flow("f")

    def double(run):
        return run * 2

    assert flow.step(double) is double
    assert flow.step(slug="other")(double) is double
    assert job("j")(double) is double
    assert double(3) == 6


def test_the_shape_lists_steps_in_topological_order_with_all_keys():
    shape = diamond().shape()

    assert [step["slug"] for step in shape["steps"]] == [
        "website", "sentiment", "summary", "save_to_db",
    ]  # fmt: skip
    assert shape["steps"][2] == {
        "slug": "summary",
        "stepType": "single",
        "dependencies": ["website"],
        "whenUnmet": "skip",
        "whenExhausted": "skip",
        "requiredInputPattern": NO_PATTERN,
        "forbiddenInputPattern": NO_PATTERN,
        "options": {"timeout": 5},
    }
    assert shape["options"] == {"maxAttempts": 3, "baseDelay": 0, "timeout": 60}


def test_a_flow_equals_the_one_that_another_runtime_sends():
    sent = {
        "steps": [
            {
                "slug": "items",
                "stepType": "single",
                "dependencies": [],
                "whenUnmet": "skip",
                "whenExhausted": "fail",
                "requiredInputPattern": {"defined": True, "value": {"kind": "a"}},
                "forbiddenInputPattern": NO_PATTERN,
            },
            {
                "slug": "storeItem",
                "stepType": "map",
                "dependencies": ["items"],
                "whenUnmet": "skip",
                "whenExhausted": "fail",
                "requiredInputPattern": NO_PATTERN,
                "forbiddenInputPattern": NO_PATTERN,
                "options": {"maxAttempts": 7},
            },
        ]
    }
    flow = Flow("orders")

    @flow.map(over="items", slug="storeItem")
    def store_item(item): ...

    @flow.step(if_={"kind": "a"})
    def items(): ...

    assert changes_between(sent, flow.shape()) == []


def test_deps_are_parameters_listed_ones_and_those_for_the_order_only():
    flow = diamond()

    @flow.step(depends_on=["website"], after="sentiment")
    def archive(input, ctx): ...

    archive_step = flow.steps["archive"]
    assert archive_step.deps == ("website", "sentiment")
    assert archive_step.data_deps == ("website",)


def test_step_functions_serve_as_names_even_when_wrapped_or_renamed():
    flow = Flow("f")

    @flow.step(slug="fetchAll")
    def fetch_all(run):
        return []

    @functools.wraps(fetch_all)
    def wrapped(*args):
        return fetch_all(*args)

    @flow.map(over=fetch_all)
    def each(item): ...

    @flow.step(after=[wrapped])
    def last(): ...

    assert flow.steps["each"].deps == ("fetchAll",)
    assert flow.steps["last"].deps == ("fetchAll",)


@covers("outside 16")
def test_a_step_may_have_the_name_of_a_parameter_if_its_slug_is_given():
    flow = Flow("f")

    @flow.step(slug="item")
    def one_item(run):
        return [run]

    @flow.step(slug="ctx", depends_on="item")
    def context(ctx):
        return ctx.step_output("item")

    @flow.map(slug="input", over="item")
    def inputs(item):
        return item * 2

    @flow.step(depends_on=["item", "ctx"], after="input")
    def everything(input):
        return input

    run = run_flow(flow, 2)

    assert run.output == {"everything": {"run": 2, "item": [2], "ctx": [2]}}


@covers("outside 16")
@pytest.mark.parametrize("slug", ["item", "ctx", "input"])
def test_a_function_with_the_name_of_a_parameter_is_no_step_by_itself(slug):
    def handler():
        return 0

    handler.__name__ = slug
    flow = Flow("f")
    flow.step(handler)

    [problem] = flow.check()
    assert (problem.code, problem.next) == ("E203", f"rename the step, or write slug='{slug}'")


def test_a_map_without_over_maps_the_input_of_the_run():
    flow = Flow("f")

    @flow.map
    def each(item): ...

    (step,) = flow.shape()["steps"]
    assert (step["stepType"], step["dependencies"]) == ("map", [])


def test_options_that_are_none_are_not_set():
    flow = Flow("f", max_attempts=None, timeout=None)

    @flow.step(timeout=None, if_=None, when_exhausted=None)
    def only(run): ...

    shape = flow.shape()
    assert shape["options"] == shape["steps"][0]["options"] == {}
    assert flow.check() == []


def test_a_job_is_a_flow_with_one_step_named_perform():
    @job("send_email", max_attempts=5, start_delay=60)
    def send_email(run):
        return run

    assert send_email("x") == "x"
    assert send_email.flow.slug == "send_email"
    (step,) = send_email.flow.shape()["steps"]
    assert (step["slug"], step["options"]) == ("perform", {"startDelay": 60})
    assert send_email.flow.shape()["options"] == {"maxAttempts": 5}


def test_a_skippable_dep_with_a_default_or_behind_a_cascade_is_not_a_warning():
    flow = Flow("f")

    @flow.step(when_exhausted="skip")
    def a(run): ...

    @flow.step(if_={"x": 1}, when_unmet="skip-cascade")
    def b(run): ...

    @flow.step
    def c(b, a=None): ...

    assert flow.check() == []


def test_importing_pgflowd_loads_no_database_driver():
    code = (
        "import sys, pgflowd, pgflowd.flow; print('psycopg' in sys.modules, 'Flow' in dir(pgflowd))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "True"]


def test_changes_between_shapes_are_told_by_steps():
    flow, other = diamond(), Flow("analyze_website")

    @other.step
    def website(run): ...

    @other.map(
        over="website", if_={"website": {"bb": 1, "a": [True, None]}}, when_exhausted="skip-cascade"
    )
    def sentiment(item): ...

    assert changes_between(flow.shape(), other.shape()) == [
        "- step summary",
        "- step save_to_db",
        "step sentiment: type is map, not single",
        "step sentiment: when_exhausted is skip-cascade, not fail",
        'step sentiment: if_ is {"website": {"a": [true, null], "bb": 1}}, not unset',
    ]


def test_jsonb_is_printed_with_short_keys_first():
    assert jsonb_text({"bb": "ä", "a": {}, "c": 1.5}) == '{"a": {}, "c": 1.5, "bb": "ä"}'


def test_a_pattern_is_as_the_database_gives_it_back():
    flow = Flow("orders")
    flow.step(slug="ship", if_={"kinds": ("a", "b")})(lambda run: run)

    assert flow.shape()["steps"][0]["requiredInputPattern"]["value"] == {"kinds": ["a", "b"]}


def test_a_step_given_to_a_decorator_is_not_called():
    flow = Flow("orders")
    called = []

    @flow.step
    def items(run):
        called.append(run)

    @flow.map(items)
    def store(item): ...

    assert not called
    assert [problem.next for problem in flow.check()] == ["write over=items"]


def test_a_job_without_its_slug_is_found_and_complained_of():
    @job
    def send_email(run): ...

    assert send_email.flow.slug == "send_email"
    assert [problem.next for problem in send_email.flow.check()] == ["write @job('send_email')"]


def test_flows_can_be_defined_where_the_working_directory_is_gone(tmp_path):
    code = "import os; from pgflowd import Flow; os.rmdir(os.getcwd()); print(Flow('f').place)"

    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert said.stdout == "<string>:1\n"


def wide(count: int) -> Flow:
    flow = Flow("wide")

    def first(run): ...

    def later(first): ...

    flow.step(first)
    for number in range(count):
        flow.step(slug=f"later_{number}")(functools.partial(later))
    return flow


@covers("outside 20")
def test_checking_a_flow_takes_time_by_its_steps_and_not_by_their_square():
    def took_s(flow: Flow) -> float:
        began = time.process_time()
        assert flow.check() == []
        return time.process_time() - began

    small, large = wide(500), wide(4000)

    assert min(took_s(large) for _ in range(3)) < 24 * min(took_s(small) for _ in range(5))
