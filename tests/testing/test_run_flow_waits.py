"""A flow whose handlers remember and wait, in this process: in virtual time, by signals given."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.covers import covers

from pgflowd import Context, Flow, job
from pgflowd.errors import RunError, SignalTimeout, TooLarge
from pgflowd.testing import fake_context, run_flow
from pgflowd.testing.scratch import ScratchDatabase


def flow_of(handler: Callable[..., Any], **options: Any) -> Any:
    return job("waiting", **{"base_delay": 1, **options})(handler)


def test_a_memo_is_computed_once_however_often_its_handler_begins():
    calls: list[str] = []

    @job("order", base_delay=0)
    def order(ctx: Context) -> Any:
        charge = ctx.memo("charge", charge_card, 12)
        ctx.sleep("2h")
        if ctx.attempt < 3:
            raise ConnectionError
        return [charge, ctx.attempt]

    def charge_card(amount: int) -> dict[str, int]:
        calls.append("charged")
        return {"amount": amount}

    run = run_flow(order)

    assert run.output == {"perform": [{"amount": 12}, 3]}
    assert (calls, run.took_s) == (["charged"], 7200)
    assert run.steps["perform"].saved == {"charge": {"amount": 12}}
    assert run.steps["perform"].attempts == 3  # waits spend none


def test_an_async_handler_awaits_its_memo_and_sleeps():
    calls: list[int] = []

    async def fetch() -> int:
        await asyncio.sleep(0)
        calls.append(1)
        return 7

    async def perform(ctx: Context) -> int:
        value: int = await ctx.memo("page", fetch)
        ctx.sleep(timedelta(minutes=1))
        return value

    run = run_flow(flow_of(perform))

    assert (run.output, calls, run.took_s) == ({"perform": 7}, [1], 60)


def test_a_retry_sees_what_was_saved_and_not_what_was_dropped():
    def perform(ctx: Context) -> Any:
        if ctx.attempt == 1:
            ctx.save("page", [1])
            ctx.save("gone", 2)
            ctx.drop("gone")
            raise ValueError
        return [ctx.load("page"), ctx.load("gone", "nothing")]

    run = run_flow(flow_of(perform))

    assert run.output == {"perform": [[1], "nothing"]}
    assert run.steps["perform"].saved == {"page": [1]}


def test_each_task_of_a_map_has_checkpoints_of_its_own():
    flow = Flow("pages")

    @flow.map
    def page(item: int, ctx: Context) -> Any:
        ctx.memo("square", lambda: item * item)
        ctx.sleep(item, name="nap")
        return ctx.load("square")

    run = run_flow(flow, [3, 2])

    assert run.output == {"page": [9, 4]}
    assert [task.saved for task in run.steps["page"].tasks] == [{"square": 9}, {"square": 4}]
    assert run.waits == (("page", "sleep", "nap", 2.0), ("page", "sleep", "nap", 3.0))
    assert run.took_s == 3


def test_sleeps_pass_in_virtual_time_beside_each_other():
    flow = Flow("naps")

    @flow.step
    def long(ctx: Context) -> None:
        ctx.sleep("1d")
        ctx.sleep(until=datetime.now(UTC) + timedelta(hours=1))

    @flow.step
    def short(ctx: Context) -> None:
        ctx.sleep(30)

    run = run_flow(flow)

    assert [(wait.step, round(wait.seconds)) for wait in run.waits] == [
        ("short", 30),
        ("long", 86400),
        ("long", 3600),
    ]
    assert round(run.took_s) == 90_000


def test_signals_are_given_first_in_first_out_and_each_once():
    flow = Flow("letters")

    @flow.step
    def reader(ctx: Context) -> Any:
        return [ctx.wait_signal("letter") for _ in range(3)]

    run = run_flow(flow, signals={"letter": ["a", (5, "c"), None], "other": 1})

    assert run.output == {"reader": ["a", None, "c"]}
    assert run.waits == (
        ("reader", "signal", "letter", 0.0),
        ("reader", "signal", "letter", 0.0),
        ("reader", "signal", "letter", 5.0),
    )


def test_who_waited_first_gets_the_first_signal():
    flow = Flow("queue")

    @flow.map
    def clerk(item: int, ctx: Context) -> Any:
        ctx.sleep(item)
        return ctx.wait_signal("customer")

    run = run_flow(flow, [9, 5, 7], signals={"customer": [(10, "x"), (11, "y"), (12, "z")]})

    assert run.output == {"clerk": ["z", "x", "y"]}


def test_a_signal_that_comes_too_late_is_the_default_or_a_failure_without_retry():
    def perform(ctx: Context) -> Any:
        assert ctx.wait_signal("reply", timeout="1h", default=None) is None
        return ctx.wait_signal("reply", timeout=60)

    run = run_flow(flow_of(perform), signals={"reply": (2**20, "late")})

    error = "E427 step perform: signal 'reply' did not come in time"
    assert (run.status, run.steps["perform"].error) == ("failed", error)
    assert (run.steps["perform"].attempts, run.took_s) == (1, 3660)
    assert [wait.seconds for wait in run.waits] == [3600, 60]


def test_a_wait_that_nothing_ends_names_step_and_signal():
    def perform(ctx: Context) -> Any:
        return ctx.wait_signal("approve")

    waiting = flow_of(perform)
    nothing = r"step perform waits for signal 'approve', which nothing sends; give signals="
    with pytest.raises(RuntimeError, match=nothing):
        run_flow(waiting)
    with pytest.raises(RuntimeError, match="nothing sends; did you mean 'aprove'"):
        run_flow(waiting, signals={"aprove": True})


def trip(**options: Any) -> Flow:
    flow = Flow("trip")
    flow.step(slug="plan")(lambda run: run)
    flow.wait_for("paid", after="plan", timeout="7d", default=None)
    flow.approval("approve", after="plan", timeout="2d", **options)
    flow.step(slug="book")(lambda paid, approve=None: [paid, approve])
    return flow


def test_steps_that_wait_give_a_payload_and_an_approval():
    yes = {"approved": True, "by": "ann", "note": "have fun"}

    run = run_flow(trip(), signals={"paid": {"amount": 12}, "approve": (60, yes)})

    assert run.output == {"book": [{"amount": 12}, yes]}
    assert run.waits == (("paid", "signal", "paid", 0.0), ("approve", "signal", "approve", 60.0))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"approved": False, "by": "ann", "note": "too far"}, "rejected by ann: too far"),
        ({"approved": False}, "rejected by somebody"),
        ("yes", "E427 step approve: signal 'approve' did not come"),  # which is no answer
        ((2 * 86400 + 1, {"approved": True}), "E427 step approve: signal 'approve' did not come"),
    ],
    ids=["with note", "bare", "no answer", "late"],
)
def test_a_rejection_fails_its_step_at_once_and_may_be_skipped(answer: Any, error: str):
    failed = run_flow(trip(), signals={"paid": 1, "approve": answer})
    skipped = run_flow(trip(when_exhausted="skip"), signals={"paid": 1, "approve": answer})

    assert (failed.status, failed.steps["approve"].attempts) == ("failed", 1)
    assert re.match(error, str(failed.steps["approve"].error))
    assert skipped.output == {"book": [1, None]}


def test_a_run_that_fails_ends_its_waits():
    flow = Flow("failing", max_attempts=1)

    @flow.step
    def waits(ctx: Context) -> Any:
        return ctx.wait_signal("never")

    @flow.step(start_delay=5)
    def fails() -> None:
        raise ValueError

    run = run_flow(flow)

    assert (run.status, run.took_s, run.waits) == ("failed", 5, ())


def test_a_skipped_step_waits_no_longer():
    flow = Flow("skipping", max_attempts=1)

    @flow.map(when_exhausted="skip")
    def element(item: str, ctx: Context) -> Any:
        if item == "fails":
            raise ValueError
        return ctx.wait_signal("never")

    run = run_flow(flow, ["waits", "fails"])

    assert run.status == "completed"
    assert [task.status for task in run.steps["element"].tasks] == ["skipped", "failed"]


def test_a_handler_that_catches_its_suspension_fails_for_good():
    def perform(ctx: Context) -> Any:
        try:
            ctx.sleep(1)
        except BaseException:
            return "caught"

    run = run_flow(flow_of(perform))

    assert run.steps["perform"].error == (
        "E426 the handler caught what ends it while it waits for sleep 1;"
        " catch Exception, not BaseException"
    )
    assert run.steps["perform"].attempts == 1


def test_ordinary_except_clauses_let_a_suspension_pass():
    cleaned: list[int] = []

    def perform(ctx: Context) -> Any:
        try:
            ctx.sleep(1)
        except Exception:
            return "caught"
        finally:
            cleaned.append(1)
        return "done"

    assert run_flow(flow_of(perform)).output == {"perform": "done"}
    assert len(cleaned) == 2


def test_a_suspension_is_found_in_the_group_of_an_async_handler():
    async def both(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(nap(ctx))
            group.create_task(asyncio.sleep(0))
        return "rested"

    async def nap(ctx: Context) -> None:
        ctx.sleep(5)

    run = run_flow(flow_of(both))

    assert (run.output, run.took_s) == ({"perform": "rested"}, 5)


def test_a_failure_beside_a_suspension_fails_the_attempt():
    async def both(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(nap(ctx))
            group.create_task(fails())

    async def nap(ctx: Context) -> None:
        ctx.sleep(5)

    async def fails() -> None:
        raise ValueError("no")

    run = run_flow(flow_of(both, max_attempts=1))

    assert run.status == "failed"
    assert "ValueError: no" in str(run.steps["perform"].error)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda ctx: ctx.sleep(-1), "E430"),
        (lambda ctx: ctx.sleep("300 years"), "E430"),
        (lambda ctx: ctx.sleep(until=datetime(2030, 1, 1)), "E430"),
        (lambda ctx: ctx.wait_signal("a", timeout=float("inf")), "E430"),
        (lambda ctx: ctx.wait_signal(""), "E429"),
        (lambda ctx: ctx.save("sleep 1", 1), "E429"),
        (lambda ctx: ctx.save("page", {1}), "E403"),
        (lambda ctx: ctx.save("page", "x" * (1 << 20)), "E424"),
    ],
)
def test_bad_input_fails_the_attempt_and_keeps_nothing(call: Any, code: str):
    run = run_flow(flow_of(lambda ctx: call(ctx), max_attempts=1))

    assert str(run.steps["perform"].error).startswith(f"{code} ")
    assert (run.steps["perform"].saved, run.waits) == ({}, ())


@covers("E424")
def test_a_value_that_is_too_large_leaves_the_old_one():
    def perform(ctx: Context) -> Any:
        ctx.save("page", 1)
        with pytest.raises(TooLarge, match="E424 checkpoint 'page' has 1048578 bytes"):
            ctx.save("page", "x" * (1 << 20))
        return ctx.load("page")

    run = run_flow(flow_of(perform))

    assert (run.output, run.steps["perform"].saved) == ({"perform": 1}, {"page": 1})


def test_a_task_keeps_ten_thousand_checkpoints():
    def perform(ctx: Context) -> None:
        for number in range(10_000):
            ctx.save(f"page {number}", 0)
        ctx.save("page 0", 1)
        ctx.save("one more", 0)

    run = run_flow(flow_of(perform, max_attempts=1))

    assert str(run.steps["perform"].error).startswith("E424 the task has 10000 checkpoints")


def test_a_task_keeps_64_mebibytes_in_all():
    def perform(ctx: Context) -> None:
        for number in range(64):
            ctx.save(f"page {number}", "x" * ((1 << 20) - 2))
        ctx.save("page 0", "small")
        ctx.drop("page 1")
        ctx.save("page 1", "x" * ((1 << 20) - 2))
        ctx.save("one more", "x" * ((1 << 20) - 2))

    run = run_flow(flow_of(perform, max_attempts=1))

    error = "E424 the checkpoints of the task have 66060295 bytes already"
    assert str(run.steps["perform"].error).startswith(error)


def test_a_handler_that_waits_for_ever_is_ended():
    beginnings: list[int] = []

    def perform(ctx: Context) -> None:
        beginnings.append(1)
        ctx.sleep(0, name=f"nap {len(beginnings)}")

    with pytest.raises(RuntimeError, match="step perform has waited 1000 times"):
        run_flow(flow_of(perform))


def test_a_mock_may_wait_and_a_failure_of_the_test_may_come_between():
    def perform(ctx: Context) -> Any:
        raise AssertionError

    def mocked(ctx: Context) -> Any:
        return ctx.wait_signal("go")

    run = run_flow(
        flow_of(perform),
        mock={"perform": mocked},
        fail={"perform": [TimeoutError]},
        signals={"go": (9, "gone")},
    )

    assert (run.output, run.took_s) == ({"perform": "gone"}, 9)
    assert run.steps["perform"].attempts == 2


@pytest.mark.parametrize(
    ("signals", "error", "text"),
    [
        (["approve"], TypeError, "signals must be a dict"),
        ({"": 1}, RunError, "E429"),
        ({"a": ("soon", 1)}, RunError, "E430 the time of signal 'a'"),
        ({"a": {1}}, RunError, "E403 signal 'a' is a set"),
        ({"a": "x" * (1 << 20)}, TooLarge, "E424 signal 'a' has 1048578 bytes"),
    ],
    ids=["list", "name", "time", "set", "large"],
)
def test_wrong_signals_are_refused_before_anything_runs(signals: Any, error: Any, text: str):
    def perform(ctx: Context) -> None:
        raise AssertionError

    with pytest.raises(error, match=text):
        run_flow(flow_of(perform), signals=signals)


def test_what_an_attempt_did_before_it_waits_is_undone(database: ScratchDatabase):
    connection = database.connect(autocommit=False)
    connection.execute("create table written (line text)")

    def perform(ctx: Context) -> None:
        ctx.conn().execute("insert into written values ('before')")
        ctx.sleep(1)

    run = run_flow(flow_of(perform), connection=connection)

    assert run.status == "completed"
    assert connection.execute("select line from written").fetchall() == [("before",)]


def test_the_rows_of_a_memo_exist_exactly_if_the_memo_does(database: ScratchDatabase):
    connection = database.connect(autocommit=False)
    connection.execute("create table written (line text)")

    def write(ctx: Context, line: str, error: Exception | None = None) -> str:
        ctx.conn().execute("insert into written values (%s)", (line,))
        if error:
            raise error
        return line

    def perform(ctx: Context) -> None:
        ctx.memo("charge", write, ctx, "charge")
        write(ctx, "after")
        if ctx.attempt == 1:
            with pytest.raises(KeyError):
                ctx.memo("ship", write, ctx, "ship", KeyError("no ship"))
            raise ConnectionError
        ctx.sleep(1)

    run = run_flow(flow_of(perform), connection=connection)

    assert run.steps["perform"].saved == {"charge": "charge"}
    lines = connection.execute("select line from written").fetchall()
    assert lines == [("charge",), ("after",)]


def test_a_handler_alone_has_checkpoints_and_does_not_wait():
    def perform(ctx: Context) -> Any:
        charge = ctx.memo("charge", lambda: 7)
        ctx.sleep("2h")
        ctx.save("page", 1)
        ctx.drop("old")
        return [charge, ctx.wait_signal("paid"), ctx.wait_signal("paid", timeout=60, default="no")]

    ctx = fake_context(saved={"charge": 12, "old": 0}, signals={"paid": [(9000, {"amount": 12})]})

    assert perform(ctx) == [12, {"amount": 12}, "no"]
    assert ctx.saved == {"charge": 12, "page": 1}
    assert ctx.waited_s == 9060


def test_a_handler_alone_is_told_what_it_waits_for():
    with pytest.raises(SignalTimeout, match="E427"):
        fake_context(signals={"a": (61, 1)}).wait_signal("a", timeout=60)
    with pytest.raises(RuntimeError, match="step step waits for signal 'a', which nothing sends"):
        fake_context(signals={"b": 1}).wait_signal("a")
    with pytest.raises(RunError, match="E430"):
        fake_context().sleep(-1)
