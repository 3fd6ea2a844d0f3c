"""docs/start/idea.md has the words of the house, and the signs, tables and times of the code."""

from __future__ import annotations

import re

from support.pages import ROOT, blocks_of

from pgflowd.core.settings.sections import RecoverySettings, WorkerSettings
from pgflowd.core.statuses import Outcome, StepStatus, TaskStatus

PAGE = (ROOT / "docs/start/idea.md").read_text("utf-8")
(PICTURE,) = blocks_of("docs/start/idea.md", "text")


def test_its_words_are_those_of_the_glossary() -> None:
    rows = re.findall(
        r"^\| ([^|]+) \|", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE
    )
    glossary = {word for row in rows for word in row.split(", ")}
    (words,) = re.findall(r"## The words\n(.*?)\n## ", PAGE, re.DOTALL)

    bold = re.findall(r"\*\*(\w+)\*\*", words)

    assert {"flow", "run", "step", "task", "attempt", "lease", "worker"} <= set(bold)
    assert set(bold) - glossary <= {"map"}  # which is a kind of step


def test_its_picture_has_the_signs_of_the_statuses_and_tables_that_exist() -> None:
    known = [*StepStatus, *TaskStatus, *Outcome]
    shown = re.findall(r"(?<!─)([✔▶·⚠✖]) (\w+)", PICTURE)
    tables = re.findall(r"`(pgflowd?)\.(\w+)`", PAGE)

    assert len(shown) >= 8
    for sign, word in shown:
        assert any((each.mark.sign, each.value) == (sign, word) for each in known), word
    assert len(tables) == 4
    for schema, table in tables:
        assert (ROOT / "sql/schema" / schema / "tables" / f"{table}.sql").is_file(), table


def test_its_times_are_the_defaults() -> None:
    recovery, worker = RecoverySettings(), WorkerSettings()

    assert (
        f"for {recovery.lease_s:g} seconds, renewed every {worker.heartbeat_interval_s:g}" in PAGE
    )
    lapsed, taken = recovery.lease_s, recovery.recovery_interval_s
    assert f"its leases end at most {lapsed:g} s later; " in PAGE
    assert f"takes its tasks at most {taken:g} s after that" in PAGE
