"""The undo of runs on the command line: ask for it, follow it, see what it did."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.leases import LeaseDatabase
from support.undo import UndoWorld, steps_of

from pgflowd import Client
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import short_id
from pgflowd.testing.until import until


@pytest.fixture
def world(database) -> Iterator[UndoWorld]:
    """A step, a map over it, and one more, of which the map and the first have an undo."""
    db = LeaseDatabase(database.dsn, "all")
    yield UndoWorld(db, steps_of("a", "m*:a", "c!:m"))
    db.close()


def without_times(text: str) -> str:
    return re.sub(r"\d+(\.\d+)?m?s\b|\w{8}(?=  |, |$| --)", "T", text, flags=re.MULTILINE)


def test_an_undo_that_fails_is_followed_shown_and_tried_again(here, world):
    world.failing.add(("m", 1))
    run = world.failed_run()
    assert here("runs", "undo", str(run), "--again").code == 6

    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(here, "runs", "undo", str(run), "--reason", "withdrawn", "--follow")
        until(lambda: world.status(run) == "undoing")
        world.finish()
        ended = followed.result(30)

    assert ended.code == 1
    lines = [re.sub(r"\d+(\.\d+)?m?s", "T", line) for line in ended.out.splitlines()]
    short = short_id(run)
    assert [line.strip() for line in lines] == [
        f"run {short}  {world.flow}  undoing: 4 tasks",
        "T  m#1         ✖ T   attempt 1 of 1: no such payment",
        "T  m           ✖ undo failed   1 of 3: no such payment",
        "T  a           ✔ undone",
        f"run {short}  ✖ undo failed after T   m: 1 of 3: no such payment",
    ]
    assert f"`pgflowd runs undo {short} --again` undoes what is left" in ended.err

    shown = here("runs", "show", str(run)).out
    assert re.search(r"✖ undo failed, completed after", shown)
    assert re.search(
        r"undo  3 of 4 undone in .*, by run \w{8}; asked for .* by .*: withdrawn", shown
    )
    assert " not undone  m: no such payment\n" in shown
    assert "3 tasks  2 of 3 undone, 1 failed" in shown
    document = here("runs", "show", str(run), "--json").json
    assert {step["step"]: step["undo"] for step in document["steps"]} == {
        "a": {"tasks": 1, "undone": 1, "failed": 0, "open": 0, "error": None},
        "m": {"tasks": 3, "undone": 2, "failed": 1, "open": 0, "error": "no such payment"},
        "c": None,
    }
    assert document["undo_reason"] == "withdrawn"

    world.failing.clear()
    again = here("runs", "undo", str(run), "--again")
    assert (again.code, again.out) == (0, f"run {run} is being undone\n")
    world.finish()
    events = [
        json.loads(line) for line in here("runs", "follow", str(run), "--json").out.splitlines()
    ]
    assert [event for each in events if not (event := each["event"]).startswith("step:")][-4:] == [
        "run:completed", "run:undoing", "undo:undone", "run:undone",
    ]  # fmt: skip
    assert {each["run_id"] for each in events} == {str(run)}
    nothing = here("runs", "undo", str(run), "--again").err
    assert "it is undone; there is nothing left to undo" in nothing
    assert "has ended already: it is undone" in here("runs", "cancel", str(run)).err


def test_a_cancel_may_undo_and_lists_have_undos_with_v_only(here, world):
    run = world.db.start(world.flow)
    world.db.complete(world.db.claim_one(world.flow, world.worker), [])
    assert here("runs", "cancel", str(run), "--undo").code == 0
    world.finish()
    assert "undo of" not in here("runs", "list").out
    listed = here("runs", "list", "-v").out
    assert re.search(rf"undo of {short_id(run)} +✔ completed", listed)
    assert re.search(rf"{run} +{world.flow} +✔ undone", listed)
    assert json.loads(here("runs", "show", "@last", "--json").out)["run_id"] == str(run)
    undo = here("runs", "show", str(world.undo_run(run).run_id)).out
    assert f" undoes  run {short_id(run)}\n" in undo
    retried = here("runs", "retry", str(run), "--even-if-cancelled")
    assert (retried.code, "E420" in retried.err) == (6, True)


def test_what_cannot_be_undone_is_told_with_what_to_do(here, world):
    run = world.db.start(world.flow)
    assert "`pgflowd runs cancel RUN --undo`" in here("runs", "undo", str(run)).err
    plain = world.db.start(world.db.flow())
    refused = here("runs", "cancel", str(plain), "--undo")
    assert (refused.code, "no step of flow" in refused.err) == (6, True)
    assert world.status(plain) == "started"


def test_a_client_waits_until_the_undo_has_ended(world):
    run = world.failed_run()
    with Client(world.db.dsn) as client, ThreadPoolExecutor(1) as pool:
        assert client.undo(run, reason="withdrawn").status is RunStatus.UNDOING
        waiting = pool.submit(client.wait, run, timeout=30)
        world.finish()
        assert waiting.result(30).status is RunStatus.UNDONE
        assert client.get_run(run).undo_reason == "withdrawn"
