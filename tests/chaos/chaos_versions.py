"""
The chaos of flows that change: what deploys their code, and the checks in the end.

`change` deploys a state of flow `changing` (chaos_changing), gives it to some daemons, goes back to
the version before, tunes an option, or deletes old versions; a call of the database may be cut
short. What is deployed and what each daemon has are not the same, as in a rolling deployment.
`settle` gives all daemons one state that serves every version.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

from chaos_changing import NAME, STATES, changing
from chaos_environment import Environment, Place, signalled
from psycopg.rows import tuple_row
from support.changing_flows import TROUBLES

from pgflowd.db import flows
from pgflowd.db.definitions import prune_versions, rollback
from pgflowd.db.query import execute
from pgflowd.errors import PgflowdError

SHOWN = 5
LAST = 0  # the state in which all settles
TUNE = "select pgflowd.set_option(%s, 'first', 'maxAttempts', %s::jsonb)"
TUNED = """
select step.flow_slug, step.opt_max_attempts from pgflow.steps as step
 where step.flow_slug in (select unnest(pgflowd.flows_of('changing'))) and step.step_slug = 'first'
   and not coalesce(step.opt_max_attempts, 0) = any (%s)
"""


def change(environment: Environment, place: Place) -> str:
    """Code, database, or both have another state of the flow."""
    chance, conn = environment.chance, environment.conn()
    how = chance.choice(("deploy", "deploy", "deploy", "code", "tune", "rollback", "prune"))
    state, limit_ms = chance.randrange(STATES), chance.choice((0, 0, 5, 30))
    value = max(1000, *environment.tuned) + 1
    if how == "tune":
        environment.tuned.append(value)
    try:
        with conn.transaction():
            conn.execute(f"set local statement_timeout = {limit_ms}".encode())
            if how == "deploy":
                take = {"take_code": False, "may_change": True, "code": f"state {state}"}
                flows.deploy(conn, NAME, changing(state).shape(), **take)
            elif how == "tune":
                conn.execute(TUNE, (NAME, json.dumps(value)))
            elif how == "rollback":
                execute(conn, rollback(NAME))
            elif how == "prune":
                execute(conn, prune_versions(NAME))
    except PgflowdError as error:
        environment.drop_line()
        environment.note(f"changes: {how} of state {state}: {str(error).splitlines()[0]}")
        return ""
    if how == "tune":
        del environment.tuned[: environment.tuned.index(value)]  # it holds: none before it may
    if how in ("deploy", "code"):
        others = [other for other in environment.places if chance.random() < 0.4]
        for one in {place.name: place, **{other.name: other for other in others}}.values():
            give(one, state)
    return f"{how} of state {state}"


def give(place: Place, state: int) -> None:
    """Let a daemon have the code of this state, now or when it starts again."""
    place.has_state(state)
    if place.listens():
        for seen in place.processes("supervisor"):
            signalled(seen, signal.SIGHUP)


def settle(environment: Environment) -> None:
    """Give every daemon the one code that serves all versions."""
    flows.deploy(environment.conn(), NAME, changing(LAST).shape(), may_change=True)
    for place in environment.places:
        give(place, LAST)


def troubles(environment: Environment) -> Iterator[str]:
    """What is wrong with versions and their runs, when everything has settled."""
    asking = environment.conn().cursor(row_factory=tuple_row)
    for name, query in TROUBLES.items():
        if rows := asking.execute(query.encode()).fetchmany(SHOWN):
            yield f"{name}: {[tuple(map(str, row)) for row in rows]}"
    if rows := asking.execute(TUNED.encode(), (environment.tuned,)).fetchall():
        yield f"what was tuned stays: {rows}, not one of {environment.tuned}"
