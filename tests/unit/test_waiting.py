"""What a handler's calls that remember and wait mean, wherever it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from support.covers import covers

from pgflowd.core.context import Context
from pgflowd.core.failure import failure_of
from pgflowd.core.waiting import (
    MAX_WAIT_S,
    Checkpoint,
    Suspended,
    Wait,
    WaitKind,
    seconds_of,
    suspension_of,
)
from pgflowd.errors import OutputError, RunError, SignalTimeout

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Ctx(Context):
    """A context over a list of checkpoints."""

    step_slug = "order"
    conn = _tell_progress = _read_input = _read_output = None  # type: ignore[assignment]
    _read_children = _start_child = _read_runs = None  # type: ignore[assignment]

    def __init__(self, *kept: Checkpoint, version: int = 1) -> None:
        self.kept = {each.name: each for each in kept}
        self._version = version
        self.reads = 0

    def _moment(self) -> datetime:
        return NOW

    def _read_checkpoints(self) -> Iterable[Checkpoint]:
        self.reads += 1
        return list(self.kept.values())

    def _keep(self, checkpoint: Checkpoint) -> None:
        self.kept[checkpoint.name] = checkpoint

    def _forget(self, name: str) -> None:
        del self.kept[name]


def ended(name: str, **data: Any) -> Checkpoint:
    return Checkpoint(name, 1, data)


def wait_of(call: Any) -> Wait:
    with pytest.raises(Suspended) as raised:
        call()
    return raised.value.wait


def test_a_memo_is_computed_once_and_looks_the_same_ever_after():
    ctx = Ctx()
    calls: list[int] = []

    def charge(amount: int, *, currency: str) -> Any:
        calls.append(amount)
        return (amount, {"in": currency})

    first = ctx.memo("charge", charge, 7, currency="EUR")
    again = Ctx(*ctx.kept.values()).memo("charge", charge, 7, currency="EUR")

    assert first == again == [7, {"in": "EUR"}]  # a tuple is a list in JSON, at once
    assert calls == [7]


def test_a_memo_of_an_async_function_is_awaited():
    async def charge() -> int:
        await asyncio.sleep(0)
        calls.append(1)
        return 5

    async def handler(ctx: Ctx) -> Any:
        return await ctx.memo("charge", charge)

    calls: list[int] = []
    ctx = Ctx()

    assert asyncio.run(handler(ctx)) == asyncio.run(handler(Ctx(*ctx.kept.values()))) == 5
    assert calls == [1]


def test_a_memo_keeps_no_error_and_nothing_that_is_not_json():
    ctx = Ctx()

    with pytest.raises(ZeroDivisionError):
        ctx.memo("charge", lambda: 1 / 0)
    with pytest.raises(OutputError, match="E403 checkpoint 'charge' is a set"):
        ctx.memo("charge", lambda: {1})  # type: ignore[arg-type]

    assert ctx.kept == {}


def test_what_is_saved_is_loaded_until_it_is_dropped():
    ctx = Ctx(version=3)

    assert ctx.load("page", 0) == 0
    ctx.save("page", {"n": 7})
    ctx.load("page")["n"] = 8  # changes a copy
    assert (ctx.load("page"), ctx.kept["page"]) == ({"n": 7}, Checkpoint("page", 3, {"n": 7}))
    ctx.drop("page")
    ctx.drop("page")
    assert (ctx.load("page"), ctx.kept) == (None, {})
    assert ctx.reads == 1


def test_none_is_a_value_like_any_other():
    ctx = Ctx()
    ctx.save("page", None)

    assert ctx.load("page", 7) is None
    assert ctx.memo("page", lambda: 8) is None


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(0, 0.0), (1.5, 1.5), ("2h", 7200.0), ("1m30s", 90.0), (timedelta(days=1), 86400.0)],
)
def test_a_duration_is_seconds_a_text_or_a_timedelta(given: Any, seconds: float):
    assert wait_of(lambda: Ctx().sleep(given)).in_s == seconds


@pytest.mark.parametrize(
    "given",
    [
        *(-1, "-1s", "5", "", "soon", float("nan"), float("inf"), 10**5000, -(10**5000), "40000d"),
        *(True, [], None, timedelta(days=-1), timedelta(days=101 * 365), MAX_WAIT_S + 1),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_wrong_duration_is_refused_and_nothing_waits(given: Any):
    ctx = Ctx()

    with pytest.raises(RunError, match="E430") as raised:
        ctx.sleep(given)
    assert raised.value.next is not None
    assert ctx._suspended is None


@covers("E430")
@pytest.mark.parametrize(
    ("until", "fault"),
    [
        (datetime(2026, 1, 1), "has no time zone"),
        (NOW + timedelta(days=101 * 365), "more than 100 years ahead"),
        ("tomorrow", "is not a datetime"),
    ],
)
def test_a_wrong_moment_is_refused(until: Any, fault: str):
    with pytest.raises(RunError, match=f"E430 until .*{fault}"):
        Ctx().sleep(until=until)


def test_a_sleep_has_a_duration_or_a_moment():
    until = NOW + timedelta(hours=1)

    assert wait_of(lambda: Ctx().sleep(until=until)).until == until
    with pytest.raises(RunError, match="E430 a sleep has a duration or a moment"):
        Ctx().sleep(1, until=until)
    assert seconds_of(MAX_WAIT_S, "a sleep") == MAX_WAIT_S


def test_sleeps_are_counted_and_named_ones_are_not():
    slept = [ended(name, slept=True) for name in ("sleep 1", "sleep noon", "sleep 2")]
    ctx = Ctx(*slept)

    ctx.sleep(1)
    ctx.sleep(1, name="noon")
    ctx.sleep(1)
    wait = wait_of(lambda: ctx.sleep(9))

    assert wait == Wait(WaitKind.SLEEP, checkpoint="sleep 3", in_s=9.0)
    assert ctx._suspended is not None and ctx._suspended.wait is wait


def test_a_name_is_slept_once_in_an_attempt():
    ctx = Ctx(ended("sleep noon", slept=True))
    ctx.sleep(1, name="noon")

    with pytest.raises(RunError, match="slept before") as raised:
        ctx.sleep(1, name="noon")

    assert raised.value.code == "E429" and ctx._suspended is None


def test_waits_for_a_signal_are_counted_by_its_name():
    ctx = Ctx(ended("signal a 1", got={"n": 1}), ended("signal b 1", got=None))

    assert ctx.wait_signal("a") == {"n": 1}
    assert ctx.wait_signal("b") is None
    wait = wait_of(lambda: ctx.wait_signal("a", timeout="1h"))

    assert wait == Wait(WaitKind.SIGNAL, "a", "signal a 2", 3600.0)


def test_a_signal_that_does_not_come_is_the_default_or_an_error_that_no_retry_mends():
    timeout = ended("signal a 1", timeout=True)

    assert Ctx(timeout).wait_signal("a", timeout=1, default=None) is None
    with pytest.raises(SignalTimeout, match="E427 step order: signal 'a' did not come") as raised:
        Ctx(timeout).wait_signal("a", timeout=1)

    assert isinstance(raised.value, TimeoutError)
    assert not failure_of(raised.value).retry


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", "\ud800", 7, None], ids=ascii)
def test_a_wrong_name_is_refused_everywhere(name: Any):
    ctx = Ctx()

    for call in (ctx.load, ctx.drop, ctx.wait_signal):
        with pytest.raises(RunError, match="E429 the name"):
            call(name)
    with pytest.raises(RunError, match="E429"):
        ctx.save(name, 1)
    with pytest.raises(RunError, match="E429"):
        ctx.memo(name, int)
    assert (ctx.kept, ctx.reads, ctx._suspended) == ({}, 0, None)


@pytest.mark.parametrize("name", ["sleep 1", "signal a 1", "runs 1"])
def test_names_of_waits_are_reserved(name: str):
    with pytest.raises(RunError, match=r"E429 the name .* begins like the name of a wait"):
        Ctx().save(name, 1)


@pytest.mark.parametrize("name", ["1", "", "y" * 201])
def test_a_sleep_has_no_number_as_a_name(name: str):
    with pytest.raises(RunError, match=r"E429 the name .* of a sleep"):
        Ctx().sleep(1, name=name)


def test_a_checkpoint_of_newer_code_suspends_the_task_and_an_older_one_is_loaded():
    newer = Ctx(Checkpoint("page", 3, 7), version=2)

    wait = wait_of(lambda: newer.load("other"))

    assert (wait.kind, wait.checkpoint, wait.in_s) == (WaitKind.SLEEP, None, 30.0)
    assert wait.why is not None and wait.why.startswith("E425 checkpoint 'page' is of version 3")
    assert Ctx(Checkpoint("page", 1, 7), version=2).load("page") == 7


def test_a_wait_is_sent_without_what_is_not_set():
    until = datetime(2026, 1, 1, 12, tzinfo=UTC)

    assert Wait(WaitKind.SLEEP, checkpoint="sleep 1", in_s=0.0).as_json() == {
        "kind": "sleep",
        "checkpoint": "sleep 1",
        "in_s": 0.0,
    }
    assert Wait(WaitKind.SIGNAL, "a", "signal a 1", until=until).as_json() == {
        "kind": "signal",
        "name": "a",
        "checkpoint": "signal a 1",
        "until": "2026-01-01T12:00:00+00:00",
    }


def test_a_suspension_is_found_in_groups_but_a_failure_beside_it_comes_first():
    one = Suspended(Wait(WaitKind.SLEEP, checkpoint="sleep 1", in_s=1.0))
    nested = BaseExceptionGroup("outer", [BaseExceptionGroup("inner", [one]), one])

    assert suspension_of(one) is suspension_of(nested) is one
    assert suspension_of(BaseExceptionGroup("both", [one, ValueError()])) is None
    assert suspension_of(ValueError()) is None


def test_a_handler_that_catches_its_suspension_has_failed_for_good():
    ctx = Ctx()
    with pytest.raises(Suspended):
        ctx.sleep(1)
    with pytest.raises(RunError) as raised:
        ctx._refuse_swallowed()

    assert str(raised.value) == (
        "E426 the handler caught what ends it while it waits for sleep 1;"
        " catch Exception, not BaseException"
    )
    assert not failure_of(raised.value).retry


@pytest.mark.parametrize(
    ("hours", "sent"),
    [(23, "2026-12-31T01:00:00+00:00"), (-23, "2027-01-01T23:00:00+00:00")],
)
def test_a_moment_is_sent_in_utc_since_postgresql_refuses_some_offsets(hours: int, sent: str):
    until = datetime(2027, 1, 1, tzinfo=timezone(timedelta(hours=hours)))

    assert Wait(WaitKind.SLEEP, until=until).as_json()["until"] == sent


def test_a_moment_before_the_first_year_is_over_like_any_other():
    until = datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))

    assert Wait(WaitKind.SLEEP, until=until).as_json()["until"] == "0001-01-01T00:00:00+00:00"
