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
SOME = [attack for attack in ATTACKS if len(attack) > 2]
MAY_BE_SHOWN = {"\n", "\t"}


@covers("row 105", "row 107")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_takes_an_argument_for_sql_or_for_the_terminal(here, shop, command):
    shop.start("send_email")
    unharmed = Unharmed(shop.conn)

    for attack in SOME:
        ended = here(
            *(word.replace("JSON", json.dumps(attack)).replace("{}", attack) for word in command)
        )

        assert "E901" not in ended.err, ended.err
        shown = ended.out + ended.err
        assert not {char for char in shown if ord(char) < 32} - MAY_BE_SHOWN, (attack, shown)

    assert unharmed.is_it()


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
