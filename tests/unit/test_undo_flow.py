"""The flow that undoes runs of another one: its steps, its edges, and what is wrong with undos."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.covers import covers

from pgflowd import Flow, FlowError, Limit, job
from pgflowd.core.definition.shape import (
    changes_between,
    facts_of,
    plan_of,
    steps_of_version,
    unserved_steps,
)
from pgflowd.core.definition.spec import nearest_undoable
from pgflowd.testing import run_flow


def orders() -> Flow:
    flow = Flow("orders", timeout=30)

    @flow.step
    def reserve(run): ...

    @flow.step
    def charge(reserve): ...

    @flow.map(over="reserve")
    def ship(item): ...

    @flow.step
    def notify(charge, ship): ...

    @flow.undo("reserve", on="attempted")
    def release(reserve=None): ...

    @flow.undo(charge, max_attempts=5, timeout=7)
    def refund(charge, run, ctx): ...

    @flow.undo(ship, limit=Limit(2), needs=["dock"])
    async def recall(ship, run, item, ctx): ...

    return flow


def edges(flow: Flow) -> dict[str, list[str]]:
    return {step["slug"]: step["dependencies"] for step in flow.shape()["steps"]}


def test_the_undo_flow_is_reversed_and_lists_the_elements_of_maps():
    undo_flow = orders().undo_flow

    assert undo_flow is not None
    assert undo_flow.slug == "undo_orders"
    assert edges(undo_flow) == {
        "undo_charge": [],
        "list_ship": [],
        "undo_ship": ["list_ship"],
        "undo_reserve": ["undo_charge", "undo_ship"],
    }
    kinds = {step["slug"]: step["stepType"] for step in undo_flow.shape()["steps"]}
    assert [slug for slug, kind in kinds.items() if kind == "map"] == ["undo_ship"]


def test_undo_steps_have_the_options_of_their_handlers_and_settle():
    undo_flow = orders().undo_flow
    assert undo_flow is not None

    options = {step["slug"]: step["options"] for step in undo_flow.shape()["steps"]}

    ours = {"settle": True, "onCrashLimit": "quarantine"}
    assert options["undo_charge"] == {"maxAttempts": 5, "timeout": 7, **ours}
    assert options["undo_ship"] == {"needs": ["dock"], "limit": {"slots": 2}, **ours}
    assert "settle" not in options["list_ship"]
    assert undo_flow.shape()["options"] == {"timeout": 30}


def test_the_undo_flow_has_the_defaults_of_its_flow_and_no_schedule():
    flow = Flow("hourly", max_attempts=2, base_delay=1, cron="@hourly", on_cancel="undo")
    flow.step(slug="first")(lambda run: run)
    flow.undo("first")(lambda first: None)

    assert flow.undo_flow is not None
    shape = flow.undo_flow.shape()
    assert shape["options"] == {"maxAttempts": 2, "baseDelay": 1}
    assert "schedules" not in shape


def test_the_shape_tells_what_is_undone_and_that_of_other_flows_does_not():
    plain = Flow("plain")
    plain.step(slug="first")(lambda run: run)
    keeping = Flow("keeping", on_failure="keep", on_cancel="undo")
    keeping.step(slug="first")(lambda run: run)
    keeping.undo("first")(lambda first: None)

    of_steps = {step["slug"]: step["options"] for step in orders().shape()["steps"]}
    assert of_steps["charge"] == of_steps["ship"] == {"undo": "completed"}
    assert (of_steps["reserve"], of_steps["notify"]) == ({"undo": "attempted"}, {})
    ends = {"onFailure": "undo", "onCancel": "keep"}
    assert orders().shape()["options"] == {"timeout": 30, **ends}
    assert keeping.shape()["options"] == {"onFailure": "keep", "onCancel": "undo"}
    assert plain.undo_flow is None
    assert (plain.shape()["options"], plain.shape()["steps"][0]["options"]) == ({}, {})


def test_undos_make_no_other_shape():
    before, after = Flow("shop"), Flow("shop")
    for flow in (before, after):
        flow.step(slug="first")(lambda run: run)
    after.undo("first")(lambda first: None)

    assert changes_between(before.shape(), after.shape()) == []


def test_an_undo_handler_stays_a_plain_function_and_may_belong_to_a_job():
    @job("send", on_cancel="undo")
    def send(run): ...

    def unsend(perform): ...

    assert send.flow.undo("perform")(unsend) is unsend
    assert send.flow.undo_flow is not None
    assert edges(send.flow.undo_flow) == {"undo_perform": []}


def chain(length: int, undoable: range) -> Flow:
    flow = Flow("chain")
    for at in range(length):
        after = [f"s{at - 1}"] if at else []
        flow.step(slug=f"s{at}", after=after)(lambda: None)
    for at in undoable:
        flow.undo(f"s{at}")(lambda: None)
    return flow


def test_a_chain_in_which_only_the_first_step_has_an_undo_has_one_undo_step():
    undo_flow = chain(5, range(1)).undo_flow

    assert undo_flow is not None
    assert edges(undo_flow) == {"undo_s0": []}


def test_a_hundred_undoable_steps_in_a_chain_are_undone_one_after_the_other():
    undo_flow = chain(100, range(100)).undo_flow

    assert undo_flow is not None
    assert list(edges(undo_flow)) == [f"undo_s{at}" for at in reversed(range(100))]
    assert all(len(deps) == 1 for deps in list(edges(undo_flow).values())[1:])


@st.composite
def dags(draw: st.DrawFn) -> tuple[dict[str, list[str]], set[str]]:
    """The deps of the steps of a DAG, in topological order, and those that are undoable."""
    slugs = [f"s{at}" for at in range(draw(st.integers(1, 9)))]
    deps = {
        slug: [dep for dep in slugs[:at] if draw(st.booleans())] for at, slug in enumerate(slugs)
    }
    return deps, set(draw(st.lists(st.sampled_from(slugs), unique=True)))


def closure(edges: dict[str, list[str]]) -> set[tuple[str, str]]:
    """All pairs of a step and one that it depends on, directly or not."""
    pairs = {(slug, dep) for slug, deps in edges.items() for dep in deps}
    while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
        pairs |= more
    return pairs


@given(dags())
@settings(max_examples=300)
def test_the_edges_are_the_transitive_reduction_of_the_reversed_order(made):
    deps, undoable = made
    wanted = {(dep, slug) for slug, dep in closure(deps) if {slug, dep} <= undoable}

    found = nearest_undoable(deps, undoable)

    assert found.keys() == undoable
    assert closure(found) == wanted
    edges = {(slug, other) for slug, others in found.items() for other in others}
    for edge in edges:  # none can be left out
        rest: dict[str, list[str]] = {slug: [] for slug in undoable}
        for slug, other in edges - {edge}:
            rest[slug].append(other)
        assert closure(rest) != wanted


def test_wide_flows_are_derived_fast():
    """500 steps, each after all before it: sets of pairs would take minutes."""
    deps = {f"s{at}": [f"s{before}" for before in range(at)] for at in range(500)}

    assert nearest_undoable(deps, deps)["s0"] == ["s1"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"on": "failed"}, "E225"), ({"if_": {"a": 1}}, "E209"), ({"max_attempts": 0}, "E209"),
        ({"on_crash_limit": "fail"}, "E209"), ({"limit": Limit(1, key="run.a")}, "E226"),
        ({"limit": Limit(0)}, "E226"), ({"needs": []}, "E209"),
    ],
)  # fmt: skip
def test_wrong_options_of_an_undo_are_refused(options, code):
    flow = Flow("shop")
    flow.step(slug="first")(lambda run: run)
    flow.undo("first", **options)(lambda first=None: None)

    assert [problem.code for problem in flow.check()] == [code]
    with pytest.raises(FlowError):
        _ = flow.undo_flow


def codes(flow: Flow) -> list[str]:
    return [problem.code for problem in flow.check()]


def test_e225_an_undo_belongs_to_one_step_that_exists_and_has_a_handler():
    flow = orders()
    flow.undo("chrge")(lambda: None)
    flow.undo("charge")(lambda: None)
    flow.undo("notify")

    texts = [str(problem) for problem in flow.check()]

    assert codes(flow) == ["E225"] * 3
    assert "undo of 'chrge', which is not a step of orders; did you mean 'charge'?" in texts[0]
    assert "step charge has two undos, the first at " in texts[1]
    assert "undo of notify has no handler; decorate a function" in texts[2]


def test_an_undo_of_a_retired_step_serves_older_versions_and_no_new_run():
    old = orders()
    assert old.undo_flow is not None
    flow = Flow("orders")
    flow.step(slug="ship")(lambda run: run)
    flow.undo("ship")(lambda ship: None)
    for slug in ("reserve", "charge"):
        flow.retired(slug=slug, since=2)(lambda run: run)
    unserved = unserved_steps(old.undo_flow.shape(), facts_of(flow.undo_flow.spec), 1)
    assert [(each.slug, each.remedy) for each in unserved] == [
        ("undo_charge", "write @….undo('charge') over a handler for it"),
        ("undo_reserve", "write @….undo('reserve') over a handler for it"),
    ]

    for slug in ("reserve", "charge"):
        flow.undo(slug)(lambda item=None: None)
    undo_flow = flow.undo_flow
    assert undo_flow is not None
    assert edges(undo_flow) == {"undo_ship": []}
    assert unserved_steps(old.undo_flow.shape(), facts_of(undo_flow.spec), 1) == []
    served = steps_of_version(undo_flow.spec, old.undo_flow.shape(), 1)
    assert list(served) == list(edges(old.undo_flow))
    assert (served["undo_ship"].is_map, served["undo_ship"].over) == (True, ("list_ship",))


def test_a_flow_of_which_only_retired_steps_have_an_undo_undoes_no_new_run():
    flow = Flow("shop")
    flow.step(slug="notify")(lambda run: 1 / 0)
    flow.retired(slug="charge", since=2)(lambda run: run)
    flow.undo("charge")(lambda charge: None)

    assert flow.undo_flow is not None
    assert edges(flow.undo_flow) == {"undo_charge": []}
    assert "onFailure" not in flow.shape()["options"]
    assert run_flow(flow, {}).status == "failed"


def test_e225_what_becomes_of_runs_says_only_a_flow_with_undos():
    flow = Flow("shop", on_failure="undo", on_cancel="keep")
    flow.step(slug="first")(lambda run: run)
    assert codes(flow) == ["E225", "E225"]

    flow.undo("first")(lambda: None)
    assert codes(flow) == []
    assert codes(Flow("shop", on_failure="retry")) == ["E209", "E225"]


@pytest.mark.parametrize("handler", [
    lambda reserve: None, lambda item: None, lambda input: None, lambda *charge: None,
])  # fmt: skip
def test_an_undo_handler_takes_the_output_of_its_step_the_input_and_ctx_only(handler):
    flow = Flow("shop")
    flow.step(slug="charge")(lambda run: run)
    flow.undo("charge")(handler)

    assert codes(flow) == ["E206"]


def test_e225_a_task_that_was_only_attempted_has_no_output():
    flow = Flow("shop")
    flow.step(slug="charge")(lambda run: run)
    flow.undo("charge", on="attempted")(lambda charge: None)

    (problem,) = flow.check()
    assert (problem.code, problem.next) == ("E225", "write charge=None")


@covers("E208")
def test_e227_e208_the_slugs_of_the_undo_flow_are_free_and_legal():
    flow = Flow("x" * 43)
    for slug in ("undo_it", "list_all", "List_all_2", "y" * 121):
        flow.step(slug=slug)(lambda run: run)
    assert codes(flow) == []

    flow.undo("y" * 121)(lambda: None)
    assert sorted(codes(flow)) == ["E208", "E208", "E227", "E227", "E227"]


def test_a_plan_tells_which_steps_have_an_undo():
    plan = plan_of(orders().shape())

    found = {slug: step.options["on"] for slug, step in plan.steps.items()}
    assert found == {
        "reserve": "attempted", "charge": "completed", "ship": "completed", "notify": None,
    }  # fmt: skip
