"""
Starters: runs started per second by 1, 8 and 48 clients at once.

    python bench/starters.py [--quick] [--dsn URL] [--directory DIR] [--only NAME …] [--json FILE]

pgbench executes the statement by which each system's client starts one, prepared, each in a
transaction of its own, so that no client's language counts. The cases are interleaved; medians of
the rounds. All starts are counted again in the tables. CPU is that of PostgreSQL per start.

    ours                as shipped, while nobody works or sleeps: nothing is notified
    ours, rung          somebody sleeps on the queue, and never wakes: each start notifies
    ours, always        with the setting events = "always"
    ours, silent        without any notification: the trigger of the queue is dropped
    ours, at work       as `ours`, beside a daemon with a backlog, whose work costs the server too
    ours, at work, silent    the same without the trigger
    raw_pgmq            one message, no run
    procrastinate, pgqueuer    where .venv-peers has them
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from peers import ROOT, opened
from stage import Bench, Failed, Stage

from pgflowd.embedded.postgres import wheel_binaries
from pgflowd.testing.until import until

CLIENTS = (1, 8, 48)
BACKLOG = 4_000  # runs that wait, for each second: what a worker executes beside all clients
SILENT = "drop trigger pgflowd_notify on pgmq.q_single_0"
CASES = {
    "ours": "",
    "ours, rung": "select pgflowd.arm('single_0', gen_random_uuid())",
    "ours, always": """select pgflowd.set_setting('events', '"always"', 'bench')""",
    "ours, silent": SILENT,
    "ours, at work": "",
    "ours, at work, silent": SILENT,
    "raw_pgmq": "",
    "procrastinate": "",
    "pgqueuer": "",
}
RATIOS = [
    ("ours, of ours without any notification", "ours", "ours, silent", 48, 48, 0.9),
    ("ours by 48 clients, of 8", "ours", "ours", 48, 8, 1.0),
    ("at work, of the same without any", "ours, at work", "ours, at work, silent", 48, 48, 0.9),
    ("at work by 48 clients, of 8", "ours, at work", "ours, at work", 48, 8, 1.0),
    ("at work, of each start rung", "ours, at work", "ours, rung", 48, 48, None),
    ("ours, of procrastinate", "ours", "procrastinate", 48, 48, 2.0),
    ("ours, of pgqueuer", "ours", "pgqueuer", 48, 48, None),
]
Figures = dict[tuple[str, int], list[tuple[float, float]]]  # starts per second, CPU in ms


def pgbench() -> str:
    return shutil.which("pgbench") or str(wheel_binaries() / "pgbench")


def measure(stage: Stage, script: Path, clients: int, seconds: int) -> tuple[float, float]:
    """Start as many as possible; return how many per second, and the CPU of each in ms."""
    before, cpu_s = started_runs(stage), stage.server_s()
    flags = ["-n", "-M", "prepared", "-c", str(clients), "-j", "2", "-T", str(seconds)]
    done = subprocess.run(
        [pgbench(), *flags, "-f", str(script), stage.url], capture_output=True, text=True
    )
    started = re.search(r"actually processed: (\d+)", done.stdout)
    per_s = re.search(r"^tps = ([0-9.]+)", done.stdout, re.MULTILINE)
    if done.returncode or started is None or per_s is None:
        raise Failed(f"{stage.system}: {done.stdout}{done.stderr}")
    if started_runs(stage) - before != int(started[1]):
        raise Failed(f"{stage.system}: starts are missing")
    return float(per_s[1]), (stage.server_s() - cpu_s) / int(started[1]) * 1e3


def started_runs(stage: Stage) -> int:
    """In one statement, since a worker may complete them meanwhile."""
    query = f"select ({stage.told['unfinished']}) + ({stage.told['completed']})"
    row = stage.conn.execute(query.encode()).fetchone()
    assert row
    return int(row[0])


def set_up(bench: Bench, stages: ExitStack, case: str) -> Stage:
    """The stage of a case, with its worker at work if it has one."""
    system, _, variant = case.partition(", ")
    has_worker = variant.startswith("at work")
    stage = stages.enter_context(bench.stage(system, ["single"] if has_worker else []))
    if has_worker:
        stage.serve()
        is_armed = b"select exists (select from pgflowd.doorbells)"
        until(lambda: (stage.conn.execute(is_armed).fetchone() or (False,))[0], 30)
    if CASES[case]:
        stage.conn.execute(CASES[case].encode())
    return stage


def measured(bench: Bench, cases: list[str], rounds: int, seconds: int) -> Figures:
    figures: Figures = {}
    with ExitStack() as stack:
        stages = {}
        for case in cases:
            stage = set_up(bench, stack, case)
            script = bench.directory / f"{case}.sql"
            script.write_text(stage.call("start_statement") + ";\n")
            stages[case] = stage, script
        for _ in range(rounds):
            for clients in CLIENTS:
                for case, (stage, script) in stages.items():
                    if "at work" in case:
                        stage.call("start_many", "single", [0] * BACKLOG * seconds)
                    one = measure(stage, script, clients, seconds)
                    if "at work" in case:  # so that its worker takes nothing from the next case
                        stage.wait_until_written()
                    figures.setdefault((case, clients), []).append(one)
    return figures


def medians(figures: Figures) -> dict[tuple[str, int], tuple[float, float]]:
    return {
        key: (statistics.median(rates), statistics.median(costs))
        for key, (rates, costs) in ((key, zip(*each, strict=True)) for key, each in figures.items())
    }


def show(found: dict[tuple[str, int], tuple[float, float]], cases: list[str]) -> None:
    print("| starts/s (CPU of the server, ms) |", *[f"{count} |" for count in CLIENTS])
    print("| --- |", *["---: |" for _ in CLIENTS])
    for case in cases:
        cells = [found[case, count] for count in CLIENTS]
        print(f"| {case} |", *[f"{rate:,.0f} ({cost:.2f}) |" for rate, cost in cells])
    print()
    for text, one, other, clients, of_clients, target in RATIOS:
        if (one, clients) in found and (other, of_clients) in found:
            ratio = found[one, clients][0] / found[other, of_clients][0]
            verdict = "" if target is None else f"  (target: at least {target:g})"
            print(f"{ratio:5.2f} × {text}{verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--dsn", help="a superuser's, of a server on this machine")
    parser.add_argument("--directory", help="where the embedded server keeps its data")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--only", nargs="+", choices=CASES, help="these cases only")
    parser.add_argument("--python", default=str(ROOT / ".venv-peers/bin/python"))
    parser.add_argument("--json", type=Path, help="where the figures go")
    args = parser.parse_args()
    cases = args.only or list(CASES)
    if not Path(args.python).exists():
        cases = [case for case in cases if case.startswith("ours") or case == "raw_pgmq"]
        print("without procrastinate and pgqueuer, which `make bench` installs", file=sys.stderr)
    with opened(args) as bench:
        figures = measured(bench, cases, *((1, 1) if args.quick else (3, 3)))
    show(medians(figures), cases)
    if args.json:
        rows: list[dict[str, Any]] = [
            {"case": case, "clients": clients, "per_s and ms": each}
            for (case, clients), each in figures.items()
        ]
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
