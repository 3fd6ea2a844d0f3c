"""
Random pairs of shapes, on daemons of old and of new code, with runs open at each step.

Each run ends with the steps and outputs of its own version; a worker is parked exactly where its
code lacks a handler.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

from support import changing_flows
from support.changing_flows import TROUBLES, changing

from pgflowd.core.definition.shape import facts_of, unserved_steps
from pgflowd.db import flows
from pgflowd.testing.until import until

PAIRS = 3
MODULE = """
from support.changing_flows import changing

def execute(ctx, got):
    if ctx.flow_input()["stop"] == ctx.step_slug and not ctx.task_index:
        ctx.wait_signal("go")
    return got

{}
"""
LINE = "{name} = changing('{name}', {number}, execute, keeps_all={keeps_all})"


def pairs_of(chance: random.Random) -> dict[str, list[dict[str, Any]]]:
    """By name the flow of the old and of the new code, whose shapes differ."""
    found: dict[str, list[dict[str, Any]]] = {}
    while len(found) < PAIRS:
        name, seen = f"f{len(found)}", list[Any]()
        while len(seen) < 2:
            number, keeps_all = chance.randrange(10**6), chance.random() < 0.5
            flow = changing(name, number, lambda ctx, got: got, keeps_all=keeps_all)
            if not seen or seen[0]["flow"].shape() != flow.shape():
                seen.append({"flow": flow, "number": number, "keeps_all": keeps_all})
        found[name] = seen
    return found


def test_each_run_ends_in_its_version_whichever_daemons_live(setup, database):
    seed = random.SystemRandom().randrange(10**6)
    sys.stdout.write(f"seed {seed}\n")  # which a failure shows
    conn, client, pairs = database.connect(), database.client, pairs_of(random.Random(seed))
    path = [str(setup.directory), str(Path(changing_flows.__file__).parents[1])]

    def serve(which: int) -> Any:
        lines = [LINE.format(name=name, **pair[which]) for name, pair in pairs.items()]
        module = setup.module(f"code_{which}", MODULE.format("\n".join(lines)))
        given = {"flows": [module], "python_path": path}
        return setup.serve(f"daemon{which}", pgflowd=given, worker={"max_concurrency": 2})

    def started(which: int) -> list[str]:
        """A run for each step of each shape, open there."""
        runs = []
        for name, pair in pairs.items():
            for step in pair[which]["flow"].shape()["steps"]:
                runs.append(str(client.start_flow(name, {"stop": step["slug"]}).run_id))
        until(lambda: all(client.get_run(run).status == "waiting" for run in runs), 60)
        return runs

    daemons = [serve(0)]
    runs = started(0)
    for name, pair in pairs.items():
        flows.deploy(conn, name, pair[1]["flow"].shape(), may_change=True)
    daemons.append(serve(1))
    runs += started(1)
    for run in runs:
        client.signal(run, "go", 1)
    until(lambda: all(client.get_run(run).has_ended for run in runs), 60)

    assert {client.get_run(run).status for run in runs} == {"completed"}
    assert {name: conn.execute(query).fetchall() for name, query in TROUBLES.items()} == {
        name: [] for name in TROUBLES
    }
    for which, daemon in enumerate(daemons):
        lacking = {
            name if which else f"{name}_2"
            for name, pair in pairs.items()
            if unserved_steps(
                pair[1 - which]["flow"].shape(), facts_of(pair[which]["flow"].spec), 2 - which
            )
        }
        parked = daemon.events("child.parked", code="W322")
        assert {record["flow"] for record in parked} == lacking
        assert daemon.events("child.parked") == parked
