"""The way of docs/operate/systemd.md into production, with the service that its unit starts."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from support.pages import ROOT, blocks_of

from pgflowd.cli.main import run
from pgflowd.host import systemd as units
from pgflowd.resources import shipped
from pgflowd.testing.until import until

PAGE = "docs/operate/systemd.md"
INSTALL, FIRST_START, _ = (
    [shlex.split(line[2:], comments=True) for line in block.splitlines()]
    for block in blocks_of(PAGE, "console")
)
(CONFIG,) = blocks_of(PAGE, "toml")
(DROP_IN,) = blocks_of(PAGE, "ini")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that stands for a machine: the project, the config and the units are in it."""
    for name in [name for name in os.environ if name.startswith("PGFLOWD")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    assert run(["new", "shop"]) == 0
    config = tmp_path / "pgflowd.toml"
    config.write_text(CONFIG.replace("/srv/shop", str(tmp_path / "shop")))
    monkeypatch.setenv("PGFLOWD_CONFIG", str(config))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.setattr(units, "SYSTEM", tmp_path / "units")
    monkeypatch.setattr(units, "RUNNING", tmp_path / "absent")
    return tmp_path


def service(machine: Path, dsn: str) -> subprocess.Popen[bytes]:
    """Start what the installed unit starts, with the credential of the drop-in."""
    name, _, path = DROP_IN.partition("LoadCredential=")[2].strip().partition(":")
    assert Path(path).name == name
    (machine / "credentials").mkdir()
    (machine / "credentials" / name).write_text(f"{dsn}\n")
    unit = (machine / "units" / "pgflowd.service").read_text()
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    environ = {**os.environ, "CREDENTIALS_DIRECTORY": str(machine / "credentials")}
    return subprocess.Popen(shlex.split(command), env=environ)


def test_the_first_start_ends_with_a_service_that_is_healthy(
    empty_database, machine, monkeypatch, capsys
):
    monkeypatch.setenv("PGFLOWD__DATABASE__URL", empty_database.dsn)  # of whoever deploys
    first, *others = FIRST_START
    assert (first, run(first[1:])) == (["pgflowd", "check"], 1)
    assert "pgflowd db migrate" in capsys.readouterr().out
    daemon = None
    try:
        for words in others:
            if words == ["sudo", "systemctl", "enable", "--now", "pgflowd"]:
                monkeypatch.delenv("PGFLOWD__DATABASE__URL")  # which the service does not have
                daemon = service(machine, empty_database.dsn)
                until(lambda: run(["status", "--check"]) == 0, within_s=30)
            elif words[:2] != ["sudo", "systemctl"]:
                said = words[words.index("pgflowd") + 1 :]
                assert run([*said, "--yes"] if said[0] == "systemd" else said) == 0, words
        assert "healthy" in capsys.readouterr().out
    finally:
        if daemon is not None:
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(timeout=30) == 0


def test_the_drop_in_is_what_the_unit_recommends():
    section, line = DROP_IN.splitlines()

    assert section == "[Service]"
    assert f"#{line}" in (shipped("systemd") / "pgflowd.service").read_text().splitlines()


def test_the_installed_program_is_the_one_in_the_environment():
    venv, pip, link, _ = INSTALL

    assert venv[1:4] == ["python3", "-m", "venv"]
    assert pip[1:] == [f"{venv[4]}/bin/pip", "install", "pgflowd"]
    assert link[1:] == ["ln", "-s", f"{venv[4]}/bin/pgflowd", "/usr/local/bin/pgflowd"]


@pytest.mark.parametrize("unit", ["pgflowd.service", "pgflowd@.service"])
def test_handlers_find_what_the_page_says(unit):
    text = (shipped("systemd") / unit).read_text()
    written = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    page = (ROOT / PAGE).read_text()
    (stop_s,) = re.findall(r"`TimeoutStopSec=(\d+)`", page)

    assert written["TimeoutStopSec"] == stop_s
    assert (written["ProtectHome"], written["ProtectSystem"]) == (
        "yes",
        "strict",
    )
    assert written["PrivateTmp"] == written["NoNewPrivileges"] == "yes"
    assert written["WorkingDirectory"].startswith("/var/lib/pgflowd")
