"""
The attacker of the chaos: sessions of users with few rights, who try to get more.

Each plants types, tables, functions and operators of our names in its temporary schema, calls what
it may, squats ids and keys that anybody can compute, holds advisory locks, and calls what it may
not. The judge says that none of it was executed as somebody else, that no user and no object of
ours has other rights than before, and that no parent believed a run that is not its child's.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
from chaos_environment import Environment, Place
from chaos_rights import STARTER, USERS, WORKER, rights
from psycopg import sql
from support.planted import has_fired, plant

from pgflowd.core.ids import child_id

FORBIDDEN = (
    "update pgflow.flows set opt_max_attempts = 99",
    "delete from pgflow.runs",
    "delete from pgflowd.schema_history",
    "select pgflowd.delete_run(gen_random_uuid(), 'x')",
    "select pgflowd.set_setting('history', '\"off\"', 'x')",
    "select pgflowd.prune('0 s')",
    "select pgflow.delete_flow_and_data('chain')",
    "select pgmq.drop_queue('chain')",
    "create table pgflowd.mine ()",
    "create function pgflow.mine() returns int language sql return 1",
    "alter function pgflowd.start owner to current_user",
    "grant pgflow_owner to current_user",
    "alter role current_user superuser",
)
RESERVED = (
    "pgflowd.start('single', '{{}}', key => 'schedule ticking {at}')",
    "pgflowd.start('single', '{{}}', singleton_key => 'schedule ticking')",
    "pgflowd.start('single', '{{}}', run_id => '{undo}')",
    "pgflow.start_flow_with_states('single', '{{}}', '{undo}')",
)
# a step of `begets` returns the status and the output of each child: twice its number
FORGED = """
select task.run_id, task.output from pgflow.step_tasks as task
 where task.flow_slug = 'parents' and task.step_slug = 'begets' and task.status = 'completed'
   and task.output <> (
     select coalesce(jsonb_agg(jsonb_build_array('completed', jsonb_build_object('grows', 2 * n))),
                     '[]')
       from pgflow.runs as run
      cross join generate_series(0, (run.input ->> 'n')::int - 1) as n
      where run.run_id = task.run_id)
"""


def attack(environment: Environment, place: Place) -> str:
    """A session of somebody with few rights, who tries all that might give more."""
    user = environment.chance.choice(list(USERS))
    runs = environment.conn().execute(
        "select run_id from pgflow.runs where status = 'started' order by random() limit 5"
    )
    known = [str(run) for (run,) in runs]
    attacker = psycopg.connect(environment.dsn, autocommit=True, application_name="chaos")
    with attacker:
        attacker.execute("set statement_timeout = '5s'; set lock_timeout = '1s'")
        attacker.execute(sql.SQL("set session authorization {}").format(sql.Identifier(user)))
        plant(attacker)
        for schema_, call in _calls(user, known, environment.chance.random()):
            _try(attacker, f"select * from {schema_}.{call}")
            if has_fired(attacker):
                environment.troubles.append(f"{user} executed something as another: {call}")
                return call
        for statement in FORBIDDEN:
            if _try(attacker, statement):
                environment.troubles.append(f"{user} may: {statement}")
        if user == STARTER:
            _squat(environment, attacker, known)
        _lock(environment, user)
    return user


def troubles(environment: Environment) -> Iterator[str]:
    """What an attacker has got, when everything has settled."""
    found = rights(environment.conn())
    yield from (
        f"a right that was not there: {right}" for right in sorted(found - environment.rights)
    )
    yield from (f"a right that is gone: {right}" for right in sorted(environment.rights - found))
    for row in environment.conn().execute(FORGED).fetchmany(5):
        yield f"a child's output was forged: {tuple(map(str, row))}"


def _calls(user: str, runs: list[str], luck: float) -> Iterator[tuple[str, str]]:
    """What a user may call, and what changes nothing that others wait for."""
    for run in runs:
        yield "pgflowd", f"get_run('{run}')"
        yield "pgflowd", f"follow(array['{run}']::pg_catalog.uuid[])"
        yield "pgflowd", f"signal('{run}', 'attack', '{luck}', 'mallory', '{luck}')"
        yield "pgflowd", f"reschedule('{run}', null)"
        yield "pgflow", f"get_run_with_states('{run}')"
    yield "pgflowd", "current_flow('chain')"
    yield "pgflowd", "input_schema('chain')"
    if user == WORKER:
        for name in ("delete('chain', -1)", "archive('chain', -1)", "set_vt('chain', -1, 0)",
                     "format_table_name('chain', 'q')"):  # fmt: skip
            yield "pgmq", name
        yield "pgflowd", "_process_due_runs(5)"
        yield "pgflowd", "_process_due_awaits(5)"
        yield "pgflowd", "schedule_troubles()"
        yield "pgflow", "requeue_stalled_tasks()"


def _squat(environment: Environment, attacker: psycopg.Connection[Any], known: list[str]) -> None:
    """Take the ids of children before their parent is started, and ids and keys of the system."""
    parent = str(uuid.UUID(int=environment.chance.getrandbits(128), version=4))
    children = [child_id(parent, "begets", 0, "begotten", f"key {n}") for n in range(3)]
    given = json.dumps({"s": 0.01})
    for run_id, slug, input_ in (*((each, "single", given) for each in children),
                                 (parent, "parents", '{"n": 3}')):  # fmt: skip
        environment.in_doubt[run_id] = slug
        start = "select pgflowd.start(%s, %s::pg_catalog.jsonb, run_id => %s)"
        if _try(attacker, start, slug, input_, run_id):
            environment.acknowledged[run_id] = environment.in_doubt.pop(run_id)
    for run in known:
        asked = (
            "select pgflowd._undo_run_id(%s, 1), extract(epoch from date_trunc('second', now()))"
        )
        row = environment.conn().execute(asked, (run,)).fetchone()
        assert row is not None
        for call in RESERVED:
            if _try(attacker, f"select {call.format(undo=row[0], at=row[1])}"):
                environment.troubles.append(f"the attacker was given {call}")


def _lock(environment: Environment, user: str) -> None:
    """Hold the advisory locks of a second, as anybody may."""
    holder = psycopg.connect(environment.dsn, autocommit=True, application_name="chaos")
    holder.execute(sql.SQL("set session authorization {}").format(sql.Identifier(user)))
    holder.execute(
        "select pg_try_advisory_lock(1, hashtext('chain')), pg_try_advisory_lock(4, 1),"
        " pg_try_advisory_lock(2, hashtext('schedule ticking'))"
    )
    environment.hold_up_all(1, holder.close)


def _try(conn: psycopg.Connection[Any], statement: str, *params: Any) -> bool:
    """Whether the server executes it; a lost connection is none of the attacker's."""
    try:
        conn.execute(statement.encode(), params or None)
    except psycopg.OperationalError:
        if conn.broken:
            raise
        return False
    except psycopg.Error:
        return False
    return True
