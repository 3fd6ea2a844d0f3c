"""
How commands end: one that succeeds returns, one with a negative result calls
`app.exit(ExitCode.NO)`, one that refuses raises `CommandRefused`, and one that seeks a page in
vain `NothingFound`.
"""

from __future__ import annotations

import click

from pgflowd.core.exit_codes import ExitCode


class CommandRefused(click.ClickException):
    """The command refuses; the text says what is missing."""

    exit_code = ExitCode.REFUSED


class NothingFound(click.ClickException):
    """There is no such page; the text names the nearest."""

    exit_code = ExitCode.NOT_FOUND
