"""What happened and who did it, on the command line; and verbs over many runs."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

import pytest
from support.covers import covers
from support.shop import Shop

from pgflowd import Flow
from pgflowd.testing.until import until

ACTIONS = "select action from pgflowd.actions order by action_id"


def actions(shop: Shop) -> list[str]:
    return [row[0] for row in shop.conn.execute(ACTIONS).fetchall()]


def statuses(shop: Shop) -> list[str]:
    query = "select status from pgflowd.run_status order by run_id"
    return [row[0] for row in shop.conn.execute(query).fetchall()]


def test_the_log_of_a_run_tells_its_attempts_and_who_did_what(here, shop):
    run = shop.start()
    key = shop.claim_all()["website#0"]
    here("runs", "pause", str(run), "--reason", "too hot")
    here("runs", "resume", str(run))
    fail = "select pgflowd.fail(%s, %s, %s, %s, 'no such host', retry => false)"
    shop.conn.execute(fail, key)

    lines = here("runs", "log", str(run)).out.splitlines()

    told = [re.sub(r"^[\d:.]+ +", "", line) for line in lines[1:]]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", lines[0])
    assert [line.split(" ", 1)[0] for line in told[:3]] == ["run", "website", "website"]
    assert any("pause by postgres: too hot" in line for line in told)
    assert any("attempt 1 failed, for good: no such host" in line for line in told)
    events = here("runs", "log", str(run), "--json").json["events"]
    assert (events[0]["event"], events[-1]["event"]) == ("run:started", "run:failed")
    assert here("runs", "log", "00000000-0000-0000-0000-000000000000").code == 4


def test_the_log_of_a_long_run_says_how_older_events_are_shown(here, shop):
    shop.run_through()
    run = str(shop.conn.execute("select run_id from pgflow.runs").fetchone()[0])
    whole = here("runs", "log", run, "--json").json
    assert whole["before"] is None and len(whole["events"]) > 6

    newest = here("runs", "log", run, "--limit", "4")
    page = here("runs", "log", run, "--limit", "4", "--json").json

    (before,) = re.findall(r"runs log \w+ --before (\S+)` shows older ones", newest.err)
    assert page["before"] == page["events"][0]["at"]
    older = here("runs", "log", run, "--before", before, "--json").json
    assert older["before"] is None
    assert older["events"] + page["events"] == whole["events"]
    assert here("runs", "log", run, "--before", before, "--follow").code == 2


def test_the_log_shows_who_did_what_to_which_run(here, shop):
    run, other = shop.start("send_email"), shop.start("send_email")
    here("runs", "cancel", str(run), "--reason", "wrong customer")
    shop.conn.execute("select pgflowd.cancel(%s, '', 'jane')", (other,))
    here("db", "set", "crash_limit", "7")

    out = here("log").out
    assert re.search(r"postgres +\S cancel run \w{8} of send_email: wrong customer", out)
    assert "set_setting (name crash_limit, value 7, it was 5)" in out
    (mine,) = here("log", "--actor", "jane", "--json").json["actions"]
    assert (mine["action"], mine["run_id"]) == ("cancel", str(other))
    assert len(here("log", "--run", str(run), "--since", "1h", "--json").json["actions"]) == 1
    assert "there are no such actions" in here("log", "--actor", "nobody").err


def test_the_role_of_the_session_is_shown_beside_who_somebody_says_to_be(here, shop):
    run = shop.start()
    shop.conn.execute("select pgflowd.signal(%s, 'paid', actor => 'ada')", (run,))
    shop.conn.execute("select pgflowd.cancel(%s, '', %s)", (run, "x" * 200))

    told = here("log").out
    assert re.search(r"  ada \(role postgres\) +\S signal run", told)
    assert re.search(r"  x{59}… \(role postgres\) +\S cancel run", told)
    assert "signal by ada (role postgres) (name paid)" in here("runs", "log", str(run)).out
    assert " ada (role postgres) " in here("signals", "list").out
    assert "by ada (role postgres): null" in here("runs", "show", str(run)).out
    events = here("runs", "log", str(run), "--json").json["events"]
    documents = [
        here("signals", "list", "--json").json["signals"][0],
        here("log", "--json").json["actions"][0],
        next(each["detail"] for each in events if each["event"] == "action:signal"),
    ]
    assert [each["session_role"] for each in documents] == ["postgres"] * 3


def test_a_follower_of_a_log_misses_nothing_until_the_run_ends(process, shop, database):
    run = shop.start("send_email")
    found: list[Any] = []

    def follow() -> None:
        url = ("--database-url", database.dsn)
        found.append(process("runs", "log", str(run), "-f", "--json", *url))

    follower = threading.Thread(target=follow)
    follower.start()
    with database.connect() as late, late.transaction():
        late.execute("select pgflowd.signal(%s, 'early', '1', 'jane')", (run,))
        shop.conn.execute("select pgflowd.signal(%s, 'paid', '1', 'joe')", (run,))
        is_read = "select true from pg_stat_activity where query ~ 'run_timeline' limit 1"
        until(lambda: shop.conn.execute(is_read).fetchone())
    shop.complete(shop.claim_all("send_email")["perform#0"])
    follower.join()

    lines = [json.loads(line) for line in found[0].out.splitlines()]
    events = [line["event"] for line in lines]
    assert sorted(events) == sorted(event.event for event in database.client.timeline(run))
    assert len(events) == len({(one["event"], one["at"], str(one["detail"])) for one in lines})


def test_dead_letters_are_tasks_that_failed_for_good(here, shop):
    run = shop.start()
    key = shop.claim_all()["website#0"]
    fail = "select pgflowd.fail(%s, %s, %s, %s, 'no such host', retry => false)"
    shop.conn.execute(fail, key)
    shop.conn.execute("select pgflowd.cancel(%s, '', '')", (shop.start("send_email"),))

    (dead,) = here("dead", "list", "--json").json["tasks"]
    assert (dead["run_id"], dead["step"], dead["error"]) == (str(run), "website", "no such host")
    assert dead["attempts"] == 1  # though the core counts all as used up
    assert not re.search(r"\d/\d", here("runs", "show", str(run)).out.split("why")[0])
    assert re.search(r"#0 +\S failed +1 ", here("runs", "tasks", str(run), "website").out)
    assert "no such host" in here("dead", "list", "--flow", "analyze_website", "--since", "1d").out
    assert "there are no such tasks" in here("dead", "list", "--flow", "send_email").err
    assert here("dead", "list", "--flow", "send_mail").code == 4
    traceback = "select traceback from pgflowd.dead_letters"
    assert shop.conn.execute(traceback).fetchall() == [(None,)]


def test_many_runs_are_cancelled_and_retried_with_an_action_each(here, shop):
    for _ in range(60):
        shop.start("send_email")
    shop.start()

    refused = here("runs", "cancel", "--flow", "send_email")
    assert (refused.code, "cancel 60 runs?" in refused.err) == (6, True)
    done = here("runs", "cancel", "--flow", "send_email", "--since", "1d", "--yes")

    assert (done.code, len(done.out.splitlines())) == (0, 60)
    assert sorted(set(statuses(shop))) == ["cancelled", "started"]
    assert actions(shop) == ["cancel"] * 60
    again = here("runs", "cancel", "--flow", "send_email", "--yes")
    assert (again.code, again.out, "there are no such runs" in again.err) == (0, "", True)
    filters = ("--flow", "send_email", "--status", "cancelled", "--yes", "--json")
    left = here("runs", "retry", *filters)
    assert (left.code, left.json["runs"]) == (6, [])
    assert "--even-if-cancelled" in left.problems[0]["next"]
    retried = here("runs", "retry", *filters, "--even-if-cancelled", "--reason", "by mistake")
    assert len(retried.json["runs"]) == 60
    assert actions(shop).count("retry") == 60


def test_a_run_that_refuses_is_reported_and_keeps_none_of_the_others(here, shop, monkeypatch):
    runs = [shop.start("send_email") for _ in range(3)]
    listed = here("runs", "pause", "--flow", "send_email", "--yes")
    assert listed.code == 0
    shop.conn.execute("select pgflowd.cancel(%s, '', '')", (runs[1],))
    from pgflowd.cli.commands import run_verbs

    monkeypatch.setattr(run_verbs, "_matching", lambda *_, **__: sorted(runs))
    resumed = here("runs", "pause", "--flow", "send_email", "--yes")

    assert (resumed.code, len(resumed.out.splitlines())) == (6, 2)
    assert "cannot be paused: it is cancelled" in resumed.err


def test_a_flow_means_all_its_versions(here, shop):
    other = Flow("send_email")
    other.step(slug="other", needs=["mail"])(lambda: 1)
    shape = json.dumps(other.shape())
    old = shop.start("send_email")
    deployed = "select flow_slug from pgflowd.deploy_version('send_email', %s::jsonb)"
    (new,) = shop.conn.execute(deployed, (shape,)).fetchone()
    run = shop.database.client.start_flow("send_email", {}).run_id
    flow = ("--flow", "send_email")

    listed = here("tasks", "list", *flow, "--json").json["tasks"]
    assert {task["run_id"] for task in listed} == {str(old), str(run)}
    claimed = here("tasks", "claim", "send_email", "--caps", "mail", "--json").json["task"]
    assert claimed["run_id"] == str(run)
    here("tasks", "fail", f"{run}/other#0", "--reason", "no mail", "--final")
    (dead,) = here("dead", "list", *flow, "--json").json["tasks"]
    assert dead["run_id"] == str(run)
    shop.conn.execute('select pgflowd.add_minute(%s, \'[{"step": "other"}]\')', (new,))
    stats = here("flows", "stats", "send_email", "--json").json["flows"]
    assert {one["flow"] for one in stats} == {"send_email", new}
    shop.conn.execute("update pgflow.runs set failed_at = failed_at - interval '2 d',"
                      " started_at = started_at - interval '2 d'")  # fmt: skip
    assert "1 run deleted" in here("runs", "prune", "--older-than", "1d", *flow, "--yes").out
    (left,) = here("runs", "list", *flow, "--json").json["runs"]
    assert left["run_id"] == str(old)


@pytest.mark.parametrize("words", ["@last --flow send_email", "--status failed"])
def test_runs_are_named_or_chosen_and_only_those_that_the_verb_fits(here, shop, words):
    shop.start("send_email")

    assert here("runs", "pause", *words.split(), "--yes").code == 2


@covers("friction 7")
def test_prune_names_the_command_that_chooses_by_status(here, shop):
    ended = here("runs", "prune", "--older-than", "1d", "--status", "completed")

    assert ended.code == 2
    assert "`pgflowd runs delete --status STATUS --label NAME=VALUE`" in ended.err
    assert "--keep-failed" in ended.err


def test_prune_deletes_old_runs_with_a_label_alone(here, shop):
    shop.start("send_email")
    start = "select run_id from pgflowd.start('send_email', '{}', labels => %s)"
    labels = ['{"env": "test", "nr": "1"}', '{"env": "test"}', '{"env": "live"}']
    runs = [str(shop.conn.execute(start, (one,)).fetchone()[0]) for one in labels]
    here("runs", "cancel", "--flow", "send_email", "--yes")
    chosen = ("runs", "prune", "--older-than", "1d", "--label", "env=test", "--yes")
    assert "0 runs deleted" in here(*chosen).out
    shop.do("update pgflow.runs set started_at = started_at - interval '3 d',"
            " failed_at = failed_at - interval '2 d'")  # fmt: skip

    assert "1 run would be deleted" in here(*chosen, "--label", "nr=1", "--dry-run").out
    assert "2 runs deleted" in here(*chosen).out

    left = {one["run_id"] for one in here("runs", "list", "--json").json["runs"]}
    assert (len(left), runs[2] in left) == (2, True)
    (action,) = here("log", "--json").json["actions"][:1]
    assert (action["action"], action["data"]["labels"]) == ("prune", {"env": "test"})
