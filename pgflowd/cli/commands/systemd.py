"""
`pgflowd systemd`: install and show the units for systemd; `host.systemd` has the files.
"""

from __future__ import annotations

import os
from typing import Annotated, TypedDict

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.groups import Group
from pgflowd.errors import AccessDenied
from pgflowd.host import systemd as units

user_option = click.option("--user", "for_user", is_flag=True, help="Units of your own user.")


class UnitText(TypedDict):
    path: Annotated[str, "where it is"]
    text: Annotated[str, "what is in it"]


class InstalledUnits(TypedDict):
    dry_run: bool
    files: Annotated[list[UnitText], "those that change"]


class ShownUnit(UnitText):
    same: Annotated[bool, "whether the installed one is the same"]


class ShownUnits(TypedDict):
    files: Annotated[list[ShownUnit], "the units"]


@click.group(cls=Group)
def systemd() -> None:
    """Install the units for systemd, and show them; `pgflowd doctor systemd` compares them.

    \b
    Example: sudo pgflowd systemd install
    """


@systemd.command(prints=InstalledUnits)
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
    changed = [
        file for file in units.unit_files(for_user=for_user, environ=os.environ) if not file.is_same
    ]
    if not (app.json or app.quiet):
        _print_files(app, changed)
    if changed and not dry_run:
        app.confirm(f"Write {len(changed)} files?", yes=yes)
        for file in changed:
            try:
                file.write()
            except PermissionError:
                text = f"{file.path} cannot be written: permission denied"
                raise AccessDenied(text, next="use sudo, or --user") from None
            except OSError as error:
                text = f"{file.path} cannot be written: {error.strerror}"
                raise click.ClickException(text) from None
        units.reload_manager(for_user=for_user)
    if app.json:
        listed = [UnitText(path=str(file.path), text=file.text) for file in changed]
        app.print_document(InstalledUnits(dry_run=dry_run, files=listed))
        return
    if not changed:
        app.print("the units are installed already")
        return
    app.print("nothing was written" if dry_run else f"{len(changed)} files are written")
    if not for_user and not units.user_exists("pgflowd"):
        app.note(f"next: {units.USERADD} pgflowd")
    app.note(f"next: systemctl {'--user ' if for_user else ''}enable --now pgflowd")
    if not for_user and not units.user_exists("pgflowd-web"):
        app.note(f"for the dashboard: {units.USERADD} pgflowd-web")


@systemd.command(prints=ShownUnits)
@user_option
@pass_app
def show(app: App, for_user: bool) -> None:
    """Print the units for this machine.

    \b
    Example: pgflowd systemd show
    """
    files = units.unit_files(for_user=for_user, environ=os.environ)
    listed = [ShownUnit(path=str(file.path), text=file.text, same=file.is_same) for file in files]
    app.print_result(lambda: _print_files(app, files), ShownUnits(files=listed))


def _print_files(app: App, files: list[units.UnitFile]) -> None:
    for file in files:
        app.print(app.out.paint(f"# {file.path}", None, bold=True))
        app.print(file.text)
