"""
`pgflowd systemd`: install, show and compare the units for systemd; `host.units` has the files.
"""

from __future__ import annotations

import os
from math import inf
from typing import TYPE_CHECKING

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.groups import Group
from pgflowd.cli.terminal.findings import print_findings
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.finding import Finding
from pgflowd.core.settings.values import format_duration

if TYPE_CHECKING:
    from pgflowd.core.settings.sections import Settings
    from pgflowd.host.units import UnitFile

SPARE_S = 5.0  # a supervisor that stops is silent for kill_grace and a little longer
USERADD = "useradd --system --no-create-home --shell /usr/sbin/nologin"

user_option = click.option("--user", "for_user", is_flag=True, help="Units of your own user.")


@click.group(cls=Group)
def systemd() -> None:
    """Install the units for systemd, show them, compare them with those installed.

    \b
    Example: sudo pgflowd systemd install
    """


@systemd.command()
@user_option
@click.option("--dry-run", is_flag=True, help="Show what would be written; write nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_app
def install(app: App, for_user: bool, dry_run: bool, yes: bool) -> None:
    """Write the units where systemd finds them; show them and ask first.

    Files that are the same are not written. Nothing is started or enabled.

    \b
    Example: sudo pgflowd systemd install
             pgflowd systemd install --user --dry-run
    """
    from pgflowd.host.units import reload_manager, user_exists

    changed = [file for file in _files(for_user) if not file.is_same]
    if not (app.json or app.quiet):
        _print_files(app, changed)
    if changed and not dry_run:
        app.confirm(f"Write {len(changed)} files?", yes=yes)
        for file in changed:
            _write(file)
        reload_manager(for_user=for_user)
    if app.json:
        listed = [{"path": str(file.path), "text": file.text} for file in changed]
        app.print_document(dry_run=dry_run, files=listed)
        return
    if not changed:
        app.print("the units are installed already")
        return
    app.print("nothing was written" if dry_run else f"{len(changed)} files are written")
    if not for_user and not user_exists("pgflowd"):
        app.note(f"next: {USERADD} pgflowd")
    app.note(f"next: systemctl {'--user ' if for_user else ''}enable --now pgflowd")
    if not for_user and not user_exists("pgflowd-web"):
        app.note(f"for the dashboard: {USERADD} pgflowd-web")


@systemd.command()
@user_option
@pass_app
def show(app: App, for_user: bool) -> None:
    """Print the units for this machine.

    \b
    Example: pgflowd systemd show
    """
    files = _files(for_user)
    if app.json:
        listed = [
            {"path": str(file.path), "text": file.text, "same": file.is_same} for file in files
        ]
        app.print_document(files=listed)
    else:
        _print_files(app, files)


@systemd.command()
@user_option
@pass_app
def doctor(app: App, for_user: bool) -> None:
    """Compare the installed units with those of this pgflowd, and with the config.

    The exit code is 1 if there is an error, and 0 if there are only warnings.

    \b
    Example: pgflowd systemd doctor
    """
    if print_findings(app, _examined(app.settings, for_user)):
        app.exit(ExitCode.NO)


def _files(for_user: bool) -> list[UnitFile]:
    from pgflowd.host.units import systemd_version, unit_files

    return unit_files(for_user=for_user, version=systemd_version(), environ=os.environ)


def _print_files(app: App, files: list[UnitFile]) -> None:
    for file in files:
        app.print(app.out.paint(f"# {file.path}", None, bold=True))
        app.print(file.text)


def _write(file: UnitFile) -> None:
    try:
        file.write()
    except PermissionError:
        from pgflowd.errors import AccessDenied

        raise AccessDenied(
            f"{file.path} cannot be written: permission denied", next="use sudo, or --user"
        ) from None
    except OSError as error:
        text = f"{file.path} cannot be written: {error.strerror}"
        raise click.ClickException(text) from None


def _examined(settings: Settings, for_user: bool) -> list[Finding]:
    from pgflowd.host.units import RUNNING, program, systemd_version, user_exists

    version = systemd_version()
    if version is None:
        return [Finding("systemd", "error", "systemctl is not installed")]
    note = "" if RUNNING.exists() else ", not running on this machine"
    found = [Finding("systemd", "ok", f"version {version}{note}")]
    files = _files(for_user)
    for suffix in (".service", ".conf"):
        found += [_compared(file, for_user) for file in files if file.path.suffix == suffix]
    if not for_user:
        if user_exists("pgflowd"):
            found.append(Finding("user", "ok", "pgflowd exists"))
        else:
            found.append(
                Finding("user", "error", "there is no user pgflowd", None, f"{USERADD} pgflowd")
            )
        found.append(_reachable(program()))
    return [*found, _times(settings, files[0])]


def _compared(file: UnitFile, for_user: bool) -> Finding:
    if file.is_same:
        return Finding("unit", "ok", f"{file.path} is up to date")
    command = f"pgflowd systemd install{' --user' if for_user else ''}"
    if file.installed is None:
        state = "error" if file.path.name == "pgflowd.service" else "warning"
        return Finding("unit", state, f"{file.path} is not installed", None, command)
    text = f"{file.path} differs from the unit of this pgflowd"
    return Finding("unit", "warning", text, None, command)


def _reachable(path: str) -> Finding:
    """The hardened unit cannot read home directories, so pgflowd must not be in one."""
    if path.startswith(("/home/", "/root/", "/run/user/")):
        text = f"{path} is in a home directory, which the unit cannot read (ProtectHome)"
        remedy = "install pgflowd elsewhere, for example in /opt/pgflowd"
        return Finding("program", "error", text, None, remedy)
    return Finding("program", "ok", path)


def _times(settings: Settings, unit: UnitFile) -> Finding:
    """systemd must wait for a quick stop, in which the supervisor is silent for `kill_grace`."""
    from pgflowd.host.units import setting

    graces = [settings.worker_for(slug).kill_grace_s for slug in settings.flows]
    grace_s = max([settings.worker.kill_grace_s, *graces])
    written = setting(unit.installed or unit.text, "TimeoutStopSec") or "90"
    try:
        stop_s = float(written.removesuffix("s"))
    except ValueError:  # in other units of time than ours
        stop_s = inf
    if grace_s + SPARE_S <= stop_s:
        return Finding("times", "ok", f"TimeoutStopSec={written} is longer than kill_grace")
    text = (
        f"kill_grace is {format_duration(grace_s)}, and systemd kills everything after "
        f"TimeoutStopSec={written} of silence"
    )
    remedy = f"set TimeoutStopSec to {round(grace_s + SPARE_S)} or more in a drop-in"
    return Finding("times", "warning", text, None, remedy)
