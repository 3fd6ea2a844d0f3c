"""
Complaints: the one place where errors are printed.

Several problems at once are aligned in columns: place, code, what happened and what to do
next; `--json` gives the same as a list. Secrets are hidden and controls escaped, so a hostile
text keeps to its line. On a terminal long texts are wrapped under their column.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pgflowd.core.redact import one_line
from pgflowd.errors import Problem

if TYPE_CHECKING:
    from pgflowd.cli.app import App
    from pgflowd.cli.screen import Screen

_NARROW = 70  # below this many columns, the text goes on lines of its own
_PLACE_WIDTH = 21


def complain(app: App, problems: Sequence[Problem]) -> None:
    """Print problems on standard error."""
    shown = [_cleaned(app, problem) for problem in problems]
    if app.json:
        listed = [as_json(problem) for problem in shown]
        click.echo(json.dumps(listed, indent=2), err=True)
        return
    for line in laid_out(shown, app.err):
        click.echo(line, err=True, color=True)


def complain_usage(app: App, error: click.ClickException) -> None:
    """Print what click found wrong with the command line, and where help is."""
    text = app.hide(one_line(_lowered(error.format_message())))
    ctx = getattr(error, "ctx", None)
    command = ctx.command_path if ctx is not None else "pgflowd"
    help_ = f"{command} --help" if isinstance(error, click.UsageError) else None
    if app.json:
        listed = [{"code": None, "place": None, "text": text, "next": help_}]
        click.echo(json.dumps(listed, indent=2), err=True)
        return
    click.echo(f"{app.err.paint(command, 'red')}: {text}", err=True, color=True)
    if help_:
        click.echo(f"see {help_}", err=True)


def as_json(problem: Problem) -> dict[str, str | None]:
    """Return a problem as the object that `--json` prints."""
    return {
        "code": problem.code,
        "place": problem.place,
        "text": problem.text,
        "next": problem.next,
    }


def laid_out(problems: Sequence[Problem], screen: Screen) -> list[str]:
    """Return the lines of problems, in columns, with a count at the end."""
    places = [len(problem.place) for problem in problems if problem.place]
    width = max([_PLACE_WIDTH, *places]) if places else 0
    lines: list[str] = []
    for problem in problems:
        lines += _lines(problem, width, screen)
    if len(problems) > 1:
        lines.append(_count(problems))
    return lines


def _lines(problem: Problem, place_width: int, screen: Screen) -> list[str]:
    code = screen.paint(problem.code, "yellow" if problem.is_warning else "red", bold=True)
    text = problem.text + (f"; {problem.next}" if problem.next else "")
    head = f"{(problem.place or ''):<{place_width}}  {code}" if place_width else code
    indent = place_width + (8 if place_width else 6)
    if screen.width is None:
        return [f"{head}  {text}"]
    if screen.width - indent < _NARROW - 40:
        place = f"  {problem.place}" if problem.place else ""
        return [f"{code}{place}", *_wrapped(text, screen.width, 2)]
    first, *rest = _wrapped(text, screen.width, indent)
    return [f"{head}  {first.lstrip()}", *rest]


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    pad = " " * indent
    lines = textwrap.wrap(
        text,
        max(width, indent + 10),
        initial_indent=pad,
        subsequent_indent=pad,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return lines or [pad]


def _count(problems: Sequence[Problem]) -> str:
    warnings = sum(problem.is_warning for problem in problems)
    errors = len(problems) - warnings
    counted = [(errors, "error"), (warnings, "warning")]
    return ", ".join(f"{n} {word}{'s' if n > 1 else ''}" for n, word in counted if n)


def _cleaned(app: App, problem: Problem) -> Problem:
    def clean(text: str | None) -> str | None:
        return None if text is None else one_line(app.hide(text))

    text = clean(problem.text) or ""
    return Problem(problem.code, text, clean(problem.place), clean(problem.next))


def _lowered(text: str) -> str:
    """Click begins with a capital and ends with a stop; our sentences do neither."""
    text = text.strip().removesuffix(".").replace(". Did you mean", "; did you mean")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
