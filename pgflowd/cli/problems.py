"""
Prints errors; no other module does.

Several problems are aligned in columns: place, code, what is wrong, what to do next. `--json`
prints them as a list. Secrets are hidden and control characters escaped, so a hostile text
stays on its line. On a terminal long texts are wrapped under their column.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, TypeVar

import click

from pgflowd.cli.terminal.screen import emit
from pgflowd.core.exit_codes import exit_for
from pgflowd.core.redact import one_line
from pgflowd.errors import PgflowdError, Problem

if TYPE_CHECKING:
    from pgflowd.cli.app import App
    from pgflowd.cli.terminal.screen import Screen

_MIN_TEXT_WIDTH = 36  # the id of a run; with fewer beside its code, a text gets lines of its own
_PLACE_WIDTH = 21  # so that the columns of most outputs are the same


T = TypeVar("T")


class ShownProblem(TypedDict):
    """An error or a warning. Every command prints a list of these on standard error."""

    code: str | None
    place: str | None
    text: Annotated[str, "what is wrong, to which thing, what was expected"]
    next: str | None


def print_problems(app: App, problems: Sequence[Problem]) -> None:
    """Print problems on standard error."""
    if app.json:
        _print_json(problem_json(app, problem) for problem in problems)
        return
    for line in problem_columns(app, problems, app.err):
        emit(line, sys.stderr, is_painted=app.err.colour)
    point_to_pages(app, problems)


def point_to_pages(app: App, problems: Sequence[Problem]) -> None:
    """Tell who sees errors on a terminal which command says more; silenced like a remark."""
    codes = list(dict.fromkeys(each.code for each in problems if not each.is_warning))
    if codes and app.err.width is not None:
        app.note(f"`pgflowd explain {codes[0] if len(codes) == 1 else 'CODE'}` says more")


def for_each(
    app: App,
    key: str,
    items: Iterable[T],
    act: Callable[[T], tuple[str, Any]],
) -> None:
    """Act on each item; an error of one item does not stop the others.

    `act` returns a line and its document. Lines are printed as they come; with `--json` the
    documents are printed as a list under `key`. The first error decides the exit code.
    """
    documents: list[Any] = []
    errors: list[PgflowdError] = []
    for item in items:
        try:
            line, document = act(item)
        except PgflowdError as error:
            errors.append(error)
            continue
        documents.append(document)
        if not app.json:
            app.print(line)
    print_outcomes(app, key, documents, errors)


def print_outcomes(
    app: App, key: str, documents: Sequence[Any], errors: Sequence[PgflowdError]
) -> None:
    """Print what became of many items, but for the lines; see `for_each`."""
    if app.json:
        app.print_document({key: documents})
    if errors:
        problems = [problem for error in errors for problem in error.problems]
        print_problems(app, list(dict.fromkeys(problems)))  # each problem once
        app.exit(exit_for(errors[0]))


def print_usage_error(app: App, error: click.ClickException) -> None:
    """Print an error of the command line, and the command that prints its help."""
    text = app.hide(one_line(_text_of(error)))
    ctx = getattr(error, "ctx", None)
    command = ctx.command_path if ctx is not None else "pgflowd"
    help_ = f"{command} --help" if isinstance(error, click.UsageError) else None
    if app.json:
        _print_json([ShownProblem(code=None, place=None, text=text, next=help_)])
        return
    head = f"{app.err.paint(command, 'red')}: "
    for line in app.err.wrapped(text, head=head, indent=2, whole=True):
        emit(line, sys.stderr, is_painted=app.err.colour)
    if help_:
        emit(f"see {help_}", sys.stderr)


def problem_columns(app: App, problems: Sequence[Problem], screen: Screen) -> list[str]:
    """Return problems as lines in columns, with a count at the end."""
    shown = [_cleaned(app, problem) for problem in problems]
    places = [len(problem.place) for problem in shown if problem.place]
    width = max([_PLACE_WIDTH, *places]) if places else 0
    lines = [line for problem in shown for line in _lines(problem, width, screen)]
    return [*lines, _count(problems)] if len(problems) > 1 else lines


def problem_json(app: App, problem: Problem) -> ShownProblem:
    """Return a problem as the object that `--json` prints, without secrets."""
    shown = _cleaned(app, problem)
    return ShownProblem(code=shown.code, place=shown.place, text=shown.text, next=shown.next)


def _print_json(documents: Iterable[ShownProblem]) -> None:
    emit(json.dumps(list(documents), indent=2), sys.stderr)


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
        from pgflowd.core.text import nearest

        # without their dashes, which make short names alike
        names = {name.lstrip("-"): name for name in error.possibilities or []}
        close = nearest(error.option_name.lstrip("-"), names)
        suggestion = f"; did you mean '{names[close]}'?" if close else ""
        return f"there is no option '{error.option_name[:60]}'{suggestion}"
    if isinstance(error, click.MissingParameter) and error.param and error.ctx:
        return f"missing {error.param.param_type_name} {error.param.get_error_hint(error.ctx)}"
    text = error.format_message().strip().removesuffix(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
