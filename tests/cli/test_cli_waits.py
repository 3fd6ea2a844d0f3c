"""Signals, approvals and tasks that wait, on the command line: good, wrong and for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from psycopg.conninfo import make_conninfo
from support.background import Background
from support.covers import covers
from support.shop import Shop, on_a_terminal

from pgflowd.core.failure import APPROVAL
from pgflowd.db import schema
from pgflowd.testing.until import until


@pytest.fixture
def waiting(shop: Shop) -> Iterator[UUID]:
    """A run whose only open task waits for the signal `website`."""
    run_id = shop.start()
    shop.suspend(shop.claim_all()["website#0"], kind="signal", name="website", in_s=172_800)
    yield run_id
    assert shop.rows("select * from pgflowd.violations()") == []


@pytest.fixture
def asking(shop: Shop) -> Iterator[UUID]:
    """A run whose only open task waits for approval."""
    run_id = shop.start()
    task = shop.claim_all()["website#0"]
    shop.suspend(task, kind="signal", name="website", why="approval", in_s=172_800)
    yield run_id
    assert shop.rows("select * from pgflowd.violations()") == []


def sweep(shop: Shop) -> None:
    while shop.value("select done from pgflowd.process_due()"):
        pass


def test_a_signal_is_given_to_the_task_that_waits_for_it(here, shop, waiting, elsewhere):
    args = ("runs", "signal", "@last", "website", '{"amount": 12}')
    with Background(*args, "--database-url", shop.database.dsn) as sending:
        until(lambda: shop.value("select count(*) from pgflowd.signals"), within_s=20)
        sweep(shop)
        assert sending.ended() == 0
        (line,) = sending.lines

    assert line == f"signal website for run {str(waiting)[-8:]}: given to website#0"
    assert list(shop.claim_all()) == ["website#0"]
    saved = shop.rows("select name, data from pgflowd.checkpoints")
    assert saved == [("signal website 1", {"got": {"amount": 12}})]


def test_a_signal_that_nobody_waits_for_is_kept(here, shop, waiting):
    ended = here("runs", "signal", "@last", "payd", "7")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out == (
        f"signal payd for run {str(waiting)[-8:]}: kept until a task waits for it\n"
    )
    assert "unused signal  payd, sent " in here("runs", "show", "@last").out


def test_a_signal_is_sent_once_for_each_key(here, shop, waiting):
    first = here("runs", "signal", "@last", "x", "1", "--dedup", "order-7", "--json").json
    again = here("runs", "signal", "@last", "x", "2", "--dedup", "order-7")
    other = here("runs", "signal", "@last", "x", "3", "--dedup", "order-8", "--json").json

    assert "sent before, kept until a task waits for it" in again.out
    assert shop.column("select payload from pgflowd.signals order by signal_id") == [1, 3]
    assert first["signal_id"] < other["signal_id"]
    assert (first["name"], first["payload"], first["dedup"]) == ("x", 1, "order-7")
    assert (first["sent_by"], first["step"], first["consumed_at"]) == ("postgres", None, None)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["@last", "paid", "{a: 1}"], 2, "is not JSON"),
        (["@last", "paid", "{a: 1}"], 2, "single quotes"),
        (["@last", "paid", "@nowhere.json"], 2, "@nowhere.json cannot be read: No such file"),
        (["@last", "paid", '"\\u0000"'], 2, "E403  payload"),
        (["@last", ""], 2, "E429"),
        (["@last", "x" * 201], 2, "1 to 200 characters"),
        (["@last", "paid", "--dedup", ""], 2, "E429  the dedup '' of a signal"),
        (["@last"], 2, "missing argument 'NAME'"),
        (["nobody", "paid"], 2, "is not a run"),
        (["0123abcd", "paid"], 4, "E409"),
        ([str(uuid4()), "paid"], 4, "there is no run"),
        (["@last", "paid", json.dumps("x" * 1_100_000)], 2, "E424"),
    ],
)
def test_a_wrong_signal_is_refused_and_nothing_is_sent(here, shop, waiting, args, code, said):
    ended = here("runs", "signal", *args)

    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err
    assert shop.value("select count(*) from pgflowd.signals") == 0


def test_a_run_that_has_ended_takes_no_signal(here, shop):
    shop.run_through()

    signalled = here("runs", "signal", "@last", "paid")
    approved = here("runs", "approve", "@last", "website")

    assert (signalled.code, approved.code) == (6, 6)
    assert "has ended already: it is completed; `pgflowd runs show " in signalled.err


def test_who_may_only_start_runs_may_signal_and_approve(pgflowd, shop, asking):
    shop.conn.execute(schema.roles_sql().encode())
    url = make_conninfo(shop.database.dsn, options="-c role=pgflow_starter")

    signalled = pgflowd("runs", "signal", str(asking), "paid", "--database-url", url)
    approved = pgflowd("runs", "approve", str(asking), "website", "--database-url", url)

    sent = f"signal sent to run {str(asking)[-8:]}\n"
    assert (signalled.code, signalled.out) == (0, sent)
    assert (approved.code, approved.out) == (0, sent)


@pytest.mark.parametrize(("verb", "is_approved"), [("approve", True), ("reject", False)])
def test_an_answer_says_who_gave_it_and_why(here, shop, asking, verb, is_approved):
    ended = here("runs", verb, "@last", "website", "--note", "looks fine")

    assert ended.code == 0
    answer = "approved" if is_approved else "rejected"
    kept = f"{answer} website of run {str(asking)[-8:]}: kept until a task waits for it\n"
    assert ended.out == kept  # nobody sweeps here
    assert shop.column("select payload from pgflowd.signals") == [
        {"approved": is_approved, "by": "postgres", "note": "looks fine"}
    ]


def test_an_answer_that_a_task_has_got_is_told_in_few_words(here, shop, asking, elsewhere):
    args = ("runs", "approve", "@last", "website")
    with Background(*args, "--database-url", shop.database.dsn) as approving:
        until(lambda: shop.value("select count(*) from pgflowd.signals"), within_s=20)
        sweep(shop)
        assert approving.ended() == 0

    assert approving.lines == [f"approved website of run {str(asking)[-8:]}"]


def test_an_answer_names_a_step_of_the_run(here, shop, waiting):
    close = here("runs", "approve", "@last", "web_site")
    other = here("runs", "reject", "@last", "zzz")

    assert (close.code, other.code) == (4, 4)
    assert "has no step 'web_site'; did you mean 'website'?" in close.err
    assert "its steps are website, save_to_db, sentiment, summary" in other.err
    assert shop.value("select count(*) from pgflowd.signals") == 0


def test_signals_are_listed_the_newest_first_with_who_got_them(here, shop, waiting):
    here("runs", "signal", "@last", "early", '"kept"')
    shop.do("select pgflowd.signal(%s, 'website', '1', 'ann')", waiting)
    sweep(shop)

    lines = here("signals", "list").out.splitlines()
    opened = here("signals", "list", "--open", "--json").json["signals"]

    assert lines[0].split() == ["RUN", "SIGNAL", "SENT", "BY", "GIVEN", "TO", "PAYLOAD"]
    assert [line.split()[1] for line in lines[1:]] == ["website", "early"]
    assert "ann" in lines[1] and "website#0" in lines[1]
    assert [(each["name"], each["payload"], each["step"]) for each in opened] == [
        ("early", "kept", None)
    ]
    other = shop.start("send_email")
    assert here("signals", "list", "--run", str(other)).err == "there are no such signals\n"
    assert len(here("signals", "list", "--run", str(waiting), "--limit", "1", "--json").json[
        "signals"
    ]) == 1  # fmt: skip


def test_tasks_are_listed_with_what_they_wait_for(here, shop, waiting):
    run = str(waiting)[-8:]

    head, line = here("tasks", "list", "--status", "waiting").out.splitlines()

    assert head.split() == ["TASK", "FLOW", "STATUS", "WAITS", "FOR", "SINCE", "UNTIL"]
    assert line.startswith(f"{run}/website#0  analyze_website  ◷ waiting  signal website  ")
    assert re.search(r"\d+m?s +in (2d0h|1d23h)$", line)
    (task,) = here("tasks", "list", "--run", "@last", "--json").json["tasks"]
    assert (task["run_id"], task["step"], task["task"]) == (str(waiting), "website", 0)
    assert (task["status"], task["kind"], task["name"]) == ("waiting", "signal", "website")
    assert here("tasks", "list", "--flow", "send_email").err == "there are no such tasks\n"
    assert f"{waiting}/website#0" in here("tasks", "list", "-v").out


def test_lists_know_their_words(here, shop):
    status = here("tasks", "list", "--status", "waitin")
    flow = here("tasks", "list", "--flow", "sendemail")
    both = here("tasks", "list", "--flow", "send_email", "--run", "@last")

    assert (status.code, "waiting" in status.err) == (2, True)
    assert (flow.code, "did you mean 'send_email'?" in flow.err) == (4, True)
    assert (both.code, "exclude each other" in both.err) == (2, True)
    assert here("tasks", "list").err == "no task is open\n"
    assert here("signals", "list").err == "there are no signals yet\n"


def test_a_task_is_woken_with_a_reason(here, shop, waiting):
    run = str(waiting)[-8:]

    ended = here("tasks", "wake", "@last/website#0", "--reason", "the customer called")

    assert (ended.code, ended.out) == (0, f"{run}/website#0  queued\n")
    (saved,) = shop.column("select data from pgflowd.checkpoints")
    assert saved["timeout"] is True
    assert (saved["by"], saved["reason"]) == ("postgres", "the customer called")


@covers("E423")
def test_a_task_that_does_not_wait_is_not_woken(here, shop, waiting):
    shop.start("send_email")

    queued = here("tasks", "wake", "@last/perform#0")
    unknown = here("tasks", "wake", "@last/perform#1", "--json")
    nonsense = here("tasks", "wake", "perform#0")

    assert (queued.code, unknown.code, nonsense.code) == (6, 4, 2)
    assert "E423" in queued.err and "does not wait: it is queued" in queued.err
    assert "`pgflowd tasks list --status waiting`" in queued.err
    assert unknown.problems[0]["code"] == "E409"
    assert "`pgflowd tasks list --status waiting`" in unknown.problems[0]["next"]
    assert "write RUN/STEP#INDEX" in nonsense.err


def test_show_says_what_a_run_waits_for_and_what_ends_it(here, shop, waiting):
    run = str(waiting)[-8:]
    shop.do(
        "insert into pgflowd.checkpoints (run_id, step_slug, task_index, name, token, data)"
        " values (%s, 'website', 0, 'charge', 1, '{\"id\": 7}')",
        waiting,
    )

    shown = here("runs", "show", "@last", "--checkpoints").out
    document = here("runs", "show", "@last", "--checkpoints", "--json").json

    assert "◷ waiting, started 0s ago " in shown.splitlines()[0]
    assert "│ ◷ waits │" in shown
    assert re.search(
        rf"^ website  waits for signal website, at most \S+; `pgflowd runs signal {run} website`"
        " ends it$", shown, re.MULTILINE,
    )  # fmt: skip
    assert re.search(r'^website#0 +charge +1 +8 B  \d+s ago  \{"id": 7\}$', shown, re.MULTILINE)
    assert document["status"] == "waiting"
    assert [(each["step"], each["name"]) for each in document["waits"]] == [("website", "website")]
    assert document["checkpoints"][0]["data"] == {"id": 7}
    assert document["steps"][0]["waiting"] == 1
    assert "checkpoints" not in here("runs", "show", "@last", "--json").json


@pytest.mark.parametrize(
    ("wait", "said"),
    [
        (
            {"kind": "sleep", "in_s": 7200},
            "sleeps 2h00m; `pgflowd tasks wake {run}/website#0` ends it",
        ),
        (
            {"kind": "signal", "name": "website", "why": APPROVAL},
            "waits for approval; `pgflowd runs approve {run} website` ends it",
        ),
        (
            {"kind": "signal", "name": "it's paid"},
            "waits for signal it's paid; `pgflowd runs signal {run} 'it'\"'\"'s paid'` ends it",
        ),
        (
            {"kind": "sleep", "in_s": 30, "why": "E425 newer code"},
            "waits 30s: E425 newer code; `pgflowd tasks wake {run}/website#0` ends it",
        ),
    ],
)
def test_follow_says_what_a_task_waits_for_and_what_ends_it(here, shop, wait, said):
    run_id = shop.start()
    shop.suspend(shop.claim_all()["website#0"], **wait)

    shown = here("runs", "follow", "@last", "--timeout", "1ms")
    streamed = here("runs", "follow", "@last", "--timeout", "1ms", "--json").out.splitlines()

    assert said.format(run=str(run_id)[-8:]) in shown.out
    assert "it waits; `pgflowd runs show" in shown.err
    last = json.loads(streamed[-1])
    assert (last["event"], last["step"], last["task"]) == ("task:waiting", "website", 0)
    assert f"{last['text']}; `{last['ends_by']}` ends it" == said.format(run=str(run_id)[-8:])


def test_who_waits_for_a_run_is_told_what_the_run_waits_for(here, shop, waiting):
    run = str(waiting)[-8:]

    ended = here("runs", "wait", "@last", "--timeout", "1ms")

    assert (ended.code, ended.out) == (5, "")
    note, error = ended.err.splitlines()
    assert note.startswith(f"run {run}, website: waits for signal website, at most ")
    assert note.endswith(f"; `pgflowd runs signal {run} website` ends it")
    assert "it waits; `pgflowd runs show" in error
    assert here("runs", "wait", "@last", "--timeout", "1ms", "-q").err.splitlines() == [error]


def test_a_wait_that_begins_later_is_a_new_line(shop, elsewhere):
    shop.start()
    shop.suspend(shop.claim_all()["website#0"], kind="signal", name="one")
    dsn = ("--database-url", shop.database.dsn)
    with Background("runs", "follow", "@last", *dsn) as following:
        until(lambda: "waits for signal one" in str(following.lines), within_s=20)
        run_id = shop.value("select run_id from pgflow.runs")
        shop.do("select pgflowd.signal(%s, 'one')", run_id)
        sweep(shop)
        shop.suspend(shop.claim_all()["website#0"], kind="signal", name="two")
        until(lambda: "waits for signal two" in str(following.lines), within_s=20)
        shop.do("select pgflowd.signal(%s, 'two')", run_id)
        sweep(shop)
        shop.database.client.cancel(run_id)
        assert following.ended() == 1


def test_runs_and_flows_show_that_they_wait(here, shop, waiting, project, monkeypatch):
    monkeypatch.setenv("PGFLOWD__SUPERVISOR__CONTROL", str(project / "nobody.sock"))

    (run,) = here("runs", "list", "--status", "waiting", "--json").json["runs"]
    flows = {flow["flow"]: flow for flow in here("flows", "list", "--json").json["flows"]}
    status = {flow["slug"]: flow for flow in here("status", "--json").json["flows"]}

    assert (run["run_id"], run["status"]) == (str(waiting), "waiting")
    assert here("runs", "list", "--status", "started").err == "there are no such runs\n"
    assert (flows["analyze_website"]["waiting"], flows["send_email"]["waiting"]) == (1, 0)
    assert flows["analyze_website"]["active_runs"] == 1
    assert "WAITING" in here("flows", "list").out.splitlines()[0]
    assert (status["analyze_website"]["waiting"], status["send_email"]["waiting"]) == (1, 0)
    assert "1 waiting" in here("flows", "show", "analyze_website").out


def test_a_column_of_nothing_that_waits_is_left_out(here, shop):
    shop.start()

    assert "WAITING" not in here("flows", "list").out


def test_tasks_of_a_map_that_wait_for_the_same_are_shown_as_one(here, shop):
    run_id = shop.start("store_items", list(range(30)))
    for index, key in enumerate(shop.claim_all("store_items").values()):
        shop.suspend(key, kind="signal", name="go" if index < 29 else "stop")
    run = str(run_id)[-8:]

    shown = here("runs", "show", "@last").out.splitlines()

    assert shown[-3:] == [
        f" store#0 and 28 more  waits for signal go; `pgflowd runs signal {run} go` ends it",
        f" store#29  waits for signal stop; `pgflowd runs signal {run} stop` ends it",
        f" all of them: `pgflowd tasks list --run {run}`",
    ]
    assert any("30 wait" in line for line in shown)


@pytest.mark.parametrize("line", ["runs show @last", "runs follow @last --timeout 1ms"])
def test_the_command_that_ends_a_wait_stays_whole_where_it_is_narrow(shop, waiting, line):
    url = ("--database-url", shop.database.dsn)

    shown = on_a_terminal(*line.split(), *url, columns=60, NO_COLOR="1").splitlines()

    command = f"pgflowd runs signal {str(waiting)[-8:]} website"
    assert [row for row in shown if row.strip() == command]


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize(
    "line", ["runs show @last", "tasks list", "signals list", "runs follow @last --timeout 1ms"]
)
def test_nothing_is_wider_than_the_terminal(shop, waiting, elsewhere, columns, line):
    shop.do("select pgflowd.signal(%s, 'a rather long name of a signal', %s)", waiting,
            json.dumps({"text": "x" * 100}))  # fmt: skip

    shown = on_a_terminal(
        *line.split(), "--database-url", shop.database.dsn, columns=columns, NO_COLOR="1"
    )

    assert "website" in shown or "signal" in shown
    assert [row for row in shown.splitlines() if len(row) > columns] == []
