"""The example config/pgflowd.toml has every key, with the default and text of the code."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pgflowd import examples
from pgflowd.core.settings.keys import keys_of
from pgflowd.core.settings.load import rows, toml_key, toml_value, variables
from pgflowd.core.settings.sections import SECTIONS, Settings
from pgflowd.host.config import load
from pgflowd.resources import shipped

EXAMPLE = shipped("config") / "pgflowd.toml"
KEYS = [(section, key) for section, kind in SECTIONS.items() for key in keys_of(kind)]
REQUIRED = [("pgflowd", "flows")]  # no default would do


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return tomllib.loads(EXAMPLE.read_text())


@pytest.mark.parametrize(("section", "key"), [key for key in KEYS if key not in REQUIRED])
def test_every_key_stands_in_the_example_with_its_default(
    example: dict[str, Any], section: str, key: str
) -> None:
    assert example[section][key] == keys_of(SECTIONS[section])[key][1].default


def test_the_example_has_no_other_keys(example: dict[str, Any]) -> None:
    assert [(section, key) for section in example for key in example[section]] == KEYS


def test_the_example_gives_the_default_settings(tmp_path: Path) -> None:
    settings = load(config=str(EXAMPLE), environ={}, cwd=tmp_path)
    settings = replace(settings, pgflowd=replace(settings.pgflowd, flows=()))

    for section in SECTIONS:
        assert getattr(settings, section) == getattr(Settings(), section)
    assert settings.warnings == ()


def test_the_example_serves_every_example_flow(example: dict[str, Any]) -> None:
    modules = {path.stem for path in Path(examples.__path__[0]).glob("*.py")} - {"__init__"}

    assert sorted(example["pgflowd"]["flows"]) == [f"pgflowd.examples.{m}" for m in sorted(modules)]


def test_every_key_of_the_example_has_a_comment() -> None:
    lines = [line for line in EXAMPLE.read_text().splitlines() if re.match(r"\w+ +=", line)]

    assert len(lines) == len(KEYS)
    assert [line for line in lines if not re.search(r"  # \S", line)] == []


def test_what_is_shown_can_be_read_again(tmp_path: Path) -> None:
    text = """
        [pgflowd]
        flows = ["a", "b:c"]
        [worker]
        poll_max = "90s"
        max_output = "1536B"
        [flows.Send]
        enabled = false
        kill_grace = "1500ms"
        """
    (tmp_path / "first.toml").write_text(text)
    first = load(config="first.toml", environ={}, cwd=tmp_path)
    shown: dict[str, list[str]] = {}
    for row in rows(first):
        section = ".".join(map(toml_key, row.section))
        shown.setdefault(section, []).append(f"{row.key} = {toml_value(row.value)}")
    (tmp_path / "second.toml").write_text(
        "\n".join("\n".join([f"[{section}]", *lines]) for section, lines in shown.items())
    )

    second = load(config="second.toml", environ={}, cwd=tmp_path)

    assert [getattr(second, name) for name in SECTIONS] == [getattr(first, n) for n in SECTIONS]
    assert second.flows == first.flows


def test_every_key_has_a_variable_and_texts_may_come_from_a_file() -> None:
    listed = {each.name: each for each in variables()}

    assert listed["PGFLOWD__DATABASE__URL"].takes_file
    assert not listed["PGFLOWD__WORKER__MAX_CONCURRENCY"].takes_file
    assert "PGFLOWD__FLOWS__<SLUG>__ENABLED" in listed
    assert {(each.section, each.key) for each in listed.values()} >= set(KEYS)
