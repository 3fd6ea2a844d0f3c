"""deploy/compose.yaml, as Debian's docker-compose reads it, which needs no engine for that."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.deployed import grace_s, understood

from pgflowd.core.settings.sections import Settings

FILE = Path(__file__).parents[2] / "deploy/compose.yaml"
OURS = ("migrate", "serve", "web")


def read(file: Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("docker-compose")
    assert program, "the tests read deploy/compose.yaml; run: sudo apt-get install docker-compose"
    return subprocess.run(
        [program, "--file", str(file), "config"],
        cwd=file.parent,
        env={**os.environ, "POSTGRES_PASSWORD": "crocus"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    done = read(FILE)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return found


def test_a_key_that_compose_does_not_know_is_refused(tmp_path: Path):
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(FILE.read_text().replace("stop_grace_period:", "stop_grace:"))

    done = read(wrong)

    assert done.returncode != 0
    assert "stop_grace" in done.stderr


def test_each_of_our_services_runs_the_image_with_a_read_only_root(services: dict[str, Any]):
    assert set(services) == {"postgres", *OURS}
    for name in OURS:
        assert services[name]["image"] == "pgflowd"
        assert services[name]["read_only"] is True
        assert services[name]["tmpfs"] == ["/run/pgflowd:mode=1777"]
        assert services[name]["cap_drop"] == ["ALL"]
        assert Path(services[name]["build"]["context"], "deploy/Dockerfile").exists()


@pytest.mark.parametrize("name", OURS)
def test_commands_and_variables_are_ours(services: dict[str, Any], name: str, tmp_path: Path):
    variables = services[name]["environment"]
    told = understood(services[name]["command"], variables, tmp_path)

    assert {each for each in variables if not each.startswith("PGFLOWD__")} == {"DATABASE_URL"}
    assert told.database.url.scheme == "env"


def test_the_daemon_has_the_time_to_drain_and_starts_after_the_migration(services: dict[str, Any]):
    minutes, _, seconds = str(services["serve"]["stop_grace_period"]).rpartition("m")
    given_s = float(minutes or 0) * 60 + float(seconds.removesuffix("s"))

    assert given_s == grace_s(Settings())
    for name in ("serve", "web"):
        assert services[name]["depends_on"]["migrate"]["condition"] == (
            "service_completed_successfully"
        )
