"""The manual pages: one for each command, which mandoc reads without a warning."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import click
import pytest

from pgflowd.cli.main import COMMANDS

PROGRAM = Path(__file__).parents[2] / "deploy" / "debian" / "manual_pages.py"


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("man1")
    subprocess.run([sys.executable, PROGRAM, directory], check=True, timeout=60)
    return directory


def shown(page: Path) -> str:
    """The page as people read it, in one line, without bold letters."""
    command = ["mandoc", "-Tutf8", "-Owidth=200", str(page)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return " ".join(re.sub(r".\x08", "", text).split())


def test_each_command_has_a_page(pages):
    names = {page.stem for page in pages.iterdir()}

    assert {f"pgflowd-{entry.name}" for entry in COMMANDS} < names
    assert {"pgflowd", "pgflowd-runs-start", "pgflowd-web-passwd"} < names


def test_no_page_has_a_warning(pages):
    command = ["mandoc", "-Tlint", "-Wwarning", *sorted(map(str, pages.iterdir()))]

    done = subprocess.run(command, capture_output=True, text=True)

    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


def test_a_page_shows_what_the_help_says_character_by_character(pages):
    text = shown(pages / "pgflowd-runs-start.1")

    assert "NAME pgflowd-runs-start - Start a run of FLOW and print its id" in text
    assert "pgflowd runs start [OPTIONS] FLOW [INPUT|-|@FILE]" in text
    assert "--label K=V A label; may be repeated." in text
    assert """analyze_website '{"url": "https://example.com"}' --follow""" in text
    assert "--database-url" not in text  # which pgflowd(1) explains


def test_the_first_page_has_the_options_of_all_commands_and_leads_to_theirs(pages):
    text = shown(pages / "pgflowd.1")

    assert "-c, --config FILE Read this config file." in text
    assert "pgflowd-runs(1) Start, show, follow, signal and change runs." in text


def test_any_help_is_shown_as_it_was_written(tmp_path):
    """Nothing of it is a request of roff, or an escape."""
    text = ".SH at a beginning \\fB 'quoted' \"twice\" `a` ~^ -- é …"
    example = "\b\nExample: .tool 'a  b' \\n\n         'apostrophe first"
    command = click.Command("tool", help=f"First.\n\n{text}\n\n{example}")
    option = click.Option([".dot", "--dot"], metavar="'X'", help=".br or \\(rs")
    command.params.append(option)
    page = runpy.run_path(str(PROGRAM))["page"]

    file = tmp_path / "tool.1"
    file.write_text(page(click.Context(command, info_name="tool"), ["tool"], "2026-01-01"))

    found = shown(file)
    assert text in found
    assert ".tool 'a b' \\n 'apostrophe first" in found
    assert "--dot 'X' .br or \\(rs" in found
