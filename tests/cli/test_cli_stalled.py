"""`pgflowd stalled`: lists, requeues and fails stalled tasks."""

from __future__ import annotations

from uuid import uuid4

import pytest
from support.shop import on_a_terminal


@pytest.fixture
def lost(shop):
    """A run whose two tasks at work have lost their worker."""
    run_id = shop.start()
    shop.complete(shop.claim_all()["website#0"], 1)
    shop.claim_all()
    shop.stall()
    return run_id


def short(run_id: object, task: str) -> str:
    return f"{str(run_id)[-8:]}/{task}"


def test_list_names_the_tasks_as_the_commands_take_them(here, lost):
    lines = here("stalled", "list").out.splitlines()

    assert lines[0].split() == ["TASK", "FLOW", "STALLED", "ATTEMPT", "TIMES", "WHY"]
    assert {line.split()[0] for line in lines[1:]} == {
        short(lost, "sentiment#0"),
        short(lost, "summary#0"),
    }
    assert "its lease lapsed" in lines[1]


def test_list_for_programs(here, lost):
    tasks = here("stalled", "list", "--json").json["tasks"]

    assert set(tasks[0]) == {
        "run_id", "step", "task", "flow", "worker_id", "attempt", "times", "started_at",
        "stalled_at", "reason",
    }  # fmt: skip
    assert {task["step"] for task in tasks} == {"sentiment", "summary"}


def test_nothing_stalled_is_a_note_on_stderr(here, shop):
    shop.start()
    shop.claim_all()

    ended = here("stalled", "list")

    assert (ended.code, ended.out, ended.err) == (0, "", "no task is stalled\n")


def test_a_requeued_task_can_be_claimed_again_unspent(here, shop, lost):
    ended = here("stalled", "requeue", short(lost, "summary#0"))

    assert (ended.code, ended.out) == (0, f"{short(lost, 'summary#0')}  requeued\n")
    assert list(shop.claim_all()) == ["summary#0"]
    attempts = shop.conn.execute(
        "select attempt, outcome, error_message from pgflowd.attempts"
        " where step_slug = 'summary' order by token"
    ).fetchall()
    assert attempts == [(1, "stalled", "requeued by postgres"), (1, None, None)]


def test_all_are_requeued_at_once(here, shop, lost):
    ended = here("stalled", "requeue", "--all", "--json")

    assert {task["step"] for task in ended.json["requeued"]} == {"sentiment", "summary"}
    assert ended.json["left"] == []
    assert set(shop.claim_all()) == {"sentiment#0", "summary#0"}


def test_a_late_report_has_lost_the_task(here, shop):
    shop.start("send_email")
    key = shop.claim_all("send_email")["perform#0"]
    shop.stall()

    here("stalled", "requeue", "--all")

    with pytest.raises(Exception, match="token"):
        shop.complete(key, 1)


def test_a_failed_task_fails_its_run_with_the_reason(here, shop, lost):
    ended = here("stalled", "fail", "@last/sentiment#0", "--reason", "the file is gone")

    assert (ended.code, ended.out) == (0, f"{short(lost, 'sentiment#0')}  failed\n")
    run = shop.database.client.get_run(lost)
    assert run.status == "failed"
    assert "given up by postgres: the file is gone" in run.error


def test_a_task_at_work_is_left_alone(here, shop):
    run_id = shop.start("send_email")
    shop.claim_all("send_email")

    for command in ("requeue", "fail"):
        ended = here("stalled", command, short(run_id, "perform#0"))

        assert ended.code == 6
        assert "is not stalled; it was left as it is" in ended.err


@pytest.mark.parametrize("command", ["requeue", "fail"])
def test_wrong_words(here, shop, lost, command):
    nothing = here("stalled", command)
    both = here("stalled", command, "@last/summary#0", "--all")
    no_task = here("stalled", command, "@last/summary")
    no_step = here("stalled", command, "@last/sumary#0")
    no_run = here("stalled", command, f"{uuid4()}/summary#0")

    assert [each.code for each in (nothing, both, no_task, no_step, no_run)] == [2, 2, 2, 4, 4]
    assert "name tasks, or give --all" in nothing.err
    assert "write RUN/STEP#INDEX" in no_task.err
    assert "E409" in no_step.err


def test_what_recovery_of_siblings_gave_up_is_found_and_ended(here, shop):
    """Upstream's own recovery leaves such a task started for ever."""
    run_id = shop.start("send_email")
    shop.claim_all("send_email")
    shop.conn.execute("delete from pgflowd.attempts")
    shop.conn.execute(
        "update pgflow.step_tasks set permanently_stalled_at = now(), requeued_count = 3,"
        " started_at = now(), queued_at = now() - interval '1 h'"
    )
    shop.conn.execute("select pgmq.archive('send_email', %s::bigint)", (1,))

    listed = here("stalled", "list", "--json").json["tasks"]
    here("stalled", "requeue", short(run_id, "perform#0"))

    assert [(task["reason"], task["times"]) for task in listed] == [("recovery gave it up", 3)]
    assert list(shop.claim_all("send_email")) == ["perform#0"]
    assert here("stalled", "list").out == ""


@pytest.mark.parametrize("columns", [40, 80])
def test_the_list_fits_the_terminal(shop, lost, elsewhere, columns):
    shown = on_a_terminal(
        "stalled", "list", "--database-url", shop.database.dsn, columns=columns, NO_COLOR="1"
    )

    assert max(len(line) for line in shown.splitlines()) <= columns, shown
    assert short(lost, "summary#0") in shown


def test_a_task_in_quarantine_is_listed_shown_and_requeued(here, shop):
    for name, value in (("crash_limit", "1"), ("on_crash_limit", '"quarantine"')):
        shop.do("select pgflowd.set_setting(%s, %s::jsonb, 'test')", name, value)
    run = shop.start("send_email")
    shop.claim_all("send_email")
    shop.do("select pgflowd.crashed(%s, 'its worker died')", shop.worker_id)

    assert "quarantined: stalled 1 times in a row" in here("stalled", "list").out
    assert "quarantined" in here("tasks", "list", "--status", "quarantined").out
    assert "quarantined" in here("runs", "list", "--status", "quarantined").out
    shown = here("runs", "show", str(run)).out
    assert "is quarantined: stalled 1 times in a row" in shown
    assert "pgflowd stalled requeue" in shown
    assert "requeued" in here("stalled", "requeue", "@last/perform#0").out
    assert shop.claim_all("send_email")
