"""
Each function with its owner's rights is called by each role that may, in sessions whose temporary
schema is full of types, tables, functions and operators of the names that our code uses.

Nothing of that is ever executed as another user; and what the function does, it does all the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
from support.covers import covers
from support.definers import DEFINERS
from support.leases import LeaseDatabase
from support.planted import has_fired, plant
from support.verbs import VERBS, planned, run_of, scheduled, stalled, undoable, waiting

from pgflowd.db import schema
from pgflowd.testing.scratch import ScratchServer

ROLES = {"w": "worker", "s": "starter", "v": "viewer", "o": "operator"}
MINE = f"attack_{os.getpid()}"  # other tests share the server
PASSER = f"""
grant usage on schema pgflow, pgflowd to {MINE}_passer;
grant execute on function pgflowd.signal to {MINE}_passer
"""
RISE = f"""
create function pg_temp.e(v pg_catalog.text) returns boolean language plpgsql as $$
begin
  if current_user <> session_user then
    execute 'alter role {MINE}_passer superuser';
  end if;
  return true;
end $$
"""

# a call of each that is no verb of a person
OTHERS: dict[str, Callable[[LeaseDatabase], tuple[str, tuple[Any, ...]]]] = {
    "pgflow._followed": lambda db: ("_followed(%s)", ([run_of(db)],)),
    "pgflow._forget_waits": lambda db: ("_forget_waits(%s)", (waiting(db),)),
    "pgflow._is_paused": lambda db: ("_is_paused(%s)", (db.flow(),)),
    "pgflow._lock_starts": lambda db: ("_lock_starts(%s)", (db.flow(),)),
    "pgflow._mark_ended": lambda db: ("_mark_ended(%s)", ([planned(db)],)),
    "pgflow._mark_failed": lambda db: ("_mark_failed(%s)", (run_of(db),)),
    "pgflow._run_in_input": lambda db: ("_run_in_input()", ()),
    "pgflow._untrusted_owner": lambda db: ("_untrusted_owner('pgflow')", ()),
    "pgflow._waits": lambda db: ("_waits(%s, 1)", (db.flow(),)),
    "pgflow.get_run_with_states": lambda db: ("get_run_with_states(%s)", (run_of(db),)),
    "pgflow.recover_stalled_tasks": lambda db: with_(stalled(db), "recover_stalled_tasks(-1)"),
    "pgflow.requeue_stalled_tasks": lambda db: with_(stalled(db), "requeue_stalled_tasks()"),
    "pgflow.start_flow_with_states": lambda db: ("start_flow_with_states(%s, '{}')", (db.flow(),)),
    "pgflowd._process_due_awaits": lambda db: with_(due(db), "_process_due_awaits(9)"),
    "pgflowd._process_due_runs": lambda db: with_(due(db), "_process_due_runs(99)"),
    "pgflowd.current_flow": lambda db: ("current_flow(%s)", (db.flow(),)),
    "pgflowd.follow": lambda db: ("follow(%s, true)", ([run_of(db)],)),
    "pgflow._start_wished": lambda db: (
        "_start_wished(%s, array['{\"a\": 1}']::jsonb[], array[gen_random_uuid()])",
        (with_starts(db),),
    ),
    "pgflowd.get_run": lambda db: ("get_run(%s)", (run_of(db),)),
    "pgflowd.input_schema": lambda db: ("input_schema(%s)", (db.flow(),)),
    "pgflowd.postpone_due": lambda db: with_(due(db), "postpone_due('runs', 'x')"),
    "pgflowd.postpone_schedule": lambda db: (
        "postpone_schedule(%s, (select due_at from pgflowd.schedules limit 1), 'x', 1)",
        (scheduled(db),),
    ),
    "pgflowd.prune_expired": lambda db: with_(stalled(db), "prune_expired(99)"),
    "pgflowd.require_schema": lambda db: ("require_schema(48)", ()),
    "pgflowd.schedule_troubles": lambda db: with_(scheduled(db), "schedule_troubles()"),
    "pgflowd.start": lambda db: (
        "start(%s, '{}', labels => '{}', key => 'k', singleton_key => 's', after => %s)",
        (db.flow(), [run_of(db)]),
    ),
    "pgflowd.start_child": lambda db: (
        "start_child(%s, %s, %s, %s, gen_random_uuid(), %s)",
        (*leased(db), json.dumps({"flow": db.flow(), "input": {}, "wishes": {"singleton": "c"}})),
    ),
    "pgflowd.start_runs": lambda db: (
        "start_runs(%s, array['{}']::jsonb[], array[gen_random_uuid()])",
        (db.flow(),),
    ),
    "pgflowd.tell_core": lambda db: ("tell_core('{}')", ()),
    "pgflowd.tick": lambda db: (
        "tick(%s, (select due_at from pgflowd.schedules where name = %s), now(), array[now()])",
        (name := scheduled(db), name),
    ),
}
# what anybody does to runs in each state, by whom; the answer may be a refusal
TO_RUNS = {
    "s": (
        "signal({0}, 'paid', '1')", "get_run({0})", "follow(array[{0}]::uuid[])", "pause({0})",
        "resume({0})", "reschedule({0}, now())", "answer({0}, 'a', false)", "undo({0}, 'x', 'y')",
        "cancel({0}, 'x', 'y')",
    ),
    "o": ("retry({0}, 'x')", "task_wake({0}, 'a', 0, 'x', 'y')", "delete_run({0}, 'x')"),
}  # fmt: skip


def due(db: LeaseDatabase) -> Any:
    """A run that begins now, one in line, one that is to be undone, and one that is cancelled."""
    start = "select run_id from pgflowd.start(%s, '{}', start_at => now() + interval '1 ms')"
    first = db.value(start, db.flow())
    for _ in range(2):
        db.value("select run_id from pgflowd.start(%s, '{}', singleton_key => 'one')", db.flow())
    db.value("select pgflowd.undo(%s, 'bad', 'jane')", undoable(db))
    db.value("select pgflowd.cancel(%s, 'x', 'jane')", waiting(db))
    return first


def with_starts(db: LeaseDatabase) -> str:
    """A flow that says everything of each start."""
    flow = db.flow()
    starts = {"title": "x {run.a}", "labels": {"a": "run.a"}, "expires": 60, "singleton": "{run.a}"}
    db.do("update pgflow.flows set starts = %s where flow_slug = %s", json.dumps(starts), flow)
    return flow


def with_(made: Any, call: str) -> tuple[str, tuple[Any, ...]]:
    """A call that takes no id of what was made for it."""
    return call, ()


def leased(db: LeaseDatabase) -> tuple[Any, str, int, Any]:
    flow = db.flow()
    db.start(flow)
    task = db.claim_one(flow, db.worker(flow))
    return task.run_id, "a", 0, task.token


@pytest.fixture(params=["the extension on 18", "our pgmq on 15"])
def db(request: pytest.FixtureRequest) -> Iterator[LeaseDatabase]:
    """A database with the roles, and a user in each of them."""
    if request.param == "our pgmq on 15":
        server: ScratchServer = request.getfixturevalue("server_of")(15)
        with server.database() as scratch:
            yield from _with_users(scratch.dsn)
    else:
        with request.getfixturevalue("offering").database(schema=False) as scratch:
            schema.migrate(scratch.connect())
            yield from _with_users(scratch.dsn)


def _with_users(dsn: str) -> Iterator[LeaseDatabase]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        with conn.transaction():
            conn.execute(schema.roles_sql().encode())
        with suppress(psycopg.errors.DuplicateObject), conn.transaction():  # of an earlier test
            for role in ROLES.values():
                conn.execute(f"create role {MINE}_{role} login in role pgflow_{role}".encode())
            conn.execute(f"create role {MINE}_passer login".encode())
        conn.execute(PASSER.encode())
    database = LeaseDatabase(dsn, "all")
    yield database
    database.close()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"drop owned by {MINE}_passer".encode())


@contextmanager
def attacker(db: LeaseDatabase, role: str) -> Iterator[psycopg.Connection[Any]]:
    """A session of this role with everything planted."""
    with psycopg.connect(db.dsn, autocommit=True) as conn:
        conn.execute(f"set session authorization {MINE}_{role}".encode())
        plant(conn)
        yield conn


def poison(conn: psycopg.Connection[Any], queue: str) -> None:
    """Call pgmq's functions directly, so that they are compiled with the types that are planted."""
    for path in ("default", "''"):
        conn.execute(f"set search_path = {path}".encode())
        for call in (
            "send(%s, '{}')", "send_batch(%s, '{\"{}\"}')", "read(%s, 0, 1)", "archive(%s, 999)",
            "archive(%s, '{999}'::pg_catalog.int8[])", "set_vt(%s, 999, 0)", "delete(%s, 999)",
            "delete(%s, '{999}'::pg_catalog.int8[])", "format_table_name(%s, 'q')",
        ):  # fmt: skip
            with suppress(psycopg.Error):
                conn.execute(f"select pgmq.{call}".encode(), (queue,))


def call_of(db: LeaseDatabase, definer: str) -> tuple[str, tuple[Any, ...]]:
    name = definer.partition(".")[2]
    text, params = OTHERS[definer](db) if definer in OTHERS else VERBS[name](db)
    return f"select * from {definer.partition('.')[0]}.{text}", params


@covers("attack 1")
def test_nothing_that_a_caller_has_planted_is_executed_as_the_owner(db: LeaseDatabase) -> None:
    queue = db.flow()
    for definer, letters in DEFINERS.items():
        if not letters:
            continue
        with attacker(db, ROLES[letters[0]]) as conn:
            poison(conn, queue)
            for letter in letters:
                query, params = call_of(db, definer)
                conn.execute(f"set session authorization {MINE}_{ROLES[letter]}".encode())
                conn.execute(query.encode(), params)
                assert not has_fired(conn), (definer, ROLES[letter])


def test_nor_with_runs_in_any_state(db: LeaseDatabase) -> None:
    states = (run_of, planned, stalled, undoable, waiting, due, VERBS["retry"], VERBS["resume"])
    for letter, calls in TO_RUNS.items():
        with attacker(db, ROLES[letter]) as conn:
            poison(conn, db.flow())
            for state in states:
                made = state(db)
                quoted = f"'{made[1][0] if isinstance(made, tuple) else made}'"
                for call in calls:
                    with suppress(psycopg.Error):
                        conn.execute(f"select pgflowd.{call.format(quoted)}".encode())
                    assert not has_fired(conn), call


@covers("attack 1")
def test_who_may_only_signal_does_not_become_superuser(db: LeaseDatabase) -> None:
    run = run_of(db)
    with psycopg.connect(db.dsn, autocommit=True) as conn:
        conn.execute(f"set session authorization {MINE}_passer".encode())
        conn.execute(RISE.encode())
        conn.execute("create domain pg_temp.text as pg_catalog.text check (pg_temp.e(value))")

        conn.execute(f"select pgflowd.signal('{run}', 'x')".encode())

    assert not db.value("select rolsuper from pg_roles where rolname = %s", f"{MINE}_passer")


def test_each_function_with_its_owner_s_rights_is_called() -> None:
    known = {name for name, letters in DEFINERS.items() if letters}
    assert known == set(OTHERS) | {f"pgflowd.{name}" for name in VERBS} & set(DEFINERS)
