"""
Beside the others: pgflowd, procrastinate, pgqueuer, dbos and raw pgmq, in one run.

    python bench/peers.py [--quick] [--dsn URL] [--markdown] [--only SYSTEM …] [--json FILE]

One PostgreSQL for all, durable, embedded unless `--dsn` names another (a superuser's, on this
machine: CPU is read from /proc). Every workload runs once per round, the systems interleaved,
so that a slow moment of the machine hits all of them; each in a fresh database. `make bench`
makes the environment of the others in .venv-peers. `--again FILE` prints the tables of an
earlier run. What was measured how: workloads.py; the systems: systems/; the tables: report.py.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import report
import workloads
from stage import Bench, Failed
from workloads import QUICK, Figures, Scale

from pgflowd.embedded import EmbeddedPostgres

ROOT = Path(__file__).parents[1]
PEERS = ["procrastinate", "pgqueuer", "dbos"]
SYSTEMS = ["ours", *PEERS, "raw_pgmq"]
WAITERS = ["ours", "procrastinate", "pgqueuer"]  # whose tasks can wait in one event loop
RESULTS = ROOT / "bench/results/peers.json"


class Run:
    """All figures, as they come in."""

    def __init__(self, bench: Bench, systems: list[str], scale: Scale) -> None:
        self.bench = bench
        self.systems = systems
        self.scale = scale
        self.rounds: report.Rounds = {system: {} for system in systems}
        self.failures: list[str] = []
        self._engines = [system for system in systems if system != "raw_pgmq"]
        self._began = time.monotonic()

    def _passed(self) -> float:
        return time.monotonic() - self._began

    def do(self, system: str, what: str, work: Callable[[], Figures]) -> None:
        """Perform a workload; a failure is told, and the others go on."""
        began = self._passed()
        figures: Figures = {}
        try:
            figures = work()
        except Failed as error:
            self.failures.append(f"{system}, {what}: {error}")
        except Exception:
            self.failures.append(f"{system}, {what}: {traceback.format_exc()}")
        for name, value in figures.items():
            self.rounds.setdefault(system, {}).setdefault(name, []).append(value)
        now = self._passed()
        shown = ", ".join(f"{k} {report.number(v)}" for k, v in figures.items() if "#" not in k)
        shown = shown or (f"{len(figures)} figures" if figures else "FAILED")
        clock = f"{now:5.0f} s  {now - began:5.1f} s"
        print(f"{clock}  {system:13} {what:9} {shown}", file=sys.stderr, flush=True)

    def everything(self) -> None:
        """One round, all that is done once, and more rounds while there is time for them."""
        began = self._passed()
        self.round(0)
        lasts = self._passed() - began
        self.once()
        for at in range(1, self.scale.rounds):
            if at > 1 and self._passed() + lasts > self.scale.limit_s:
                break
            self.round(at)

    def round(self, at: int) -> None:
        for system in _rotated(self.systems, at):
            self.each("W5 W1 W4", system, workloads.starts_and_tasks)
        for system in _rotated(self._engines, at):
            self.each("W2 W3", system, workloads.chains_and_map)
        if "ours" in self.systems:
            self.each("W2 with run", "ours", workloads.chains_with_run)

    def once(self) -> None:
        for system in self.systems:
            work = partial(workloads.long_queue, to_the_end=system == "ours")
            self.each("W7", system, work)
        alone = partial(workloads.server_alone, self.bench, self.scale)
        self.do(report.ALONE, "W6", alone)
        for system in self._engines:
            self.each("W6", system, workloads.idle)
        for system in self._engines:
            if system in WAITERS:
                self.each("async", system, workloads.waiting)
        if "ours" in self.systems:
            self.growth()

    def each(self, what: str, system: str, work: Callable[..., Figures]) -> None:
        self.do(system, what, partial(work, self.bench, system, self.scale))

    def growth(self) -> None:
        bench, scale = self.bench, self.scale
        for count in (1, 4, 16):
            self.do("ours", "flows", partial(workloads.flows, bench, count, scale))
        for count in scale.runners:
            self.do("ours", "runners", partial(workloads.runners, bench, count, scale))
        if many := scale.idle_flows:
            self.do("ours", "W6", partial(workloads.idle, bench, "ours", scale, many))
        self.do("ours", "quick", partial(workloads.quick_async, bench, scale))
        self.do("ours", "maps", partial(workloads.maps, bench, scale))
        self.do("ours", "beside", partial(workloads.neighbours, bench, scale))


def _rotated(systems: list[str], by: int) -> list[str]:
    """Nobody is always the first, or always after the same one."""
    by %= max(1, len(systems))
    return [*systems[by:], *systems[:by]]


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[Bench]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        directory.chmod(0o755)
        dsn = args.dsn
        if dsn is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=args.directory)))
            options = {"max_connections": "200"}
            dsn = stack.enter_context(EmbeddedPostgres(place / "pg", options=options)).dsn
        bench = Bench(dsn, directory, args.python)
        stack.callback(bench.close)
        yield bench


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Measure everything; return what the JSON file has."""
    with opened(args) as bench:
        run = Run(bench, args.only or SYSTEMS, QUICK if args.quick else Scale())
        setups: dict[str, str] = {}
        for system in run.systems:
            with bench.stage(system, []) as stage:
                setups[system] = stage.told["setup"]
        try:
            run.everything()
        except KeyboardInterrupt:
            run.failures.append("interrupted")
        (version,) = bench.conn.execute("show server_version").fetchone() or ("",)
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpu": _cpu(), "python": platform.python_version(), "postgresql": version},
        "quick": args.quick,
        "took_s": round(run._passed()),
        "setups": setups,
        "rounds": run.rounds,
        "targets": report.targets(run.rounds),
        "failures": run.failures,
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return f"{len(names)} × {names[0]}" if names else platform.machine()


def show(found: dict[str, Any], as_markdown: bool) -> None:
    draw = report.markdown if as_markdown else report.plain
    rounds = found["rounds"]
    tables = [report.systems_table, report.targets_table, report.growth_table]
    for table in tables:
        print("\n" + draw(table(rounds)))
    machine = found["machine"]
    print(f"\n{found['at']}, {machine['cpu']}, PostgreSQL {machine['postgresql']}, ", end="")
    print(f"Python {machine['python']}, {found['took_s']} s{', quick' if found['quick'] else ''}.")
    alone = report.Figures(rounds.get(report.ALONE, {}))["W6 server ms per s"]
    print(
        "In brackets: the largest over the smallest of the rounds. PostgreSQL with nobody there ",
        end="",
    )
    print(f"costs {report.number(alone)} ms/s of W6.")
    for failure in found["failures"]:
        print(f"\nFAILED {failure}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--dsn", help="a superuser's, of a server on this machine")
    parser.add_argument("--directory", help="where the embedded server keeps its data")
    parser.add_argument("--quick", action="store_true", help="less of everything, one round")
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, help="these systems only")
    parser.add_argument("--python", default=str(ROOT / ".venv-peers/bin/python"))
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures go")
    parser.add_argument(
        "--markdown", action="store_true", help="tables for docs/background/benchmarks.md"
    )
    parser.add_argument("--again", type=Path, metavar="FILE", help="print an earlier run's tables")
    args = parser.parse_args()
    if args.again:
        show(json.loads(args.again.read_text()), args.markdown)
        return 0
    if not Path(args.python).exists():
        parser.error(f"{args.python} is missing; `make bench` installs what is measured beside us")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and so tidy up
    found = measured(args)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(found, indent=1, ensure_ascii=False))
    show(found, args.markdown)
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
