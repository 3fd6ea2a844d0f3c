"""A flow with undos in this process: what is undone, in which order, and what handlers get."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pgflowd import Context, Fail, Flow, Undo
from pgflowd.testing import FlowRun, fake_context, run_flow

done: list[Any] = []
orders = Flow("orders", max_attempts=1)


@orders.step
def reserve(run: Any) -> Any:
    return {"total": run["total"]}


@orders.step
def charge(reserve: Any) -> Any:
    return {"payment": reserve["total"]}


@orders.step
def parcels(run: Any) -> list[int]:
    return list(range(run["parcels"]))


@orders.map(over=parcels, when_exhausted="skip")
def ship(item: int) -> Any:
    return {"parcel": item}


@orders.step
def notify(charge: Any, ship: Any = None) -> Any:
    return "sent"


@orders.undo(reserve)
def release(reserve: Any) -> None:
    done.append(("release", reserve["total"]))


@orders.undo(charge, max_attempts=3, base_delay=2)
def refund(charge: Any, run: Any, ctx: Context) -> str:
    done.append(("refund", charge["payment"], run["total"], ctx.undo))
    return "refunded"


@orders.undo(ship)
async def recall(ship: Any, item: int, ctx: Context) -> None:
    await asyncio.sleep(0)
    done.append(("recall", ship["parcel"], item, ctx.flow_input()["total"]))


@orders.undo(notify, on="attempted")
def apologise(notify: Any = None) -> None:
    done.append(("apologise", notify))


GIVEN = {"total": 7, "parcels": 2}


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


def undo_of(run: FlowRun) -> FlowRun:
    assert run.undo is not None
    return run.undo


def test_a_failed_run_is_undone_in_reverse():
    run = run_flow(orders, GIVEN, fail={"notify": OSError("no mail")})

    assert (run.status, undo_of(run).status) == ("undone", "completed")
    assert run.steps["notify"].error == "OSError: no mail"
    assert done[0] == ("apologise", None)
    assert set(done[1:]) == {
        ("recall", 0, 0, 7), ("recall", 1, 1, 7), ("release", 7),
        ("refund", 7, 7, Undo(undo_of(run).input["run_id"], 0, "OSError: no mail", 1)),
    }  # fmt: skip
    assert done.index(("release", 7)) > [name for name, *_ in done].index("refund")
    assert undo_of(run).steps["undo_charge"].output == "refunded"


def test_a_completed_run_is_not_undone_and_one_that_keeps_neither():
    assert run_flow(orders, GIVEN).undo is None

    keeping = Flow("keeping", on_failure="keep")
    keeping.step(slug="first")(lambda run: run)
    keeping.step(slug="second", max_attempts=1)(lambda first: 1 / 0)
    keeping.undo("first")(lambda first: done.append(first))
    run = run_flow(keeping, 7)

    assert (run.status, run.undo, done) == ("failed", None, [])


def test_only_what_completed_is_undone_and_what_was_attempted_where_that_is_asked_for():
    run = run_flow(orders, GIVEN, fail={"charge": Fail("no money")})

    assert run.status == "undone"
    assert {name for name, *_ in done} == {"release", "recall"}
    assert undo_of(run).input["plan"] == {"reserve": [0], "ship": [0, 1]}
    assert undo_of(run).steps["undo_charge"].output is None


@pytest.mark.parametrize("parcels", [0, 1, 10_000])
def test_maps_of_any_size_are_undone(parcels):
    run = run_flow(
        orders,
        {"total": 7, "parcels": parcels},
        mock={"undo_ship": lambda ship, item: [ship["parcel"], item]},
        fail={"notify": Fail("no")},
    )

    assert run.status == "undone"
    assert undo_of(run).steps["undo_ship"].output == [[at, at] for at in range(parcels)]


def test_the_elements_of_a_skipped_map_that_completed_are_undone():
    run = run_flow(orders, GIVEN, fail={"ship": [Fail("lost")], "notify": Fail("no")})

    assert run.steps["ship"].status == "skipped"
    assert undo_of(run).input["plan"].get("ship") is None

    run = run_flow(
        orders, GIVEN, mock={"ship": lambda item: [1 / item]}, fail={"notify": Fail("no")}
    )
    assert run.steps["ship"].status == "skipped"
    assert undo_of(run).input["plan"]["ship"] == [1]  # it came late: the step was skipped by then


def test_steps_that_were_skipped_by_conditions_are_not_undone():
    flow = Flow("choosy")
    flow.step(slug="first", if_={"a": 1})(lambda run: run)
    flow.step(slug="second", max_attempts=1)(lambda run, first=None: 1 / 0)
    flow.undo("first")(lambda first: done.append(first))

    run = run_flow(flow, {"a": 2})
    assert (run.status, run.undo, done) == ("undone", None, [])

    run_flow(flow, {"a": 1})
    assert done == [{"a": 1}]


def test_a_failed_undo_stops_no_other_and_is_never_told_as_undone():
    run = run_flow(orders, GIVEN, fail={"notify": Fail("no"), "undo_charge": [OSError("bank")] * 3})

    assert (run.status, undo_of(run).status) == ("undo_failed", "completed")
    step = undo_of(run).steps["undo_charge"]
    assert (step.attempts, step.error) == (3, "OSError: bank")
    assert {name for name, *_ in done} == {"apologise", "recall", "release"}
    assert "undo_charge: OSError: bank" in run.picture()


def test_undo_handlers_have_retries_and_mocks():
    run = run_flow(
        orders,
        GIVEN,
        mock={"undo_ship": lambda item, ctx: [item, ctx.undo.task_index], "undo_reserve": "mocked"},
        fail={"notify": Fail("no"), "undo_charge": [OSError("bank"), None]},
    )

    assert run.status == "undone"
    steps = undo_of(run).steps
    assert (steps["undo_charge"].attempts, undo_of(run).took_s) == (2, 4.0)
    assert steps["undo_ship"].output == [[0, 0], [1, 1]]
    assert steps["undo_reserve"].output == "mocked"
    with pytest.raises(ValueError, match="did you mean 'undo_charge'"):
        run_flow(orders, GIVEN, fail={"undo_chrge": Fail("no")})


def test_undo_handlers_may_wait_and_memo():
    flow = Flow("waiting", max_attempts=1)
    flow.step(slug="first")(lambda run: run)
    flow.step(slug="second")(lambda first: 1 / 0)

    @flow.undo("first")
    def unfirst(first: Any, ctx: Context) -> Any:
        ctx.memo("once", done.append, first)
        ctx.sleep("1h")
        return ctx.wait_signal("agreed")

    run = run_flow(flow, 7, signals={"agreed": (5000, "yes")})

    assert (run.status, done) == ("undone", [7])
    assert undo_of(run).steps["undo_first"].output == "yes"
    assert [wait.seconds for wait in undo_of(run).waits] == [3600, 1400]
    with pytest.raises(RuntimeError, match="step undo_first waits for signal 'agreed'"):
        run_flow(flow, 7)


def test_a_handler_alone_is_told_what_it_undoes():
    undo = Undo("019bc0de-4a51-7c02-9f6e-12ab7f3a9c12", 0, "cancel", 2)

    refund({"payment": 3}, {"total": 3}, fake_context(undo=undo))

    assert done == [("refund", 3, 3, undo)]
    assert fake_context().undo is None


def test_a_hundred_steps_are_undone_one_after_the_other():
    flow = Flow("long", max_attempts=1)
    for at in range(100):
        after = [f"s{at - 1}"] if at else []
        flow.step(slug=f"s{at}", after=after)(lambda ctx: ctx.step_slug)
        flow.undo(f"s{at}")(lambda ctx: done.append(ctx.step_slug))
    flow.step(slug="last", after="s99")(lambda: 1 / 0)

    run = run_flow(flow)

    assert run.status == "undone"
    assert done == [f"undo_s{at}" for at in reversed(range(100))]
