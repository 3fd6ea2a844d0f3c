"""A kind of children is one row of the registry; other modules do not name it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pgflowd
from pgflowd.core import messages
from pgflowd.core.documents.daemons import SingleChildren
from pgflowd.core.supervision.kinds import (
    DISCOVERY,
    OBSERVER_KINDS,
    SINGLE_KINDS,
    TREE_KINDS,
)
from pgflowd.processes.supervisor.children import MAINS

PACKAGE = Path(pgflowd.__file__).parent
REGISTRY = {"core/supervision/kinds.py", "processes/supervisor/children.py"}
# where the name is also a section of the config, a key of JSON, a word of a text, or a protocol
NOT_KINDS = (
    "core/settings/", "core/documents/", "core/logrecord.py", "embedded/", "testing/",
    "cli/local/templates", "web/",
)  # fmt: skip
MAX_FILES = 4
KINDS = (*TREE_KINDS, *OBSERVER_KINDS, DISCOVERY)


def files_that_name(kind: str) -> list[str]:
    """The product files with a text that is the kind's name, or begins the id of its children."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        own = name == f"processes/{kind}.py" or name.startswith(f"processes/{kind}/")
        if own or name in REGISTRY or name.startswith(NOT_KINDS):
            continue
        nodes = ast.walk(ast.parse(path.read_text()))
        texts = [node.value for node in nodes if isinstance(node, ast.Constant)]
        if any(isinstance(text, str) and text.strip() == kind for text in texts):
            found.append(name)
    return found


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_few_files_name_a_kind_of_children(kind):
    assert len(files_that_name(kind)) <= MAX_FILES, files_that_name(kind)


def test_each_kind_of_the_tree_has_a_main_function_and_a_name_of_its_own():
    assert {*MAINS, DISCOVERY} == set(KINDS)
    assert len({kind.name for kind in KINDS}) == len(KINDS)


def test_each_message_of_a_child_is_sent_by_a_kind():
    sent = {message for kind in KINDS for message in kind.sends}
    orders = {messages.Drain, messages.QuickStop}
    received = {message for kind in TREE_KINDS for message in kind.receives}

    assert sent | received | orders == set(messages.KINDS.values())


def test_each_single_child_has_its_part_of_the_status():
    assert {kind.name for kind in SINGLE_KINDS} == SingleChildren.__annotations__.keys()
    assert all(kind.summary({}) for kind in SINGLE_KINDS)
