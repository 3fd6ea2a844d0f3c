"""The daemons of all machines on the command line: wide, narrow, silent, with their processes."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import UUID

import click
import pytest
from support.covers import covers
from support.odd_documents import ODD, plant
from support.shop import STATUS, on_a_terminal

TITLES = [
    "NAME",
    "HOST",
    "STATE",
    "VERSION",
    "UP",
    "HEARTBEAT",
    "FLOWS",
    "RUNNING",
    "RESTARTS",
    "DATABASE",
]

ALICE, BOB = UUID(int=0xA11CE), UUID(int=0xB0B)


def age(shop: Any, host: str, by: str) -> None:
    shop.do(
        "update pgflowd.daemons set heartbeat_at = heartbeat_at - %s::interval,"
        " alive_until = alive_until - %s::interval where host = %s",
        by,
        by,
        host,
    )


@pytest.fixture
def machines(shop: Any) -> Any:
    """Three: one is well, one degraded, one was killed while it had a task."""
    (well, *_) = [each for each in json.loads(STATUS.read_text())["flows"] if each["pid"]]
    database = {"rtt_s": 0.0008, "clock_skew_s": 0.002}
    shop.start("send_email", 1)
    worker = shop.worker("send_email", ALICE)
    shop.claim("send_email", worker)
    shop.tell_daemon("app1", flows=[well], state="healthy", up_s=274000.0, database=database)
    shop.tell_daemon("app2", BOB)
    shop.tell_daemon("app3", ALICE, state="healthy")
    shop.do("update pgflow.workers set last_heartbeat_at = now() - interval '4 min'")
    shop.do("update pgflowd.attempts set lease_until = now() + interval '11 s'")
    age(shop, "app3", "4 min")
    return shop


def shown(columns: int) -> list[str]:
    return click.unstyle(on_a_terminal("daemons", "list", columns=columns)).splitlines()


def test_a_terminal_shows_as_much_as_it_has_room_for(
    machines: Any, shop: Any, project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGFLOWD__DATABASE__URL", shop.database.dsn)

    narrow, middle, wide = shown(40), shown(80), shown(120)

    assert narrow[0].split() == ["NAME", "HOST", "STATE", "HEARTBEAT"]
    assert middle[0].split() == [each for each in TITLES if each not in ("VERSION", "DATABASE")]
    assert wide[0].split() == list(TITLES)
    assert [max(map(len, lines)) <= 120 for lines in (narrow, middle, wide)] == [True] * 3
    well = r"shop  app1  ● healthy   0.1.0    3d4h   \ds ago     1 up            7 of 10  1 of 20"
    assert re.fullmatch(rf"{well}   0.8ms, clock \+2 ms", wide[1])
    assert re.match(r"shop  app2  ◐ degraded  0.1.0    \S+ +\S+ ago +1 up, 1 failed", wide[2])
    assert re.match(r"shop  app3  ✖ silent    0.1.0    .      4m\d\ds ago  .  ", wide[3])
    silent = r"✖ shop@app3: no heartbeat for 4m\d\ds \(was healthy\). Its 1 task is recovered when"
    assert re.match(rf"{silent} its lease lapses, in \d+s\.", wide[4])
    assert " ".join(line.strip() for line in narrow[4:7]).split()[:3] == wide[4].split()[:3]
    assert "daemons show NAME@HOST" in wide[5]


def test_with_v_there_are_the_processes_and_the_problems(machines: Any, here: Any) -> None:
    problem = {"code": "E306", "flow": "a", "text": "no step 'refund'", "next": "pgflowd reload"}
    machines.tell_daemon("app4", BOB, name="mill", problems=[problem])

    listed, one = here("daemons", "list", "-v").out, here("daemons", "show", "mill").out

    for out in (listed, one):
        assert re.search(r"mill@app4 [0-9a-f-]{36} as told \S+ ago", out)
        assert "E306, next try on reload   id 00000b0b" in out
        assert "no step 'refund'   → pgflowd reload" in out
    assert "PostgreSQL 18.4 at db1:5432/shop" in one
    silent = here("daemons", "show", "app3", "--json").json
    assert (silent["is_silent"], silent["held_tasks"], silent["state"]) == (True, 1, "healthy")


def test_a_word_names_one_daemon_or_one_worker(machines: Any, here: Any) -> None:
    machines.tell_daemon("app3", BOB)  # after a crash: the one that lives is meant
    assert "◐ degraded" in here("daemons", "show", "shop@app3").out
    several = here("daemons", "show", "shop")
    assert (several.code, "fits more than one daemon" in several.err) == (2, True)
    unknown = here("daemons", "restart", "00000b0b", "--reason", "leaks")
    assert (unknown.code, "there is no running worker" in unknown.err) == (4, True)
    assert "no daemon has told of a worker" in here("daemons", "restart", "f00").err

    machines.worker("send_email", BOB)
    assert "is replaced then" in here("daemons", "restart", "00000b0b", "--reason", "leaks").out
    assert "already" in here("daemons", "restart", str(BOB)).out
    (action,) = here("log", "--json").json["actions"]
    assert (action["action"], action["reason"], action["flow"]) == (
        "restart_worker", "leaks", "send_email",
    )  # fmt: skip


def test_without_daemons_it_says_how_to_start_one(shop: Any, here: Any) -> None:
    assert "pgflowd serve" in here("daemons", "list").err
    assert here("daemons", "list", "--json").json["daemons"] == []


@covers("row 105", "attack 6")
@pytest.mark.parametrize("what", ODD)
def test_no_command_minds_an_odd_row_of_a_daemon(here, shop, what):
    daemon = plant(shop, what)

    for words in (["daemons", "list"], ["daemons", "list", "-v"], ["daemons", "show", str(daemon)],
                  ["runs", "list"]):  # fmt: skip
        plain, as_json = here(*words), here(*words, "--json")

        assert (plain.code, as_json.code) == (0, 0), (words, plain.err, as_json.err)
        assert len(plain.out) < 100_000 and len(as_json.out) < 500_000
        assert "\x1b" not in plain.out
