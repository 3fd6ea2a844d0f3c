"""
`pgflowd doctor`: examine everything and print what to do; `db.doctor` and `host.systemd` have the
checks.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

import click

from pgflowd import __version__, db
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.database import database
from pgflowd.cli.groups import Command
from pgflowd.cli.terminal.screen import NEXT
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.finding import Finding, Findings, FindingState, Section
from pgflowd.core.redact import one_line
from pgflowd.errors import AccessDenied


@click.command(cls=Command, prints=Findings)
@click.argument(
    "sections", metavar="[SECTION]...", nargs=-1,
    type=click.Choice([each.value for each in Section]),
)  # fmt: skip
@click.option("--user", "for_user", is_flag=True, help="The systemd units of your own user.")
@pass_app
def doctor(app: App, sections: tuple[str, ...], for_user: bool) -> None:
    """Examine the schema, the database, its connections, the flows in it, and the systemd units.

    Each SECTION may be examined by itself: schema (versions, objects that were changed, rights),
    database (clocks, old transactions, size), connections, flows (work that waits, invariants) and
    systemd (the units, where they are installed or asked for).

    Changes nothing. The exit code is 1 if there is an error, 77 if permissions are missing for a
    check, and 0 if there are only warnings.

    \b
    Example: pgflowd doctor
             pgflowd doctor schema
    """
    findings = _findings(app, sections or tuple(Section), for_user, is_asked=bool(sections))
    errors = {finding.code for finding in _print_findings(app, findings)}
    if errors:
        app.exit(ExitCode.DENIED if errors == {AccessDenied.default_code} else ExitCode.NO)


def _findings(
    app: App, sections: Collection[str], for_user: bool, *, is_asked: bool
) -> Iterator[Finding]:
    if sections != (Section.SYSTEMD,):
        import psycopg

        settings = app.settings
        request = db.doctor.DoctorRequest(
            settings.recovery.stale_threshold_s,
            bool(settings.database.listen_url),
            settings.pgflowd.name,
            settings.database.max_connections,
        )
        libpq = psycopg.pq.version_pretty(psycopg.pq.version())
        python = platform.python_version()
        versions = f"{__version__}, Python {python}, psycopg {psycopg.__version__}, libpq {libpq}"
        with database(app, any_schema=True) as conn:
            if Section.SCHEMA in sections:
                yield Finding(FindingState.OK, versions, section=Section.SCHEMA, check="pgflowd")
            yield from db.doctor.examine(conn, request, sections)
    if Section.SYSTEMD in sections:
        from pgflowd.host.systemd import examine_units, unit_files

        files = unit_files(for_user=for_user, environ=os.environ)
        if is_asked or any(file.installed is not None for file in files):
            yield from examine_units(files, app.settings, for_user=for_user)


def _print_findings(app: App, findings: Iterable[Finding]) -> list[Finding]:
    """Print findings as they come, or with `--json` a document of all; return the errors."""
    printed = []
    for finding in findings:
        printed.append(finding)
        if not app.json:
            _print_finding(app, finding)
    errors = [finding for finding in printed if finding.state == FindingState.ERROR]
    if app.json:
        listed = [replace(finding, text=app.hide(finding.text)) for finding in printed]
        app.print_document(Findings(listed))
    return errors


def _print_finding(app: App, finding: Finding) -> None:
    """Print one line, the remedy behind an arrow."""
    screen = app.out
    code = f"{finding.code}  " if finding.code else ""
    remedy = f"   {screen.sign(NEXT)} {finding.next}" if finding.next else ""
    text = screen.shown(one_line(app.hide(f"{code}{finding.text}{remedy}")))
    head = f"{screen.marked(finding.state.mark)} {finding.check:<12}  "
    app.print_lines(screen.wrapped(text, head=head, indent=3 if screen.is_narrow else 16))
