"""Hostile arguments: no command takes them for SQL or sends them to the terminal."""

from __future__ import annotations

import json

import pytest
from support.covers import covers
from support.hostile import ATTACKS, Unharmed

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
