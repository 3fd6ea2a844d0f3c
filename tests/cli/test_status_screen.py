"""The screens of `status` and `tree`: wide, narrow, without UTF-8, and with hostile texts."""

from __future__ import annotations

from typing import Any

import pytest

from pgflowd.cli.screen import Screen, text_width
from pgflowd.cli.status_screen import span, status_lines, tree_lines

WIDE = Screen(colour=False, unicode=True, width=None)
PLAIN = Screen(colour=False, unicode=False, width=None)


def flow(slug: str, **changes: Any) -> dict[str, Any]:
    values = {
        "slug": slug, "state": "up", "pid": 820, "up_s": 274_000.0, "worker_id": "7f3a",
        "running": 7, "max_concurrency": 10, "queued": 42, "oldest_queued_s": 1.2,
        "completed_1m": 310, "failed_1m": 0, "p50_s": 0.084, "p95_s": 0.41, "restarts": 0,
        "error": None, "zygote": 821, "runners": 7, "exits": [], "parked_s": None,
        "retry_in_s": None,
    }  # fmt: skip
    return {**values, **changes}


def status(*flows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    values = {
        "schema_version": 1, "name": "shop", "version": "0.1.0", "state": "healthy", "pid": 812,
        "up_s": 274_000.0,
        "supervisor": {"strategy": "rest_for_one", "restarts": 0, "max_restarts": 20,
                       "max_period_s": 60.0},
        "database": {"state": "up", "server": "18.4", "pgmq": "1.13.0", "schema": 1,
                     "rtt_s": 0.0008, "clock_skew_s": 0.002},
        "listener": {"state": "up", "pid": 816, "up_s": 274_000.0, "restarts": 0,
                     "reconnects": 1, "last_notification_s": 0.4,
                     "wakes_1m": {"notification": 96, "fallback": 0}},
        "sweeper": {"state": "up", "pid": 833, "up_s": 274_000.0, "restarts": 0,
                    "interval_s": 15.0, "last_sweep_s": 9.0, "recovered_24h": 3,
                    "given_up_24h": 0},
        "flows": list(flows), "problems": [],
    }  # fmt: skip
    return {**values, **changes}


def test_a_healthy_daemon_on_a_wide_screen():
    lines = status_lines(status(flow("process_order")), WIDE)

    assert lines[0] == "pgflowd shop  0.1.0    ● healthy   up 3d 4h   pid 812"
    assert lines[1] == " database  ●  PostgreSQL 18.4  0.8ms  pgmq 1.13.0  schema 1"
    assert lines[2] == (
        " listener  ● last notification 400ms ago   wakes 1m: 96 notification, 0 fallback"
    )
    assert lines[3] == " sweeper   ● every 15s, last 9s ago   24 h: 3 recovered, 0 given up"
    assert "███████░░░ 7/10" in lines[-1]
    assert lines[-1].split()[-1] == "0"


def test_a_parked_flow_is_shown_with_its_error_and_the_next_step():
    error = {"code": "E210", "text": "no pandas"}
    parked = flow("shop.report", state="failed", pid=None, error=error, parked_s=10.0, zygote=None)
    problem = {"code": "E210", "flow": "shop.report", "text": "no pandas", "next": "pgflowd reload"}

    lines = status_lines(status(parked, problems=[problem]), WIDE)
    tree = tree_lines(status(flow("a"), parked), WIDE)

    assert lines[-1] == " ⚠ shop.report: E210 no pandas   → pgflowd reload"
    assert "✖ failed" in lines[-2]
    assert tree[-2] == (
        "│  └─ ✖ shop.report   failed, parked 10s ago: E210 no pandas, next try on reload"
    )


def test_the_tree_shows_everyone():
    tree = tree_lines(status(flow("a", restarts=1, exits=["killed by SIGKILL"])), WIDE)

    assert tree == [
        "supervisor 812   rest_for_one   restarts 0 of 20 in 60 s",
        "├─ ● listener   816   up 3d 4h",
        "├─ ● workers   one_for_one   1 up",
        "│  └─ ● a   820   up 3d 4h   zygote 821   7 runners   1 restarts: killed by SIGKILL",
        "└─ ● sweeper   833   up 3d 4h",
    ]


def test_without_utf_8_there_are_ascii_signs():
    lines = status_lines(status(flow("a")), PLAIN) + tree_lines(status(flow("a")), PLAIN)

    assert all(line.isascii() for line in lines)


def test_a_narrow_terminal_loses_columns_in_order():
    wide = len(max(status_lines(status(flow("a")), WIDE)[4:], key=text_width))
    titles = []
    for width in (wide, wide - 2, wide - 8, wide - 18):
        lines = status_lines(status(flow("a")), Screen(False, True, width))
        titles.append(next(line for line in lines if line.startswith("FLOW")))

    assert "P50" in titles[0]
    assert "P50" not in titles[1]
    assert "RESTARTS" not in titles[2]
    assert "OLDEST" not in titles[3]


def test_hostile_texts_keep_to_their_line():
    """Row 105."""
    bad = "x\n\x1b[31mred\u2028"
    problem = {"code": "E210", "flow": bad, "text": bad, "next": bad}
    said = status(flow(bad, exits=[bad], restarts=1), problems=[problem])

    for line in status_lines(said, WIDE) + tree_lines(said, WIDE):
        assert len(line.splitlines()) == 1
        assert "\x1b" not in line


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0.34, "340ms"), (12.0, "12s"), (7380.0, "2h 3m"), (274_000.0, "3d 4h")],
)
def test_durations_as_people_say_them(seconds, text):
    assert span(seconds) == text
