"""A person's work on tasks, on the command line: good, wrong and for programs."""

from __future__ import annotations

import json
import re

import pytest
from psycopg.conninfo import make_conninfo

from pgflowd.db import schema


def test_a_person_claims_and_completes_a_task(here, shop):
    run = str(shop.start(input={"url": "x"}))[-8:]

    claimed = here("tasks", "claim", "analyze_website", "--as", "jane doe", "--lease", "2d")
    listed = here("tasks", "list", "--status", "leased", "--json").json["tasks"]
    ended = here("tasks", "complete", "@last/website#0", '{"ok": true}', "--as", "jane doe")

    head, value = claimed.out.splitlines()
    assert claimed.code == 0
    assert re.fullmatch(rf"{run}/website#0  token \d+  until \d{{4}}-\d\d-\d\d \d\d:\d\d", head)
    assert value == '  run    {"url": "x"}'
    assert f"pgflowd tasks complete {run}/website#0 OUTPUT --as 'jane doe'" in claimed.err
    assert [(task["step"], task["worker"]) for task in listed] == [("website", "jane doe")]
    assert (ended.code, ended.out) == (0, f"{run}/website#0  completed\n")
    outputs = shop.column("select output from pgflow.step_tasks where step_slug = 'website'")
    assert outputs == [{"ok": True}]


def test_a_person_keeps_a_task_for_longer(here, shop):
    run = str(shop.start(input={"url": "x"}))[-8:]
    here("tasks", "claim", "--as", "jane", "--lease", "1h")

    longer = here("tasks", "extend", "@last/website#0", "--lease", "3d", "--as", "jane")
    document = here("tasks", "extend", "@last/website#0", "--lease", "4d", "--as", "jane", "--json")
    others = here("tasks", "extend", "@last/website#0", "--lease", "1d", "--as", "john")

    assert re.fullmatch(rf"{run}/website#0  until \d{{4}}-\d\d-\d\d \d\d:\d\d\n", longer.out)
    assert document.json["lease_until"].endswith("Z")
    assert others.code != 0 and "E407" in others.err
    too_long = here("tasks", "extend", "@last/website#0", "--lease", "31d")
    assert too_long.code == 2 and "30d at most" in too_long.err


def test_a_claim_without_a_flow_is_of_any(here, shop):
    assert here("tasks", "claim").code == 1
    shop.start(input={"url": "x"})

    claimed = here("tasks", "claim", "--json").json["task"]

    assert claimed["flow"] == "analyze_website"


def test_a_list_names_who_has_a_task(here, shop):
    shop.start()
    assert "BY" not in here("tasks", "list").out

    here("tasks", "claim", "analyze_website", "--as", "jane")

    head, line = here("tasks", "list").out.splitlines()
    assert head.split() == ["TASK", "FLOW", "STATUS", "WAITS", "FOR", "BY", "SINCE", "UNTIL"]
    assert "▶ leased" in line and "  jane  " in line
    shown = here("runs", "show", "@last").out
    assert "a person has it" in shown and "timeout" not in shown


def test_a_claim_shows_the_outputs_of_the_deps(here, shop):
    shop.start(input={"url": "x"})
    here("tasks", "complete", "@last/website#0", '"page"')

    document = here("tasks", "claim", "analyze_website", "--json").json["task"]

    assert (document["input"], document["run"]) == ({"website": "page"}, {"url": "x"})
    assert (document["flow"], document["attempt"]) == ("analyze_website", 1)
    assert document["token"] > 0 and document["lease_until"].endswith("Z")
    assert shop.column("select function_name from pgflow.workers") == ["postgres"]


def test_a_flow_without_a_ready_task_is_an_answer(here, shop):
    nothing = here("tasks", "claim", "send_email")
    for_programs = here("tasks", "claim", "send_email", "--json")

    assert (nothing.code, nothing.out) == (1, "")
    assert (
        nothing.err
        == "no task of send_email is ready; see `pgflowd tasks list --flow send_email`\n"
    )
    assert (for_programs.code, for_programs.json["task"]) == (1, None)


@pytest.mark.parametrize("lease", ["0s", "31d"])
def test_a_lease_is_of_thirty_days_at_most(here, shop, lease):
    ended = here("tasks", "claim", "send_email", "--lease", lease)

    assert (ended.code, "30d at most" in ended.err) == (2, True)


def test_what_somebody_else_has_is_refused(here, shop):
    shop.start("send_email", 1)
    here("tasks", "claim", "send_email", "--as", "jane")
    token = str(shop.value("select token from pgflowd.attempts"))

    joe = here("tasks", "complete", "@last/perform#0", "1", "--as", "joe")
    wrong = here("tasks", "release", "@last/perform#0", "--token", "999")
    unknown = here("tasks", "fail", "@last/perform#1", "--json")
    right = here("tasks", "release", "@last/perform#0", "--delay", "2h", "--token", token)

    assert (joe.code, wrong.code, unknown.code, right.code) == (6, 1, 4, 0)
    assert "E423" in joe.err and "it is leased by jane" in joe.err
    assert "`pgflowd tasks list --run " in joe.err
    assert "E407" in wrong.err
    assert unknown.problems[0]["code"] == "E409"
    assert "delayed" in here("tasks", "list").out


def test_a_failure_is_tried_again_unless_it_is_final(here, shop):
    shop.start("send_email", 1)

    again = here("tasks", "fail", "@last/perform#0", "--reason", "no paper", "--as", "jane")
    final = here("tasks", "fail", "@last/perform#0", "--final", "--as", "jane", "--json")

    assert again.out.endswith("  queued\n")
    assert final.json["result"] == "failed"
    assert "failed by jane" in here("runs", "show", "@last").out
    assert "failed by jane: no paper" in here("runs", "show", "@last", "--attempts").out


def test_who_is_late_is_told_so(here, shop):
    run_id = shop.start("send_email", 1)
    here("tasks", "claim", "send_email", "--as", "jane")
    shop.database.client.cancel(run_id)

    ended = here("tasks", "complete", "@last/perform#0", "1", "--as", "jane")

    assert (ended.code, ended.out.endswith("  late\n")) == (1, True)
    assert "had ended before" in ended.err


@pytest.mark.parametrize("output", ["{a: 1}", '"\\u0000"'])
def test_a_wrong_output_is_refused_and_nothing_has_changed(here, shop, output):
    shop.start("send_email", 1)

    ended = here("tasks", "complete", "@last/perform#0", output)

    assert ended.code == 2
    assert shop.rows("select 1 from pgflowd.attempts") == []


def test_an_output_may_be_a_file(here, shop, project):
    shop.start("send_email", 1)
    (project / "answer.json").write_text(json.dumps([1, 2]))

    assert here("tasks", "complete", "@last/perform#0", "@answer.json").code == 0
    assert shop.column("select output from pgflow.step_tasks") == [[1, 2]]


def test_the_role_of_a_worker_is_enough_and_that_of_a_starter_is_not(pgflowd, shop):
    run_id = shop.start(input={"url": "x"})
    shop.conn.execute(schema.roles_sql().encode())
    worker, starter, viewer = (
        ("--database-url", make_conninfo(shop.database.dsn, options=f"-c role=pgflow_{role}"))
        for role in ("worker", "starter", "viewer")
    )
    task = f"{run_id}/website#0"

    for role in (starter, viewer):
        refused = pgflowd("tasks", "claim", "analyze_website", *role)
        assert (refused.code, "E305" in refused.err) == (77, True), refused
        assert pgflowd("tasks", "complete", task, "1", *role).code == 77
    assert pgflowd("tasks", "claim", "analyze_website", *worker).code == 0
    assert pgflowd("tasks", "release", task, *worker).code == 0
    assert pgflowd("tasks", "fail", task, *worker).code == 0
    assert pgflowd("tasks", "release", task, "--needs", "law", *worker).code == 0
    assert pgflowd("tasks", "claim", "analyze_website", "--caps", "law", *worker).code == 0
    assert pgflowd("tasks", "complete", task, "1", *worker).code == 0
