"""
Doctor: `pgflowd doctor` looks at the database from all sides and says what to do.

What is looked at stands in `db.doctor`; here is how it is shown.
"""

from __future__ import annotations

import platform
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from pgflowd import __version__
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.exits import Exit
from pgflowd.cli.frame import Command
from pgflowd.cli.marks import plain
from pgflowd.core.redact import one_line

if TYPE_CHECKING:
    from pgflowd.db.doctor import Finding

SCHEMA_VERSION = 1
_SIGNS = {"ok": ("done", "green"), "warning": ("look", "yellow"), "error": ("failed", "red")}
_NARROW = 60


@click.command(cls=Command)
@pass_app
def doctor(app: App) -> None:
    """Look at the database from all sides: versions, rights, clocks, old transactions, orphans.

    Exits with 1 if something is wrong, with 0 if there are warnings at most. Changes nothing.

    \b
    Example: pgflowd doctor
    """
    from pgflowd.cli.reach import database
    from pgflowd.db.doctor import Asked, Finding, examine

    settings = app.settings
    asked = Asked(settings.recovery.stale_threshold_s, bool(settings.database.listen_url))
    ours = Finding("pgflowd", "ok", f"{__version__}, Python {platform.python_version()}")
    findings = [ours]
    with database(app) as conn:
        if not app.json:
            _say(app, ours)
        for finding in examine(conn, asked):
            findings.append(finding)
            if not app.json:
                _say(app, finding)
    wrong = any(finding.state == "error" for finding in findings)
    if app.json:
        listed = [{**asdict(one), "text": app.hide(one.text)} for one in findings]
        app.echo_json({"schema_version": SCHEMA_VERSION, "ok": not wrong, "findings": listed})
    if wrong:
        app.leave(Exit.NO)


def _say(app: App, finding: Finding) -> None:
    """One finding, with its remedy; on lines of its own where the terminal is narrow."""
    name, colour = _SIGNS[finding.state]
    sign = app.out.paint(app.out.sign(name), colour)
    code = f"{finding.code}  " if finding.code else ""
    arrow = app.out.sign("next")
    remedy = f"   {arrow} {finding.next}" if finding.next else ""
    text = plain(app.out, one_line(app.hide(f"{code}{finding.text}{remedy}")))
    head = f"{sign} {finding.check:<12}  "
    width = app.out.width
    if width is None or len(text) + 16 <= width:
        app.say(f"{head}{text}")
        return
    pad = "   " if width < _NARROW else " " * 16
    lines = textwrap.wrap(text, max(width - len(pad), 20), break_on_hyphens=False)
    first = "" if width < _NARROW else lines.pop(0)
    app.say(f"{head}{first}".rstrip())
    for line in lines:
        app.say(f"{pad}{line}")
