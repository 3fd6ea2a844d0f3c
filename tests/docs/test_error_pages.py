"""Each code has a row or a page in docs/errors; what a page shows comes when one does it."""

from __future__ import annotations

import ast
import os
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from support.error_examples import (
    DOCS,
    PAGES,
    Example,
    example_of,
    executed,
    is_shown,
    run_all,
    write_files,
)

from pgflowd.cli.main import run
from pgflowd.core.documents.documentation import LINK
from pgflowd.errors import GROUPS, TITLES
from pgflowd.host.pages import error_page
from pgflowd.testing import run_flow

ROOT = Path(__file__).parents[2]
LEAST_CHARS = 16  # of a part that is not found by chance
EXAMPLES = executed()


def test_each_code_has_one_row_which_names_its_page_or_says_what_to_do() -> None:
    text = (DOCS / "errors" / "README.md").read_text("utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if re.match(r"\| \[?[EW]\d", line)]
    expected = [f"| [{code}]({code}.md)" if code in PAGES else f"| {code}" for code in TITLES]

    assert [row[0] for row in rows] == expected
    for code, row in zip(TITLES, rows, strict=True):
        alone = [TITLES[code], "|"]
        assert row[1:] == alone if code in PAGES else row[1].startswith(f"{TITLES[code]}. "), row
        assert len(row) == 3
    assert re.findall("^## (.*)$", text, re.MULTILINE) == list(GROUPS.values())
    assert {path.stem for path in DOCS.glob("errors/[EW]*.md")} == set(PAGES)


@pytest.mark.parametrize("code", PAGES)
def test_a_page_says_what_happened_shows_it_and_says_what_to_do(code: str) -> None:
    page = error_page(code)
    said, *sections = re.split(r"^## (.+)\n", page.text, flags=re.MULTILINE)

    assert sections[::2] == ["Example", "What to do"]
    assert all(text.strip() for text in (said, *sections))
    assert not LINK.search(page.text), "links stand below `See also`"
    assert page.related or page.pages
    assert code not in page.related
    for name in page.pages:
        assert (ROOT / name).is_file(), name


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.code)
def test_an_example_prints_what_its_page_shows(
    example: Example, request, tmp_path, monkeypatch, capsys
) -> None:
    for name in [name for name in os.environ if "PGFLOWD" in name]:
        monkeypatch.delenv(name)
    if not example.is_offline:
        dsn = request.getfixturevalue("database").dsn
        monkeypatch.setenv("PGFLOWD__DATABASE__URL", dsn)
        monkeypatch.setenv("PGFLOWD__SUPERVISOR__CONTROL", str(tmp_path / "control.sock"))
    monkeypatch.chdir(tmp_path)
    write_files(example, tmp_path)

    run_all(example, run)

    output = "".join(capsys.readouterr()).replace(f"{tmp_path}/", "")
    assert example.code in example.printed
    assert is_shown(example.printed, output), output


@pytest.mark.parametrize("code", ["E403", "E405", "E418", "E426", "E427", "E430"])
def test_a_handler_of_a_page_fails_with_what_its_page_shows(code: str) -> None:
    example, module = example_of(code), ModuleType(f"flows_of_{code}")
    sys.modules[module.__name__] = module  # where annotations look for their names
    exec(example.files["flows.py"], vars(module))

    run = run_flow(module.flow, {})

    (failed,) = [step for step in run.steps.values() if step.error]
    assert is_shown(example.printed, str(failed.error)), failed.error


@pytest.mark.parametrize("code", sorted(set(PAGES) - {each.code for each in EXAMPLES}))
def test_what_a_page_shows_without_doing_it_is_what_the_code_writes(code: str) -> None:
    """A test with `@covers` provokes it; here its text must still be one of the code."""
    printed = " ".join(example_of(code).printed.split())

    assert code in printed
    assert any(is_written(template, printed) for template in texts_of_the_code())


@cache
def texts_of_the_code() -> list[tuple[str, ...]]:
    """The long texts of Python and SQL: what stands in them between what is filled in."""
    found: set[tuple[str, ...]] = set()
    for path in (ROOT / "pgflowd").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            values = [part.value for part in parts if isinstance(part, ast.Constant)]
            found.add(tuple(" ".join(each.split()) for each in values if isinstance(each, str)))
    for path in (ROOT / "sql" / "schema").rglob("*.sql"):
        for text in re.findall(r"'((?:[^'\n]|'')+)'", path.read_text("utf-8")):
            found.add(tuple(part.strip() for part in text.replace("''", "'").split("%s")))
    return [each for each in found if max(map(len, each), default=0) >= LEAST_CHARS]


def is_written(template: tuple[str, ...], printed: str) -> bool:
    """Whether the parts of the template stand in the text, one after the other."""
    at = 0
    for part in template:
        at = printed.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True
