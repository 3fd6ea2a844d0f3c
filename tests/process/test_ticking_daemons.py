"""Schedules in daemons: one run for each tick, whoever dies, and as the last definition says."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

from support.covers import covers
from support.daemon import terminate_all

from pgflowd import Schedule
from pgflowd.testing.until import until

FLOW = """
from pgflowd import Flow, Schedule
flow = Flow("beat", max_attempts=1, timeout=60, schedules=[
    Schedule("@every 1s", input={"n": 1}, overlap="allow"),
    Schedule("@yearly", name="rare"),
])

@flow.step
def work(run, ctx):
    return [ctx.labels["schedule"], ctx.scheduled_for.isoformat(), run]
"""
OUTPUTS = "select output -> 'work' from pgflow.runs where status = 'completed' order by started_at"
TICKS = """
    select count(*), count(distinct labels ->> 'scheduled_for'),
           extract(epoch from max(start_at) - min(start_at))::int + 1
      from pgflowd.runs where labels ->> 'schedule' = 'beat'
"""


def rows(database: Any, query: str) -> Any:
    return database.connect().execute(query).fetchall()


def test_a_handler_sees_the_tick_of_its_run(setup: Any, database: Any) -> None:
    setup.module("flow_beat", FLOW)
    daemon = setup.serve()

    until(lambda: len(rows(database, OUTPUTS)) >= 2, 20)

    (name, tick, input_), *_ = [row[0] for row in rows(database, OUTPUTS)]
    assert (name, input_) == ("beat", {"n": 1})
    assert tick.endswith("+00:00")
    database.client.pause_schedule("beat")
    ((count, different, span),) = rows(database, TICKS)
    assert count == different == span
    until(lambda: counted(daemon, "started") == count, 15)


def counted(daemon: Any, result: str) -> int:
    """The metric of the schedule's ticks."""
    text = daemon.command("status", "--metrics").stdout
    line = f'pgflowd_schedule_ticks_total{{schedule="beat",result="{result}"}} '
    return int((re.findall(f"^{re.escape(line)}(.+)$", text, re.MULTILINE) or ["0"])[0])


@covers("G24")
def test_each_tick_has_one_run_although_sweepers_die(setup: Any, database: Any) -> None:
    setup.module("flow_beat", FLOW)
    daemons = [setup.serve(name) for name in ("one", "two")]

    for turn in range(6):
        ((before, *_),) = rows(database, TICKS)
        daemons[turn % 2].kill("sweeper", signal.SIGKILL)
        until(lambda n=before: rows(database, TICKS)[0][0] > n, 20)
    terminate_all(database, "%: sweeper")
    ((before, *_),) = rows(database, TICKS)
    until(lambda: rows(database, TICKS)[0][0] > before + 1, 20)

    database.client.pause_schedule("beat")
    ((count, different, span),) = rows(database, TICKS)
    assert count == different == span
    for daemon in daemons:
        assert not [each for each in daemon.ask()["problems"] if each["code"] == "E327"]


@covers("E327")
def test_a_schedule_that_starts_no_run_is_a_problem_of_the_sweeper(
    setup: Any, database: Any
) -> None:
    setup.module("flow_beat", FLOW.replace("@flow.step", "@flow.map").replace("run", "item"))
    daemon = setup.serve()

    daemon.until("sweeper.problem", code="E327")
    (problem,) = [each for each in daemon.ask()["problems"] if each["code"] == "E327"]
    assert "beat" in problem["text"] and "is not an array" in problem["text"]

    until(lambda: counted(daemon, "failed"), 15)
    database.client.pause_schedule("beat")
    until(lambda: not [e for e in daemon.ask()["problems"] if e["code"] == "E327"], 15)


def test_a_schedule_that_cannot_be_read_disturbs_no_other(setup: Any, database: Any) -> None:
    setup.module("flow_beat", FLOW)
    daemon = setup.serve()
    until(lambda: rows(database, TICKS)[0][0], 20)
    database.connect().execute(
        "select pgflowd.set_schedule('bad', 'beat', 'never', overlap => 'allow')"
    )

    daemon.until("sweeper.problem", code="E327")

    ((before, *_),) = rows(database, TICKS)
    until(lambda: rows(database, TICKS)[0][0] > before + 1, 20)
    bad, _, _ = sorted(database.client.schedules("beat"), key=lambda each: each.name != "bad")
    assert "must have five fields" in bad.error
    database.client.remove_schedule("bad")
    database.client.pause_schedule("beat")


def test_the_last_definition_of_a_flow_rules(setup: Any, database: Any) -> None:
    setup.module("flow_beat", FLOW)
    first = setup.serve("first")
    until(lambda: rows(database, TICKS)[0][0], 20)
    setup.module("flow_beat", FLOW.replace("@every 1s", "@every 2s"))
    setup.serve("second")

    until(
        lambda: (
            {each.cron for each in database.client.schedules("beat")} == {"@every 2s", "@yearly"}
        ),
        9,
    )
    ((before, *_),) = rows(database, TICKS)
    until(lambda: rows(database, TICKS)[0][0] > before + 1, 20)

    database.client.pause_schedule("beat")
    ((count, different, _),) = rows(database, TICKS)
    assert count == different
    os.kill(first.pid, signal.SIGTERM)


def test_an_operator_adds_and_a_client_fires(setup: Any, database: Any) -> None:
    setup.module("flow_beat", FLOW)
    setup.serve()
    client = database.client
    until(lambda: client.schedules("beat"), 20)
    assert client.pause_schedule("beat")
    assert not client.pause_schedule("beat")

    assert client.add_schedule("mine", "beat", Schedule("@yearly", {"n": 2}))
    assert not client.add_schedule("mine", "beat", Schedule("@yearly", {"n": 2}))
    fired = client.fire_schedule("mine", actor="jane")

    assert client.wait(fired.run_id, timeout=20).output["work"][2] == {"n": 2}
    (mine,) = [each for each in client.schedules() if each.name == "mine"]
    assert (mine.last_run_id, mine.last_status) == (fired.run_id, "completed")
    client.remove_schedule("mine")
    assert client.resume_schedule("beat")
