"""
The figures of all rounds as tables, and the targets with what was measured.

A figure is the median over the rounds; the spread beside it is the largest over the smallest.
Single measurements (`name #1`, `name #2`, …) are put together as one name before. Ratios are of
medians of this run.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from typing import Any

Rounds = dict[str, dict[str, list[float]]]  # system → figure → one for each round
ALONE = "server alone"
WAITERS = ("procrastinate", "pgqueuer")  # beside which 2,000 async is measured
ABSURD = 1_960 / 940  # absurd's W2 over that of dbos, measured once: its SQL is not on PyPI


class Figures:
    """The medians of one system; what was not measured is NaN, and every bound is missed by it."""

    def __init__(self, measured: dict[str, list[float]]) -> None:
        self.all: dict[str, list[float]] = {}
        for name, values in measured.items():
            self.all.setdefault(re.sub(r" #\d+$", "", name), []).extend(values)

    def __getitem__(self, name: str) -> float:
        values = self.all.get(name)
        return statistics.median(values) if values else float("nan")

    def __contains__(self, name: str) -> bool:
        return name in self.all

    def p99(self, name: str) -> float:
        """What all but the slowest hundredth stay below."""
        values = sorted(self.all.get(name, []))
        return values[-1 - len(values) // 100] if values else float("nan")

    def spread(self, name: str) -> float:
        values = self.all.get(name) or [1.0]
        return max(values) / min(values) if min(values) > 0 else float("inf")


def number(value: float) -> str:
    """A figure as a reader wants it: three digits that tell something."""
    if value != value:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1 else f"{value:.2g}"


def per_s(name: str) -> Callable[[Figures], str]:
    def cell(figures: Figures) -> str:
        if name not in figures:
            return "–"
        spread = figures.spread(name)
        return number(figures[name]) + (f" ({spread:.1f})" if spread > 1 else "")

    return cell


def pair(one: str, other: str, sign: str = " + ") -> Callable[[Figures], str]:
    def cell(figures: Figures) -> str:
        return f"{number(figures[one])}{sign}{number(figures[other])}" if one in figures else "–"

    return cell


def latency(figures: Figures) -> str:
    if "W4 ms" not in figures:
        return "–"
    return f"{number(figures['W4 ms'])} / {number(figures.p99('W4 ms'))} ms"


def idle(figures: Figures) -> str:
    if "W6 PSS MB" not in figures:
        return "–"
    cpu = pair("W6 worker ms per s", "W6 server ms per s")(figures)
    return f"{cpu}, {number(figures['W6 transactions per s'])}, {number(figures['W6 PSS MB'])} MB"


ROWS = [
    ("W1 tasks/s", per_s("W1 per s")),
    ("W1 CPU ms/task", pair("W1 worker ms", "W1 server ms")),
    ("W1 WAL kB/task", lambda figures: number(figures["W1 WAL kB"])),
    ("W2 steps/s", per_s("W2 per s")),
    ("W2 CPU ms/step", pair("W2 worker ms", "W2 server ms")),
    ("W2 with run steps/s", per_s("W2 with run per s")),
    ("W2 with run CPU ms/step", pair("W2 with run worker ms", "W2 with run server ms")),
    ("W3 s", per_s("W3 s")),
    ("W4 p50 / p99", latency),
    ("W5 one by one / batched per s", pair("W5 each per s", "W5 many per s", " / ")),
    ("W6 CPU ms/s, transactions/s, PSS", idle),
    ("W7 tasks/s", per_s("W7 per s")),
    ("W7 CPU ms/task", pair("W7 worker ms", "W7 server ms")),
    ("2,000 async tasks/s", per_s("2,000 async per s")),
    ("2,000 async CPU ms/task", pair("2,000 async worker ms", "2,000 async server ms")),
    ("2,000 async PSS MB", lambda figures: number(figures["2,000 async PSS MB"])),
]


def systems_table(rounds: Rounds) -> list[list[str]]:
    """The workloads, and the systems beside each other."""
    figures = {name: Figures(measured) for name, measured in rounds.items() if name != ALONE}
    rows = [[title, *(cell(each) for each in figures.values())] for title, cell in ROWS]
    return [["", *figures], *rows]


def targets(rounds: Rounds) -> list[dict[str, Any]]:
    """Each target, what was measured, and whether it is met."""
    figures = {system: Figures(measured) for system, measured in rounds.items()}
    ours = figures.get("ours", Figures({}))
    peers = {name: figures.get(name, Figures({})) for name in ("procrastinate", "dbos")}
    found: list[dict[str, Any]] = []

    def target(name: str, text: str, value: float, met: bool, unit: str = "") -> None:
        shown = number(value) + (f" {unit}" if unit else "")
        found.append({"workload": name, "target": text, "measured": shown, "met": met})

    def at_least(name: str, bound: float, value: float, what: str, unit: str = "") -> None:
        target(name, f"≥ {bound:,g} {what}".strip(), value, value >= bound, unit)

    def at_most(name: str, bound: float, value: float, what: str, unit: str = "") -> None:
        target(name, f"≤ {bound:,g} {what}".strip(), value, value <= bound, unit)

    rates = [each["W1 per s"] for each in peers.values() if "W1 per s" in each]
    faster = max(rates, default=float("nan"))
    chains = peers["dbos"]["W2 per s"]
    idle_cpu = ours["W6 worker ms per s"] + ours["W6 server ms per s"]
    at_least("W1", 8, ours["W1 per s"] / faster, "× the faster of procrastinate and dbos", "×")
    at_most("W1", 0.2, ours["W1 CPU ms"], "ms of CPU per task, everything", "ms")
    at_least("W2", 8, ours["W2 per s"] / chains, "× dbos", "×")
    at_least("W2", 4, ours["W2 per s"] / chains / ABSURD, "× absurd (taken as 2.1 × dbos)", "×")
    with_run = ours["W2 with run CPU ms"] / ours["W2 CPU ms"]
    at_most("W2 with run", 1.1, with_run, "× the CPU of W2", "×")
    at_most("W3", 0.2, ours["W3 s"], "s for 1,000 elements and their join", "s")
    if "map 10000 s" in ours:
        at_most("W3", 1.5, ours["map 10000 s"], "s for 10,000", "s")
    if "map 100000 s" in ours:
        share = ours["map 100000 s"] / ours["W3 s"] / 100
        at_most("W3", 2, share, "× per element for 100,000 as for 1,000", "×")
    at_most("W4", 1.5, ours["W4 ms"], "ms, median", "ms")
    at_most("W4", 3, ours.p99("W4 ms"), "ms, all but a hundredth", "ms")
    at_least("W5", 2_500, ours["W5 each per s"], "starts/s one by one")
    at_least("W5", 15_000, ours["W5 many per s"], "starts/s batched")
    at_most("W6", 2, idle_cpu, "ms of CPU per second, all in all", "ms")
    if "idle 16 PSS MB" in ours:  # what listener and sweeper ask, they ask once
        more = (ours["idle 16 transactions per s"] - ours["W6 transactions per s"]) / 15
        at_most("W6", 0.1, more, "queries per second and flow")
    at_most("W6", 70, ours["W6 PSS MB"], "MB PSS", "MB")
    at_most("W7", 1.3, ours["W7 CPU ms"] / ours["W1 CPU ms"], "× W1's cost per task", "×")
    history = ours["history CPU ms"] / ours["W1 CPU ms"]
    at_most("W7", 1.1, history, "× W1's cost with a history of as many runs", "×")
    if "2,000 async per s" in ours:
        rate = ours["2,000 async per s"]
        others = [figures[name]["2,000 async per s"] for name in WAITERS if name in figures]
        fastest = max(others, default=float("nan"))
        at_least("async", 1_500, rate, "tasks/s of a second each, 2,000 at once")
        at_least("async", 1, rate / fastest, "× the faster of procrastinate and pgqueuer", "×")
        at_most("async", 250, ours["2,000 async PSS MB"], "MB PSS meanwhile", "MB")
        at_most("async", 0.11, ours["async no-op CPU ms"], "ms of CPU per no-op task", "ms")
    growth(ours, at_least)
    return found


def growth(ours: Figures, at_least: Callable[..., None]) -> None:
    """Several flows, and more and more runners."""
    one = ours["flows 1 per s"]
    for count in (4, 16):
        at_least("growth", 0.9, ours[f"flows {count} per s"] / one, f"× with {count} flows", "×")
    names = [name for name in ours.all if re.fullmatch(r"runners \d+ per s", name)]
    best = max((ours[name] for name in names), default=float("nan"))
    at_least("growth", 0.9, ours["runners 64 per s"] / best, "× its best with 64 runners", "×")
    at_least("growth", 0.5, ours["flows 4 least"], "done of each of 4 flows when one has ended")


def growth_table(rounds: Rounds) -> list[list[str]]:
    """How ours grows: everything that was measured for it alone."""
    ours = Figures(rounds.get("ours", {}))
    rows = [["ours", "per s", "CPU ms per task", "of it PostgreSQL", "WAL kB per task"]]
    for name in ours.all:
        if name.endswith(" CPU ms") and not re.match(r"W[0-9]|2,000", name):
            what = name.removesuffix(" CPU ms")
            measures = ("per s", "CPU ms", "server ms", "WAL kB")
            rows.append([what, *(number(ours[f"{what} {measure}"]) for measure in measures)])
    if "idle 16 PSS MB" in ours:
        cpu = ours["idle 16 worker ms per s"] + ours["idle 16 server ms per s"]
        size, asked = ours["idle 16 PSS MB"], ours["idle 16 transactions per s"]
        text = f"{number(cpu)} ms/s, {number(asked)} transactions/s, {number(size)} MB"
        rows.append([f"W6 with sixteen flows: {text}", *["–"] * 4])
    rows.append(["the whole long queue", number(ours["W7 all per s"]), "–", "–", "–"])
    if "beside a busy flow ms" in ours:
        name = "beside a busy flow ms"
        text = f"{number(ours[name])} / {number(ours.p99(name))} ms"
        rows.append([f"W4 beside a busy flow, p50 / p99: {text}", *["–"] * 4])
    return rows


def markdown(table: list[list[str]]) -> str:
    head, *rows = table
    line = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, line, *rows))


def plain(table: list[list[str]]) -> str:
    """The same with aligned columns."""
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = []
    for first, *rest in table:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)


def targets_table(rounds: Rounds) -> list[list[str]]:
    rows = [
        [each["workload"], each["target"], each["measured"], "met" if each["met"] else "missed"]
        for each in targets(rounds)
    ]
    return [["", "target", "measured", ""], *rows]
