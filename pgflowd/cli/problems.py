"""
Prints errors; no other module does.

Several problems are aligned in columns: place, code, what is wrong, what to do next. `--json`
prints them as a list. Secrets are hidden and control characters escaped, so a hostile text
stays on its line. On a terminal long texts are wrapped under their column.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, TypeVar

import click

from pgflowd.cli.terminal.screen import emit
from pgflowd.core.exit_codes import exit_for
from pgflowd.core.redact import one_line
from pgflowd.core.text import counted
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


def results_of(
    items: Iterable[T], act: Callable[[T], tuple[str, Any]]
) -> Iterator[tuple[str, Any] | PgflowdError]:
    """Act on each item: what was done, as a line and its document, or why it was not."""
    for item in items:
        try:
            yield act(item)
        except PgflowdError as error:
            yield error


def print_each(app: App, key: str, results: Iterable[tuple[str, Any] | PgflowdError]) -> None:
    """Print what became of many items; an error of one does not stop the others.

    Lines are printed as they come; with `--json` the documents are printed as a list under `key`.
    The first error decides the exit code.
    """
    documents: list[Any] = []
    errors: list[PgflowdError] = []
    for result in results:
        if isinstance(result, PgflowdError):
            errors.append(result)
            continue
        line, document = result
        documents.append(document)
        if not app.json:
            app.print(line)
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
    shown = [problem_json(app, problem) for problem in problems]
    places = [len(each["place"]) for each in shown if each["place"]]
    width = max([_PLACE_WIDTH, *places]) if places else 0
    lines = [
        line
        for problem, each in zip(problems, shown, strict=True)
        for line in _lines(each, problem.is_warning, width, screen)
    ]
    warnings = sum(problem.is_warning for problem in problems)
    counts = [(len(problems) - warnings, "error"), (warnings, "warning")]
    count = ", ".join(counted(n, word) for n, word in counts if n)
    return [*lines, count] if len(problems) > 1 else lines


def problem_json(app: App, problem: Problem) -> ShownProblem:
    """Return a problem as the object that `--json` prints, without secrets."""
    texts = (problem.place, problem.text, problem.next)
    place, text, next_ = (each and one_line(app.hide(each)) for each in texts)
    return ShownProblem(code=problem.code, place=place, text=text or "", next=next_)


def _print_json(documents: Iterable[ShownProblem]) -> None:
    emit(json.dumps(list(documents), indent=2), sys.stderr)


def _lines(problem: ShownProblem, is_warning: bool, place_width: int, screen: Screen) -> list[str]:
    place = problem["place"] or ""
    code = screen.paint(str(problem["code"]), "yellow" if is_warning else "red", bold=True)
    text = problem["text"] + (f"; {problem['next']}" if problem["next"] else "")
    indent = place_width + (8 if place_width else 6)
    if screen.width is not None and screen.width - indent < _MIN_TEXT_WIDTH:
        head = f"{code}  {place}" if place else code
        return [head, *screen.wrapped(text, head="  ", indent=2, whole=True)]
    head = f"{place:<{place_width}}  {code}" if place_width else code
    return screen.wrapped(text, head=f"{head}  ", indent=indent, whole=True)


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
