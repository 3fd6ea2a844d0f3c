"""`pgflowd doctor` shows the state of a database, its problems, and what to do."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from support.covers import covers
from support.shop import on_a_terminal

from pgflowd.db import doctor

CRON = Path(__file__).parents[1] / "db" / "pg_cron.sql"


@pytest.fixture
def examined(pgflowd, shop):
    """Run the doctor on a database that commits durably; returns findings by check."""

    def examine(**settings: str) -> dict[str, list[dict]]:
        options = {"synchronous_commit": "on", **settings}
        given = " ".join(f"-c {name}={value}" for name, value in options.items())
        url = make_conninfo(shop.database.dsn, options=given)
        ended = pgflowd("doctor", "--json", "--database-url", url)
        found: dict[str, list[dict]] = {}
        for finding in ended.json["findings"]:
            found.setdefault(finding["check"], []).append(finding)
        assert ended.code == (0 if ended.json["ok"] else 1)
        return found

    return examine


def code_of(found: dict[str, list[dict]], check: str) -> tuple[str, str | None]:
    return found[check][-1]["state"], found[check][-1]["code"]


def test_a_healthy_database_has_only_good_findings(examined, shop):
    shop.run_through()

    found = examined()

    assert {one["state"] for each in found.values() for one in each} == {"ok"}
    assert list(found) == [
        "pgflowd", "schema", "objects", "rights", "platform", "recovery",
        "server", "clocks", "durability", "isolation", "transactions", "snapshots", "history",
        "tables", "connections", "pooler", "listeners",
        "flows", "stalled", "schedules", "orphans", "invariants",
    ]  # fmt: skip
    assert found["rights"][0]["text"] == "postgres may view, start, serve, deploy"


@pytest.fixture
def careless(shop):
    """A database that commits without waiting for the disk."""
    name = sql.Identifier(shop.database.name)
    shop.conn.execute(sql.SQL("alter database {} set synchronous_commit = off").format(name))


def test_each_section_may_be_examined_by_itself(here, shop):
    def checks(*sections: str) -> list[str]:
        ended = here("doctor", *sections, "--json")
        found = ended.json["findings"]
        assert {one["section"] for one in found} <= {*sections, "schema"}
        return [one["check"] for one in found]

    assert checks("connections") == ["connections", "pooler", "listeners"]
    assert checks("database")[:2] == ["schema", "server"]  # the size needs the schema
    assert checks("flows", "connections")[-1] == "invariants"
    assert "tables" not in checks("schema")


def test_the_largest_tables_are_named_with_their_sizes(examined, shop):
    shop.run_through()

    tables = [one["text"] for one in examined()["tables"]]

    assert len(tables) == doctor.LARGEST_TABLES
    assert all(re.match(r"(pgflowd?|pgmq)\.\w+: [\d.]+ [kM]?B, about ", text) for text in tables)


def test_what_was_changed_by_hand_is_named(here, shop):
    shop.conn.execute("alter function pgflow.start_flow strict")

    ended = here("doctor", "schema")

    assert ended.code == 1
    assert "✖ schema        E307  the functions of schema pgflow are not this" in ended.out
    assert "function pgflow.start_flow(text,jsonb,uuid)" in ended.out
    assert "→ run `pgflowd db migrate --adopt`" in ended.out


def test_each_finding_is_one_line(here, careless):
    ended = here("doctor")

    assert ended.code == 0
    assert "✔ schema        version " in ended.out
    assert "⚠ durability    W315  synchronous_commit is off" in ended.out
    assert "→ set it to on" in ended.out


def test_a_database_without_a_schema_is_wrong(pgflowd, empty_database):
    ended = pgflowd("doctor", "--database-url", empty_database.dsn)

    assert ended.code == 1
    assert "✖ schema        E302" in ended.out
    assert "pgflowd db migrate" in ended.out
    assert "transactions" in ended.out and "invariants" not in ended.out


@covers("W312")
def test_clocks_that_differ_are_reported(examined, monkeypatch):
    behind = doctor.time.time
    monkeypatch.setattr("time.time", lambda: behind() - 90)

    found = examined()

    assert code_of(found, "clocks") == ("warning", "W312")
    assert "1m30s ahead of this machine's" in found["clocks"][0]["text"]


@covers("row 82")
def test_a_pooler_in_between_is_reported(pgflowd, shop):
    with another_backend_pid(shop.database.dsn) as url:
        plain = pgflowd("doctor", "--json", "--database-url", url)

    pooler = next(one for one in plain.json["findings"] if one["check"] == "pooler")
    assert (pooler["state"], pooler["code"]) == ("warning", "W314")
    assert "listen_url" in pooler["next"]


@contextmanager
def another_backend_pid(dsn: str) -> Iterator[str]:
    """A line through which the server seems to have another process id, as poolers make it."""
    parts = conninfo_to_dict(dsn)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=pass_on, args=(listening, parts), daemon=True)
        thread.start()
        port = listening.getsockname()[1]
        yield make_conninfo(
            dsn, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable"
        )
        thread.join(timeout=10)


def pass_on(listening: socket.socket, parts: dict) -> None:
    """Pass one session on, and change the id in the server's BackendKeyData."""
    client, _ = listening.accept()
    host, port = str(parts["host"]), int(str(parts.get("port", 5432)))
    if host.startswith("/"):
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
    else:
        server = socket.create_connection((host, port))

    def upwards() -> None:
        while data := client.recv(65536):
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)

    upward = threading.Thread(target=upwards, daemon=True)
    upward.start()
    seen = b""
    while data := server.recv(65536):
        if b"K\x00\x00\x00\x0c" not in seen:
            seen += data
            at = data.find(b"K\x00\x00\x00\x0c")
            if at >= 0:
                data = data[: at + 5] + b"\x00\x00\x00\x07" + data[at + 9 :]
        client.sendall(data)
    upward.join(timeout=10)
    client.close()
    server.close()


@covers("row 87", "W315")
def test_commits_that_a_crash_may_lose_are_reported(examined):
    assert code_of(examined(synchronous_commit="off"), "durability") == ("warning", "W315")


@covers("database 19", "W317")
def test_another_default_of_the_isolation_is_reported(shop, examined):
    name = sql.Identifier(shop.database.name)
    default = "alter database {} set default_transaction_isolation = 'repeatable read'"
    shop.conn.execute(sql.SQL(default).format(name))

    assert code_of(examined(), "isolation") == ("warning", "W317")


@covers("row 83")
def test_an_old_transaction_is_named(examined, shop, monkeypatch):
    monkeypatch.setattr(doctor, "OLD_TRANSACTION_S", 0.0)
    other = shop.database.connect(application_name="report builder", autocommit=False)
    other.execute("select 1")

    found = examined()

    assert code_of(found, "transactions")[0] == "warning"
    told = found["transactions"][0]["text"]
    named = f"pid {other.info.backend_pid} (report builder, user postgres, database "
    assert told.startswith(named)
    assert "), idle in transaction for " in told
    assert f"pg_terminate_backend({other.info.backend_pid})" in found["transactions"][0]["next"]
    other.rollback()


@covers("row 86", "W313")
def test_another_recovery_job_is_reported_and_our_own_is_not(examined, shop):
    shop.conn.execute(CRON.read_bytes())
    shop.conn.execute("alter table cron.job add active boolean default true")
    own = "select cron.schedule(%s, '15 seconds', 'select pgflow.requeue_stalled_tasks()')"
    shop.conn.execute(own, ("pgflow_requeue_stalled_tasks",))
    fine = examined()
    shop.conn.execute(own, ("somebody_elses",))

    found = examined()

    assert code_of(fine, "recovery") == ("ok", None)
    assert code_of(found, "recovery") == ("warning", "W313")
    assert "pg_cron job somebody_elses" in found["recovery"][0]["text"]


def test_work_without_workers_and_queues_without_trigger_are_reported(examined, shop):
    shop.start()
    shop.conn.execute("drop trigger pgflowd_notify on pgmq.q_send_email")

    texts = {one["code"]: one["text"] for one in examined()["flows"]}

    assert "analyze_website: 1 open run, the oldest task waits for" in texts[None]
    assert texts["W311"].startswith("send_email: its queue has no notification trigger")


@covers("database 1")
def test_a_flow_that_is_served_and_stands_still_is_reported(examined, shop):
    shop.start("send_email")
    shop.claim_all("analyze_website")  # there is a worker
    shop.conn.execute(
        "insert into pgflow.workers (worker_id, queue_name, function_name)"
        " values (gen_random_uuid(), 'send_email', 'x')"
    )
    fine = examined()
    shop.conn.execute("update pgmq.q_send_email set vt = vt - interval '5 min'")

    found = examined()

    assert code_of(fine, "flows") == ("ok", None)
    assert code_of(found, "flows") == ("warning", "E318")
    assert found["flows"][0]["text"].startswith("send_email: a task waits for 5m0")
    shop.conn.execute("select pgflowd.pause_flow('send_email', 'no stamps')")
    assert code_of(examined(), "flows") == ("ok", None)  # it is meant to stand still


def test_stalled_tasks_and_orphans_are_reported(examined, shop):
    shop.start("send_email")
    shop.claim_all("send_email")
    shop.stall()
    shop.conn.execute("select pgmq.create('strange')")
    shop.conn.execute("update pgflow.workers set last_heartbeat_at = now() - interval '1 h'")

    found = examined()

    assert "1 task, the oldest" in found["stalled"][0]["text"]
    assert found["orphans"][0]["text"] == (
        "queues without a flow: strange; "
        "1 worker without a heartbeat for 5 min, never marked stopped"
    )


VIOLATIONS = {
    "I2": "update pgflow.runs set remaining_steps = 1",
    "I3": "delete from pgflow.step_tasks where step_slug = 'sentiment'",
    "I4": "update pgflow.step_states set output = '[5]' where step_slug = 'store'",
    "I6": """select pgmq.send('send_email', '{"run_id": null}')""",
    "I8": "update pgflow.step_tasks set status = 'failed', error_message = '', output = null,"
    " failed_at = completed_at, completed_at = null where step_slug = 'summary'",
    "I10": "insert into pgflowd.attempts (run_id, step_slug, task_index, flow_slug, worker_id,"
    " attempt, lease_until, ended_at, outcome) select run_id, step_slug, task_index, flow_slug,"
    " worker_id, attempt, now(), now(), outcome from pgflowd.attempts where step_slug = 'summary'",
}


def completed(shop) -> None:
    shop.run_through()
    shop.start("store_items", [1, 2])
    for key in shop.claim_all("store_items").values():
        shop.complete(key, key[2])


@pytest.mark.parametrize("invariant", VIOLATIONS)
def test_what_must_never_be_is_an_error(examined, shop, invariant):
    completed(shop)
    fine = examined()
    shop.conn.execute(VIOLATIONS[invariant])

    found = examined()

    assert code_of(fine, "invariants") == ("ok", None)
    assert found["invariants"][0]["state"] == "error"
    assert any(one["text"].startswith(invariant) for one in found["invariants"]), found[
        "invariants"
    ]


def test_a_task_without_its_message_is_an_error(examined, shop):
    shop.start("send_email")
    shop.conn.execute("delete from pgmq.q_send_email")

    assert examined()["invariants"][0]["text"].startswith("I5 send_email ")


def test_two_live_leases_of_a_task_are_an_error(examined, shop):
    shop.start("send_email")
    shop.claim_all("send_email")
    fine = examined()
    shop.conn.execute(
        "insert into pgflowd.attempts (run_id, step_slug, task_index, flow_slug, worker_id,"
        " attempt, lease_until) select run_id, step_slug, task_index, flow_slug, worker_id,"
        " attempt, now() from pgflowd.attempts"
    )

    assert code_of(fine, "invariants") == ("ok", None)
    assert examined()["invariants"][0]["text"].startswith("I9 send_email ")


def test_what_is_due_for_long_while_there_is_a_sweeper_is_an_error(examined, shop):
    run = shop.start("send_email")
    shop.conn.execute(
        "insert into pgflowd.signals (run_id, name, sent_at)"
        " values (%s, 'x', now() - interval '2 minutes')",
        [run],
    )
    fine = examined()
    shop.conn.execute("select pgflowd.sweeper_sleeps(gen_random_uuid(), 15)")

    assert code_of(fine, "invariants") == ("ok", None)
    assert examined()["invariants"][0]["text"].startswith("I16 send_email ")


def test_a_task_given_up_while_its_run_waits_for_ever_is_an_error(examined, shop):
    shop.start("send_email")
    shop.claim_all("send_email")
    shop.conn.execute("update pgflow.step_tasks set permanently_stalled_at = now()")

    assert "waits for ever" in examined()["invariants"][0]["text"]


def test_a_step_that_failed_with_attempts_left_is_an_error(examined, shop):
    shop.start("send_email")
    shop.conn.execute(
        "update pgflow.step_states set status = 'failed', failed_at = now(), error_message = 'x'"
    )

    texts = [one["text"] for one in examined()["invariants"]]

    assert any("before its attempts were used up" in text for text in texts), texts


def test_a_message_that_outlived_its_task_is_an_error(examined, shop):
    shop.start("send_email")
    shop.conn.execute("create table kept as select * from pgmq.q_send_email")
    shop.complete(shop.claim_all("send_email")["perform#0"], 1)
    shop.conn.execute("insert into pgmq.q_send_email overriding system value select * from kept")

    texts = [one["text"][:2] for one in examined()["invariants"]]

    assert sorted(texts) == ["I6", "I7"]


def test_a_missing_permission_is_reported_and_the_rest_is_shown(pgflowd, shop):
    url = make_conninfo(shop.database.dsn, options="-c role=pg_monitor")

    ended = pgflowd("doctor", "--database-url", url)

    assert ended.code == 77
    assert "E305  could not be examined: permission denied" in ended.out
    assert "pooler        none in between" in ended.out


def test_a_check_that_fails_for_another_reason_is_an_error_too(here, shop):
    shop.conn.execute("alter function pgflowd.queue_violations rename to elsewhere")

    ended = here("doctor")

    assert (ended.code, "E302  could not be examined: function" in ended.out) == (1, True)


def test_an_unreachable_database_is_reported(pgflowd):
    ended = pgflowd("doctor", "--database-url", "postgresql://u:canary7@127.0.0.1:1/x")

    assert (ended.code, "E301" in ended.err) == (69, True)
    assert "canary7" not in ended.err


@pytest.mark.parametrize("columns", [40, 80])
def test_findings_fit_the_terminal(shop, careless, elsewhere, columns):
    shop.start()

    shown = on_a_terminal(
        "doctor", "--database-url", shop.database.dsn, columns=columns, NO_COLOR="1"
    )

    assert max(len(line) for line in shown.splitlines()) <= columns, shown
    assert "W315" in shown


@covers("database 18")
def test_a_task_that_was_given_up_and_then_failed_is_no_violation(examined, shop):
    shop.start()
    shop.complete(shop.claim_all()["website#0"], {})
    shop.claim_all()
    shop.stall()
    shop.conn.execute(
        "update pgflow.step_tasks set requeued_count = 3, started_at = now() - interval '1 h',"
        " queued_at = now() - interval '2 h' where step_slug = 'summary'"
    )
    shop.conn.execute("select pgflow.requeue_stalled_tasks()")
    shop.conn.execute("select pgflowd.sweep('60 s')")
    query = "select status, error_message from pgflow.step_tasks where step_slug = 'summary'"
    status, text = shop.conn.execute(query).fetchone()

    found = examined()

    assert status == "failed" and text
    assert code_of(found, "invariants") == ("ok", None)


@covers("database 13")
def test_only_the_newest_runs_are_looked_at_and_their_number_is_told(examined, shop, monkeypatch):
    monkeypatch.setattr(doctor, "MAX_RUNS", 5)
    monkeypatch.setattr(doctor, "RUNS_AT_ONCE", 2)
    shop.run_through()
    shop.conn.execute(
        "update pgflow.runs set started_at = started_at - interval '1 h', remaining_steps = 1"
    )
    for _ in range(5):
        shop.start("send_email")

    [told] = examined()["invariants"]

    assert (told["state"], told["text"]) == (
        "ok", "the invariants hold in the newest 5 runs and all queues",
    )  # fmt: skip


@covers("database 13")
def test_what_takes_too_long_is_not_looked_at_and_that_is_told(examined, shop, monkeypatch):
    shop.start("send_email")
    shop.conn.execute("alter function pgflowd.stalled_tasks rename to quick")
    shop.conn.execute(SLOW)
    monkeypatch.setattr(doctor, "LIMIT_S", 0.3)

    found = examined()

    assert code_of(found, "stalled") == ("warning", None)
    assert found["stalled"][0]["text"].startswith("not looked at, since it took too long: cancel")
    assert code_of(found, "invariants") == ("ok", None)


@covers("database 13")
def test_when_all_together_have_taken_too_long_the_rest_is_not_looked_at(examined, monkeypatch):
    monkeypatch.setattr(doctor, "WHOLE_LIMIT_S", 0.0)

    found = examined()

    assert found["pgflowd"][0]["state"] == "ok"
    assert {one["state"] for check in list(found)[1:] for one in found[check]} == {"warning"}
    assert found["flows"][0]["text"].endswith("all together have taken 0s")


SLOW = """
create function pgflowd.stalled_tasks(threshold interval)
returns table (run_id uuid, step_slug text, task_index int, flow_slug text, worker_id uuid,
               attempt int, times int, started_at timestamptz, stalled_at timestamptz, reason text)
language plpgsql as $$ begin perform pg_sleep(30); end $$
"""


def test_locks_that_others_hold_end_no_examination(examined, shop, monkeypatch):
    shop.start()
    monkeypatch.setattr(doctor, "LIMIT_S", 0.3)
    other = shop.database.connect(autocommit=False)
    other.execute("lock table pgflow.step_states in access exclusive mode")

    found = examined()

    assert code_of(found, "invariants") == ("warning", None)
    assert found["orphans"][0]["state"] == "ok"
    other.rollback()


@covers("database 5", "database 17")
def test_transactions_of_other_databases_are_counted(examined, shop, empty_database, monkeypatch):
    monkeypatch.setattr(doctor, "OLD_TRANSACTION_S", 0.0)
    other = empty_database.connect(application_name="report builder", autocommit=False)
    other.execute("select 1")

    [told] = examined()["transactions"]

    assert told["state"] == "ok"
    assert " here; in other databases " in told["text"]
    other.rollback()


@covers("database 17", "E321")
def test_what_keeps_dead_rows_is_named(examined, shop, monkeypatch):
    monkeypatch.setattr("pgflowd.core.server_connections.OLD_S", 0.0)
    monkeypatch.setattr("pgflowd.core.server_connections.MANY_TRANSACTIONS", 20)
    monkeypatch.setattr(doctor.server, "MANY_TRANSACTIONS", 20)
    other = shop.database.connect(application_name="report builder", autocommit=False)
    other.execute("set transaction isolation level repeatable read")
    other.execute("select 1")
    for _ in range(30):
        shop.start("send_email")

    found = examined()

    texts = [one["text"] for one in found["snapshots"] if one["code"] == "E321"]
    assert any(f"pid {other.info.backend_pid} (report builder, " in text for text in texts), texts
    other.rollback()


@covers("database 7")
def test_it_says_how_much_is_kept_and_for_how_long(examined, shop):
    shop.run_through()
    [unknown] = examined()["history"]
    shop.conn.execute("analyze pgflow.runs")
    shop.do("select pgflowd.set_setting('retention_completed', '\"30d\"', 'me')")

    [told] = examined()["history"]

    assert " in about" not in unknown["text"] and "B since " in unknown["text"]
    assert unknown["text"].endswith("; runs are kept for ever")
    assert " in about 1 run since " in told["text"]
    assert told["text"].endswith("; completed runs are kept for 30d, others for ever")


@covers("W326")
def test_a_large_database_without_a_retention_is_a_warning(examined, shop, monkeypatch):
    shop.run_through()
    monkeypatch.setattr("pgflowd.core.sweeper.MANY_BYTES", 1)

    [grows] = examined()["history"]
    shop.do("select pgflowd.set_setting('retention_completed', '\"30d\"', 'me')")
    [bounded] = examined()["history"]

    assert (grows["state"], grows["code"]) == ("warning", "W326")
    assert "db set retention_completed 30d" in grows["next"]
    assert bounded["state"] == "ok"
