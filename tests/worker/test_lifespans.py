"""Lifespans: entered once for each runner, left at its end, and no task's fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.covers import covers
from support.worker import PROFILE_T, is_gone

from pgflowd.core.messages import Drain, Heartbeat
from pgflowd.testing.until import until

HEAD = """
    import asyncio, os, pathlib, threading, time
    from pgflowd import Context, Flow

    flow = Flow("flow", max_attempts=1, timeout=20)
    NOTES = pathlib.Path({notes!r})

    def note(word):
        with open(NOTES, "a") as notes: notes.write(f"{{word}} {{os.getpid()}}\\n")
"""
SYNC = """
    @flow.lifespan
    def resources():
        note("entered")
        yield {"pid": os.getpid(), "tasks": []}
        note("left")

    @flow.map
    def work(item, ctx):
        ctx.resources["tasks"].append(item)
        return [os.getpid(), ctx.resources["pid"], len(ctx.resources["tasks"])]
"""
ASYNC = """
    @flow.lifespan
    async def resources():
        async with asyncio.TaskGroup() as group:  # left by the task that entered it
            beat = group.create_task(asyncio.sleep(3600))
            note("entered")
            yield asyncio.get_running_loop()
            beat.cancel()
            note("left")

    @flow.map
    async def work(item, ctx):
        if item == 7: asyncio.get_running_loop().create_task(asyncio.sleep(3600))
        if item % 5 == 0: await asyncio.to_thread(time.sleep, 0.01)
        await asyncio.sleep(0)
        return [os.getpid(), ctx.resources is asyncio.get_running_loop(), item]
"""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def module(notes: Path, body: str) -> str:
    return HEAD.format(notes=str(notes)) + body


def said(notes: Path) -> list[tuple[str, int]]:
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [(word, int(pid)) for word, pid in map(str.split, lines)]


@covers("friction 3")
def test_each_runner_enters_once_and_leaves_at_its_end(start_worker, notes):
    worker = start_worker(module(notes, SYNC), max_concurrency=2, max_tasks_per_runner=5)

    found = worker.output(worker.start_run(list(range(20))))["work"]

    runners = {pid for pid, _, _ in found}
    assert all(pid == of_lifespan for pid, of_lifespan, _ in found)
    assert max(count for _, _, count in found) == 5
    worker.send(Drain(10))
    until(lambda: worker.child.has_ended())
    words = said(notes)
    assert {pid for word, pid in words if word == "entered"} >= runners
    assert sorted(pid for word, pid in words if word == "entered") == sorted(
        pid for word, pid in words if word == "left"
    )
    assert len({pid for _, pid in words}) * 2 == len(words)


@pytest.mark.parametrize("keys", [{"isolation": "task"}, {}, {"tasks_per_runner": 8}])
def test_async_handlers_run_in_the_loop_of_an_async_lifespan(start_worker, notes, keys):
    worker = start_worker(module(notes, ASYNC), max_concurrency=4, **keys)

    found = worker.output(worker.start_run(list(range(20))))["work"]

    assert [each[1:] for each in found] == [[True, item] for item in range(20)]
    of_isolation = len({pid for pid, _, _ in found}) == 20
    assert of_isolation is (keys.get("isolation") == "task")
    worker.send(Drain(10))
    until(lambda: worker.child.has_ended())
    words = said(notes)
    assert [word for word, _ in words].count("entered") == len({pid for _, pid in words})
    assert [word for word, _ in words].count("left") == len({pid for _, pid in words})


def test_a_killed_runner_leaves_nothing(start_worker, notes):
    body = (
        SYNC
        + """
        if item == "die": os.kill(os.getpid(), 9)
    """
    )
    body = SYNC.replace(
        "        ctx.resources[",
        "        if item < 0: os.kill(os.getpid(), 9)\n        ctx.resources[",
        1,
    )
    worker = start_worker(module(notes, body), max_concurrency=1)

    assert worker.failed(worker.start_run([-1]))

    assert [word for word, _ in said(notes)] == ["entered"]


@covers("E433", "friction 3")
@pytest.mark.parametrize(
    ("fails", "why"),
    [
        ("raise ConnectionError('no vault')", "ConnectionError: no vault"),
        ("return", "RuntimeError: it ended without a yield"),
        ("os._exit(3)", "it ended its process before it had yielded"),
    ],
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_lifespan_that_fails_spends_no_attempt_and_heals(start_worker, notes, kind, fails, why):
    body = f"""
    @flow.lifespan
    {kind} vault():
        note("tried")
        if not NOTES.with_name("open").exists():
            {fails}
        yield "key"

    @flow.step
    def work(run, ctx):
        return [ctx.attempt, ctx.resources]
"""
    worker = start_worker(module(notes, body), backoff_min_s=0.02, backoff_max_s=0.2)
    run = worker.start_run({})

    def told() -> list[dict]:
        beats = [each for each in worker.all_received if isinstance(each, Heartbeat)]
        found = [each.numbers["problems"] for each in beats if "problems" in each.numbers]
        return found[-1] if worker.receive() is not None and found else []

    until(lambda: len(said(notes)) >= 4)
    until(lambda: [each["code"] for each in told()] == ["E433"], 15)
    [problem] = told()
    assert problem["text"] == f"the lifespan vault failed: {why}"
    records = [each for each in worker.records("worker.error") if each["code"] == "E433"]
    assert records[0]["error"] == f"E433 the lifespan vault failed: {why}"
    if "raise" in fails:
        assert 'raise ConnectionError("no vault")' in records[0]["traceback"].replace("'", '"')
    assert [each["wait_s"] for each in records[:3]] == [0.02, 0.04, 0.08]
    notes.with_name("open").touch()

    assert worker.output(run, 10) == {"work": [1, "key"]}
    assert set(worker.outcomes(run)[:-1]) == {"released"}
    until(lambda: told() == [], 15)
    assert worker.records("worker.recovered")


def test_a_lifespan_that_hangs_is_killed(start_worker, notes):
    body = """
    @flow.lifespan
    def slow():
        note("tried")
        while not NOTES.with_name("open").exists(): time.sleep(0.01)
        yield 1

    @flow.step
    def work(run, ctx): return ctx.attempt
"""
    supervisor = replace(PROFILE_T.supervisor, start_timeout_s=0.5)
    settings = replace(PROFILE_T, supervisor=supervisor)
    worker = start_worker(
        module(notes, body), settings=settings, backoff_min_s=0.01, backoff_max_s=0.1
    )
    run = worker.start_run({})

    until(lambda: len(said(notes)) >= 2)
    [first, *_] = said(notes)
    until(lambda: is_gone(first[1]))
    assert any(
        "it did not yield within 0.5 s" in each["error"] for each in worker.records("worker.error")
    )
    notes.with_name("open").touch()

    assert worker.output(run, 10) == {"work": 1}


def test_what_fails_at_the_end_is_printed_and_hurts_no_task(start_worker, notes):
    body = """
    @flow.lifespan
    def resources():
        yield 1
        raise ValueError("as it ends")

    @flow.step
    def work(run, ctx): return ctx.resources
"""
    worker = start_worker(module(notes, body), max_tasks_per_runner=1)

    assert worker.output(worker.start_run({})) == {"work": 1}

    def printed() -> str:
        return " ".join(each["text"] for each in worker.records("task.output"))

    until(lambda: "E433 the lifespan resources failed at its end" in printed())
    until(lambda: "ValueError: as it ends" in printed())


def test_a_lifespan_that_does_not_end_is_killed(start_worker, notes):
    body = """
    @flow.lifespan
    def resources():
        note("entered")
        yield 1
        time.sleep(3600)

    @flow.step
    def work(run, ctx): return ctx.resources
"""
    worker = start_worker(module(notes, body), max_tasks_per_runner=1, kill_grace_s=0.1)

    assert worker.output(worker.start_run({})) == {"work": 1}

    [(_, pid)] = said(notes)
    until(lambda: is_gone(pid), 10)


def test_a_lifespan_begins_after_the_connections_of_the_parent_are_left_to_it(start_worker):
    """As `pgflowd.django` does: or runners would share them in it, and forget those made in it."""
    worker = start_worker(
        """
        from pgflowd import Flow
        from pgflowd.core import context

        flow = Flow("flow", max_attempts=1)
        order = []
        context.after_fork.append(lambda: order.append("forked"))

        @flow.lifespan
        def resources():
            order.append("entered")
            yield order

        @flow.step
        def work(run, ctx):
            return ctx.resources
        """
    )

    assert worker.output(worker.start_run({})) == {"work": ["forked", "entered"]}
