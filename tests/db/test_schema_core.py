"""Schema pgflow of pgflow's own migrations is adopted; what was changed in it is refused."""

from __future__ import annotations

import re
import sys
from uuid import uuid4

import psycopg
import pytest
from support.covers import covers
from support.schema import Connection, catalog

from pgflowd.db import schema
from pgflowd.db.schema.state import editions
from pgflowd.errors import DatabaseError
from pgflowd.testing.scratch import ScratchDatabase

EDITION = "pgflow 0.8.1"
WORKER = uuid4()
migration = sys.modules["pgflowd.db.schema.migrate"]


def of_pgflow(found: dict[str, str]) -> dict[str, str]:
    return {name: each for name, each in found.items() if " pgflow." in name}


def test_the_fingerprints_are_those_of_the_package_of_npm(upstream: Connection) -> None:
    found = {name: each[:8] for name, each in of_pgflow(catalog(upstream)).items()}

    assert editions() == {EDITION: found}


def test_without_the_option_it_says_what_it_would_replace_and_does_nothing(
    upstream: Connection,
) -> None:
    before = catalog(upstream)

    for use in (schema.migrate, schema.require):
        with pytest.raises(DatabaseError, match=r"E307 .*; run `pgflowd db migrate --adopt`"):
            use(upstream)
    with pytest.raises(DatabaseError, match=r"function pgflow\.add_step.*and \d+ more"):
        schema.migrate(upstream)

    assert catalog(upstream) == before
    found = schema.status(upstream)
    assert (found.core.edition, found.problem and found.problem.code) == (EDITION, "E307")


def test_an_adopted_database_is_like_a_new_one(
    upstream: Connection, conn: Connection, database: ScratchDatabase
) -> None:
    done = schema.migrate(upstream, adopt=True)

    assert done.adopted == EDITION
    assert "function pgflow.complete_task(uuid,text,integer,jsonb)" in done.replaced
    assert catalog(upstream) == catalog(conn)
    assert schema.verify(upstream) == []
    assert schema.require(upstream).version == done.after
    assert schema.status(upstream).core.edition == "pgflowd's"
    assert schema.migrate(upstream).is_repeated


def test_flows_runs_queues_and_workers_stay_and_open_runs_go_on(upstream: Connection) -> None:
    upstream.execute("""
        select pgflow.create_flow('sums'), pgflow.add_step('sums', 'numbers'),
               pgflow.add_step('sums', 'square', array['numbers'], step_type => 'map'),
               pgflow.add_step('sums', 'sum', array['square', 'numbers']);
    """)
    upstream.execute("insert into pgflow.workers values (%s, 'sums', 'theirs')", (WORKER,))
    started = [
        upstream.execute("select run_id from pgflow.start_flow('sums', '{}')").fetchone()[0]
        for _ in range(5)
    ]
    outputs = {"numbers": "[1, 2]", "square": "4", "sum": '"done"'}
    # one run after the other is a step further
    for steps in range(1, 5):
        for run_id in started[steps:]:
            work(upstream, run_id, outputs)
    tables = ("flows", "steps", "deps", "workers", "runs", "step_tasks")
    before = {name: rows(upstream, name) for name in tables}

    schema.migrate(upstream, adopt=True)

    for name, kept in before.items():
        assert [{key: row[key] for key in kept[0]} for row in rows(upstream, name)] == kept
    for run_id in started:
        while work(upstream, run_id, outputs):
            pass
    query = "select status, output from pgflow.runs"
    assert upstream.execute(query).fetchall() == [("completed", {"sum": "done"})] * 5
    assert upstream.execute("select * from pgflowd.violations()").fetchall() == []
    trigger = "select tgname from pg_trigger where tgrelid = 'pgmq.q_sums'::regclass"
    assert upstream.execute(trigger).fetchall() == [("pgflowd_notify",)]
    index = "select to_regclass('pgmq.q_sums_read_idx') is not null"
    assert upstream.execute(index).fetchone() == (True,)


def work(conn: Connection, run_id: object, outputs: dict[str, str]) -> int:
    """Do what a worker of upstream does about a run now; return how many tasks there were."""
    (due,) = conn.execute(
        "select array_agg(message_id) from pgflow.step_tasks"
        " where run_id = %s and status = 'queued'",
        (run_id,),
    ).fetchone()
    claimed = conn.execute(
        "select run_id, step_slug, task_index, input from pgflow.start_tasks('sums', %s, %s)",
        (due or [], WORKER),
    ).fetchall()
    for run, step, index, given in claimed:
        if step == "square":
            assert given == [1, 2][index]
        if step == "sum":
            assert given == {"run": {}, "square": [4, 4], "numbers": [1, 2]}
        conn.execute(
            "select pgflow.complete_task(%s, %s, %s, %s::jsonb)", (run, step, index, outputs[step])
        )
    return len(claimed)


def rows(conn: Connection, table: str) -> list[dict[str, object]]:
    query = f"select to_jsonb(one) from pgflow.{table} as one order by to_jsonb(one)::text"
    return [row for (row,) in conn.execute(query.encode())]


def test_who_might_call_their_functions_may_call_ours(upstream: Connection) -> None:
    role = f"h_{uuid4().hex[:8]}"
    upstream.execute(f"create role {role}".encode())
    try:
        upstream.execute(f"grant usage on schema pgflow to {role}".encode())
        upstream.execute(f"grant execute on function pgflow.start_flow to {role}".encode())
        upstream.execute("revoke execute on function pgflow.start_flow from public")
        schema.migrate(upstream, adopt=True)
        asked = upstream.execute(
            "select has_schema_privilege(%s, 'pgflow', 'usage'), has_function_privilege("
            "%s, 'pgflow.start_flow(text, jsonb, uuid)', 'execute')",
            (role, role),
        )
        assert asked.fetchone() == (True, True)
    finally:
        upstream.execute(f"drop owned by {role}; drop role {role}".encode())


def test_after_any_statement_that_fails_their_worker_is_still_served(
    upstream: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file of the adoption, and each statement of what changes their tables, is the last."""
    upstream.execute("select pgflow.create_flow('sums'), pgflow.add_step('sums', 'numbers')")
    upstream.execute("insert into pgflow.workers values (%s, 'sums', 'theirs')", (WORKER,))
    apply, left = migration._apply, [0]

    def interrupted(conn: Connection, file: migration.SqlFile) -> None:
        parts = (
            re.split(r";\n(?! |begin|end)", file.text)
            if file.path.startswith("adopt/")
            else [file.text]
        )
        for part in parts:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            apply(conn, migration.SqlFile(file.path, part))

    monkeypatch.setattr(migration, "_apply", interrupted)
    before, tries, is_done = catalog(upstream), 0, False
    while not is_done:
        left[0] = tries * (1 if tries < 45 else 20)
        try:
            schema.migrate(upstream, adopt=True)
            is_done = True
        except KeyboardInterrupt:
            assert catalog(upstream) == before
            upstream.execute("select pgflow.start_flow('sums', '{}')")
            (run,) = upstream.execute(
                "select run_id from pgflow.runs where status = 'started'"
            ).fetchone()
            assert work(upstream, run, {"numbers": "1"}) == 1
        tries += 1

    assert tries > 45
    query = "select distinct status from pgflow.runs"
    assert upstream.execute(query).fetchall() == [("completed",)]


CHANGES = [
    ("alter function pgflow.start_ready_steps strict", "function pgflow.start_ready_steps("),
    ("alter table pgflow.runs add mine int", "column pgflow.runs.mine"),
    ("alter table pgflow.steps alter step_index set default 7", "column pgflow.steps.step_index"),
    ("create index mine on pgflow.runs (output)", "index pgflow.mine"),
    ("drop function pgflow.set_vt_batch", "function pgflow.set_vt_batch("),
]


@covers("E307")
@pytest.mark.parametrize(("change", "name"), CHANGES)
def test_what_was_changed_by_hand_is_named_and_nothing_is_adopted(
    upstream: Connection, change: str, name: str
) -> None:
    upstream.execute(change.encode())
    before = catalog(upstream)

    with pytest.raises(DatabaseError, match="E307 schema pgflow was changed by hand") as caught:
        schema.migrate(upstream, adopt=True)

    assert f"changed by hand: {name}" in str(caught.value)
    assert f" differ from those of {EDITION}" in str(caught.value)
    assert catalog(upstream) == before


def test_an_unknown_schema_is_refused(empty: Connection) -> None:
    empty.execute("create schema pgflow create table flows (mine int)")

    with pytest.raises(DatabaseError, match=r"E307 .*column pgflow\.flows\.mine"):
        schema.migrate(empty, adopt=True)

    assert empty.execute("select to_regnamespace('pgflowd')").fetchone() == (None,)


REPLACED = [
    "create or replace function pgflow.maybe_complete_run(run_id uuid) returns void"
    " language sql as ''",
    "create function pgflow.start_flow(flow_slug text, input text) returns void language sql as ''",
]


@pytest.mark.parametrize("later", REPLACED)
def test_functions_that_a_later_migration_of_theirs_replaced_are_adopted_as_well(
    conn: Connection, later: str
) -> None:
    before = catalog(conn)
    conn.execute(later.encode())

    found = schema.status(conn)
    assert found.problem and found.problem.code == "E307"
    assert schema.replaced_functions(conn) == list(found.core.to_replace) != []
    with pytest.raises(DatabaseError, match=r"E307 .*db migrate --adopt"):
        schema.migrate(conn)
    done = schema.migrate(conn, adopt=True)

    assert done.replaced == list(found.core.to_replace)
    assert catalog(conn) == before
    assert (schema.status(conn).problem, schema.verify(conn)) == (None, [])


def test_while_functions_are_not_ours_nobody_claims_and_no_worker_starts(conn: Connection) -> None:
    conn.execute("select pgflow.create_flow('f'), pgflow.add_step('f', 'one')")
    conn.execute("insert into pgflow.workers values (%s, 'f', 'test')", (WORKER,))
    conn.execute("select pgflowd.tell_core('{function pgflow.maybe_complete_run(uuid)}')")

    with pytest.raises(psycopg.Error, match="are not this pgflowd's: function") as caught:
        conn.execute("select pgflowd.claim('f', %s, 1)", (WORKER,))
    assert caught.value.sqlstate == "PF030"
    with pytest.raises(DatabaseError, match="E307"):
        schema.require(conn)

    conn.execute("select pgflowd.tell_core('{}')")
    conn.execute("select pgflowd.claim('f', %s, 1)", (WORKER,))


def test_tables_that_were_changed_since_keep_replaced_functions_from_adoption(
    conn: Connection,
) -> None:
    conn.execute(REPLACED[0].encode())
    conn.execute("alter table pgflow.runs alter input drop not null")

    with pytest.raises(DatabaseError, match=r"E307 .* by hand: column pgflow\.runs\.input"):
        schema.migrate(conn, adopt=True)


def test_our_schema_without_its_mark_is_not_taken_for_upstreams(conn: Connection) -> None:
    conn.execute("comment on schema pgflow is null")

    for use in (schema.migrate, schema.require):
        with pytest.raises(DatabaseError, match=r"E307 .*lost the mark"):
            use(conn)


def test_an_empty_schema_pgflow_is_filled(empty: Connection) -> None:
    empty.execute("create schema pgflow")

    assert schema.migrate(empty).adopted is None


def test_the_printed_script_refuses_to_touch_upstreams_schema(upstream: Connection) -> None:
    before = catalog(upstream)

    with pytest.raises(Exception, match="installed by another program"), upstream.transaction():
        upstream.execute(schema.sql().encode())

    assert catalog(upstream) == before
