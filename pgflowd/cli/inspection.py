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
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pgflowd.core.settings.sections import Settings
from pgflowd.errors import Problem
from pgflowd.processes.flow_loading import secret_variables

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
    asked = {
        "python_path": list(settings.pgflowd.python_path),
        "secrets": list(secret_variables(settings)),
    }
    answers = _ask_all(entries, asked, limit_s)
    flows: list[CodeFlow] = []
    problems: list[Problem] = []
    for entry in entries:
        answer = answers[entry]
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


class _Asked:
    """An inspector at work on one entry."""

    def __init__(self, entry: str, told: Mapping[str, Any], until: float) -> None:
        self.entry, self.until, self.said = entry, until, b""
        self.pipe, writing = os.pipe()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "pgflowd.cli.inspector", str(writing)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(writing,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self.pipe)
            raise
        finally:
            os.close(writing)
        assert self.process.stdin is not None
        with suppress(BrokenPipeError), self.process.stdin as stdin:
            stdin.write(json.dumps({"entry": entry, **told}).encode())

    def hear(self) -> bool:
        """Read what has come; whether that was all: a line, or the end."""
        piece = os.read(self.pipe, 65536)
        self.said += piece
        return not piece or self.said.endswith(b"\n") or len(self.said) > MOST_SAID

    def end(self) -> None:
        """Leave nothing of it behind."""
        os.close(self.pipe)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def answer(self) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = json.loads(self.said)
        except ValueError:
            text = f"cannot be imported: {_ended(self.process.returncode)}"
            return _failed("E210", self.entry, text)
        return answer


def _ask_all(
    entries: Sequence[str], told: Mapping[str, Any], limit_s: float
) -> dict[str, dict[str, Any]]:
    """What inspectors say about entries, or what became of them; a few at a time."""
    answers: dict[str, dict[str, Any]] = {}
    waiting, asked = list(reversed(entries)), dict[int, _Asked]()
    try:
        while waiting or asked:
            while waiting and len(asked) < AT_ONCE:
                one = _Asked(waiting.pop(), told, time.monotonic() + limit_s)
                asked[one.pipe] = one
            nap_s = max(min(one.until for one in asked.values()) - time.monotonic(), 0.0)
            for pipe in select.select(list(asked), [], [], nap_s)[0]:
                if asked[pipe].hear():
                    one = asked.pop(pipe)
                    one.end()
                    answers[one.entry] = one.answer()
            for one in [one for one in asked.values() if one.until <= time.monotonic()]:
                asked.pop(one.pipe).end()
                text = f"was not imported within {limit_s:g} s"
                answers[one.entry] = _failed("E211", one.entry, text, "let it do less at the top")
    finally:
        for one in asked.values():
            one.end()
    return answers


def _failed(code: str, entry: str, text: str, remedy: str | None = None) -> dict[str, Any]:
    problem = {"code": code, "text": text, "place": entry, "next": remedy}
    return {"flows": [], "problems": [problem]}


def _ended(code: int) -> str:
    if code >= 0:
        return f"it ended its process with exit code {code}"
    try:
        return f"its process was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"its process was killed by signal {-code}"
