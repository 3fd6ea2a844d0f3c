"""
Prints errors; no other module does.

Several problems are aligned in columns: place, code, what is wrong, what to do next. `--json`
prints them as a list. Secrets are hidden and control characters escaped, so a hostile text
stays on its line. On a terminal long texts are wrapped under their column.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pgflowd.cli.terminal.screen import emit
from pgflowd.core.redact import one_line
from pgflowd.errors import Problem

if TYPE_CHECKING:
    from pgflowd.cli.app import App
    from pgflowd.cli.terminal.screen import Screen

_MIN_TEXT_WIDTH = 30  # with fewer columns beside its code, a text gets lines of its own
_PLACE_WIDTH = 21  # so that the columns of most outputs are the same


def print_problems(app: App, problems: Sequence[Problem]) -> None:
    """Print problems on standard error."""
    shown = [_cleaned(app, problem) for problem in problems]
    if app.json:
        listed = [problem_json(problem) for problem in shown]
        emit(json.dumps(listed, indent=2), sys.stderr)
        return
    for line in _columns(shown, app.err):
        emit(line, sys.stderr)


def print_usage_error(app: App, error: click.ClickException) -> None:
    """Print an error of the command line, and the command that prints its help."""
    text = app.hide(one_line(_text_of(error)))
    ctx = getattr(error, "ctx", None)
    command = ctx.command_path if ctx is not None else "pgflowd"
    help_ = f"{command} --help" if isinstance(error, click.UsageError) else None
    if app.json:
        listed = [{"code": None, "place": None, "text": text, "next": help_}]
        emit(json.dumps(listed, indent=2), sys.stderr)
        return
    emit(f"{app.err.paint(command, 'red')}: {text}", sys.stderr)
    if help_:
        emit(f"see {help_}", sys.stderr)


def problem_columns(app: App, problems: Sequence[Problem], screen: Screen) -> list[str]:
    """Return problems as lines, for a command that prints them as its result."""
    return _columns([_cleaned(app, problem) for problem in problems], screen)


def problem_json(problem: Problem, app: App | None = None) -> dict[str, str | None]:
    """Return a problem as the object that `--json` prints; with `app`, without secrets."""
    if app is not None:
        problem = _cleaned(app, problem)
    return {
        "code": problem.code,
        "place": problem.place,
        "text": problem.text,
        "next": problem.next,
    }


def _columns(problems: Sequence[Problem], screen: Screen) -> list[str]:
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
    if screen.width is not None and screen.width - indent < _MIN_TEXT_WIDTH:
        place = f"  {problem.place}" if problem.place else ""
        return [f"{code}{place}", *screen.wrapped(text, head="  ", indent=2, whole=True)]
    return screen.wrapped(text, head=f"{head}  ", indent=indent, whole=True)


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


def _text_of(error: click.ClickException) -> str:
    """The text of a click error in our style: one suggestion, no capital, no full stop."""
    if isinstance(error, click.NoSuchOption):
        from difflib import get_close_matches

        close = get_close_matches(error.option_name, error.possibilities or [], n=1)
        suggestion = f"; did you mean '{close[0]}'?" if close else ""
        return f"there is no option '{error.option_name[:60]}'{suggestion}"
    if isinstance(error, click.MissingParameter) and error.param and error.ctx:
        return f"missing {error.param.param_type_name} {error.param.get_error_hint(error.ctx)}"
    text = error.format_message().strip().removesuffix(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
