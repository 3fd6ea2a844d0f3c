"""
`pgflowd doctor`: examine the database and print what to do; `db.doctor` has the checks.
"""

from __future__ import annotations

import platform
from dataclasses import asdict

import click

from pgflowd import __version__
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.exits import ExitCode
from pgflowd.cli.groups import Command
from pgflowd.cli.terminal.findings import print_finding
from pgflowd.errors import AccessDenied

SCHEMA_VERSION = 1


@click.command(cls=Command)
@pass_app
def doctor(app: App) -> None:
    """Examine the database: versions, permissions, clocks, old transactions, orphans.

    Changes nothing. The exit code is 1 if there is an error, 77 if permissions are missing for a
    check, and 0 if there are only warnings.

    \b
    Example: pgflowd doctor
    """
    from pgflowd.cli.connect import database
    from pgflowd.core.finding import Finding
    from pgflowd.db.doctor import DoctorRequest, examine

    settings = app.settings
    asked = DoctorRequest(settings.recovery.stale_threshold_s, bool(settings.database.listen_url))
    ours = Finding("pgflowd", "ok", _versions())
    findings = [ours]
    with database(app, any_schema=True) as conn:
        if not app.json:
            print_finding(app, ours)
        for finding in examine(conn, asked):
            findings.append(finding)
            if not app.json:
                print_finding(app, finding)
    wrong = [finding.code for finding in findings if finding.state == "error"]
    if app.json:
        listed = [{**asdict(one), "text": app.hide(one.text)} for one in findings]
        app.print_json({"schema_version": SCHEMA_VERSION, "ok": not wrong, "findings": listed})
    if wrong:
        app.exit(ExitCode.DENIED if set(wrong) == {AccessDenied.default_code} else ExitCode.NO)


def _versions() -> str:
    import psycopg

    libpq = psycopg.pq.version_pretty(psycopg.pq.version())
    python = platform.python_version()
    return f"{__version__}, Python {python}, psycopg {psycopg.__version__}, libpq {libpq}"
