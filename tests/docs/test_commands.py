"""docs/reference/commands.md names every key that `--json` prints, and every exit code there is."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from support.shop import MODULE, Shop
from support.trees import CANNOT, CRASH, running

from pgflowd.cli.main import run
from pgflowd.core.documents.daemon import DaemonFacts, status_of
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.supervision.decide import on_exit

PAGE = (Path(__file__).parents[2] / "docs/reference/commands.md").read_text("utf-8")
FREE = {
    "input",
    "output",
    "parameters",
    "shape",
    "sql",
    "cpu_s",
}  # keys below these are those of the user


@pytest.fixture
def shop(database, tmp_path, monkeypatch) -> Shop:
    """Flows, a run that is over and one with a failure, in a project that knows them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGFLOWD__DATABASE__URL", database.dsn)
    (tmp_path / "pgflowd.toml").write_text('[pgflowd]\nflows = ["shop_flows"]\n')
    (tmp_path / "shop_flows.py").write_text(MODULE)
    made = Shop(database)
    made.deploy()
    made.run_through()
    made.start()
    made.complete(made.claim_all()["website#0"], 1)
    made.fail(made.claim_all()["summary#0"], "not today")
    return made


COMMANDS = {
    "runs start": ["runs start send_email --json", "runs cancel @last --json"],
    "runs list": ["runs list --json"],
    "runs show": ["runs show @last --json --attempts --checkpoints"],
    "tasks": ["tasks list --json"],
    "signals": ["runs signal @last paid 7 --json", "signals list --json"],
    "runs follow": ["runs follow @last --json --timeout 1ms"],
    "flows list": ["flows list --json", "flows show send_email --json"],
    "flows graph": [
        "flows graph analyze_website --run @last --json",
        "flows diff send_email --json",
        "flows deploy --json",
        "flows deploy --sql --json",
        "flows delete store_items --yes --json",
    ],
    "flows schema": ["flows schema send_email --json"],
    "schedules": [
        "schedules add noon send_email @daily --json",
        "schedules list --json",
        "schedules next noon --json",
        "schedules fire noon --json",
        "schedules pause noon --json",
        "schedules remove noon --json",
    ],
    "stalled": ["stalled list --json", "stalled requeue --all --json"],
    "check": ["check --json", "doctor --json"],
    "new": ["new shop --json", "systemd show --json", "systemd install --dry-run --json"],
    "db, config": [
        "db status --json",
        "db verify --json",
        "db settings --json",
        "db set crash_limit 7 --json",
        "config show --json",
    ],
}


def section(name: str) -> str:
    (text,) = re.findall(rf"^### {name}.*?(?=^### |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return str(text)


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for element in value:
            yield from keys(element)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key not in FREE and key not in ("settings", "problem", "problems"):
                yield from keys(inner)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_key_is_named_in_its_section(shop, capsys, name):
    if name == "stalled":
        shop.stall()
    page = section(name) + section("runs start") * name.startswith("runs")
    for command in COMMANDS[name]:
        run(command.split())
        printed = capsys.readouterr().out
        documents = printed.splitlines() if "follow" in command else [printed]
        for printed_one in map(json.loads, documents):
            assert printed_one["schema_version"] == 1, command
            for key in set(keys(printed_one)) - {"schema_version"}:
                assert f"`{key}`" in page, f"{command}: {key}"


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


def test_every_key_of_the_status_is_named():
    page = section("status, tree")
    tree = on_exit(on_exit(running("a", "b"), "worker a", CANNOT, 1.0)[0], "worker b", CRASH, 2.0)[
        0
    ]
    status = status_of(
        tree, DaemonFacts(UUID(int=1), "shop", "app1", "0.1.0", 812, 1000.0, 0.0, 1060.0, 60.0, {})
    ).to_json()

    assert status["problems"] and status["flows"][0]["error"]
    for key in set(keys(status)) - {"schema_version"} | {"code", "flow", "text", "next"}:
        assert f"`{key}`" in page, key
