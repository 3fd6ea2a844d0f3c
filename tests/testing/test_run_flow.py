"""A whole flow in this process: mocks, failures, and the result of the run."""

from __future__ import annotations

import asyncio
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import pytest
from support.covers import covers

from pgflowd import Context, Fail, Flow, RetryAfter, job
from pgflowd.errors import FlowError, MapInput, OutputError
from pgflowd.testing import FlowRun, fake_context, run_flow
from pgflowd.testing.scratch import ScratchDatabase

pytest_plugins = "pytester"

flow = Flow("analyze_website", base_delay=1)


@flow.step
def website(run: Any, ctx: Context) -> Any:
    return {"url": run["url"], "attempt": ctx.attempt}


@flow.step
def sentiment(website: Any) -> Any:
    if not website.get("content", "x"):
        raise Fail("nothing to analyse")
    return 0.85


@flow.step(when_exhausted="skip")
async def summary(website: Any) -> Any:
    await asyncio.sleep(0)
    return "short"


@flow.step
def save(sentiment: Any, summary: Any = None) -> Any:
    return [sentiment, summary]


orders = Flow("orders")


@orders.step
def items(run: Any) -> Any:
    return tuple(range(run))


@orders.map(over=items)
def store(item: int, ctx: Context) -> Any:
    return [item, ctx.task_index, ctx.flow_input()]


@orders.step(depends_on="store", after="items")
def total(input: Any) -> Any:
    return input


def test_a_flow_runs_to_its_end_through_sync_and_async_handlers():
    run = run_flow(flow, {"url": "x"})

    assert run.status == "completed"
    assert run.output == {"save": [0.85, "short"]}
    assert run.steps["website"].output == {"url": "x", "attempt": 1}


def test_a_failed_attempt_is_retried_without_waiting():
    run = run_flow(flow, {"url": "x"}, fail={"summary": [TimeoutError("slow"), None]})

    assert run.steps["summary"].attempts == 2
    assert run.steps["summary"].tasks[0].status == "completed"
    assert run.took_s == 2  # of virtual time


def test_one_exception_stands_for_all_attempts():
    run = run_flow(flow, {"url": "x"}, fail={"summary": TimeoutError("slow")})

    assert (run.status, run.output) == ("completed", {"save": [0.85, None]})
    step = run.steps["summary"]
    assert (step.status, step.attempts, step.skip_reason) == ("skipped", 3, "handler_failed")
    assert step.error == "TimeoutError: slow"


def test_a_mock_gives_an_output_or_is_called_instead():
    mock = {"website": {"content": "x"}, "summary": lambda website: website["content"] + "yz"}

    run = run_flow(flow, None, mock=mock)

    assert run.output == {"save": [0.85, "xyz"]}


@covers("newcomer 13")
def test_a_mock_is_called_with_the_parameters_that_it_names():
    seen: list[Any] = []

    def no_website() -> Any:
        return {"content": "x"}

    def any_summary(**given: Any) -> str:
        seen.append(given)
        return "any"

    run = run_flow(flow, None, mock={"website": no_website, "summary": any_summary})

    assert run.output == {"save": [0.85, "any"]}
    assert seen == [{"website": {"content": "x"}}]


@covers("newcomer 13")
def test_a_mock_that_names_an_unknown_parameter_is_refused():
    text = "mock of step summary takes 'webside', which its handler does not take; .*website"
    with pytest.raises(ValueError, match=text):
        run_flow(flow, None, mock={"summary": lambda webside: webside})


@covers("newcomer 12")
@pytest.mark.parametrize("autocommit", [False, True])
def test_handlers_use_the_connection_of_the_test(database: ScratchDatabase, autocommit: bool):
    connection = database.connect(autocommit=autocommit)
    connection.execute("create table written (attempt int)")
    writing = Flow("writing", base_delay=0)

    @writing.step
    def write(ctx: Context) -> None:
        ctx.conn().execute("insert into written values (%s)", (ctx.attempt,))
        if ctx.attempt == 1:
            ctx.conn().execute("select 1/0")

    run = run_flow(writing, connection=connection)

    assert run.status == "completed"
    written = connection.execute("select attempt from written order by 1").fetchall()
    assert written == ([(1,), (2,)] if autocommit else [(2,)])  # the failed attempt is undone
    connection.rollback()
    assert (connection.execute("select to_regclass('written')").fetchone() == (None,)) != autocommit


@covers("newcomer 12")
def test_a_handler_may_end_the_transaction_of_the_test_itself(database: ScratchDatabase):
    connection = database.connect(autocommit=False)
    connection.execute("create table written (attempt int)")
    committing = Flow("committing", base_delay=0)

    @committing.step
    def write(ctx: Context) -> None:
        ctx.conn().execute("insert into written values (%s)", (ctx.attempt,))
        ctx.conn().commit()
        ctx.conn().execute("select 1/0")

    run = run_flow(committing, connection=connection)

    assert run.status == "failed"
    assert connection.execute("select count(*) from written").fetchone() == (3,)


def test_the_work_of_a_task_that_did_not_complete_is_undone(database: ScratchDatabase):
    connection = database.connect(autocommit=False)
    connection.execute("create table written (line text)")
    flow = Flow("uncompleted", max_attempts=1)

    @flow.map
    def write(item: str, ctx: Context) -> None:
        ctx.conn().execute("insert into written values (%s)", (item,))
        if item == "fails":
            raise ValueError

    @flow.step(start_delay=60)
    def listed(ctx: Context) -> str:
        ctx.conn().execute("insert into written values ('no list')")
        return "no list"

    flow.map(slug="each", over="listed")(lambda item: item)
    run_flow(flow, ["in time", "fails", "too late"], connection=connection)
    run_flow(flow, [], connection=connection)

    assert connection.execute("select line from written").fetchall() == [("in time",)]


def test_a_wish_to_fail_spends_no_further_attempt():
    run = run_flow(flow, None, mock={"website": {"content": ""}})

    assert (run.status, run.steps["sentiment"].attempts) == ("failed", 1)
    assert run.steps["sentiment"].error == "nothing to analyse"


def test_a_wish_for_a_later_retry_is_kept():
    @job("polite")
    def polite(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise RetryAfter(1000)
        return ctx.attempt

    run = run_flow(polite)

    assert (run.took_s, run.output) == (1000, {"perform": 2})


def test_attempts_are_not_spent_while_the_other_side_asks_to_wait():
    @job("patient", max_attempts=2, base_delay=0)
    def patient(run: int, ctx: Context) -> int:
        seen.append(ctx.attempt)
        if len(seen) < run:
            raise RetryAfter(600, spend=False, at_most="1h")
        return ctx.attempt

    seen: list[int] = []
    kept = run_flow(patient, 7)
    assert (kept.status, kept.took_s, kept.steps["perform"].attempts) == ("completed", 3600, 1)

    seen.clear()  # the eighth is later than an hour after the first, and a new hour begins
    spent = run_flow(patient, 14)
    assert (spent.status, spent.output) == ("completed", {"perform": 2})
    assert seen == [1] * 7 + [2] * 7

    seen.clear()
    lost = run_flow(patient, 99)
    assert (lost.status, len(seen)) == ("failed", 14)


def test_a_map_gets_items_and_the_next_step_their_outputs():
    run = run_flow(orders, 2)

    assert run.output == {"total": {"run": 2, "store": [[0, 0, 2], [1, 1, 2]]}}
    assert run.steps["items"].output == [0, 1]
    assert [task.index for task in run.steps["store"].tasks] == [0, 1]


def test_an_empty_map_is_completed_without_tasks():
    run = run_flow(orders, 0)

    assert (run.steps["store"].status, run.steps["store"].tasks) == ("completed", ())


@covers("newcomer 15", "E403")
def test_an_output_that_is_not_json_fails_the_task_for_good_with_its_place():
    run = run_flow(flow, {"url": "x"}, mock={"website": {"content": float("nan")}})

    assert run.steps["website"].error == "E403 output.content is NaN"
    assert run.steps["website"].attempts == 1


def test_what_exits_has_failed():
    def leave() -> None:
        raise SystemExit(3)

    assert run_flow(job("leave", max_attempts=1)(leave)).steps["perform"].error == "SystemExit: 3"


def test_wrong_inputs_and_wrong_flows_are_refused_before_anything_runs():
    with pytest.raises(OutputError, match="E403 input is a set"):
        run_flow(flow, {1})
    root = Flow("root_map")
    root.map(slug="each")(lambda item: item)
    with pytest.raises(MapInput, match="E416"):
        run_flow(root, {"no": "array"})
    wrong = Flow("wrong")
    wrong.step(slug="a")(lambda b: None)
    with pytest.raises(FlowError, match="E201"):
        run_flow(wrong)
    with pytest.raises(ValueError, match=r"mock names 'webiste'.*did you mean 'website'"):
        run_flow(flow, mock={"webiste": 1})
    with pytest.raises(TypeError, match="a Flow or a job"):
        run_flow(len)


def test_a_flow_runs_inside_a_running_loop():
    async def inside() -> FlowRun:
        return run_flow(flow, {"url": "x"})

    assert asyncio.run(inside()).steps["summary"].output == "short"


@covers("newcomer 1")
def test_a_failure_has_its_traceback_without_our_calls():
    def broken(run: Any) -> Any:
        return run["nothing"]

    run = run_flow(flow, {"url": "x"}, mock={"website": broken})

    step = run.steps["website"]
    line = broken.__code__.co_firstlineno + 1
    assert step.traceback == step.tasks[0].traceback
    assert (step.traceback or "").splitlines()[:3] == [
        "Traceback (most recent call last):",
        f'  File "{__file__}", line {line}, in broken',
        '    return run["nothing"]',
    ]
    assert step.traceback and str(run).endswith(step.traceback.splitlines()[-1])
    assert f"website: KeyError: 'nothing' at {__file__}:{line} in broken" in repr(run)


@covers("newcomer 16")
def test_the_last_attempt_promises_no_retry():
    run = run_flow(flow, {"url": "x"}, fail={"sentiment": RetryAfter(3)})

    error = "asked for a retry in 3 s, but no attempt is left"
    assert run.steps["sentiment"].error == error
    assert run.steps["sentiment"].traceback == f"pgflowd.core.failure.RetryAfter: {error[:24]}\n"


def test_the_picture_shows_states_and_errors():
    run = run_flow(flow, {"url": "x"}, fail={"sentiment": Fail("no")})

    assert str(run).splitlines() == [
        "analyze_website failed",
        "┌─────────────┐    ┌───────────┐    ┌───────────┐",
        "│ website     ├─┬─▶│ sentiment ├─┬─▶│ save      │",
        "│ ✔ completed │ │  │ ✖ failed  │ │  │ · created │",
        "└─────────────┘ │  └───────────┘ │  └───────────┘",
        "                │  ┌───────────┐ │",
        "                └─▶│ summary   ├─┘",
        "                   │ ▶ started │",
        "                   └───────────┘",
        "sentiment: no",
    ]


def test_a_handler_can_be_called_with_a_context_of_ones_own():
    assert website({"url": "x"}, fake_context(attempt=2)) == {"url": "x", "attempt": 2}
    context = fake_context(run_input=7, step_outputs={"a": 1})
    assert (context.flow_input(), context.step_output("a"), context.step_output("b")) == (
        7,
        1,
        None,
    )
    assert not context.cancelled.is_set()
    with pytest.raises(RuntimeError, match="no database"):
        context.conn()


def test_a_failing_test_shows_the_picture_and_a_passing_one_does_not(pytester):
    pytester.makepyfile(
        """
        from pgflowd import job
        from pgflowd.testing import run_flow

        @job("broken", max_attempts=1)
        def broken(run):
            raise ValueError("not today")

        def test_fails():
            assert run_flow(broken).status == "completed"

        def test_passes():
            assert run_flow(broken).status == "failed"
        """
    )

    outcome = pytester.runpytest_subprocess("-p", "no:cacheprovider")

    outcome.assert_outcomes(failed=1, passed=1)
    outcome.stdout.fnmatch_lines(["*runs of flows*", "broken failed", "*perform*", "*not today"])
    assert outcome.stdout.str().count("runs of flows") == 1


def test_a_handler_that_changes_its_arguments_affects_no_other():
    changing = Flow("changing", base_delay=0)

    @changing.step
    def first(run: Any, ctx: Context) -> Any:
        run["seen"] += 1
        ctx.flow_input()["seen"] += 10
        if ctx.attempt == 1:
            raise ValueError("again")
        return [run]

    @changing.map(over=first)
    def each(item: Any) -> Any:
        item["seen"] += 100
        return item

    @changing.step
    def last(first: Any, each: Any, run: Any) -> Any:
        first.append("more")
        return [first[0]["seen"], each[0]["seen"], run["seen"]]

    run = run_flow(changing, {"seen": 1})

    assert run.output == {"last": [2, 102, 1]}
    assert run.steps["first"].output == [{"seen": 2}]
    assert run.input == {"seen": 1}


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ({"fail": {"summary": "TimeoutError"}}, "fail has 'TimeoutError' for step summary"),
        ({"fail": {"summary": [None, 3]}}, "fail has 3 for step summary; give exceptions"),
        ({"fail": TimeoutError}, "fail must be a dict with slugs of steps as keys"),
        ({"mock": ["summary"]}, "mock must be a dict with slugs of steps as keys"),
        ({"mock": {summary: "x"}}, "mock names <function summary .*>; write the slug"),
    ],
)
def test_wrong_mocks_and_failures_are_refused_before_any_step_runs(told, complaint):
    with pytest.raises(TypeError, match=complaint):
        run_flow(flow, {"url": "x"}, **told)


def test_a_step_that_would_be_tried_for_ever_ends_the_test(monkeypatch):
    monkeypatch.setattr(sys.modules["pgflowd.testing.run_flow"], "MAX_ATTEMPTS", 50)

    @job("stubborn", max_attempts=2**31 - 1, base_delay=0)
    def stubborn(run: Any) -> None:
        raise ValueError

    with pytest.raises(RuntimeError, match="step perform has failed 50 attempts of 2147483647"):
        run_flow(stubborn)


def test_a_handler_that_cancels_itself_has_failed_an_attempt():
    @job("cancelling", max_attempts=2)
    async def cancelling(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise asyncio.CancelledError
        return ctx.attempt

    assert run_flow(cancelling).output == {"perform": 2}


def test_an_async_handler_sees_the_context_variables_of_the_test():
    user: ContextVar[str] = ContextVar("user")

    @job("who")
    async def who(run: Any) -> str:
        return user.get()

    async def test() -> FlowRun:
        user.set("me")
        return run_flow(who)

    assert asyncio.run(test()).output == {"perform": "me"}


def test_a_step_leaves_no_variable_and_no_closed_loop_to_the_next_one():
    user: ContextVar[str] = ContextVar("user", default="nobody")
    flow = Flow("in_turn")

    @flow.step
    async def first(run: Any) -> None:
        user.set("me")

    @flow.step
    def second(first: Any) -> str:
        user.set(user.get() + " else")
        return asyncio.get_event_loop().run_until_complete(name())

    @flow.step
    def third(second: str) -> list[str]:
        return [second, user.get()]

    async def name() -> str:
        return user.get()

    asyncio.set_event_loop(loop := asyncio.new_event_loop())
    try:
        assert run_flow(flow).output == {"third": ["nobody else", "nobody"]}
    finally:
        loop.close()
        asyncio.set_event_loop_policy(None)  # as if no loop had been set


def test_the_context_gives_the_output_of_any_step_and_the_time_of_its_own():
    asking = Flow("asking")

    @asking.step
    def items(run: Any) -> Any:
        return [{"items": "of an item"}]

    @asking.map(over=items, timeout=1000)
    def each(item: Any, ctx: Context) -> Any:
        left = ctx.deadline - datetime.now(UTC)
        return [ctx.step_output("items"), ctx.step_output("later"), round(left.total_seconds(), -2)]

    @asking.step
    def later(each: Any, ctx: Context) -> Any:
        return ctx.step_output("items")

    run = run_flow(asking)

    assert run.steps["each"].output == [[[{"items": "of an item"}], None, 1000]]
    assert run.output == {"later": [{"items": "of an item"}]}


def test_a_step_that_the_flow_does_not_have_has_no_output_to_give():
    asking = Flow("asking", max_attempts=1)

    @asking.step
    def summary(run: Any, ctx: Context) -> Any:
        return ctx.step_output("sumary")

    run = run_flow(asking)

    assert run.status == "failed"
    assert "E201 'sumary' is not a step of asking; did you mean 'summary'?" in str(
        run.steps["summary"].error
    )


def test_keys_come_in_the_order_that_the_database_gives_them():
    columns = Flow("columns")
    columns.step(slug="row")(lambda run: {"name": 1, "id": 2, **run})
    columns.step(slug="header")(lambda row: list(row))

    assert run_flow(columns, {"at": 3, "x": 4}).output == {"header": ["x", "at", "id", "name"]}


def test_a_handler_reads_what_the_start_of_its_run_asked_for():
    asking = Flow("asking")
    at = datetime(2090, 1, 1, tzinfo=UTC)

    @asking.step
    def tell(run: Any, ctx: Context) -> Any:
        return [ctx.labels.get("customer"), ctx.scheduled_for == at]

    assert run_flow(asking, labels={"customer": "42"}, scheduled_for=at).output == {
        "tell": ["42", True]
    }
    assert run_flow(asking).output == {"tell": [None, False]}
    assert tell({}, fake_context(labels={"customer": "43"})) == ["43", False]
