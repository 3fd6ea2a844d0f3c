"""
Findings: how a doctor's findings look, one per line with the remedy behind an arrow.
"""

from __future__ import annotations

import textwrap

from pgflowd.cli.app import App
from pgflowd.cli.terminal.marks import plain
from pgflowd.core.finding import Finding
from pgflowd.core.redact import one_line

_SIGNS = {"ok": ("done", "green"), "warning": ("look", "yellow"), "error": ("failed", "red")}
_NARROW = 60


def say_finding(app: App, finding: Finding) -> None:
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
        app.print(f"{head}{text}")
        return
    pad = "   " if width < _NARROW else " " * 16
    lines = textwrap.wrap(text, max(width - len(pad), 20), break_on_hyphens=False)
    first = "" if width < _NARROW else lines.pop(0)
    app.print(f"{head}{first}".rstrip())
    for line in lines:
        app.print(f"{pad}{line}")
