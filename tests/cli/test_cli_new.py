"""`pgflowd new`: projects that work from their first minute."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft7Validator
from support.shop import on_a_terminal

from pgflowd.cli.local.new import TEMPLATES

ALL = [
    "pgflowd.toml",
    "pgflowd.schema.json",
    "flows/{}.py",
    "tests/test_{}.py",
    "pyproject.toml",
    ".gitignore",
]


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_tests_of_a_new_project_pass(pgflowd, elsewhere, template):
    ended = pgflowd("new", "shop", "--template", template)

    project = elsewhere / "shop"
    tested = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert ended.code == 0
    assert tested.returncode == 0, tested.stdout
    assert int(tested.stdout.split(" passed")[0].split()[-1]) >= 4


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_config_of_a_new_project_is_right_and_its_flow_can_be_deployed(
    here, elsewhere, database, template, monkeypatch
):
    here("new", "shop", "--template", template)
    monkeypatch.chdir(elsewhere / "shop")

    checked = here("check", "--strict")
    deployed = here("flows", "deploy")
    started = here("runs", "start", TEMPLATES[template].flow, TEMPLATES[template].input)

    assert (checked.code, checked.out) == (0, "no problems found\n")
    created = [line.split() for line in deployed.out.splitlines()]
    assert created[0] == [TEMPLATES[template].flow, "created"]
    assert len(created) == 1 + (template == "saga")  # and what undoes its runs
    assert started.code == 0


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_project_is_clean(pgflowd, elsewhere, template):
    pgflowd("new", "shop", "--template", template)

    project = elsewhere / "shop"
    linted = run(
        sys.executable, "-m", "ruff", "check", "--select", "E,F,W,I,UP,B", ".", cwd=project
    )
    formatted = run(sys.executable, "-m", "ruff", "format", "--check", ".", cwd=project)
    typed = run(sys.executable, "-m", "mypy", "--strict", "flows", cwd=project)

    assert linted.returncode == 0, linted.stdout
    assert formatted.returncode == 0, formatted.stdout
    assert typed.returncode == 0, typed.stdout


def test_what_was_written_goes_when_the_rest_cannot_be(pgflowd, elsewhere):
    (elsewhere / "shop").mkdir()
    (elsewhere / "shop" / "tests").write_text("no directory")

    ended = pgflowd("new", "shop")

    assert ended.code == 1
    assert "shop/tests/test_analyze.py cannot be written: " in ended.err
    assert [path.name for path in (elsewhere / "shop").rglob("*") if path.is_file()] == ["tests"]


def test_it_prints_its_files_and_the_next_commands(pgflowd, elsewhere):
    ended = pgflowd("new", "shop")

    made = " · ".join(name.format("analyze") for name in ALL)
    assert " ".join(ended.out.split()) == f"created {made}"
    assert "cd shop && pgflowd " in ended.err
    assert "pgflowd runs start analyze_website '{" in ended.err
    assert all((elsewhere / "shop" / name.format("analyze")).is_file() for name in ALL)


def test_for_programs(pgflowd, elsewhere):
    told = pgflowd("new", "shop", "--template", "job", "--json").json

    assert told == {
        "schema_version": 1,
        "directory": str(elsewhere / "shop"),
        "template": "job",
        "files": [name.format("mail") for name in ALL],
    }


def test_nothing_is_overwritten_not_even_in_part(pgflowd, elsewhere):
    (elsewhere / "shop").mkdir()
    (elsewhere / "shop" / "pyproject.toml").write_text("mine")

    ended = pgflowd("new", "shop")

    assert ended.code == 6
    assert "shop already has pyproject.toml; nothing was written" in ended.err
    assert [path.name for path in (elsewhere / "shop").iterdir()] == ["pyproject.toml"]
    assert (elsewhere / "shop" / "pyproject.toml").read_text() == "mine"


def test_the_config_of_a_new_project_names_its_schema_which_accepts_it(pgflowd, elsewhere):
    pgflowd("new", "shop")

    text = (elsewhere / "shop" / "pgflowd.toml").read_text()
    schema = json.loads((elsewhere / "shop" / text.split()[1]).read_text())
    assert text.startswith("#:schema ./")
    assert schema == pgflowd("config", "schema").json
    Draft7Validator(schema).validate(tomllib.loads(text))


def test_the_current_directory_can_be_filled(pgflowd, elsewhere, monkeypatch):
    (elsewhere / "shop").mkdir()
    monkeypatch.chdir(elsewhere / "shop")

    ended = pgflowd("new", ".")

    assert ended.code == 0
    assert 'name        = "shop"' in (elsewhere / "shop" / "pgflowd.toml").read_text()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["my shop"], "'my shop' is not a valid name"),
        (["x" * 33], "is not a valid name"),
        (["shop", "--template", "diamon"], "diamond"),
        ([], "missing argument 'NAME'"),
    ],
)
def test_wrong_words(pgflowd, elsewhere, args, said):
    ended = pgflowd("new", *args)

    assert (ended.code, said in ended.err) == (2, True)
    assert list(elsewhere.iterdir()) == []


def test_a_place_that_cannot_be_written_is_reported(pgflowd, elsewhere):
    (elsewhere / "file").write_text("")

    ended = pgflowd("new", "file/shop")

    assert ended.code == 1
    assert "cannot be written" in ended.err


def test_it_fits_a_narrow_terminal(elsewhere):
    shown = on_a_terminal("new", "shop", columns=40, cwd=elsewhere)

    assert "created pgflowd.toml" in shown
    assert (elsewhere / "shop").is_dir()
