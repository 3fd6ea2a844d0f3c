"""`pgflowd systemd`: units, shown before they are written; `pgflowd doctor systemd` compares."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pgflowd.host import systemd as units

NAMES = ["pgflowd-web.service", "pgflowd.service", "pgflowd@.service"]


@pytest.fixture
def systemd(pgflowd, elsewhere, monkeypatch):
    """Run a systemd command where the system's units lie in a directory of the test."""
    monkeypatch.setattr(units, "SYSTEM", elsewhere / "system")
    monkeypatch.setattr(units, "RUNNING", elsewhere / "absent")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(elsewhere / "config"))
    return lambda *args: pgflowd("systemd", *args)


@pytest.fixture
def doctor(systemd, pgflowd):
    """Examine the units, where `systemd` has them."""
    return lambda *args: pgflowd("doctor", "systemd", *args)


@pytest.fixture
def of_version(monkeypatch):
    """Let systemd be of this version."""

    def be(version: int | None) -> None:
        monkeypatch.setattr(units, "systemd_version", lambda: version)

    return be


def files(directory: Path) -> list[str]:
    found = [path for path in directory.rglob("*") if path.is_file()]
    return sorted(str(path.relative_to(directory)) for path in found)


def test_install_shows_asks_and_writes(systemd, elsewhere, of_version):
    of_version(252)

    refused = systemd("install")
    dry = systemd("install", "--dry-run")
    done = systemd("install", "--yes")
    again = systemd("install", "--yes")

    assert (refused.code, "--yes" in refused.err) == (6, True)
    assert dry.out.endswith("nothing was written\n")
    assert f"# {elsewhere}/system/pgflowd.service" in done.out
    assert done.out.endswith("3 files are written\n")
    assert "enable --now pgflowd" in done.err
    assert again.out == "the units are installed already\n"
    assert files(elsewhere / "system") == NAMES


def test_a_newer_systemd_gets_its_drop_ins(systemd, elsewhere, of_version):
    of_version(254)

    systemd("install", "--yes")

    assert files(elsewhere / "system") == sorted(
        [
            *NAMES,
            *(f"{name}.d/{drop}" for name in NAMES[1:] for drop in units.DROP_INS),
            "pgflowd-web.service.d/restart-steps.conf",  # it has no reload
        ]
    )


def test_a_package_has_its_units_where_packages_have_them(
    systemd, doctor, elsewhere, of_version, monkeypatch
):
    of_version(252)
    monkeypatch.setattr(units, "PACKAGED", elsewhere / "packaged")
    (elsewhere / "packaged").mkdir()
    for file in systemd("show", "--json").json["files"]:
        (elsewhere / "packaged" / Path(file["path"]).name).write_text(file["text"])

    assert systemd("install", "--yes").out == "the units are installed already\n"
    assert f"{elsewhere}/packaged/pgflowd.service is up to date" in doctor().out

    monkeypatch.setattr(units, "program", lambda: "/elsewhere/pgflowd")  # not that of the package
    assert f"# {elsewhere}/system/pgflowd.service" in systemd("show").out


def test_the_unit_starts_this_very_program(systemd, of_version):
    of_version(252)

    shown = systemd("show", "--json").json["files"]

    program = units.program()
    assert [Path(file["path"]).name for file in shown] == [*NAMES[1:], NAMES[0]]
    assert f"ExecStart={program} serve\n" in shown[0]["text"]
    assert f"ExecStart={program} serve --instance %i\n" in shown[1]["text"]
    assert f"ExecStart={program} web --config /etc/pgflowd/web.toml\n" in shown[2]["text"]
    assert Path(program).exists()


def test_a_users_own_units_ask_for_nothing_that_only_root_may(systemd, elsewhere, of_version):
    of_version(252)

    done = systemd("install", "--user", "--yes", "--json")

    unit = elsewhere / "config" / "systemd" / "user" / "pgflowd.service"
    text = unit.read_text()
    assert done.json["files"][0]["path"] == str(unit)
    assert "User=" not in text and "Protect" not in text.replace("ProtectProc ", "")
    assert "serve --config %E/pgflowd/pgflowd.toml" in text
    assert "WantedBy=default.target" in text
    assert "Restart=on-failure" in text
    web = unit.with_name("pgflowd-web.service").read_text()
    assert "User=" not in web and "MemoryDeny" not in web and "ProcSubset" not in web
    assert "web --config %E/pgflowd/web.toml\n" in web
    assert "WorkingDirectory=%S/pgflowd-web\n" in web


@pytest.mark.parametrize("kind", [[], ["--user"]])
def test_systemd_itself_finds_nothing_wrong(systemd, elsewhere, of_version, kind):
    of_version(252)
    systemd("install", "--yes", *kind)
    directory = elsewhere / ("config/systemd/user" if kind else "system")

    verified = subprocess.run(
        [
            "systemd-analyze",
            "verify",
            *kind,
            "--man=no",
            *map(str, directory.glob("pgflowd*.service")),
        ],
        capture_output=True,
        text=True,
    )

    told = [line for line in verified.stderr.splitlines() if "pgflowd" in line]
    assert told == [], told


def test_doctor_finds_what_is_missing_and_what_differs(
    systemd, doctor, elsewhere, of_version, monkeypatch
):
    of_version(252)
    monkeypatch.setattr(units, "user_exists", lambda name: True)
    monkeypatch.setattr(units, "program", lambda: "/opt/pgflowd/bin/pgflowd")
    missing = doctor()
    systemd("install", "--yes")
    fine = doctor()
    (elsewhere / "system" / "pgflowd@.service").write_text("[Unit]\n")
    differs = doctor("--json")

    assert missing.code == 1
    assert "pgflowd.service is not installed   → pgflowd systemd install" in missing.out
    assert (fine.code, "⚠" in fine.out, "✖" in fine.out) == (0, False, False)
    assert differs.code == 0
    warned = [one["text"] for one in differs.json["findings"] if one["state"] == "warning"]
    assert warned == [f"{elsewhere}/system/pgflowd@.service differs from the unit of this pgflowd"]


def test_doctor_compares_the_units_times_with_the_config(doctor, elsewhere, of_version):
    of_version(252)
    (elsewhere / "pgflowd.toml").write_text('[worker]\nkill_grace = "40s"\n')

    ended = doctor("--user")

    assert "kill_grace is 40s, and systemd kills everything after TimeoutStopSec=20" in ended.out
    assert "set TimeoutStopSec to 45 or more" in ended.out


def test_doctor_warns_of_a_program_that_the_unit_cannot_see(doctor, of_version, monkeypatch):
    of_version(252)
    monkeypatch.setattr(units, "program", lambda: "/home/anna/.venv/bin/pgflowd")

    assert "which the unit cannot read (ProtectHome)" in doctor().out


def test_a_missing_systemctl_is_an_error(doctor, of_version):
    of_version(None)

    ended = doctor()

    assert (ended.code, "systemctl is not installed" in ended.out) == (1, True)


def test_a_place_that_may_not_be_written_is_denied(systemd, elsewhere, of_version, monkeypatch):
    of_version(252)
    (elsewhere / "system").write_text("a file")
    refused = systemd("install", "--yes")

    def deny(self: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", deny)
    denied = systemd("install", "--yes")

    assert (refused.code, "cannot be written" in refused.err) == (1, True)
    assert (denied.code, "use sudo, or --user" in denied.err) == (77, True)


def test_wrong_words(systemd):
    assert systemd("instal").code == 2
    assert "did you mean 'install'?" in systemd("instal").err
    assert systemd("install", "--usr").code == 2
