"""
The Debian package: `make deb` builds it, and a small Debian installs, upgrades and removes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.debian import Debian, said
from support.typist import Typist

import pgflowd
from pgflowd.host.systemd import UNITS
from pgflowd.resources import shipped
from pgflowd.testing.until import until

PROJECT = Path(__file__).parents[2]
LATER = "0.2.0"
UNITS_PLACE = "usr/lib/systemd/system"
CONFIG = "etc/pgflowd/pgflowd.toml"
USERS = ("pgflowd", "pgflowd-web")
FLOW = """
from pgflowd import job

@job("greet")
def greet(run: dict[str, str]) -> str:
    return f"hello {run['name']}"
"""
COMPLETION = {  # what a shell does by itself, where a package is installed
    "bash": "source {root}/usr/share/bash-completion/completions/pgflowd",
    "zsh": "fpath=({root}/usr/share/zsh/vendor-completions $fpath); "
    "autoload -U compinit; compinit -u",
    "fish": "set -g fish_autosuggestion_enabled 0; "
    "set -g fish_complete_path {root}/usr/share/fish/vendor_completions.d $fish_complete_path",
}
SYSTEMCTL = '#!/bin/sh\necho "$*" >>/root/systemctl\n'  # of a machine that systemd runs

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can install a package")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built once for all processes of this test run."""
    directory = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = directory.parent
    with (directory / "deb.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(directory.glob("*.deb")):
            clean = {name: v for name, v in os.environ.items() if not name.startswith("MAKE")}
            command = ["make", "--silent", "deb", f"DIST={directory}"]
            done = subprocess.run(command, cwd=PROJECT, env=clean, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
    (built,) = directory.glob("*.deb")
    return built


@pytest.fixture(scope="module")
def installed(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian]:
    """A Debian with the package, which no test changes."""
    with closing(Debian(tmp_path_factory.mktemp("debian") / "it")) as debian:
        shutil.copy(package, debian.path("root/pgflowd.deb"))
        debian.run("dpkg", "--install", "/root/pgflowd.deb")
        yield debian


@pytest.fixture
def debian(installed: Debian, tmp_path: Path) -> Iterator[Debian]:
    """One like it, for a test alone."""
    with closing(Debian(tmp_path / "it", installed)) as debian:
        yield debian


def install_later(debian: Debian) -> str:
    """Install the next release: the same code with another version, and another config."""
    tree = debian.path("root/later")
    debian.run("dpkg-deb", "--raw-extract", "/root/pgflowd.deb", "/root/later")
    (code,) = tree.glob("opt/pgflowd/lib/python3*/site-packages/pgflowd/__init__.py")
    for file in (tree / "DEBIAN/control", code):
        file.write_text(file.read_text().replace(pgflowd.__version__, LATER))
    with (tree / CONFIG).open("a") as config:
        config.write("# of the next release\n")
    debian.run("dpkg-deb", "-Znone", "--build", "/root/later", "/root/pgflowd.deb")
    return debian.run("dpkg", "--force-confold", "--install", "/root/pgflowd.deb")


def with_a_flow(debian: Debian, dsn: str) -> None:
    """Write what an admin writes: a module, and its name and the database into the config."""
    debian.write("srv/shop/shop.py", FLOW)
    text = debian.path(CONFIG).read_text()
    for key, value in (
        ("flows", '["shop"]'),
        ("python_path", '["/srv/shop"]'),
        ("url", f'"{dsn}"'),
    ):
        text = re.sub(
            rf"^({key} *= )\S+", lambda found, value=value: found[1] + value, text, flags=re.M
        )
    debian.write(CONFIG, text)


@contextmanager
def serving(debian: Debian) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon inside, which drains at the end."""
    daemon = subprocess.Popen(debian.inside("pgflowd", "serve"))
    try:
        until(lambda: is_healthy(debian), within_s=60)
        yield daemon
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(timeout=60) == 0
    finally:
        daemon.kill()
        daemon.wait()


def is_healthy(debian: Debian) -> bool:
    command = debian.inside("pgflowd", "status", "--check")
    return subprocess.run(command, capture_output=True).returncode == 0


def test_the_command_and_its_users_are_there(installed):
    said_version = json.loads(installed.run("pgflowd", "version", "--json"))

    assert said_version["pgflowd"] == pgflowd.__version__
    assert installed.run("dpkg", "--verify", "pgflowd") == ""
    for user in USERS:
        assert (
            installed.run("stat", "--format=%U %G %a", f"/var/lib/{user}") == f"{user} {user} 700\n"
        )
        assert f":/var/lib/{user}:/usr/sbin/nologin\n" in installed.run("getent", "passwd", user)
    assert "make deb" in installed.path("usr/share/doc/pgflowd/README.Debian").read_text()


def test_nothing_in_it_names_the_place_of_the_build(installed):
    command = [
        "grep",
        "-rlE",
        f"pgflowd-deb-|{PROJECT}",
        installed.path("opt"),
        installed.path("usr/bin/pgflowd"),
    ]

    assert subprocess.run(command, capture_output=True, text=True).stdout == ""
    assert not list(installed.path("opt").rglob("direct_url.json"))


def test_the_units_are_those_of_the_command_and_systemd_accepts_them(installed):
    names = {path.name for path in installed.path(UNITS_PLACE).glob("pgflowd*.service")}
    verify = ["systemd-analyze", "verify", "--man=no"]

    told = said(
        installed.beside(*verify, *(str(installed.path(UNITS_PLACE) / name) for name in names))
    )

    assert (names, told) == (set(UNITS), "")
    for name in names:
        text = (installed.path(UNITS_PLACE) / name).read_text()
        expected = (shipped("systemd") / name).read_text()
        assert text == expected.replace("ExecStart=pgflowd", "ExecStart=/opt/pgflowd/bin/pgflowd")
        assert re.search("^User=(.*)$", text, re.M)[1] in USERS


def test_its_manual_pages_are_found_and_read(installed):
    manual = [*installed.enter, "man", "-M", f"{installed.root}/usr/share/man", "--warnings"]

    text = said([*manual, "pgflowd-runs-start"])

    assert "Start a run of FLOW and print its id" in text
    assert "warning" not in text
    assert "pgflowd-runs(1)" in said([*manual, "pgflowd"])


@pytest.mark.parametrize(
    "shell", [each for each in COMPLETION if each == "bash" or shutil.which(each)]
)
def test_a_shell_completes_its_command(installed, tmp_path, monkeypatch, shell):
    monkeypatch.setenv("PATH", f"{installed.path('usr/bin')}:{os.environ['PATH']}")
    typist = Typist(
        shell, tmp_path, COMPLETION[shell].format(root=installed.path()), installed.beside()
    )
    try:
        typist.completes("pgflowd comp", "pgflowd completion")
        typist.completes("pgflowd runs list --si", "pgflowd runs list --since")
    finally:
        typist.close()


def test_an_upgrade_keeps_the_config_and_what_runs(debian, database):
    with_a_flow(debian, database.dsn)
    written = debian.path(CONFIG).read_text()
    assert "no problems" in debian.run("pgflowd", "check")
    asked = of_a_running_systemd(debian)
    with serving(debian):
        told = install_later(debian)

        assert "pgflowd db migrate && systemctl try-restart 'pgflowd*.service'" in told
        assert asked.read_text().split("\n") == [
            "daemon-reload",
            "daemon-reload",
            "--quiet is-active pgflowd*.service",
            "",
        ]
        run = database.client.start_flow_sync("greet", {"name": "Ada"}, timeout=30)
        assert run.output == {"perform": "hello Ada"}
        assert is_healthy(debian)

    assert debian.path(CONFIG).read_text() == written
    assert "# of the next release" in debian.path(f"{CONFIG}.dpkg-dist").read_text()
    assert f'"{LATER}"' in debian.run("pgflowd", "version", "--json")


def test_a_removal_stops_what_runs_and_keeps_the_config(debian):
    asked = of_a_running_systemd(debian)

    debian.run("dpkg", "--remove", "pgflowd")

    assert asked.read_text().split("\n") == ["stop pgflowd*.service", "daemon-reload", ""]
    assert debian.path(CONFIG).exists()
    assert not debian.path("opt/pgflowd").exists()
    assert "pgflowd" in debian.run("getent", "passwd", "pgflowd")


def test_a_purge_leaves_nothing_of_ours(debian):
    enabled = debian.path("etc/systemd/system/multi-user.target.wants")
    (enabled / "pgflowd@eu.service").symlink_to("/lib/systemd/system/pgflowd@.service")
    debian.write("var/lib/pgflowd/eu/pgflowd-report-1.txt", "a bug report\n")
    debian.run("/opt/pgflowd/bin/python", "-O", "-m", "pgflowd", "version")

    debian.run("dpkg", "--purge", "pgflowd")

    assert debian.added() == set()
    assert (
        "pgflowd"
        not in debian.path("etc/passwd").read_text() + debian.path("etc/group").read_text()
    )


def test_a_purge_leaves_what_the_admin_made_and_its_owner(debian):
    debian.write("etc/pgflowd/web.toml", "[web]\n")
    debian.write("var/lib/pgflowd/numbers.csv", "1,2\n")

    debian.run("dpkg", "--purge", "pgflowd")

    assert debian.path("etc/pgflowd/web.toml").exists()
    assert debian.path("var/lib/pgflowd/numbers.csv").exists()
    assert not debian.path(CONFIG).exists()
    assert [user for user in USERS if f"{user}:" in debian.path("etc/passwd").read_text()] == [
        "pgflowd"
    ]


def test_without_its_files_and_an_answer_of_systemd_it_is_installed_and_removed(debian):
    of_a_running_systemd(debian)
    debian.write("usr/bin/systemctl", '#!/bin/sh\n[ "$1" = stop ]\n')  # as in a chroot
    shutil.rmtree(debian.path("opt/pgflowd"))

    debian.run("dpkg", "--install", "/root/pgflowd.deb")
    shutil.rmtree(debian.path("opt/pgflowd"))
    debian.run("dpkg", "--purge", "pgflowd")

    assert "pgflowd" not in debian.run("dpkg", "--get-selections")


def of_a_running_systemd(debian: Debian) -> Path:
    """Let the maintainer scripts find a systemd; the file has what they ask of it."""
    debian.path("run/systemd/system").mkdir(parents=True)
    debian.write("usr/bin/systemctl", SYSTEMCTL)
    debian.path("usr/bin/systemctl").chmod(0o755)
    return debian.path("root/systemctl")
