"""A handler that remembers and waits sees the same in a daemon as in `run_flow`."""

from __future__ import annotations

from typing import Any

from pgflowd.core.waiting import RESERVED_PREFIXES
from pgflowd.testing import run_flow
from pgflowd.testing.until import until

FLOW = """
import asyncio
from datetime import UTC, datetime, timedelta
from pgflowd import Flow, RunError
flow = Flow("same", base_delay=0)
BAD = [
    lambda ctx: ctx.sleep(-1),
    lambda ctx: ctx.sleep("300 years"),
    lambda ctx: ctx.sleep(timedelta(days=365 * 300)),
    lambda ctx: ctx.sleep(until=datetime(2030, 1, 1)),
    lambda ctx: ctx.sleep(1, name="7"),
    lambda ctx: ctx.wait_signal("a", timeout=float("nan")),
    lambda ctx: ctx.wait_signal("x" * 201),
    lambda ctx: ctx.save("sleep 1", 1),
    lambda ctx: ctx.save("", 1),
    lambda ctx: ctx.save("page", {1}),
    lambda ctx: ctx.save("page", "x" * (1 << 20)),
    lambda ctx: ctx.memo("page", lambda: 1, unknown=2),
]

def told(ctx, call):
    try:
        call(ctx)
    except (RunError, TypeError) as error:
        code = getattr(error, "code", "")
        return code if code == "E424" else str(error)

@flow.step(version=2)
def sync(ctx):
    seen = [ctx.memo("pair", lambda: (1, {"b": 1e22, "a": None}))]
    ctx.save("old", 1)
    ctx.sleep(0.01)
    ctx.sleep(until=datetime.now(UTC), name="noon")
    seen += [ctx.wait_signal("a"), ctx.wait_signal("b"), ctx.wait_signal("a")]
    seen += [ctx.wait_signal("c", timeout=0.01, default="none")]
    seen += [told(ctx, call) for call in BAD]
    if ctx.attempt == 1:
        ctx.save("page", {"n": 1})
        ctx.drop("old")
        raise ValueError
    return [seen, ctx.load("page"), ctx.load("gone", "nothing"), ctx.attempt]

@flow.step(after="sync")
async def shared(ctx):
    async def once():
        return "once"
    first = await ctx.memo("once", once)
    async with asyncio.TaskGroup() as group:
        group.create_task(nap(ctx))
    return [first, ctx.wait_signal("a"), ctx.attempt]

async def nap(ctx):
    ctx.sleep("10ms")

@flow.step(after="shared", when_exhausted="skip")
def late(ctx):
    ctx.wait_signal("never", timeout=0)

@flow.step(after="late", when_exhausted="skip")
def catches(ctx):
    try:
        ctx.sleep(1)
    except BaseException:
        pass
"""
SIGNALS: dict[str, Any] = {"a": [1, {"n": 2}, None], "b": "b"}
STEPS = """
select step_slug, jsonb_build_array(status, output, error_message, (
         select count(*) from pgflowd.attempts as attempt
          where attempt.run_id = state.run_id and attempt.step_slug = state.step_slug
            and attempt.outcome <> 'suspended'))
  from pgflow.step_states as state where run_id = %s
"""
SAVED = "select step_slug, name, version, data from pgflowd.checkpoints where run_id = %s"
WAITS = {
    *("sleep 1", "sleep noon", "signal a 1", "signal a 2", "signal b 1", "signal c 1"),
    "signal never 1",
}


def test_a_handler_sees_the_same_in_a_daemon_as_in_run_flow(setup, database):
    setup.module("same_flow", FLOW)
    setup.serve()
    run = database.client.start_flow("same", {}).run_id
    for name, payloads in SIGNALS.items():
        for payload in payloads:
            database.client.signal(run, name, payload)
    module: dict[str, Any] = {"__name__": "same_flow"}
    exec(FLOW, module)

    tested = run_flow(module["flow"], {}, signals=SIGNALS)

    until(lambda: database.client.get_run(run).has_ended, within_s=30)
    conn = database.connect()
    steps = dict(conn.execute(STEPS, (run,)).fetchall())
    assert steps == {
        slug: [step.status, step.output, step.error, step.attempts]
        for slug, step in tested.steps.items()
    }
    assert [steps[slug][0] for slug in ("sync", "shared", "late")] == [
        "completed", "completed", "skipped",
    ]  # fmt: skip
    saved = conn.execute(SAVED, (run,)).fetchall()
    assert {name for _, name, _, _ in saved if name.startswith(RESERVED_PREFIXES)} == WAITS
    own = [row for row in saved if not row[1].startswith(RESERVED_PREFIXES)]
    for slug, step in tested.steps.items():
        assert step.saved == {name: data for place, name, _, data in own if place == slug}
    assert {version for slug, _, version, _ in own if slug == "sync"} == {2}
