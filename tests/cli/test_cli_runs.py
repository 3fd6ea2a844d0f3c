"""`pgflowd runs`: good, wrong and for programs, on a real database."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from psycopg.conninfo import make_conninfo
from support.background import Background
from support.covers import covers
from support.shop import Shop, on_a_terminal

from pgflowd.db import schema
from pgflowd.testing.until import until


def test_start_prints_the_id_of_the_run_and_nothing_else(here, shop):
    ended = here("runs", "start", "analyze_website", '{"url": "x"}')

    run = shop.database.client.get_run(UUID(ended.out.strip()))
    assert (ended.code, ended.err) == (0, "")
    assert (run.status, run.input) == ("started", {"url": "x"})


def test_start_without_an_input_gives_an_empty_object(here, shop):
    ended = here("runs", "start", "analyze_website", "--json")

    assert ended.json["schema_version"] == 1
    assert (ended.json["flow"], ended.json["status"]) == ("analyze_website", "started")
    assert ended.json["input"] == {}


def test_the_input_may_come_from_a_file_or_from_standard_input(here, shop, elsewhere, monkeypatch):
    (elsewhere / "in.json").write_text('{"a": 1}')
    with (elsewhere / "in.json").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        piped = here("runs", "start", "send_email", "-", "--json")

    filed = here("runs", "start", "send_email", "@in.json", "--json")

    assert piped.json["input"] == filed.json["input"] == {"a": 1}


def test_an_endless_input_is_refused(process, shop):
    url = ("--database-url", shop.database.dsn)

    filed = process("runs", "start", "send_email", "@/dev/zero", *url)
    with Path("/dev/zero").open("rb") as endless:
        piped = process("runs", "start", "send_email", "-", *url, stdin=endless)

    assert (filed.code, piped.code) == (2, 2)
    assert "@/dev/zero cannot be read: it is larger than 64 MiB" in filed.err
    assert "- cannot be read: it is larger than 64 MiB" in piped.err


@pytest.mark.parametrize(
    "args",
    [
        ["runs", "list"],
        ["runs", "show", "@last"],
        ["runs", "follow", "@last"],
        ["flows", "list"],
        ["stalled", "list"],
        ["check"],
        ["doctor"],
        ["status"],
    ],
)
def test_a_schema_of_a_later_pgflowd_is_reported(here, project, shop, args):
    shop.conn.execute("update pgflowd.schema_history set version = version + 1000")

    ended = here(*args)

    assert "E303" in ended.out + ended.err and "upgrade pgflowd" in ended.out + ended.err
    assert ended.code == {"check": 1, "doctor": 1, "status": 3}.get(args[0], 78)


def test_a_role_that_may_not_read_the_schema_version_can_list_runs(pgflowd, shop):
    shop.conn.execute(schema.roles_sql().encode())
    shop.start()
    url = make_conninfo(shop.database.dsn, options="-c role=pgflow_viewer")

    assert pgflowd("runs", "list", "--database-url", url).code == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["send_email", "{a: 1}"], "is not JSON"),
        (["send_email", "{a: 1}"], "single quotes"),
        (["send_email", "NaN"], "NaN is not JSON"),
        (["send_email", "[" * 50_000], "is nested too deeply"),
        (["send_email", "@nowhere.json"], "@nowhere.json cannot be read: No such file"),
        (["send_email", "--timeout", "3s"], "--timeout needs --follow or --wait"),
        (["send_email", "--wait", "--timeout", "3"], "it has no unit"),
        (["send_email", "--wait", "--follow"], "exclude each other"),
        (["send_email", "--run-id", "abc"], "abc"),
        (["send_email", "--folow"], "did you mean '--follow'?"),
        ([], "missing argument 'FLOW'"),
    ],
)
def test_a_mistyped_start_prints_what_is_wrong_and_starts_nothing(here, shop, args, said):
    ended = here("runs", "start", *args)

    assert ended.code == 2
    assert said in ended.err
    assert shop.conn.execute("select count(*) from pgflow.runs").fetchone() == (0,)


@covers("E415")
def test_a_flow_that_is_nearly_there_is_suggested(here, shop):
    ended = here("runs", "start", "analyse_website")

    assert ended.code == 4
    assert "E415" in ended.err
    assert "did you mean 'analyze_website'?" in ended.err


def test_a_map_over_the_input_wants_an_array(here, shop):
    ended = here("runs", "start", "store_items", "{}")

    assert ended.code == 2
    assert "E416" in ended.err


@covers("E410")
def test_a_run_id_may_be_chosen_once(here, shop):
    chosen = str(uuid4())

    first = here("runs", "start", "send_email", "--run-id", chosen)
    second = here("runs", "start", "send_email", "--run-id", chosen)

    assert first.out.strip() == chosen
    assert (second.code, "E410" in second.err) == (6, True)


def test_list_shows_the_newest_first_with_how_far_they_are(here, shop):
    done = shop.run_through()
    shop.start("send_email")
    failed = shop.start("store_items", [1])
    shop.database.client.cancel(failed, reason="not wanted")

    lines = here("runs", "list").out.splitlines()

    assert lines[0].split() == ["RUN", "FLOW", "STATUS", "STARTED", "TOOK", "STEPS", "ERROR"]
    assert [line.split()[1] for line in lines[1:]] == [
        "store_items",
        "send_email",
        "analyze_website",
    ]
    assert "⊘ cancelled" in lines[1] and "not wanted" in lines[1]
    assert "▶ started" in lines[2]
    assert lines[3].startswith(str(done)[-8:]) and "✔ completed" in lines[3] and "4/4" in lines[3]


def test_list_can_be_narrowed(here, shop):
    shop.run_through()
    shop.start("send_email")
    shop.start("send_email")

    def flows(*args: str) -> list[str]:
        return [run["flow"] for run in here("runs", "list", "--json", *args).json["runs"]]

    assert flows("--flow", "send_email") == ["send_email", "send_email"]
    assert flows("--status", "completed") == ["analyze_website"]
    assert len(flows("--status", "completed", "--status", "started")) == 3
    assert len(flows("--limit", "1")) == 1
    assert len(flows("--since", "1h")) == 3
    shop.conn.execute(
        "update pgflow.runs set started_at = now() - interval '2 h', completed_at = now()"
        " where status = 'completed'"
    )
    assert len(flows("--since", "1h")) == 2
    assert flows("--until", "1h") == flows("--until", "1h", "--text", "") == ["analyze_website"]
    assert len(flows("--since", "2000-01-01")) == 3
    assert flows("--until", "2000-01-01") == flows("--text", "no such") == []


def test_pages_of_a_list_go_on_where_the_one_before_ended(here, shop):
    runs = [str(shop.start("send_email")) for _ in range(3)]

    first = here("runs", "list", "--limit", "2", "--json").json
    second = here("runs", "list", "--limit", "2", "--json", "--after", first["next"]).json

    assert [run["run_id"] for run in (*first["runs"], *second["runs"])] == runs[::-1]
    assert (first["found"], first["found_to"], second["next"]) == (3, None, None)
    assert first["searched_to"] == first["runs"][1]["started_at"]
    middle = here("runs", "list", "--limit", "1", "--after", here(
        "runs", "list", "--limit", "1", "--json").json["next"])  # fmt: skip
    assert middle.out.splitlines()[1].startswith(runs[1][-8:])
    assert f"`--after {first['next']}` goes on" in middle.err
    assert "back to" in middle.err and "looked" not in here("runs", "list", "--limit", "1").err
    wrong = here("runs", "list", "--after", "yesterday")
    assert (wrong.code, "'yesterday' is no key of a page" in wrong.err) == (2, True)


def test_list_for_programs(here, shop):
    done = shop.run_through()

    (run,) = here("runs", "list", "--json").json["runs"]

    assert set(run) == {
        "run_id", "flow", "status", "started_at", "ended_at", "steps", "steps_done", "error",
        "start_at", "labels", "title", "undo_of", "share",
    }  # fmt: skip
    assert (run["run_id"], run["status"], run["steps"]) == (str(done), "completed", 4)


def test_list_without_runs_prints_a_note_on_stderr(here, shop):
    ended = here("runs", "list")

    assert (ended.code, ended.out, ended.err) == (
        0,
        "",
        "there are no runs yet; `pgflowd runs start FLOW` starts one\n",
    )


def test_list_knows_its_words(here, shop):
    wrong_status = here("runs", "list", "--status", "finished")
    wrong_flow = here("runs", "list", "--flow", "sendemail")

    assert (wrong_status.code, "cancelled" in wrong_status.err) == (2, True)
    assert (wrong_flow.code, "did you mean 'send_email'?" in wrong_flow.err) == (4, True)


def in_the_middle(shop: Shop) -> UUID:
    """A run with one step done, one at work, and one that failed once."""
    run_id = shop.start(input={"url": "https://example.com"})
    shop.complete(shop.claim_all()["website#0"], {"content": "hi"})
    tasks = shop.claim_all()
    trace = 'Traceback:\n  File "flows/analyze.py", line 31, in summary\n'
    shop.fail(tasks["summary#0"], "TimeoutError: model did not answer", traceback=trace)
    return run_id


def test_show_draws_the_run(here, shop):
    run_id = in_the_middle(shop)

    ended = here("runs", "show", "@last")

    lines = ended.out.splitlines()
    assert lines[0].startswith(f"run {run_id}   analyze_website   ▶ started ")
    assert lines[0].endswith('input {"url": "https://example.com"}')
    assert "│ website ├─┬─▶│ sentiment ├─┬─▶│ save_to_db │" in ended.out
    assert "│ ✔ " in ended.out
    assert "attempt 2 of 3, next in " in ended.out
    assert "timeout in " in ended.out
    assert "last error  summary, attempt 1, 0s ago: TimeoutError: model did not answer" in ended.out
    assert "model did not answer   at flows/analyze.py:31 in summary\n" in ended.out
    assert lines[-1].strip() == 'File "flows/analyze.py", line 31, in summary'


def test_show_takes_an_id_its_last_digits_or_last(here, shop):
    run_id = shop.run_through()

    words = (str(run_id), str(run_id)[-8:], run_id.hex[-13:].upper(), "@last")
    shown = [here("runs", "show", word, "--json").json["run_id"] for word in words]

    assert shown == [str(run_id)] * 4


@covers("promise 9")
def test_last_is_the_newest_run_that_somebody_has_started(here, shop):
    mine, other = shop.run_through(), shop.start("send_email", {"to": "x"})
    add = "select pgflowd.set_schedule('nightly', %s, '0 3 * * *', '{}', overlap => 'allow')"
    shop.do(add, "analyze_website")
    tick = "select pgflowd.tick(name, due_at, now() + interval '1 day', array[now()])"
    assert shop.value(tick + " from pgflowd.schedules") is True
    ticked = shop.value("select last_run_id from pgflowd.schedules")
    fired = "select run_id from pgflowd.fire_schedule('nightly', 'jane')"

    def meant(word):
        return here("runs", "show", word, "--json").json["run_id"]

    assert meant("@last") == str(other)
    assert meant("@last:send_email") == str(other)
    assert meant("@last:analyze_website") == str(ticked) != str(mine)
    mine = shop.value(fired)
    assert meant("@last") == str(mine)
    unknown = here("runs", "show", "@last:send_emial")
    assert unknown.code == 4 and "did you mean 'send_email'?" in unknown.err


def test_digits_that_fit_two_runs_are_asked_for_again(here, shop):
    for first in "12":
        chosen = f"{first}0000000-0000-7000-8000-00000000abcd"
        here("runs", "start", "send_email", "--run-id", chosen)

    ended = here("runs", "show", "abcd")

    assert ended.code == 2
    assert "fits more than one run" in ended.err
    assert "10000000-0000-7000-8000-00000000abcd" in ended.err


@covers("E409")
@pytest.mark.parametrize("command", ["show", "follow", "wait", "cancel", "retry"])
def test_a_run_there_is_not(here, shop, command):
    digits = here("runs", command, "0123abcd")
    whole = here("runs", command, str(uuid4()))
    last = here("runs", command, "@last")
    nonsense = here("runs", command, "newest")

    assert (digits.code, whole.code, last.code, nonsense.code) == (4, 4, 4, 2)
    assert "E409" in digits.err and "pgflowd runs list" in digits.err
    assert "there are no runs" in last.err
    assert "give an id, its last digits, or @last" in nonsense.err


def test_show_for_programs_has_everything(here, shop):
    run_id = in_the_middle(shop)

    shown = here("runs", "show", "@last", "--json", "--attempts").json

    steps = {step["step"]: step for step in shown["steps"]}
    assert (shown["schema_version"], shown["run_id"], shown["status"]) == (
        1,
        str(run_id),
        "started",
    )
    assert list(steps) == ["website", "sentiment", "summary", "save_to_db"]
    assert steps["save_to_db"]["deps"] == ["sentiment", "summary"]
    assert (steps["summary"]["queued"], steps["summary"]["attempts"]) == (1, 1)
    assert steps["website"]["output"] == {"content": "hi"}
    outcomes = [(one["step"], one["outcome"]) for one in shown["attempts"]]
    assert outcomes == [("website", "completed"), ("sentiment", None), ("summary", "failed")]


def test_show_prints_a_whole_input_or_output_for_others_to_read(here, shop):
    shop.run_through(output={"text": "x" * 500})

    given = here("runs", "show", "@last", "--input")
    made = here("runs", "show", "@last", "--output")
    both = here("runs", "show", "@last", "--input", "--output")

    assert given.json == {"url": "x"}
    assert made.json == {"save_to_db": {"text": "x" * 500}}
    assert both.code == 2


def test_show_lists_attempts(here, shop):
    in_the_middle(shop)

    lines = here("runs", "show", "@last", "--attempts").out.splitlines()

    head = next(at for at, line in enumerate(lines) if line.startswith("STEP"))
    assert lines[head].split() == [
        "STEP", "TASK", "ATTEMPT", "OUTCOME", "STARTED", "TOOK", "ERROR",
    ]  # fmt: skip
    assert "✔ completed" in lines[head + 1]
    assert "✖ failed" in lines[head + 3] and "TimeoutError" in lines[head + 3]


def test_a_cancelled_run_shows_its_actor_and_reason(here, shop):
    run_id = shop.start()

    ended = here("runs", "cancel", "@last", "--reason", "wrong customer")
    shown = here("runs", "show", "@last")
    again = here("runs", "cancel", "@last")

    assert (ended.code, ended.out) == (0, f"run {run_id} cancelled\n")
    assert "⊘ cancelled after" in shown.out
    assert "by postgres: wrong customer" in shown.out
    assert again.code == 0  # twice is once


def test_what_has_ended_cannot_be_cancelled_and_the_others_are(here, shop):
    done, active = shop.run_through(), shop.start("send_email")

    ended = here("runs", "cancel", str(done), str(active), "--json")

    assert ended.code == 6
    assert [run["run_id"] for run in ended.json["runs"]] == [str(active)]
    assert [problem["code"] for problem in ended.problems] == ["E411"]


def test_retry_tries_failed_steps_again(here, shop):
    run_id = shop.start("send_email")
    key = shop.claim_all("send_email")["perform#0"]
    shop.conn.execute("select pgflowd.fail(%s, %s, %s, %s, 'no', retry => false)", key)

    ended = here("runs", "retry", "@last")

    assert (ended.code, ended.out) == (0, f"run {run_id} retried\n")
    assert list(shop.claim_all("send_email")) == ["perform#0"]


def test_a_cancelled_run_is_retried_only_with_the_option(here, shop):
    shop.start("send_email")
    here("runs", "cancel", "@last")

    refused = here("runs", "retry", "@last")
    done = here("runs", "retry", "@last", "--even-if-cancelled", "--json")

    assert refused.code == 6
    assert "--even-if-cancelled" in refused.err
    assert done.code == 0
    assert done.json["runs"][0]["status"] == "started"


def test_wait_prints_the_output_of_a_completed_run(here, shop):
    shop.run_through(output=7)

    ended = here("runs", "wait", "@last")

    assert (ended.code, json.loads(ended.out)) == (0, {"save_to_db": 7})
    assert here("runs", "wait", "@last", "--json").json["runs"][0]["output"] == {"save_to_db": 7}


def test_wait_exits_with_1_for_a_failed_run_and_prints_why(here, shop):
    shop.start("send_email")
    shop.conn.execute(
        "select pgflowd.fail(%s, %s, %s, %s, 'no such customer', retry => false)",
        shop.claim_all("send_email")["perform#0"],
    )

    ended = here("runs", "wait", "@last")

    assert ended.code == 1
    assert "✖ failed  perform: no such customer" in ended.out


def test_wait_gives_up_with_5_and_the_run_continues(here, shop):
    shop.start("send_email")

    ended = here("runs", "wait", "@last", "--timeout", "50ms")

    assert ended.code == 5
    assert "it continues" in ended.err


def test_wait_for_many_names_each(here, shop):
    first, second = shop.run_through(), shop.run_through()

    lines = here("runs", "wait", str(first), str(second)).out.splitlines()

    assert [line.split()[1] for line in lines] == [str(first)[-8:], str(second)[-8:]]


def test_start_and_wait_meets_the_end_in_time(shop, elsewhere):
    args = ("runs", "start", "send_email", "{}", "--wait", "--timeout", "20s", "-q")
    with Background(*args, "--database-url", shop.database.dsn) as waiting:
        key = until(lambda: shop.claim_all("send_email"), within_s=20)["perform#0"]
        shop.complete(key, {"sent": True})

        assert waiting.ended() == 0
        assert [json.loads(line) for line in waiting.lines] == [{"perform": {"sent": True}}]


def test_follow_prints_the_events_of_a_run_that_has_ended(here, shop):
    run_id = in_the_middle(shop)
    short = str(run_id)[-8:]
    shop.database.client.cancel(run_id, reason="enough")

    ended = here("runs", "follow", short)

    lines = ended.out.splitlines()
    assert ended.code == 1
    assert lines[0] == f"run {short}  analyze_website  started"
    assert lines[1].split()[1:3] == ["website", "✔"] and lines[1].endswith('{"content": "hi"}')
    assert any(
        "summary     ✖" in line and "attempt 1 of 3: TimeoutError: model did not answer" in line
        for line in lines
    )
    assert lines[-1].startswith(f"run {short}  ⊘ cancelled after ")
    assert lines[-1].endswith("by postgres: enough")


def test_follow_of_many_names_the_run_in_each_line(here, shop):
    first, second = shop.run_through(), shop.run_through()

    lines = here("runs", "follow", str(first), str(second)).out.splitlines()

    steps = [line.split()[0] for line in lines if not line.startswith("run")]
    assert set(steps) == {str(first)[-8:], str(second)[-8:]}
    assert len(lines) == 2 * 6


def test_follow_is_a_stream_of_events_for_programs(here, shop):
    run_id = shop.run_through()

    events = [
        json.loads(line) for line in here("runs", "follow", "@last", "--json").out.splitlines()
    ]

    assert events[0]["event"] == "run:started"
    assert events[-1]["event"] == "run:completed"
    assert {event["run_id"] for event in events} == {str(run_id)}
    assert {event["schema_version"] for event in events} == {1}
    steps = [(event["step"], event["event"]) for event in events if event["step"]]
    assert ("website", "step:started") in steps and ("save_to_db", "step:completed") in steps
    assert len(steps) == 8
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)


def test_start_and_wait_says_that_no_worker_serves_the_flow(here, shop):
    ended = here("runs", "start", "send_email", "--wait", "--timeout", "1s")

    assert "no worker serves send_email now: the run goes on when `pgflowd serve` runs" in ended.err


def test_start_and_follow_sees_everything_while_it_happens(shop, elsewhere):
    args = ("runs", "start", "analyze_website", "{}", "--follow", "--json")
    with Background(*args, "--database-url", shop.database.dsn) as following:
        until(lambda: len(following.lines) >= 2, within_s=20)
        shop.complete(shop.claim_all()["website#0"], 1)
        until(lambda: following.events[-1]["step"] in ("sentiment", "summary"), within_s=5)
        tasks = shop.claim_all()
        shop.fail(tasks["summary#0"], "not today")
        until(lambda: following.events[-1]["event"] == "task:failed", within_s=5)
        shop.conn.execute(
            "select pgflowd.fail(%s, %s, %s, %s, 'never', retry => false)", tasks["sentiment#0"]
        )

        assert following.ended() == 1
        assert following.events[-1]["event"] == "run:failed"
        assert following.events[-1]["error"] == "sentiment: never"


def test_retry_and_follow_prints_only_what_is_new(shop, elsewhere):
    run_id = shop.start()
    shop.complete(shop.claim_all()["website#0"], 1)
    tasks = shop.claim_all()
    shop.complete(tasks["summary#0"], 1)
    shop.conn.execute(
        "select pgflowd.fail(%s, %s, %s, %s, 'never', retry => false)", tasks["sentiment#0"]
    )
    args = ("runs", "retry", str(run_id), "--follow", "--json")
    with Background(*args, "--database-url", shop.database.dsn) as following:
        shop.complete(until(lambda: shop.claim_all().get("sentiment#0"), within_s=20), 2)
        shop.complete(until(lambda: shop.claim_all().get("save_to_db#0"), within_s=20), 3)

        assert following.ended() == 0
        told = [(event["event"], event["step"]) for event in following.events]
        assert ("step:completed", "website") not in told
        assert told[-1] == ("run:completed", None)


def test_a_role_that_may_only_start_flows_can_follow_them(shop, pgflowd):
    from psycopg import sql
    from psycopg.conninfo import make_conninfo

    from pgflowd.db import schema

    shop.conn.execute(schema.roles_sql().encode())
    name = f"h_starter_{uuid4().hex[:8]}"
    shop.conn.execute(
        sql.SQL("create role {} login in role pgflow_starter").format(sql.Identifier(name))
    )
    try:
        url = make_conninfo(shop.database.dsn, user=name)
        run_id = shop.run_through()

        followed = pgflowd("runs", "follow", str(run_id), "--database-url", url)
        started = pgflowd("runs", "start", "send_email", "--database-url", url)
        unknown = pgflowd("runs", "start", "send_mail", "--database-url", url)
        listed = pgflowd("runs", "list", "--database-url", url)

        assert followed.code == 0 and "✔ completed" in followed.out
        assert started.code == 0
        assert unknown.code == 4
        assert (listed.code, "E305" in listed.err) == (77, True)
    finally:
        shop.conn.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize(
    "command",
    [("show", "@last", "--attempts"), ("follow", "@last"), ("list",), ("wait", "@last")],
)
def test_what_is_shown_fits_the_terminal(shop, elsewhere, columns, command):
    run_id = in_the_middle(shop)
    shop.database.client.cancel(run_id, reason="a reason with many words " * 4)

    shown = on_a_terminal(
        "runs", *command, "--database-url", shop.database.dsn, columns=columns, NO_COLOR="1"
    )

    assert "\x1b" not in shown
    assert max(len(line) for line in shown.splitlines()) <= columns, shown
    assert "cancelled" in shown


@pytest.mark.parametrize("columns", [80, 100])
def test_an_error_in_a_list_is_cut_to_the_terminal_and_whole_with_v(shop, elsewhere, columns):
    run_id = in_the_middle(shop)
    reason = " ".join(f"word{number}" for number in range(20))
    shop.database.client.cancel(run_id, reason=reason)
    command = ("runs", "list", "--database-url", shop.database.dsn)

    brief = on_a_terminal(*command, columns=columns, NO_COLOR="1").splitlines()
    whole = on_a_terminal(*command, "-v", columns=columns, NO_COLOR="1").splitlines()

    assert brief[0].endswith("ERROR") and brief[1].endswith("…")
    assert str(run_id) in whole[1]
    assert " ".join(" ".join(whole[2:]).split()).endswith(reason)
    assert max(map(len, brief + whole)) <= columns


def test_without_unicode_everything_is_ascii(shop, elsewhere):
    in_the_middle(shop)

    for command in (
        ("show", "@last", "--attempts"),
        ("list",),
        ("follow", "@last", "--timeout", "1s"),
    ):
        shown = on_a_terminal(
            "runs", *command, "--database-url", shop.database.dsn,
            columns=100, NO_COLOR="1", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0",
        )  # fmt: skip

        assert shown.isascii(), shown
        assert "\\u" not in shown


def test_colours_paint_the_states_in_the_picture(shop, elsewhere):
    in_the_middle(shop)

    shown = on_a_terminal("runs", "show", "@last", "--database-url", shop.database.dsn, columns=120)

    assert "\x1b[32m✔ " in shown
    assert "\x1b[36m▶ " in shown


def test_a_hostile_error_stays_on_its_line(here, shop):
    run_id = shop.start("send_email")
    shop.conn.execute(
        "select pgflowd.fail(%s, %s, %s, %s, %s, retry => false)",
        (*shop.claim_all("send_email")["perform#0"], "boom\nrun fake\x1b[31m red password=canary9"),
    )

    everything = "".join(
        here("runs", *args).out
        for args in (
            ["list"],
            ["show", str(run_id), "--attempts"],
            ["follow", "@last"],
            ["wait", "@last"],
        )
    )

    assert "\x1b" not in everything
    assert "\nrun fake" not in everything
    assert "canary9" not in everything


def test_an_unreachable_database_is_reported_in_every_command(pgflowd):
    nowhere = ("--database-url", "postgresql://u:canary7@127.0.0.1:1/x")
    for args in (
        ["list"],
        ["show", "@last"],
        ["start", "x"],
        ["follow", "@last"],
        ["cancel", "@last"],
    ):
        ended = pgflowd("runs", *args, *nowhere)

        assert (ended.code, "E301" in ended.err) == (69, True)
        assert "canary7" not in ended.err


def test_a_database_without_a_schema_is_reported(pgflowd, empty_database):
    ended = pgflowd("runs", "list", "--database-url", empty_database.dsn)

    assert ended.code == 78
    assert "E302" in ended.err and "pgflowd db migrate" in ended.err


def test_an_interrupted_follow_prints_that_the_run_continues(shop, elsewhere):
    run_id = shop.start("send_email")
    with Background("runs", "follow", "@last", "--database-url", shop.database.dsn) as following:
        until(lambda: following.lines, within_s=20)
        following.process.send_signal(signal.SIGINT)

        assert following.ended() == 130
        assert following.process.stderr is not None
        assert f"run {str(run_id)[-8:]} goes on" in following.process.stderr.read()


def test_a_step_that_fails_with_its_last_attempt_is_reported_once(here, shop, elsewhere):
    shop.start("send_email")
    shop.conn.execute(
        "select pgflowd.fail(%s, %s, %s, %s, 'no such customer', traceback => %s, retry => false)",
        (
            *shop.claim_all("send_email")["perform#0"],
            f'  File "{elsewhere}/flows/a.py", line 7, in x\n',
        ),
    )

    told = here("runs", "follow", "@last").out
    whole = here("runs", "follow", "@last", "-v").out
    shown = here("runs", "show", "@last").out

    assert told.count("no such customer") == 2  # the attempt, and the run's end
    assert whole.count("no such customer") == 3
    assert shown.count("no such customer") == 1
    assert "no such customer   at flows/a.py:7 in x\n" in shown
