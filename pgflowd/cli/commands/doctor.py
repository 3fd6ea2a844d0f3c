"""
`pgflowd doctor`: examine the database and print what to do; `db.doctor` has the checks.
"""

from __future__ import annotations

import platform
from itertools import chain

import click

from pgflowd import __version__
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.terminal.findings import print_findings
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.finding import Finding
from pgflowd.errors import AccessDenied


@click.command(cls=Command)
@pass_app
def doctor(app: App) -> None:
    """Examine the database: versions, permissions, clocks, old transactions, orphans.

    Changes nothing. The exit code is 1 if there is an error, 77 if permissions are missing for a
    check, and 0 if there are only warnings.

    \b
    Example: pgflowd doctor
    """
    import psycopg

    from pgflowd.db.doctor import DoctorRequest, examine

    settings = app.settings
    request = DoctorRequest(
        settings.recovery.stale_threshold_s,
        bool(settings.database.listen_url),
        settings.pgflowd.name,
        settings.database.max_connections,
    )
    libpq = psycopg.pq.version_pretty(psycopg.pq.version())
    python = platform.python_version()
    versions = f"{__version__}, Python {python}, psycopg {psycopg.__version__}, libpq {libpq}"
    with database(app, any_schema=True) as conn:
        findings = chain([Finding("pgflowd", "ok", versions)], examine(conn, request))
        errors = {finding.code for finding in print_findings(app, findings)}
    if errors:
        app.exit(ExitCode.DENIED if errors == {AccessDenied.default_code} else ExitCode.NO)
