"""Hostile arguments: no command takes them for SQL or sends them to the terminal."""

from __future__ import annotations

import json
import re
from importlib import resources

import pytest
from cli.test_every_command import LEAVES
from support import web_states
from support.covers import covers
from support.hostile import ATTACKS, Unharmed, taint

from pgflowd.core.redact import one_line

COMMANDS = [
    ("runs", "start", "{}"),
    ("runs", "start", "send_email", "JSON"),
    ("runs", "show", "{}"),
    ("runs", "list", "--flow", "{}"),
    ("runs", "list", "--status", "{}"),
    ("runs", "list", "--since", "{}"),
    ("runs", "wait", "{}"),
    ("runs", "cancel", "{}"),
    ("runs", "cancel", "@last", "--reason", "{}"),
    ("runs", "retry", "{}"),
    ("flows", "show", "{}"),
    ("flows", "graph", "{}"),
    ("flows", "delete", "{}", "--force", "--yes"),
    ("runs", "signal", "@last", "{}"),
    ("runs", "signal", "@last", "paid", "JSON", "--dedup", "{}"),
    ("runs", "approve", "@last", "{}"),
    ("runs", "reject", "@last", "perform", "--note", "{}"),
    ("signals", "list", "--run", "{}"),
    ("tasks", "list", "--flow", "{}"),
    ("tasks", "wake", "{}"),
    ("stalled", "requeue", "{}"),
    ("stalled", "fail", "--all", "--reason", "{}"),
]
LATER_COMMANDS = [  # not each by itself, so that they take less long
    ("runs", "undo", "{}"),
    ("runs", "undo", "@last", "--reason", "{}"),
    ("runs", "log", "{}"),
    ("runs", "output", "@last", "--step", "{}"),
    ("runs", "tasks", "@last", "{}"),
    ("runs", "delete", "{}"),
    ("runs", "prune", "--older-than", "1d", "--flow", "{}", "--yes"),
    ("log", "--actor", "{}"),
    ("dead", "list", "--flow", "{}"),
    ("schedules", "add", "{}", "send_email", "@every {}"),
    ("schedules", "add", "{}", "{}", "@daily", "--timezone", "{}"),
    ("schedules", "fire", "{}"),
    ("schedules", "next", "{}"),
    ("flows", "set", "{}", "timeout=3"),
    ("flows", "set", "send_email", "{}={}"),
    ("flows", "stats", "{}"),
    ("flows", "rollback", "{}"),
    ("flows", "prune-versions", "{}"),
    ("db", "set", "{}", "3"),
    ("db", "set", "retention_completed", "{}"),
]
TOO_MUCH = [
    ("runs", "list", "--since", "9999999999d"),
    ("runs", "prune", "--older-than", "99999999999d", "--dry-run"),
    ("log", "--since", "999999999d"),
    ("flows", "stats", "--since", "99999999999999d"),
    ("db", "set", "retention_completed", "30m31m"),
    ("db", "set", "crash_limit", "1e400"),
    ("db", "set", "crash_limit", "[" * 5000),
    ("schedules", "add", "s", "send_email", "@every -1s"),
    ("schedules", "add", "s", "send_email", f"{'9' * 5000} * * * *"),
]
SOME = [attack for attack in ATTACKS if len(attack) > 2]
MAY_BE_SHOWN = {"\n", "\t"}


@covers("row 105", "row 107")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_takes_an_argument_for_sql_or_for_the_terminal(here, shop, command):
    shop.start("send_email")
    unharmed = Unharmed(shop.conn)

    for attack in SOME:
        run_with(here, command, attack)

    assert unharmed.is_it()


def run_with(here, command, attack):
    words = (word.replace("JSON", json.dumps(attack)).replace("{}", attack) for word in command)
    ended = here(*words)

    assert "E901" not in ended.err, ended.err
    shown = ended.out + ended.err
    assert not {char for char in shown if ord(char) < 32} - MAY_BE_SHOWN, (attack, shown)


@covers("row 105", "row 107")
def test_the_commands_of_later_days_take_no_argument_for_sql_or_the_terminal_either(here, shop):
    shop.start("send_email")
    unharmed = Unharmed(shop.conn)

    for number, command in enumerate(LATER_COMMANDS):
        for attack in SOME[number % 5 :: 5]:
            run_with(here, command, attack)

    assert unharmed.is_it()


def test_numbers_that_are_too_large_are_refused_as_any_typo(here, shop):
    for command in TOO_MUCH:
        ended = here(*command)

        assert ended.code in (2, 78), (command, ended.err)
        assert "E901" not in ended.err


def test_hostile_schedules_of_sql_keep_nobody_from_listing_them(here, shop):
    add = "select pgflowd.set_schedule(%s, 'send_email', %s)"
    crons = ["@every -1s", f"{'9' * 5000} * * * *", *SOME]
    for number, cron in enumerate(crons):
        shop.do(add, f"{number} {SOME[number % len(SOME)]}"[:120], cron)

    plain, as_json = here("schedules", "list"), here("schedules", "list", "--json")

    assert not {char for char in plain.out if ord(char) < 32} - MAY_BE_SHOWN, plain.out
    assert "\u202e" not in plain.out
    assert [each["cron"] for each in as_json.json["schedules"]].count("@every -1s") == 1


@covers("row 105")
def test_a_hostile_name_of_a_signal_is_printed_escaped_on_one_line(here, shop):
    for attack in SOME:
        if not 0 < len(attack) <= 200 or "\0" in attack:
            continue
        run_id = str(shop.start("send_email"))
        shop.suspend(shop.claim_all("send_email")["perform#0"], kind="signal", name=attack)
        shop.do("select pgflowd.signal(%s, %s, %s)", run_id, f"{attack}"[:190] + "!", '"x"')
        for words in ("runs show", "runs follow --timeout 1ms", "tasks list --run",
                      "signals list --run"):  # fmt: skip
            shown = here(*words.split(), run_id)
            assert not {char for char in shown.out if ord(char) < 32} - MAY_BE_SHOWN, shown.out
            assert "\u202e" not in shown.out


@covers("row 105")
def test_hostile_stored_text_is_printed_escaped_on_one_line(here, shop):
    for attack in SOME:
        run_id = shop.start("send_email", {"name": attack})
        shop.fail(shop.claim_all("send_email")["perform#0"], attack, traceback=attack)
        plain = here("runs", "show", str(run_id), "--attempts")
        as_json = here("runs", "show", str(run_id), "--input", "--json")

        assert not {char for char in plain.out if ord(char) < 32} - MAY_BE_SHOWN, plain.out
        assert "\u202e" not in plain.out
        assert as_json.json == {"name": attack}
    listed = here("runs", "list", "--limit", "100")

    assert "\x1b" not in listed.out


SHOWING = [  # every command that lists or shows what the database has
    "runs list", "runs list --text end", "runs show RUN",
    "runs show RUN --attempts --checkpoints", "runs show RUN --tree", "runs show WAITS",
    "runs show WAITS --attempts", "runs show MAP", "runs log RUN", "runs log WAITS",
    "runs output RUN", "runs tasks MAP store", "runs follow RUN --timeout 1ms",
    "runs follow WAITS --timeout 1ms", "runs wait RUN --timeout 1ms",
    "runs prune --older-than 1d --dry-run", "signals list", "signals list --run WAITS",
    "tasks list", "tasks list --status waiting", "flows list", "flows list -v",
    "flows show send_email", "flows show analyze_website", "flows graph analyze_website",
    "flows graph analyze_website --run RUN", "flows limits send_email", "flows stats",
    "flows stats store_items", "flows schema send_email", "schedules list",
    "schedules next nightly", "daemons list", "daemons list -v", "daemons show DAEMON",
    "stalled list", "dead list", "log", "log --run RUN", "db settings", "db status",
    "doctor", "status", "tree", "check",
]  # fmt: skip


@covers("row 105", "attack 7")
def test_no_command_prints_what_controls_a_terminal_whatever_the_database_has(here, shop):
    words = web_states.full(shop)
    more_rows(shop, words)
    tainted = taint(shop.conn, spared={"pgflowd.settings.name"})  # which owners write alone
    assert len(tainted) > 60, tainted
    names = [row[0] for row in shop.rows("select name from pgflowd.schedules")]

    for command in SHOWING:
        for word in words:
            command = command.replace(word.upper(), words[word])
        given = [names[0] if word == "nightly" else word for word in command.split()]
        plain, painted = here(*given), here(*given, "--color", "always")
        without_colours = re.sub(r"\x1b\[[0-9;]*m", "", painted.out + painted.err)

        assert "E901" not in plain.err, (command, plain.err)
        for shown in (plain.out + plain.err, without_colours):
            assert not [char for char in shown if is_unsafe(char)], (command, shown)
        assert here(*given, "--json").code == plain.code, command


def test_each_command_that_lists_or_shows_is_looked_at():
    words = {"list", "show", "log", "stats", "limits", "graph", "output", "settings",
             "status", "tasks", "tree", "doctor", "follow", "wait"}  # fmt: skip
    here_only = {"config show", "systemd show"}  # nothing of the database

    assert {leaf for leaf in LEAVES if leaf.split()[-1] in words} - here_only <= {
        leaf for leaf in LEAVES for command in SHOWING if f"{command} ".startswith(f"{leaf} ")
    }


def test_all_that_commands_print_passes_one_place():
    places = {
        f"{path.name}: {line.strip()}"
        for path in (resources.files("pgflowd") / "cli").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"^ *print\(|click\.echo\(|std(out|err)\.write\(", line)
    }

    assert places == {  # of our own
        'groups.py: click.echo(f"pgflowd {__version__}")',
        "groups.py: click.echo(ctx.get_help())",
    }, places


def is_unsafe(char: str) -> bool:
    return char not in MAY_BE_SHOWN and one_line(char) != char


def more_rows(shop, words):
    """What the states of pages do not have."""
    run = words["run"]
    waits = shop.value("select run_id from pgflowd.waits where kind = 'signal' limit 1")
    words["waits"] = str(waits)
    shop.do("select pgflowd.pause_flow('store_items', 'jane', 'why')")
    shop.do("select pgflowd.pause(%s, 'why', 'jane')", waits)
    for insert in (
        "checkpoints (run_id, step_slug, task_index, name, token, data)"
        f" values ('{run}', 'website', 0, 'c', 1, '\"x\"')",
        "slots (run_id, step_slug, task_index, limit_key, most)"
        " select run_id, step_slug, task_index, 'k', 1 from pgflow.step_tasks limit 3",
        "worker_caps select worker_id, array['gpu'] from pgflow.workers",
        "versions (name, version, flow_slug, fingerprint, deployed_by, code, is_current)"
        " values ('send_email', 1, 'send_email', 'x', 'jane', 'abc', true)",
    ):
        shop.do(f"insert into pgflowd.{insert}")
