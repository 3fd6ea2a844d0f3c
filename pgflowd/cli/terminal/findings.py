"""Prints the findings of a doctor, one per line, each with its remedy behind an arrow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from pgflowd.cli.app import App
from pgflowd.cli.terminal.screen import NEXT
from pgflowd.core.finding import Finding, FindingState
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import Mark, Marks

_MARKS: dict[str, Mark] = {
    FindingState.OK: Marks.DONE,
    FindingState.WARNING: Marks.WARNING,
    FindingState.ERROR: Marks.FAILED,
}
_NARROW = 60  # below this many columns a text goes on lines of its own


def print_findings(app: App, findings: Iterable[Finding]) -> list[Finding]:
    """Print findings as they come, or with `--json` a document of all; return the errors."""
    printed = []
    for finding in findings:
        printed.append(finding)
        if not app.json:
            _print_finding(app, finding)
    errors = [finding for finding in printed if finding.state == FindingState.ERROR]
    if app.json:
        listed = [{**asdict(finding), "text": app.hide(finding.text)} for finding in printed]
        app.print_document(ok=not errors, findings=listed)
    return errors


def _print_finding(app: App, finding: Finding) -> None:
    screen = app.out
    code = f"{finding.code}  " if finding.code else ""
    remedy = f"   {screen.sign(NEXT)} {finding.next}" if finding.next else ""
    text = screen.shown(one_line(app.hide(f"{code}{finding.text}{remedy}")))
    head = f"{screen.marked(_MARKS[finding.state])} {finding.check:<12}  "
    is_narrow = screen.width is not None and screen.width < _NARROW
    for line in screen.wrapped(text, head=head, indent=3 if is_narrow else 16):
        app.print(line)
