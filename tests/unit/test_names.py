"""A name has one meaning: a class exists once, and tests share code by tests/support alone."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

import pgflowd

PACKAGE = Path(pgflowd.__file__).parent
TESTS = Path(__file__).parents[1]


def test_a_class_name_exists_once_in_the_package():
    places = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(str(path.relative_to(PACKAGE)))

    assert {name: sorted(paths) for name, paths in places.items() if len(paths) > 1} == {}


def test_no_test_imports_a_test():
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        if "node_modules" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found += [(path.name, name) for name in names if name.startswith("test_")]

    assert found == []


def test_a_test_file_has_a_name_of_its_own():
    """Pytest knows a file by its name alone: of two with the same one it collects the first."""
    names = Counter(path.name for path in TESTS.rglob("test_*.py") if "npm" not in path.parts)

    assert [name for name, count in names.items() if count > 1] == []
