"""
What a handler returns though it was asked to end is kept: a run that has ended is undone by it.

Each handler here waits until it has got SIGTERM, or until a sibling has, and returns only then.
"""

from __future__ import annotations

import pytest
from support.covers import covers
from support.worker import in_handler

from pgflowd.core.messages import Drain, QuickStop
from pgflowd.testing.until import until

MAP = """
    import asyncio, os, pathlib, signal, subprocess, sys, time
    from support.oracle import note
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=1, base_delay=0, timeout={timeout})
    place = pathlib.Path({place!r})

    @flow.map
    {kind} work(item, ctx):
        (place / f"begun {{ctx.task_index}}").touch()
        {body}

    def asked(ctx):
        while not ctx.cancelled.is_set():
            time.sleep(0.005)

    def go():
        while not (place / "go").exists():
            time.sleep(0.005)

    @flow.undo(work)
    def unwork(work):
        pass
"""
RETURNS = "asked(ctx); return {'paid': item}"


@pytest.fixture
def start(start_worker, tmp_path):
    """Start a worker of a map whose elements do this, and a run of so many; wait until all run."""

    def start(body: str, elements: int = 1, *, timeout: int = 60, kind: str = "def", **keys):
        module = MAP.format(body=in_handler(body), kind=kind, place=str(tmp_path), timeout=timeout)
        worker = start_worker(module, **{"kill_grace_s": 20.0, **keys})
        run = worker.start_run(list(range(elements)))
        until(lambda: len(list(tmp_path.glob("begun *"))) == elements, 20)
        return worker, run

    return start


def cancel(worker, run) -> None:
    worker.do("select pgflowd.cancel(%s, 'enough', 'me')", run)


def kept(worker, run) -> list[tuple[str, object]]:
    """Outcome and output of each attempt, by element, once all have ended."""
    query = """
        select outcome, output from pgflowd.attempts where run_id = %s order by task_index, token
    """
    until(lambda: None not in worker.outcomes(run), 30)
    return [(row.outcome, row.output) for row in worker.rows(query, run)]


def late(element: int) -> tuple[str, object]:
    return "late", {"paid": element}


@covers("rule 37", "G22", "promise 1")
def test_a_handler_that_returns_after_its_run_was_cancelled_has_done_its_work(start):
    worker, run = start(RETURNS, 3)

    cancel(worker, run)

    assert kept(worker, run) == [late(0), late(1), late(2)]
    assert [each.error_message for each in worker.attempts(run)] == [None] * 3


@covers("G22")
def test_a_handler_that_ignores_sigterm_may_return_too(start, tmp_path):
    body = """
        if item == 0:
            signal.signal(signal.SIGTERM, lambda *_: (place / "termed").touch())
        else:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (place / f"ready {item}").touch()
        go()
        return {"paid": item}
    """
    worker, run = start(body, 2)
    until(lambda: len(list(tmp_path.glob("ready *"))) == 2)

    cancel(worker, run)
    until(lambda: (tmp_path / "termed").exists(), 20)
    (tmp_path / "go").touch()

    assert kept(worker, run) == [late(0), late(1)]


@covers("G22")
def test_one_that_was_really_killed_is_late_without_an_output(start):
    body = """
        if item == 0:
            asked(ctx)
            return {"paid": item}
        while True:
            time.sleep(1)
    """
    worker, run = start(body, 2, kill_grace_s=1.0)

    cancel(worker, run)

    assert kept(worker, run) == [late(0), ("late", None)]
    query = "select error_message, exit_signal from pgflowd.attempts where output is null"
    ((text, number),) = worker.rows(query)
    assert text.startswith("killed, since its run or step had ended") and number == 9


@covers("G22", "promise 1")
def test_an_async_handler_may_return_though_it_is_cancelled(start):
    body = """
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            if item:
                raise
        return {"paid": item}
    """
    worker, run = start(body, 2, kind="async def")

    cancel(worker, run)

    assert kept(worker, run) == [late(0), ("late", None)]


@covers("rule 59", "G22")
def test_of_tasks_that_share_a_runner_only_those_of_the_run_are_asked(start, tmp_path):
    body = """
        try:
            while not (place / "go").exists():
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            if item == 2:
                raise
            return {"paid": item, "large": "x" * 400_000 * item}
        return "in peace"
    """
    shared = {"max_concurrency": 200, "tasks_per_runner": 200}
    worker, run = start(body, 3, kind="async def", **shared)
    other = worker.start_run([3, 4])
    until(lambda: worker.title().endswith("5/200"), 20)

    cancel(worker, run)

    assert kept(worker, run) == [
        ("late", {"paid": 0, "large": ""}),
        ("late", {"paid": 1, "large": "x" * 400_000}),
        ("late", None),
    ]
    (tmp_path / "go").touch()
    assert worker.output(other, 20) == {"work": ["in peace"] * 2}


@covers("G22")
def test_a_result_of_any_size_may_be_late(start):
    worker, run = start("asked(ctx); return {'paid': item, 'large': 'x' * 700_000}", 2)

    cancel(worker, run)

    assert kept(worker, run) == [
        ("late", {"paid": item, "large": "x" * 700_000}) for item in range(2)
    ]


@covers("G22")
def test_sigterm_ends_no_runner_between_the_end_of_its_handler_and_its_result(start, tmp_path):
    body = """
        from pgflowd.core import context
        def flush():
            (place / "returned").touch()
            go()
        child = "trap 'touch %s; exit' TERM; while :; do sleep 0.01; done" % (place / "termed")
        subprocess.Popen(["sh", "-c", child])  # it gets what its process group gets
        context.around_tasks.append(flush)
        return {"paid": item}
    """
    worker, run = start(body)
    until(lambda: (tmp_path / "returned").exists())

    cancel(worker, run)
    until(lambda: (tmp_path / "termed").exists(), 20)
    (tmp_path / "go").touch()

    assert kept(worker, run) == [late(0)]


@covers("G22", "rule 33")
def test_a_drain_waits_for_what_a_cancelled_run_still_returns(start):
    worker, run = start(RETURNS, 2)
    worker.send(Drain(30))

    cancel(worker, run)

    assert worker.ended(40) == 0
    assert kept(worker, run) == [late(0), late(1)]


@covers("G22", "rule 32")
@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_quick_stop_keeps_what_handlers_return_within_the_grace(start, is_cancelled):
    worker, run = start(RETURNS, 2)
    if is_cancelled:
        cancel(worker, run)
    worker.send(QuickStop())

    assert worker.ended(40) == 0

    outcome = "late" if is_cancelled else "released"
    assert kept(worker, run) == [(outcome, {"paid": 0}), (outcome, {"paid": 1})]
    if not is_cancelled:  # it would run again, but for the cancel
        assert worker.value("select count(*) from pgflow.step_tasks where status = 'queued'") == 2
        worker.do("select pgflowd.cancel(%s, 'enough', 'me', true)", run)
    else:
        worker.do("select pgflowd.undo(%s)", run)
    assert plan(worker, run) == {"work": [0, 1]}


def plan(worker, run) -> object:
    return worker.value("select pgflowd._undo_plan(%s, 'flow', 1)", run)


@covers("G22", "G5")
def test_a_timeout_stays_one_but_what_its_handler_returns_is_kept(start):
    worker, run = start(RETURNS, 1, timeout=1)

    assert worker.failed(run, 20)
    assert kept(worker, run) == [("timed_out", {"paid": 0})]
    assert plan(worker, run) == {"work": [0]}


@covers("G22")
def test_the_siblings_of_an_element_that_has_failed_are_undone(start, tmp_path):
    body = """
        if item == 1:
            go()
            raise RuntimeError("sold out")
        if item == 2:
            while True:
                time.sleep(1)
        asked(ctx)
        return {"paid": item}
    """
    worker, run = start(body, 4, kill_grace_s=1.0)

    (tmp_path / "go").touch()

    assert kept(worker, run) == [late(0), ("failed", None), ("late", None), late(3)]
    assert plan(worker, run) == {"work": [0, 3]}


@covers("G22")
def test_what_a_run_that_expires_still_returns_is_kept(start):
    worker, run = start(RETURNS)
    worker.do("""
        insert into pgflowd.runs (run_id, flow_slug, expires_at, due_at)
        values (%s, 'flow', now(), now())
    """, run)  # fmt: skip

    worker.rows("select * from pgflowd.process_due()")

    assert kept(worker, run) == [late(0)]
