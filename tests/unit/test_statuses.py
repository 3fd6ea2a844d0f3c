"""The statuses of `core.statuses`; no other module has signs or sets of words of its own."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import pgflowd
from pgflowd.core.statuses import (
    ChildState,
    DaemonState,
    Mark,
    Marks,
    Outcome,
    RunStatus,
    Status,
    StepStatus,
    TaskStatus,
    child_mark,
)

PACKAGE = Path(pgflowd.__file__).parent
KINDS = (RunStatus, StepStatus, TaskStatus, Outcome)
MARKS = [each for each in vars(Marks).values() if isinstance(each, Mark)]
SIGNS = {mark.sign for mark in MARKS} - {"?", "·"}  # these are also plain characters
WORDS = {status.value for kind in (*KINDS, ChildState, DaemonState) for status in kind}
DEFINING = {"core/statuses.py", "core/supervision/tree.py"}
DRAWING = {"core/graph.py"}  # the head of an arrow
FOREIGN = {  # words that are equal, but not of a status: of a message, a metric, a result, a server
    "processes/runner", "processes/zygote", "processes/worker/runner_socket.py",
    "processes/worker/startup.py", "cli/commands/flows.py", "core/metrics", "embedded/postgres.py",
    "core/worker", "processes/worker/metrics.py",  # the engine's verdicts and outcomes
}  # fmt: skip
MODULES = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_status_is_its_word_with_a_sign_and_an_end(kind: type[Status]):
    for status in kind:
        assert kind(str(status)) is status
        assert json.dumps({"status": status}) == f'{{"status": "{status}"}}'
        assert status.mark.ascii.isascii() and len(status.mark.sign) == 1
    is_open = {
        "created", "queued", "scheduled", "started", "waiting", "paused", "ready", "delayed",
        "leased", "lapsed", "blocked", "quarantined", "undoing",
    }  # fmt: skip
    assert {str(status) for status in kind if not status.is_end} <= is_open


def test_a_word_of_a_later_database_is_shown_with_a_question_mark():
    archived = RunStatus("archived")

    assert (archived, archived.mark.sign, archived.is_end) == ("archived", "?", True)
    assert archived not in list(RunStatus)


def test_each_state_of_a_child_has_a_mark():
    assert {child_mark(state.value) for state in ChildState} == {
        Marks.UP, Marks.ASLEEP, Marks.FAILED, Marks.OFF, Marks.CHANGING,
    }  # fmt: skip


@pytest.mark.parametrize("module", [name for name in MODULES if name not in DEFINING | DRAWING])
def test_no_other_module_has_a_sign_of_a_status(module: str):
    for node in ast.walk(ast.parse((PACKAGE / module).read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 60:
            assert not SIGNS & set(node.value), f"{module}:{node.lineno} has {node.value!r}"


@pytest.mark.parametrize(
    "module",
    [each for each in MODULES if each not in DEFINING and not each.startswith(tuple(FOREIGN))],
)
def test_no_other_module_compares_with_words_of_statuses(module: str):
    tree = ast.parse((PACKAGE / module).read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            words = {
                each.value for side in (node.left, *node.comparators) for each in constants_in(side)
            }
            assert not words & WORDS, f"{module}:{node.lineno} compares with {words & WORDS}"
        elif isinstance(node, ast.Set | ast.Tuple | ast.List):
            words = {each.value for each in constants_in(node)}
            assert len(words & WORDS) < 2, f"{module}:{node.lineno} lists {words & WORDS}"


def constants_in(node: ast.AST) -> list[ast.Constant]:
    """The string itself, or those that a set, tuple or list consists of."""
    inner = node.elts if isinstance(node, ast.Set | ast.Tuple | ast.List) else [node]
    return [
        each for each in inner if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
