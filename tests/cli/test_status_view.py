"""The screens of `status` and `tree`: wide, narrow, without UTF-8, and with hostile texts."""

from __future__ import annotations

from typing import Any

import pytest
from support.covers import covers

from pgflowd.cli.terminal.daemon_view import problem_lines, status_lines, tree_lines
from pgflowd.cli.terminal.screen import Screen, text_width

WIDE = Screen(colour=False, unicode=True, width=None)
PLAIN = Screen(colour=False, unicode=False, width=None)


def flow(slug: str, **changes: Any) -> dict[str, Any]:
    values = {
        "slug": slug, "state": "up", "pid": 820, "up_s": 274_000.0, "worker_id": "7f3a",
        "running": 7, "max_concurrency": 10, "queued": 42, "oldest_queued_s": 1.2,
        "completed_1m": 310, "failed_1m": 0, "p50_s": 0.084, "p95_s": 0.41, "restarts": 0,
        "error": None, "zygote": 821, "runners": 7, "exits": [], "parked_s": None,
        "retry_in_s": None, "asleep_s": None, "next_due_in_s": None, "import_s": 0.3,
    }  # fmt: skip
    return {**values, **changes}


def status(*flows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    values = {
        "schema_version": 1, "name": "shop", "version": "0.1.0", "state": "healthy", "pid": 812,
        "up_s": 274_000.0,
        "supervisor": {"strategy": "rest_for_one", "restarts": 0, "max_restarts": 20,
                       "max_period_s": 60.0},
        "database": {"state": "up", "server": "18.4", "place": "db1:5432/shop", "pgmq": "1.13.0",
                     "schema": 1, "rtt_s": 0.0008, "clock_skew_s": 0.002},
        "listener": {"state": "up", "pid": 816, "up_s": 274_000.0, "restarts": 0,
                     "reconnects": 1, "last_notification_s": 0.4,
                     "wakes_1m": {"notification": 96, "fallback": 0, "completion": 11, "due": 2}},
        "sweeper": {"state": "up", "pid": 833, "up_s": 274_000.0, "restarts": 0,
                    "interval_s": 15.0, "last_sweep_s": 9.0, "recovered_24h": 3,
                    "given_up_24h": 0},
        "flows": list(flows), "problems": [],
    }  # fmt: skip
    return {**values, **changes}


def test_a_healthy_daemon_on_a_wide_screen():
    lines = status_lines(status(flow("process_order")), WIDE)

    assert lines[0] == "pgflowd shop  0.1.0    ● healthy   up 3d4h   pid 812"
    assert lines[1] == (
        " database  ● PostgreSQL 18.4 at db1:5432/shop   0.8ms"
        "   pgmq 1.13.0   schema 1   clock +2 ms"
    )
    assert lines[2] == (
        " listener  ● last notification 400ms ago"
        "   wakes 1m: 96 notification, 11 completion, 2 due, 0 fallback"
    )
    assert lines[3] == " sweeper   ● every 15s, last 9s ago   24 h: 3 recovered, 0 given up"
    assert lines[4].startswith(" FLOW ")
    assert lines[5].split() == [
        "process_order", "●", "820", "3d4h", "███████░░░", "7/10", "42", "1.2s",
        "310", "0", "84ms", "410ms", "0",
    ]  # fmt: skip


def test_an_old_version_says_so_and_how_many_runs_it_still_has():
    old = flow("orders", old_version_of="orders", open_runs=3)
    lines = status_lines(status(old, flow("orders_2", old_version_of=None, open_runs=None)), WIDE)

    assert lines[5].startswith(" orders (old)  ● 820")
    assert lines[6].startswith(" orders_2      ● 820")
    assert lines[7:] == [" orders: old version of orders, 3 open runs"]


def test_without_a_database_its_state_is_shown():
    nothing = dict.fromkeys(("server", "place", "pgmq", "schema", "rtt_s", "clock_skew_s"))
    lines = status_lines(status(database={"state": "down", **nothing}), WIDE)

    assert lines[1] == " database  ◐ down"


def test_a_parked_flow_is_shown_with_its_error_and_the_next_step():
    error = {"code": "E210", "text": "no pandas"}
    parked = flow("shop.report", state="failed", pid=None, error=error, parked_s=10.0, zygote=None)
    problem = {"code": "E210", "flow": "shop.report", "text": "no pandas", "next": "pgflowd reload"}

    lines = status_lines(status(parked, problems=[problem]), WIDE)
    tree = tree_lines(status(flow("a"), parked), WIDE)

    assert lines[-1] == " ⚠ shop.report is parked: E210 no pandas   → pgflowd reload"
    assert "✖ failed" in lines[-2]
    assert tree[-2] == ("│  └─ ✖ shop.report   failed, parked 10s ago: E210, next try on reload")


def test_a_restarted_worker_is_shown_with_the_reason():
    text = "restarted once: killed by SIGKILL"
    problem = {"code": None, "flow": "a", "text": text, "next": "pgflowd tree"}

    assert problem_lines([problem], WIDE) == [f" ⚠ a {text}   → pgflowd tree"]


def test_the_tree_shows_every_process():
    restarted = flow("process_order", restarts=1, exits=["killed by SIGKILL"], runners=1)
    parked = flow("r", state="failed", pid=None, error={"code": "E210", "text": "x"}, zygote=None)

    assert tree_lines(status(restarted, parked), WIDE) == [
        "supervisor 812   rest_for_one   restarts 0 of 20 in 60 s",
        "├─ ● listener           816   up 3d4h",
        "├─ ◐ workers            one_for_one   1 up, 1 failed",
        "│  ├─ ● process_order   820   up 3d4h   zygote 821   1 runner   "
        "1 restart: killed by SIGKILL",
        "│  └─ ✖ r               failed, parked ? ago: E210, next try on reload",
        "└─ ● sweeper            833   up 3d4h",
    ]


def sleeping(slug: str, **changes: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(
        ("pid", "up_s", "worker_id", "oldest_queued_s", "completed_1m", "failed_1m", "p50_s",
         "p95_s", "zygote", "age_s")
    )  # fmt: skip
    values = {"state": "asleep", "running": 0, "queued": 0, "runners": 0, "asleep_s": 7300.0}
    return flow(slug, **{**nothing, **values, **changes})


def test_a_sleeping_flow_is_shown_with_its_sign_for_how_long_and_until_when():
    said = status(flow("a"), sleeping("b"), sleeping("c", next_due_in_s=1200.0))

    assert status_lines(said, WIDE)[6].split() == [
        "b", "☾", "asleep", "2h01m", "░░░░░░░░░░", "0/10", "0", *["\N{EN DASH}"] * 5, "0",
    ]  # fmt: skip
    assert tree_lines(said, WIDE)[2:6] == [
        "├─ ● workers    one_for_one   1 up, 2 asleep",
        "│  ├─ ● a       820   up 3d4h   zygote 821   7 runners",
        "│  ├─ ☾ b       asleep 2h01m",
        "│  └─ ☾ c       asleep 2h01m   next task in 20m00s",
    ]
    assert tree_lines(status(sleeping("b")), PLAIN)[2].startswith("|- z workers")


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_sleeping_flow_keeps_to_the_columns(columns):
    screen = Screen(False, True, columns)
    said = status(sleeping("report", next_due_in_s=1200.0, restarts=2, exits=["killed by SIGKILL"]))

    lines = status_lines(said, screen) + tree_lines(said, screen)

    assert all(text_width(line) <= columns for line in lines)
    assert any("asleep  2h01m" in line for line in lines)


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_narrow_terminal_gets_more_lines_and_no_longer_ones(columns):
    screen = Screen(False, True, columns)
    problem = {"code": "E210", "flow": "report", "text": "no pandas " * 9, "next": "pgflowd reload"}
    said = status(flow("report", restarts=2, exits=["killed by SIGKILL"]), problems=[problem])

    for line in status_lines(said, screen) + tree_lines(said, screen):
        assert text_width(line) <= columns, line


def test_without_utf_8_there_are_ascii_signs():
    lines = status_lines(status(flow("a")), PLAIN) + tree_lines(status(flow("a")), PLAIN)

    assert all(line.isascii() for line in lines)


def test_a_narrow_terminal_loses_columns_in_order():
    wide = len(max(status_lines(status(flow("a")), WIDE)[4:], key=text_width))
    titles = []
    for width in (wide, wide - 2, wide - 8, wide - 18):
        lines = status_lines(status(flow("a")), Screen(False, True, width))
        titles.append(next(line for line in lines if line.startswith(" FLOW")))

    assert "P50" in titles[0]
    assert "P50" not in titles[1]
    assert "RESTARTS" not in titles[2]
    assert "OLDEST" not in titles[3]


@covers("row 105")
def test_hostile_texts_keep_to_their_line():
    bad = "x\n\x1b[31mred\u2028"
    problem = {"code": "E210", "flow": bad, "text": bad, "next": bad}
    said = status(flow(bad, exits=[bad], restarts=1), problems=[problem])

    for line in status_lines(said, WIDE) + tree_lines(said, WIDE):
        assert len(line.splitlines()) == 1
        assert "\x1b" not in line
