"""`run_flow` with child runs: flows or functions that stand for them, waits and their ends."""

from __future__ import annotations

import pytest

from pgflowd import Fail, Flow, SignalTimeout
from pgflowd.core.statuses import RunStatus
from pgflowd.errors import BadDependency, RunError
from pgflowd.testing import EndedWait, fake_context, run_flow

one = Flow("one")


@one.step
def load(run, ctx):
    ctx.sleep(run.get("s", 1))
    if run["n"] < 0:
        raise Fail("too small")
    return run["n"] * 2


family = Flow("family", base_delay=0)


@family.step
def collect(run, ctx):
    runs = [ctx.start("one", {"n": n}, key=str(n)) for n in run]
    ended = ctx.wait(*runs)
    if ctx.attempt == 1:
        raise ValueError("once more")
    return [[each.status, each.output, each.error] for each in ended]


def test_a_child_is_a_flow_that_is_executed_once_in_virtual_time():
    run = run_flow(family, [1, -1], children={"one": one})

    assert run.output == {
        "collect": [["completed", {"load": 2}, None], ["failed", None, "too small"]]
    }
    assert run.waits == (EndedWait("collect", "runs", None, 1.0),)
    assert [(each.flow, each.step, each.input, each.status) for each in run.children] == [
        ("one", "collect", {"n": 1}, "completed"),
        ("one", "collect", {"n": -1}, "failed"),
    ]


def test_a_child_may_be_a_function_of_its_input_and_begins_when_its_wishes_say():
    flow, begun = Flow("wishes"), []

    def child(given):
        begun.append(given)
        if given == 2:
            raise KeyError("no")
        return {"load": given}

    @flow.step
    def starts(run, ctx):
        later = ctx.start("one", 1, delay="2h", expires="3h")
        failed = ctx.start("one", 2)
        late = ctx.start("slow", {"n": 1, "s": 7200}, expires="1h")
        never = ctx.start("one", 3, delay="2h", expires="1h")
        return [[each.status, each.error] for each in ctx.wait(later, failed, late, never, failed)]

    run = run_flow(flow, children={"one": child, "slow": one})

    expired = ["expired", "its time is over"]
    failed = ["failed", "KeyError: 'no'"]
    assert run.output == {"starts": [["completed", None], failed, expired, expired, failed]}
    assert (begun, run.took_s) == ([1, 2], 7200)


def test_a_wait_for_children_ends_with_its_timeout():
    flow = Flow("patience")

    @flow.step
    def waits(run, ctx):
        child = ctx.start("one", {"n": 1, "s": 100})
        try:
            ctx.wait(child, timeout=10)
        except SignalTimeout as error:
            return [str(error), ctx.wait(child, timeout=90)[0].output, ctx.wait()]

    run = run_flow(flow, children={"one": one})

    text, output, nothing = run.output["waits"]
    assert text.startswith("E427 step waits: run ") and text.endswith("did not end in time")
    assert (output, nothing, run.took_s) == ({"load": 2}, [], 100)


def test_what_is_not_known_is_named():
    run = run_flow(family, [1], children={"two": one})
    assert (
        "step collect starts flow one, which the test does not know" in run.steps["collect"].error
    )
    with pytest.raises(TypeError, match="children has 7 for 'one'"):
        run_flow(family, [1], children={"one": 7})
    with pytest.raises(TypeError, match="must be a dict"):
        run_flow(family, [1], children=[one])


def test_a_fake_context_has_children():
    ctx = fake_context(children={"one": one, "two": lambda given: {"n": given}}, attempt=2)
    assert collect([3], ctx) == [["completed", {"load": 6}, None]]
    assert ctx.waited_s == 1
    (other,) = ctx.wait(ctx.start("two", 5))
    assert (other.status, other.output) == (RunStatus.COMPLETED, {"n": 5})
    slow = ctx.start("one", {"n": 1, "s": 50})
    with pytest.raises(SignalTimeout):
        ctx.wait(slow, timeout=20)
    assert ctx.waited_s == 21


def test_a_child_that_would_begin_after_its_parent_is_refused():
    ctx = fake_context(children={"one": one})
    with pytest.raises(BadDependency, match="which is its parent"):
        ctx.start("one", {"n": 1}, after=[ctx.run_id])

    flow = Flow("heir", max_attempts=1)

    @flow.step
    def starts(ctx):
        ctx.start("one", {"n": 1}, after=[ctx.run_id])

    run = run_flow(flow, children={"one": one})
    assert (run.status, run.children) == ("failed", ())


def test_what_cannot_be_waited_for_or_started_is_refused():
    ctx = fake_context(children={"one": one})
    for wrong, error in ((7, TypeError), ("x", ValueError), (ctx.run_id, ValueError)):
        with pytest.raises(error):
            ctx.wait(wrong)
    with pytest.raises(RunError, match="no handler of this test has started it"):
        ctx.wait("00000000-0000-7000-8000-000000000001")
    with pytest.raises(ValueError, match="takes 1000 runs, not 1001"):
        ctx.wait(*["00000000-0000-7000-8000-000000000001"] * 1001)
    with pytest.raises(TypeError, match="named by its slug"):
        ctx.start(one, {})
    with pytest.raises(RunError, match="a key has 1 to 200 characters"):
        ctx.start("one", {}, key="")
    with pytest.raises(TypeError, match="no option soon"):
        ctx.start("one", {}, soon=True)
