"""
All that takes too long for `make test`, one after the other, and a table of what each did.

    python tests/chaos/nightly.py --minutes 25 --seed 7      make nightly MINUTES=25 SEED=7

Each part is one of our own scripts with its share of the minutes, and is done whatever became of
the others. What it printed is in `build/nightly`. The exit code is 1 if any part failed, or took
more than twice its share and some minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
HOUSE = HERE.parents[1]
PLACE = HOUSE / "build" / "nightly"
MORE_S = 240.0  # for servers that start, backlogs that settle, judges
TIDY_S = 60.0  # from the end of its time to SIGKILL
DEFAULT_MINUTES = 25.0
_FIGURE = re.compile(r"(\w[\w ]*): (\d[\d.]*)$")
_NO_DEED = {"seed", "seconds", "minutes"}
_PYTEST = re.compile(r"\d+ (passed|failed|error).* in [\d.]+")
_LIMIT = 100  # characters of what a part did


@dataclass(frozen=True)
class Part:
    """A script, and how much of it is done in all minutes together."""

    name: str
    share: float  # of the minutes
    script: str
    size: str = "--minutes"
    per_minute: float = 1.0  # how much of it two cores do in a minute
    has_seed: bool = True

    def command(self, minutes: float, seed: int) -> list[str]:
        if not self.script:
            return [sys.executable, "-m", "pytest", "-q", "-m", "timing", "-p", "no:cacheprovider"]
        amount = minutes * self.share * self.per_minute
        shown = f"{amount:.2f}" if self.size == "--minutes" else str(max(1, round(amount)))
        seeded = ["--seed", str(seed)] if self.has_seed else []
        return [sys.executable, str(HERE / self.script), self.size, shown, *seeded]


# The timing tests are as many as they are.
PARTS = (
    Part("chaos", 0.32, "chaos.py"),
    Part("failovers", 0.16, "failovers.py", "--rounds", 1.5),
    Part("load", 0.10, "load.py", "--tasks", 20_000, has_seed=False),
    Part("soak", 0.14, "soak.py"),
    Part("ticks", 0.10, "ticks.py"),
    Part("undos", 0.10, "undos.py", "--runs", 150),
    Part("timing", 0.08, "", has_seed=False),
)


@dataclass(frozen=True)
class Outcome:
    """How a part ended."""

    part: Part
    fault: str  # or ""
    took_s: float
    deeds: str


def perform(part: Part, minutes: float, seed: int) -> Outcome:
    """Execute a part; what it prints goes to a file, too."""
    limit_s = 2 * 60 * minutes * part.share + MORE_S
    command, began = part.command(minutes, seed), time.monotonic()
    _say(f"\n== {part.name}: {' '.join(command[1:])}")
    log = PLACE / f"{part.name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, cwd=HOUSE, start_new_session=True
        )
        fault = ""
        try:
            if code := process.wait(limit_s):
                fault = f"exit {code}"
        except subprocess.TimeoutExpired:
            fault = f"not done after {limit_s:.0f} s"
        finally:
            _end(process)
    text = log.read_text(errors="replace")
    _say("\n".join(text.splitlines()[-60 if fault else -20 :]))
    return Outcome(part, fault, time.monotonic() - began, deeds(text))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a part that is still there; asked first, it tidies up."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(TIDY_S)


def deeds(text: str) -> str:
    """What a part did, in a line: its figures, rounds or tests."""
    lines = text.splitlines()
    if tests := [line for line in lines if _PYTEST.search(line)]:
        return tests[-1].strip("= ")
    found = [match.groups() for line in lines if (match := _FIGURE.match(line))]
    figures = [f"{value} {name}" for name, value in found if name not in _NO_DEED]
    if rounds := sum("a leader after" in line for line in lines):
        figures.append(f"{rounds} failovers")
    told = ", ".join(figures)
    return told if len(told) <= _LIMIT else f"{told[:_LIMIT].rpartition(', ')[0]}, …"


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as lines of text."""
    rows = [("part", "took", "", "what it did")]
    for each in outcomes:
        result = f"FAILED ({each.fault})" if each.fault else "ok"
        rows.append((each.part.name, f"{each.took_s:.0f} s", result, each.deeds))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join([*(row[column].ljust(widths[column]) for column in range(3)), row[3]]).rstrip()
        for row in rows
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--minutes", type=float, default=DEFAULT_MINUTES)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--only", nargs="*", choices=[part.name for part in PARTS])
    given = parser.parse_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    parts = [part for part in PARTS if not given.only or part.name in given.only]
    outcomes = [perform(part, given.minutes, given.seed) for part in parts]
    again = f"make nightly MINUTES={given.minutes:g} SEED={given.seed}"
    _say(f"\n{table(outcomes)}\nagain: {again}; what was printed is in {PLACE.relative_to(HOUSE)}")
    sys.exit(any(outcome.fault for outcome in outcomes))


if __name__ == "__main__":
    main()
