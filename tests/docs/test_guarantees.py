"""docs/reference/guarantees.md promises nothing without a test that shows it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/guarantees.md").read_text("utf-8")
SQL = (ROOT / "sql/schema/pgflowd/functions/violations.sql").read_text("utf-8")
NAMED = re.findall(r"^- `(\S+\.py)::(\w+)`$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("file", "test"), NAMED, ids="::".join)
def test_each_test_that_the_page_names_exists(file, test):
    module = ast.parse((ROOT / "tests" / file).read_text("utf-8"))

    assert test in {node.name for node in module.body if isinstance(node, ast.FunctionDef)}


def test_each_promise_names_a_test():
    promised = PAGE.partition("## What is promised")[2].partition("## What is not")[0]
    promises = re.split(r"^\*\*(G\d+) ", promised, flags=re.MULTILINE)[1:]

    assert promises[::2] == [f"G{number}" for number in range(1, len(promises) // 2 + 1)]
    assert [name for name, text in zip(promises[::2], promises[1::2], strict=True)
            if not re.search(r"^- `\S+::\w+`$", text, re.MULTILINE)] == []  # fmt: skip


def test_the_invariants_of_the_page_are_those_that_doctor_checks():
    listed = re.findall(r"^\| (I\d+) \|", PAGE, re.MULTILINE)

    assert listed == re.findall(r"^--   (I\d+) ", SQL, re.MULTILINE)


def test_the_readme_leads_to_it():
    assert "(docs/reference/guarantees.md)" in (ROOT / "README.md").read_text("utf-8")
