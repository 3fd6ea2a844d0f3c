"""
The tables of `bench/peers.py`: computed from one run, with missing values shown as missing.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pgflowd.testing.until import until

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH))
    yield importlib.import_module("report")
    sys.modules.pop("report", None)


def met(bench: ModuleType, rounds: dict[str, dict[str, list[float]]], text: str = "") -> set[bool]:
    return {each["met"] for each in bench.targets(rounds) if text in each["target"]}


def test_a_target_compares_medians_with_the_peers_of_the_same_run(bench: ModuleType) -> None:
    rounds = {
        "ours": {"W1 per s": [8_000.0, 9_000.0, 100.0]},
        "procrastinate": {"W1 per s": [1_000.0]},
        "dbos": {"W1 per s": [500.0]},
    }

    assert met(bench, rounds, "the faster of procrastinate and dbos") == {True}

    rounds["dbos"]["W1 per s"] = [1_001.0]

    assert met(bench, rounds, "the faster of procrastinate and dbos") == {False}


def test_what_was_not_measured_is_missed(bench: ModuleType) -> None:
    assert met(bench, {"ours": {}}) == {False}


def test_single_measurements_are_put_together(bench: ModuleType) -> None:
    figures = bench.Figures({f"W4 ms #{n}": [1.0, 2.0] for n in range(50)} | {"W4 ms #50": [9.0]})

    assert figures["W4 ms"] == 2.0
    assert figures.p99("W4 ms") == 2.0


def test_tables_can_be_drawn_from_nothing_at_all(bench: ModuleType) -> None:
    for table in (bench.systems_table, bench.targets_table, bench.growth_table):
        for draw in (bench.markdown, bench.plain):
            assert draw(table({}))


def test_cpu_of_children_that_have_ended_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    measure = importlib.import_module("measure")
    burn = "import time\nwhile time.process_time() < 0.1: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); input()"
    process = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE)

    def spent() -> float:
        return float(measure.cpu_s(process.pid))

    try:
        until(lambda: not list(measure.family(process.pid))[1:] and spent() >= 0.09, 20)
    finally:
        process.communicate(b"\n")
    assert process.returncode == 0
