"""
The wheel: what a user installs works without the project around it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import pgflowd
from pgflowd.resources import shipped

PROJECT = Path(__file__).parents[2]
TREES = ("sql", "config", "systemd", "monitoring", "docs")
LOOK = """
import json, sys
from importlib.metadata import entry_points
from pgflowd.resources import shipped
import pgflowd
trees = {name: sorted(str(file.relative_to(shipped(name))) for file in shipped(name).rglob("*")
         if file.is_file()) for name in sys.argv[1:]}
plugins = [point.value for point in entry_points(group="pytest11")]
print(json.dumps({"place": pgflowd.__file__, "trees": trees, "plugins": plugins}))
"""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment into which nothing but the wheel was installed."""
    place = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet"]
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", place, PROJECT)
    run(sys.executable, "-m", "venv", "--without-pip", place / "venv")
    python = place / "venv" / "bin" / "python"
    run(*pip, "--python", python, "install", next(place.glob("pgflowd-*.whl")))
    return python.parent


def test_the_command_knows_its_version(empty: Path):
    said = json.loads(run(empty / "pgflowd", "version", "--json"))

    assert said["pgflowd"] == pgflowd.__version__


def test_the_command_shows_its_documentation(empty: Path):
    assert run(empty / "pgflowd", "docs", "waits").startswith("# Waits\n")


def test_the_command_shows_its_settings(empty: Path):
    assert run(empty / "pgflowd", "config", "show").startswith("[pgflowd]")


def test_the_wheel_carries_all_that_lies_beside_the_package(empty: Path):
    seen = json.loads(run(empty / "python", "-c", LOOK, *TREES))

    assert Path(seen["place"]).is_relative_to(empty.parent)
    for name in TREES:
        assert seen["trees"][name] == files(PROJECT / name), "see force-include in pyproject.toml"
    assert (Path(seen["place"]).parent / "py.typed").exists()


def test_the_wheel_announces_the_pytest_plugin(empty: Path):
    seen = json.loads(run(empty / "python", "-c", LOOK))

    assert seen["plugins"] == ["pgflowd.testing.plugin"]


@pytest.mark.parametrize("name", TREES)
def test_a_checkout_uses_its_own_files(name: str):
    assert shipped(name) == PROJECT / name


def files(tree: Path) -> list[str]:
    """What a tree has; the wheel lacks pictures and style, which a terminal cannot show."""
    found = [each for each in sorted(tree.rglob("*")) if each.is_file()]
    left_out = {".png", ".svg", ".css"}
    return [str(each.relative_to(tree)) for each in found if each.suffix not in left_out]


def run(*command: str | Path) -> str:
    """Run a command away from the project, and return what it printed."""
    ended = subprocess.run(
        command, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
    assert ended.returncode == 0, f"{command}: {ended.stdout}"
    return ended.stdout
