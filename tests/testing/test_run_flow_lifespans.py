"""`run_flow` and drains enter a flow's lifespan, as a runner does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from pgflowd import Context, Flow
from pgflowd.testing import run_flow
from pgflowd.testing.drain import drain
from pgflowd.testing.scratch import ScratchDatabase

seen: list[Any] = []


def sync_flow() -> Flow:
    flow = Flow("sync_resources")

    @flow.lifespan
    def resources() -> Iterator[str]:
        seen.append("entered")
        yield "client"
        seen.append("left")

    @flow.step
    def one(ctx: Context) -> Any:
        return ctx.resources

    @flow.step
    async def two(one: str, ctx: Context) -> Any:
        return [one, ctx.resources]

    return flow


def async_flow() -> Flow:
    flow = Flow("async_resources")

    @flow.lifespan
    async def resources() -> AsyncIterator[asyncio.AbstractEventLoop]:
        async with asyncio.TaskGroup() as group:
            beat = group.create_task(asyncio.sleep(3600))
            seen.append("entered")
            yield asyncio.get_running_loop()
            beat.cancel()
            seen.append("left")

    @flow.step
    async def one(ctx: Context) -> bool:
        return ctx.resources is asyncio.get_running_loop()

    @flow.step
    async def two(one: bool, ctx: Context) -> list[bool]:
        await asyncio.to_thread(int)
        return [one, ctx.resources is asyncio.get_running_loop()]

    return flow


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def test_a_lifespan_surrounds_the_run() -> None:
    run = run_flow(sync_flow())

    assert run.output == {"two": ["client", "client"]}
    assert seen == ["entered", "left"]


def test_an_async_lifespan_has_the_loop_of_the_handlers() -> None:
    assert run_flow(async_flow()).output == {"two": [True, True]}
    assert seen == ["entered", "left"]


def test_an_async_lifespan_in_a_test_with_a_loop() -> None:
    async def test() -> Any:
        return run_flow(async_flow()).output

    assert asyncio.run(test()) == {"two": [True, True]}
    assert seen == ["entered", "left"]


def test_undo_handlers_have_one_of_their_own() -> None:
    flow = sync_flow()

    @flow.undo("one")
    def take_back(ctx: Context) -> None:
        seen.append(ctx.resources)

    run = run_flow(flow, fail={"two": ValueError})

    assert run.status == "undone"
    assert seen == ["entered", "left", "entered", "client", "left"]


def test_what_a_lifespan_raises_is_raised() -> None:
    flow = sync_flow()

    @flow.lifespan
    def broken() -> Iterator[int]:
        raise ConnectionError("no vault")
        yield 1

    with pytest.raises(Exception, match="second one"):
        run_flow(flow)
    flow._misuses.clear()
    with pytest.raises(ConnectionError, match="no vault"):
        run_flow(flow)


def test_a_drain_enters_it(database: ScratchDatabase) -> None:
    for flow, output in ((sync_flow(), ["client", "client"]), (async_flow(), [True, True])):
        with database.connect() as conn:
            conn.execute("select 1")
        drain(database.dsn, flow)
        with database.connect() as conn:
            conn.execute("select pgflow.start_flow(%s, '{}')", (flow.slug,))
        [run] = drain(database.dsn, flow)
        assert run.output == {"two": output}
    assert seen == ["entered", "left"] * 4


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("def life(): return 1", "is not a generator function"),
        ("class Life: pass\nlife = Life()", "is not a generator function"),
        ("async def life(): return 1", "is not a generator function"),
        ("def life(ctx):\n    yield 1", "has the parameter ctx"),
        (
            "import contextlib\n@contextlib.contextmanager\ndef life():\n    yield 1",
            "is not a generator function",
        ),
    ],
)
def test_what_is_no_lifespan_is_told_by_check(code: str, text: str) -> None:
    space: dict[str, Any] = {}
    exec(code, space)
    flow = Flow("flow")
    flow.step(slug="one")(lambda run: 1)
    flow.lifespan(space["life"])

    [problem] = flow.check()

    assert problem.code == "E209"
    assert text in problem.text and problem.next
