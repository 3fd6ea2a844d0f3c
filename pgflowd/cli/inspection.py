"""
Inspection: asks child processes which flows the config's entries define.

Each entry gets a process, a few at a time; one that hangs is killed with all it started (E211),
one that dies is reported with its signal or exit code (E210). What can be seen across entries
only is judged here: a flow defined twice (E213), slugs that differ in case alone (E207).
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pgflowd.core.settings import Settings
from pgflowd.errors import Problem

AT_ONCE = 4
MOST_SAID = 64 * 1024 * 1024


@dataclass(frozen=True)
class CodeFlow:
    """A flow as it stands in the code; no shape if something is wrong with it."""

    slug: str
    entry: str
    place: str
    shape: dict[str, Any] | None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Inspection:
    """All flows of the code, and all that is wrong, in the order of the config."""

    flows: list[CodeFlow] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def flow(self, slug: str) -> CodeFlow | None:
        return next((flow for flow in self.flows if flow.slug == slug), None)

    @property
    def slugs(self) -> list[str]:
        return [flow.slug for flow in self.flows]


def inspect(settings: Settings) -> Inspection:
    """Look into all entries of the settings."""
    entries = list(dict.fromkeys(settings.pgflowd.flows))
    limit_s = settings.supervisor.start_timeout_s
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(
            pool.map(lambda entry: _ask(entry, settings.pgflowd.python_path, limit_s), entries)
        )
    flows: list[CodeFlow] = []
    problems: list[Problem] = []
    for entry, answer in zip(entries, answers, strict=True):
        found = [_flow_of(entry, told) for told in answer["flows"]]
        problems += _problems(answer)
        problems += [problem for flow in found for problem in flow.problems]
        for flow in found:
            problem, is_new = _met_before(flow, flows)
            problems += [problem] if problem else []
            flows += [flow] if is_new else []
    return Inspection(flows, list(dict.fromkeys(problems)))


def _met_before(flow: CodeFlow, flows: Iterable[CodeFlow]) -> tuple[Problem | None, bool]:
    """What is wrong with the flow beside those known, and whether it is another one."""
    for known in flows:
        if known.slug.casefold() != flow.slug.casefold():
            continue
        if known.slug == flow.slug and known.place == flow.place:
            return None, False  # a module, and one of its flows, are both listed
        if known.slug == flow.slug:
            text = f"flow {flow.slug} is defined twice, first at {known.place}"
            return Problem("E213", text, flow.place), False
        text = f"flows {known.slug} and {flow.slug} are equal but for case: one queue for two"
        return Problem("E207", text, flow.place, "rename one"), False
    return None, True


def _flow_of(entry: str, told: dict[str, Any]) -> CodeFlow:
    return CodeFlow(told["slug"], entry, told["place"], told["shape"], tuple(_problems(told)))


def _problems(told: dict[str, Any]) -> list[Problem]:
    return [Problem(**each) for each in told["problems"]]


def _ask(entry: str, python_path: Sequence[str], limit_s: float) -> dict[str, Any]:
    """What an inspector says about an entry, or what became of it."""
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pgflowd.cli.inspector", str(writing)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(writing,),
            start_new_session=True,
        )
    finally:
        os.close(writing)
    try:
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(json.dumps({"entry": entry, "python_path": list(python_path)}).encode())
        said = _read_line(reading, time.monotonic() + limit_s)
    finally:
        os.close(reading)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if said is None:
        return _failed("E211", entry, f"was not imported within {limit_s:g} s")
    try:
        answer: dict[str, Any] = json.loads(said)
    except ValueError:
        return _failed("E210", entry, f"cannot be imported: {_ended(process.returncode)}")
    return answer


def _read_line(descriptor: int, until: float) -> bytes | None:
    """A line, or what there is before the end; None when neither comes in time."""
    said = b""
    while not said.endswith(b"\n") and len(said) < MOST_SAID:
        left_s = until - time.monotonic()
        if left_s <= 0 or not select.select([descriptor], [], [], left_s)[0]:
            return None
        piece = os.read(descriptor, 65536)
        if not piece:
            break
        said += piece
    return said


def _failed(code: str, entry: str, text: str) -> dict[str, Any]:
    problem = {"code": code, "text": text, "place": entry, "next": None}
    return {"flows": [], "problems": [problem]}


def _ended(code: int) -> str:
    if code >= 0:
        return f"it ended its process with exit code {code}"
    try:
        return f"its process was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"its process was killed by signal {-code}"
