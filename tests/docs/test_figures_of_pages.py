"""Figures on other pages than the benchmarks: each is one of docs/background/benchmarks.md."""

from __future__ import annotations

import re
import tomllib

import pytest
from support.pages import ROOT

BENCHMARKS = (ROOT / "docs/background/benchmarks.md").read_text("utf-8")
SQL = (ROOT / "sql/README.md").read_text("utf-8")
COLUMNS = ("procrastinate", "pgqueuer", "dbos")


def page(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def row(text: str, title: str) -> list[str]:
    """The cells of the only row with this title."""
    (line,) = re.findall(rf"^\| {re.escape(title)} \|(.*)\|$", text, re.MULTILINE)
    return [cell.strip() for cell in line.split("|")]


def measured(title: str, place: int = 0) -> dict[str, float]:
    """One of the figures in each cell of a row of the benchmarks, by system."""
    systems = ("ours", *COLUMNS)
    numbers = [re.sub(r"\(.*?\)|,(?=\d)", "", cell) for cell in row(BENCHMARKS, title)]
    found = [float(re.findall(r"\d+(?:\.\d+)?", text)[place]) for text in numbers[: len(systems)]]
    return dict(zip(systems, found, strict=True))


@pytest.mark.parametrize(
    ("ratio", "title", "place", "is_time"),
    [
        ("single tasks a second", "W1 tasks/s", 0, False),
        ("steps of chains of three a second", "W2 steps/s", 0, False),
        ("a map of 1,000 and its join", "W3 s", 0, True),
        ("start to handler, the middle", "W4 p50 / p99", 0, True),
        ("starts one by one", "W5 one by one / batched per s", 0, False),
        ("starts in batches", "W5 one by one / batched per s", 1, False),
        ("memory of an idle worker", "W6 CPU ms/s, transactions/s, PSS", 3, True),
    ],
)
def test_a_ratio_of_the_comparison_is_that_of_the_benchmark(
    ratio: str, title: str, place: int, is_time: bool
) -> None:
    shown = [float(cell) for cell in row(page("docs/background/comparison.md"), ratio)]
    figures = measured(title, place)

    expected = [
        figures[each] / figures["ours"] if is_time else figures["ours"] / figures[each]
        for each in COLUMNS
    ]
    assert shown == [float(f"{each:.2g}") for each in expected]


def test_the_versions_compared_are_those_that_the_benchmark_installs() -> None:
    (head,) = re.findall(
        r"^\| \| (procrastinate.*) \|$", page("docs/background/comparison.md"), re.MULTILINE
    )
    installed = page("bench/peers.txt")

    for name in head.split(" | "):
        assert name.replace(" ", "==") in installed


def test_the_costs_of_the_database_are_measured_ones() -> None:
    text = page("docs/background/why-postgresql.md")
    costs = text[text.index("## What it costs") : text.index("## Where it ends")]

    for figure in re.findall(r"\d[\d,.]*\d", re.sub(r"\d+ (?:MB|cores|ms for)", "", costs)):
        assert figure in BENCHMARKS or figure in SQL, figure


KEYS = re.findall(r"`(\w+)` \(`?([^)`]+)`?\)", "\n".join(
    line.split(" | ")[0] for line in page("docs/operate/tuning.md").splitlines()
    if line.startswith("| `")
))  # fmt: skip


@pytest.mark.parametrize(("key", "default"), KEYS)
def test_a_key_to_tune_has_the_default_that_the_page_says(key: str, default: str) -> None:
    config = tomllib.loads(page("config/pgflowd.toml"))
    (value,) = {str(keys[key]) for keys in config.values() if key in keys}

    assert default.strip('"').replace(" min", "m").replace(" ", "") == value
