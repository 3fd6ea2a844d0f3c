"""Prints what a doctor found: one finding per line, with its remedy behind an arrow."""

from __future__ import annotations

from pgflowd.cli.app import App
from pgflowd.cli.terminal.screen import NEXT
from pgflowd.core.finding import Finding
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import Marks

_MARKS = {"ok": Marks.DONE, "warning": Marks.WARNING, "error": Marks.FAILED}
_NARROW = 60  # below this many columns a text goes on lines of its own


def print_finding(app: App, finding: Finding) -> None:
    screen = app.out
    code = f"{finding.code}  " if finding.code else ""
    remedy = f"   {screen.sign(NEXT)} {finding.next}" if finding.next else ""
    text = screen.shown(one_line(app.hide(f"{code}{finding.text}{remedy}")))
    head = f"{screen.marked(_MARKS[finding.state])} {finding.check:<12}  "
    is_narrow = screen.width is not None and screen.width < _NARROW
    for line in screen.wrapped(text, head=head, indent=3 if is_narrow else 16):
        app.print(line)
