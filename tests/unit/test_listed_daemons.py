"""When a daemon's row is written, what of a status is, and which daemon a word names."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from pgflowd.core.documents.daemons import ListedDaemon, database_text, silence, stored, told_status
from pgflowd.core.lookup import UnclearWord, find_daemon, find_worker
from pgflowd.core.messages import MAX_MESSAGE_BYTES, StatusPart, encode, parts_of
from pgflowd.core.redact import redact
from pgflowd.core.statuses import DaemonState
from pgflowd.core.sweeper import RowTimes
from pgflowd.errors import NotFound

AT = datetime(2026, 1, 1, tzinfo=UTC)


def daemon(number: int, name: str = "shop", host: str = "app1", **more: Any) -> ListedDaemon:
    values = {"living_workers": 0, "held_tasks": 0, "lapses_in_s": None, "is_silent": False,
              } | more | {"status": told_status(more.get("status"))}  # fmt: skip
    return ListedDaemon(
        UUID(int=number), name, host, 812, "0.1", AT, AT, 240.0, DaemonState.HEALTHY, **values
    )


def asked_at(times: RowTimes, until: float) -> list[float]:
    """When the status is asked for, up to a moment."""
    moments = []
    while times.ask_at <= until:
        moments.append(times.ask_at)
        times.asked(times.ask_at)
    return moments


def test_a_row_is_written_each_interval_and_more_often_only_while_somebody_looks() -> None:
    times = RowTimes(15.0)
    times.connected(100.0)
    assert asked_at(times, 150.0) == [100.0, 115.0, 130.0, 145.0]

    times.looked_at(145.5)  # not two seconds after the last time
    assert asked_at(times, 152.0) == [147.0, 149.0, 151.0]
    times.looked_at(152.0)
    moments = asked_at(times, 300.0)
    assert moments[:3] == [153.0, 155.0, 157.0]
    assert [after - before for before, after in pairwise(moments)] == [2.0] * 29 + [15.0] * 5


def test_an_interval_that_is_shorter_stays() -> None:
    times = RowTimes(0.5)
    times.connected(0.0)
    times.looked_at(0.0)
    assert asked_at(times, 1.5) == [0.0, 0.5, 1.0, 1.5]


def test_a_status_is_stored_without_what_the_database_refuses_and_without_secrets() -> None:
    told = {
        "name": "hunter2", "up_s": float("inf"), "running": float("nan"), "pid": 2**70, "ok": True,
        "flows": [{"slug": "a", "error": {"text": "bad \0 \ud800 password=hunter2"}}],
        "problems": [{"text": "postgresql://me:hunter2@db", "next": None}],
    }  # fmt: skip

    assert stored(told, lambda text: redact(text, ["hunter2"])) == {
        "name": "hunter2", "up_s": None, "running": None, "pid": 2**70, "ok": True,
        "flows": [{"slug": "a", "error": {"text": "bad \\0 \\ud800 password=***"}}],
        "problems": [{"text": "postgresql://me:***@db", "next": None}],
    }  # fmt: skip


@pytest.mark.parametrize("char", ["a", '"', "\\"])
def test_each_part_of_a_text_fits_into_a_message(char: str) -> None:
    text = char * 100_000
    parts = parts_of(text)

    assert "".join(parts) == text
    sizes = [len(encode(StatusPart(part, is_last=False))) for part in parts]
    assert max(sizes) <= MAX_MESSAGE_BYTES


@pytest.mark.parametrize(
    ("more", "alone", "text"),
    [
        ({}, False, "It has left no task behind."),
        ({"held_tasks": 2, "lapses_in_s": 11.0}, False,
         "Its 2 tasks are recovered when their leases lapse, in 11s."),
        ({"held_tasks": 1, "lapses_in_s": -3.0}, False,
         "Its 1 task is recovered by the next sweep."),
        ({"held_tasks": 1, "lapses_in_s": -3.0}, True,
         "Its 1 task is recovered when a daemon runs: none does."),
        ({"held_tasks": 1, "living_workers": 1}, True,
         "1 worker of it lives: see `pgflowd status` on app1."),
    ],
)  # fmt: skip
def test_a_silent_daemon_says_what_happens_with_its_tasks(
    more: dict[str, Any], alone: bool, text: str
) -> None:
    said = silence(daemon(1, is_silent=True, **more), is_alone=alone)
    assert said == f"no heartbeat for 4m00s (was healthy). {text}"


def test_nothing_relies_on_the_keys_of_a_status() -> None:
    odd = daemon(1, status={"flows": [{"running": "x", "state": None}, 7], "database": None})

    assert (odd.up_s, odd.running, odd.most_running, odd.restarts) == (240.0, 0, 0, (0, 0))
    assert (odd.flow_states, odd.problems, database_text(odd)) == ({"disabled": 1}, [], "")


def test_a_word_names_the_daemon_that_lives() -> None:
    worker = {"worker_id": str(UUID(int=0xB0B))}
    gone, back = daemon(0xA1, is_silent=True), daemon(0xA2, status={"flows": [worker]})
    mill = daemon(0xB1, "mill", "app2", status={"flows": [worker]})
    all_of_them = [gone, back, mill]

    for word, found in (("shop@app1", back), ("shop", back), ("app2", mill), ("000a1", gone)):
        assert find_daemon(all_of_them, word) is found
    with pytest.raises(NotFound, match="no daemon 'shop@app2'") as caught:
        find_daemon(all_of_them, "shop@app2")
    assert caught.value.next == "did you mean 'shop@app1'?"
    with pytest.raises(UnclearWord, match="more than one daemon"):
        find_daemon([back, daemon(0xA3, host="app3")], "shop")
    assert find_worker(all_of_them, "0b0b") == UUID(int=0xB0B)
    with pytest.raises(NotFound, match="no daemon has told of a worker"):
        find_worker(all_of_them, "c0c")
