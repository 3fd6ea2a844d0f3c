"""docs/reference/programs.md names every exit code, and the commands of the README work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from pgflowd.cli.main import run
from pgflowd.core.exit_codes import ExitCode

PAGE = (Path(__file__).parents[2] / "docs/reference/programs.md").read_text("utf-8")


def test_every_exit_code_is_named():
    for code in ExitCode:
        assert f"| {code.value} |" in PAGE


def test_the_commands_of_the_readme_work(database, tmp_path, monkeypatch, capsys):
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    (block,) = re.findall(
        r"^## Commands\n\n```console\n(.*?)^```", readme, re.DOTALL | re.MULTILINE
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGFLOWD__DATABASE__URL", database.dsn)
    for line in block.splitlines():
        words = shlex.split(line.removeprefix("$ pgflowd "), comments=True)
        if "&&" in words:
            assert words == ["new", "shop", "&&", "cd", "shop"]
            assert run(words[:2]) == 0
            monkeypatch.chdir(tmp_path / "shop")
            continue
        following = ["--timeout", "1ms"] if "--follow" in words else []  # no daemon serves it here
        assert run([*words, *following]) == (5 if following else 0), capsys.readouterr()
    assert "analyze_website  created" in capsys.readouterr().out
