"""`pgflowd flows` shows the flows of database and code, and deploys and deletes them."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from support.covers import covers
from support.shop import MODULE, Shop, on_a_terminal

from pgflowd import Flow, Limit
from pgflowd.db import schema

DASH = "\N{EN DASH}"
OTHER_SHAPE = MODULE.replace("def save_to_db(sentiment, summary=None)", "def save_to_db(sentiment)")
TUNED = MODULE.replace('"analyze_website", max_attempts=3', '"analyze_website", max_attempts=9')


def slugs(shop: Shop) -> list[str]:
    rows = shop.conn.execute("select flow_slug from pgflow.flows order by 1").fetchall()
    return [slug for (slug,) in rows]


def test_list_shows_waiting_and_running_tasks_and_workers(here, shop):
    shop.start()
    shop.start("send_email")
    shop.claim_all("send_email")

    lines = here("flows", "list").out.splitlines()

    assert lines[0].split() == [
        "FLOW", "STEPS", "QUEUED", "OLDEST", "RUNNING", "RUNS", "WORKERS", "IMPORT", "LAST",
        "RUN",
    ]  # fmt: skip
    found = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert list(found) == ["analyze_website", "send_email", "store_items"]
    assert found["analyze_website"][:2] == ["4", "1"]
    assert "⚠ 0" in lines[1]  # queued tasks, but no worker
    assert found["send_email"][1:6] == ["0", DASH, "1", "1", "1"]
    assert found["store_items"][-1] == DASH


def test_list_for_programs(here, shop):
    shop.start()

    listed = here("flows", "list", "--json").json

    assert listed["schema_version"] == 1
    first = listed["flows"][0]
    assert set(first) == {
        "flow", "undoes", "steps", "queue", "watched", "queued", "waiting", "planned",
        "oldest_queued_at", "running", "active_runs", "workers", "asleep", "paused_at", "paused_by",
        "pause_reason", "import_s", "last_run_at", "created_at", "version", "old_versions",
        "old_runs",
    }  # fmt: skip
    assert (first["flow"], first["queued"], first["watched"]) == ("analyze_website", 1, True)


def test_an_empty_list_names_the_command_that_deploys_flows(here, database):
    ended = here("flows", "list")

    assert (ended.code, ended.out) == (0, "")
    assert "pgflowd flows deploy" in ended.err


def test_show_draws_the_flow_and_lists_its_options(here, shop):
    ended = here("flows", "show", "analyze_website")

    lines = ended.out.splitlines()
    assert lines[:2] == ["analyze_website", "max_attempts 3, base_delay 5 s, timeout 60 s"]
    assert "├─┬─▶│ sentiment ├─┬─▶│ save_to_db │" in ended.out
    rows = {line.split()[0]: line.split() for line in lines if line and line[0].isalpha()}
    assert rows["sentiment"][1:5] == ["single", "2", "5s", "60s"]
    assert rows["summary"][-1] == "skip"


def test_show_for_programs_has_the_shape_in_force(here, shop):
    shown = here("flows", "show", "analyze_website", "--json").json

    assert shown["schema_version"] == 1
    assert shown["shape"]["options"] == {"maxAttempts": 3, "baseDelay": 5, "timeout": 60}
    assert shown["shape"]["steps"][1]["options"] == {"maxAttempts": 2}


def test_a_queue_without_its_trigger_is_reported(here, shop):
    shop.conn.execute("drop trigger pgflowd_notify on pgmq.q_analyze_website")

    assert "W311" in here("flows", "show", "analyze_website").err


@pytest.mark.parametrize("command", ["show", "graph", "delete"])
def test_a_flow_there_is_not(here, shop, command):
    ended = here("flows", command, "Analyze_Websit")

    assert ended.code == 4
    assert "E415" in ended.err and "did you mean 'analyze_website'?" in ended.err


def test_graph_comes_as_boxes_mermaid_and_json(here, shop):
    boxes = here("flows", "graph", "store_items")
    mermaid = here("flows", "graph", "analyze_website", "--format", "mermaid")
    as_json = here("flows", "graph", "analyze_website", "--json")

    assert "│ store [] │" in boxes.out
    assert mermaid.out.startswith("flowchart LR\n")
    assert "    sentiment --> save_to_db\n" in mermaid.out
    assert {"from": "website", "to": "summary"} in as_json.json["edges"]
    assert as_json.json == here("flows", "graph", "analyze_website", "--format", "json").json


def test_graph_of_a_run_has_its_states(here, shop):
    shop.run_through()
    shop.start("send_email")

    drawn = here("flows", "graph", "analyze_website", "--run", str(shop.run_through()))
    strange = here("flows", "graph", "analyze_website", "--run", "nix")
    foreign = here("flows", "graph", "send_email", "--run", "@last")

    assert drawn.out.count("✔") == 4
    assert (strange.code, foreign.code) == (2, 2)
    assert "is a run of analyze_website" in foreign.err


def test_graph_shows_a_flow_of_the_code_before_it_is_deployed(here, project, database):
    assert "│ perform │" in here("flows", "graph", "send_email").out


def test_diff_prints_whether_code_and_database_are_the_same(here, project, shop):
    same = here("flows", "diff", "analyze_website")
    (project / "shop_flows.py").write_text(TUNED)
    tuned = here("flows", "diff", "analyze_website")
    (project / "shop_flows.py").write_text(OTHER_SHAPE)
    other = here("flows", "diff", "analyze_website")

    assert (same.code, same.out) == (0, "analyze_website is the same in code and database\n")
    assert tuned.code == 0
    assert tuned.out.splitlines()[1].split(maxsplit=4) == [
        "max_attempts", "9", "3", "3", "deploy takes the code's",
    ]  # fmt: skip
    assert other.code == 1
    assert "step save_to_db: after sentiment, not after sentiment and summary" in other.out
    assert "deploy makes it the next version" in other.err


def test_diff_for_programs(here, project, database):
    told = here("flows", "diff", "send_email", "--json")

    assert told.code == 1
    assert told.json == {
        "schema_version": 1, "flow": "send_email", "place": "shop_flows.py:23", "exists": False,
        "same": False, "version": None, "current": None, "differences": [], "options": [],
    }  # fmt: skip


def test_diff_of_a_flow_that_is_not_in_the_code(here, project, shop):
    ended = here("flows", "diff", "send_mail")

    assert ended.code == 4
    assert "did you mean 'send_email'?" in ended.err


def test_deploy_creates_what_is_missing_with_queue_and_trigger(here, project, database):
    first = here("flows", "deploy", "send_email")
    second = here("flows", "deploy", "--json")

    assert first.out == "send_email  created\n"
    assert second.json["flows"] == [
        {
            "flow": "analyze_website",
            "result": "created",
            "changes": [],
            "version": "analyze_website",
        },
        {"flow": "store_items", "result": "created", "changes": [], "version": "store_items"},
        {"flow": "send_email", "result": "unchanged", "changes": [], "version": "send_email"},
    ]  # fmt: skip
    assert all(flow["watched"] for flow in here("flows", "list", "--json").json["flows"])


def test_deploy_puts_a_lost_trigger_back(here, project, shop):
    shop.conn.execute("drop trigger pgflowd_notify on pgmq.q_send_email")

    here("flows", "deploy", "send_email")

    assert here("flows", "show", "send_email", "--json").json["watched"]


def test_deploy_asks_before_another_shape_and_creates_the_others(here, project, shop):
    (project / "shop_flows.py").write_text(
        OTHER_SHAPE + '\nnew = Flow("new")\n@new.step\ndef a(run): ...\n'
    )

    asked = here("flows", "deploy")
    before = slugs(shop)
    done = here("flows", "deploy", "--yes", "--code", "8f3a2c1")

    assert (asked.code, done.code) == (78, 0)
    assert "step save_to_db: after sentiment, not after sentiment and summary" in asked.err
    assert "Make it the next version? without a terminal this needs --yes" in asked.err
    assert "new              created" in asked.out
    assert before == ["analyze_website", "new", "send_email", "store_items"]
    assert "analyze_website  starts go to analyze_website_2 now" in done.out
    shown = here("flows", "show", "analyze_website")
    assert "version 2 is analyze_website_2, current, deployed" in shown.out
    assert "8f3a2c1" in shown.out
    assert here("flows", "diff", "analyze_website").out == (
        "analyze_website is the same in code and database (analyze_website_2)\n"
    )


def test_old_versions_are_counted_listed_rolled_back_and_pruned(here, project, shop):
    shop.start()
    (project / "shop_flows.py").write_text(OTHER_SHAPE)
    here("flows", "deploy", "--yes")

    listed, whole = here("flows", "list"), here("flows", "list", "-v")
    both = here("runs", "list", "--flow", "analyze_website", "--json").json["runs"]

    assert "analyze_website +1 old, 1 run" in listed.out
    assert len(whole.out.splitlines()) == len(listed.out.splitlines()) + 1
    assert "analyze_website_2 is current  " in whole.out and "analyze_website  " in whole.out
    assert [run["flow"] for run in both] == ["analyze_website"]
    kept = here("flows", "delete", "analyze_website_2", "--yes", "--force")
    assert kept.code == 6 and "is a version to which starts go" in kept.err
    back = here("flows", "rollback", "analyze_website")
    assert back.out == "analyze_website: starts go to analyze_website\n"
    compared = here("flows", "diff", "analyze_website")
    assert (compared.code, "but starts go to analyze_website;" in compared.err) == (0, True)
    pruned = here("flows", "prune-versions", "analyze_website", "--json")
    assert pruned.json["deleted"] == ["analyze_website_2"]
    again = here("flows", "rollback", "analyze_website")
    assert again.code == 4 and "no version before the current one" in again.err


@covers("W321")
def test_check_tells_what_open_runs_and_other_runtimes_need(here, project, shop):
    shop.start()
    gone = OTHER_SHAPE.replace("summary", "digest")
    (project / "shop_flows.py").write_text(gone)

    warned = here("check")
    here("flows", "deploy", "--yes")
    shop.start()
    after = here("check")

    assert "W322  analyze_website: step summary of version 1 with 1 open run has no" in warned.out
    assert "W321  analyze_website: 1 run of version 1 began although another one" in after.out


@covers("W333")
def test_check_says_that_without_a_history_there_are_no_traces(here, project, shop, database):
    with (project / "pgflowd.toml").open("a") as file:
        file.write('\n[telemetry]\ntraces = "on"\n')
    assert "W333" not in here("check").out
    here("db", "set", "history", "off")
    assert "W333  [telemetry] traces is on, and history is off" in here("check").out


def test_deploy_prints_sql_that_does_the_same(here, project, database):
    script = here("flows", "deploy", "--sql").out

    conn = database.connect()
    conn.execute(script.encode())
    conn.execute(script.encode())  # twice is once

    for slug in ("analyze_website", "store_items", "send_email"):
        assert here("flows", "diff", slug).code == 0
    conn.execute("select pgflow.delete_flow_and_data('send_email')")
    conn.execute("select pgflow.create_flow('send_email'), pgflow.add_step('send_email', 'other')")
    with pytest.raises(Exception, match="flow send_email has another shape here"):
        conn.execute(script.encode())

    changing = here("flows", "deploy", "--sql", "--yes").out
    for each in (changing, changing, script):
        conn.execute(each.encode())
    current = "select name, flow_slug from pgflowd.versions where is_current"
    assert conn.execute(current).fetchall() == [("send_email", "send_email_2")]
    conn.execute("select pgflowd.rollback_version('send_email')")
    conn.execute(changing.encode())
    assert conn.execute(current).fetchall() == [("send_email", "send_email_2")]


def test_deploy_with_errors_in_the_code_prints_all_and_changes_nothing(here, project, database):
    (project / "shop_flows.py").write_text(
        MODULE.replace("def sentiment(website)", "def sentiment(wesite)")
    )

    ended = here("flows", "deploy")
    other = here("flows", "deploy", "send_email")

    assert ended.code == 78
    assert "E201" in ended.err and "did you mean 'website'?" in ended.err
    assert other.out == "send_email  created\n"  # its own flow is right


def test_deploy_without_flows_in_the_config_names_the_key(here, elsewhere, database):
    ended = here("flows", "deploy")

    assert ended.code == 78
    assert "E111" in ended.err


def test_deploy_acts_as_the_owner_where_the_owner_has_the_schema(pgflowd, project, database):
    conn = database.connect()
    conn.execute(schema.roles_sql().encode())
    name = f"h_deployer_{uuid4().hex[:8]}"
    identifier = sql.Identifier(name)
    create = sql.SQL("create role {} login noinherit in role pgflow_owner").format(identifier)
    conn.execute(create)
    try:
        url = make_conninfo(database.dsn, user=name)

        ended = pgflowd("flows", "deploy", "send_email", "--database-url", url)

        assert ended.out == "send_email  created\n", ended.err
        owner = conn.execute(
            "select pg_get_userbyid(relowner) from pg_class"
            " where oid = 'pgmq.q_send_email'::regclass"
        ).fetchone()
        assert owner == ("pgflow_owner",)
    finally:
        conn.execute(sql.SQL("drop role {}").format(identifier))


def test_delete_without_a_terminal_needs_yes(here, shop):
    asked = here("flows", "delete", "send_email")
    done = here("flows", "delete", "send_email", "--yes")

    assert (asked.code, "--yes" in asked.err) == (6, True)
    assert (done.code, done.out) == (0, "send_email is deleted\n")
    assert slugs(shop) == ["analyze_website", "store_items"]


def test_delete_refuses_while_runs_are_active_unless_forced(here, shop):
    shop.start("send_email")

    refused = here("flows", "delete", "send_email", "--yes")
    forced = here("flows", "delete", "send_email", "--yes", "--force", "--json")

    assert refused.code == 6
    assert "active" in refused.err and "--force" in refused.err
    assert forced.json == {"schema_version": 1, "flow": "send_email", "deleted": True}


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize(
    "command", [("list",), ("show", "analyze_website"), ("graph", "analyze_website")]
)
def test_what_is_shown_fits_the_terminal(shop, elsewhere, columns, command):
    shop.start()

    shown = on_a_terminal(
        "flows", *command, "--database-url", shop.database.dsn, columns=columns, NO_COLOR="1"
    )

    assert max(len(line) for line in shown.splitlines()) <= columns, shown
    assert "website" in shown


def test_without_unicode_everything_is_ascii(shop, elsewhere):
    shop.start()

    for command in (("list",), ("show", "analyze_website")):
        shown = on_a_terminal(
            "flows", *command, "--database-url", shop.database.dsn,
            columns=120, NO_COLOR="1", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0",
        )  # fmt: skip

        assert shown.isascii()
        assert "\\u" not in shown


def test_what_user_code_prints_spoils_no_output(here, project, database):
    (project / "shop_flows.py").write_text("print('noise')\n" + MODULE)

    assert json.loads(here("flows", "deploy", "--json").out)["schema_version"] == 1


def limited(shop):
    """A flow that allows two tasks at once and needs a gpu, with three runs, and its worker."""
    made = Flow("crawl")
    made.step(slug="fetch", limit=Limit(2, key="run.host", name="hosts"), needs=["gpu"])(
        lambda run: run
    )
    shop.do("select pgflowd.define('crawl', %s::jsonb)", json.dumps(made.shape()))
    for _ in range(3):
        shop.start("crawl", {"host": "example.com"})
    worker = shop.worker("crawl")
    shop.do("insert into pgflowd.worker_caps values (%s, '{gpu}')", worker)
    shop.claim("crawl", worker, caps=["gpu"])


def test_limits_shows_what_is_taken_and_how_many_wait(here, shop):
    limited(shop)

    ended = here("flows", "limits", "crawl")

    title, line = ended.out.splitlines()
    assert title.split()[:4] == ["KEY", "SLOTS", "TAKEN", "WAITING"]
    assert line.split()[:4] == ["hosts:example.com", "2", "2", "1"]
    assert line.count("/fetch#0") == 2
    (listed,) = here("flows", "limits", "crawl", "--json").json["limits"]
    assert {key: listed[key] for key in ("steps", "slots", "taken", "waiting")} == {
        "steps": ["fetch"], "slots": 2, "taken": 2, "waiting": 1,
    }  # fmt: skip
    waits = here("tasks", "list", "--status", "waiting").out
    assert "a place of hosts:example.com" in waits


def test_limits_are_set_and_the_code_does_not_undo_it(here, shop):
    limited(shop)

    done = here("flows", "set", "crawl/fetch", "limit=3")
    ended = here("flows", "limits", "crawl")

    assert done.out == "crawl/fetch: limit 2 → 3\n"
    assert ended.out.splitlines()[1].split()[:4] == ["hosts:example.com", "3", "3", "0"]
    shown = here("flows", "show", "crawl").out
    assert "3 per run.host as hosts" in shown and "has gpu" in shown
    wrong = here("flows", "set", "crawl/fech", "limit=3")
    assert wrong.code == 4 and "there is no step fech in flow crawl" in wrong.err
    assert "`pgflowd flows show crawl` lists its steps" in wrong.err
    assert "set_option flow crawl/fetch (limit 2 → 3)" in here("log").out
    unequal = here("flows", "set", "crawl", "timeout", "30").err
    assert "'timeout' sets no option; write its value, as timeout=30" in unequal


def test_show_says_what_no_worker_has(here, shop):
    limited(shop)
    shop.do("delete from pgflowd.worker_caps")

    missing = here("flows", "show", "crawl").err
    assert "no living worker has gpu" in missing
    assert "`pgflowd tasks claim crawl --caps gpu`" in missing
    shop.do("delete from pgflowd.slots")
    assert here("tasks", "list", "--needs", "gpu").code == 0
