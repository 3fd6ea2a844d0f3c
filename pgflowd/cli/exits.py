"""
How commands end: one that succeeds returns, one with a negative result calls
`app.exit(ExitCode.NO)`, and one that refuses raises `CommandRefused`.
"""

from __future__ import annotations

import click

from pgflowd.core.exit_codes import ExitCode


class CommandRefused(click.ClickException):
    """The command refuses; the text says what is missing."""

    exit_code = ExitCode.REFUSED
