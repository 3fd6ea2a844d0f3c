"""
New: `pgflowd new` writes a project that works: a flow, its tests, a config.

The files lie in `templates/`: `common/` is for all of them, the rest for one kind. Nothing is
ever overwritten.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.exits import CommandRefused
from pgflowd.cli.groups import Command

HERE = Path(__file__).parent / "templates"
NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
SCHEMA_VERSION = 1


class Template(NamedTuple):
    """A kind of project: its module, its flow, and an input that shows it at work."""

    module: str
    flow: str
    input: str


TEMPLATES = {
    "diamond": Template("analyze", "analyze_website", '{"url": "https://example.com"}'),
    "map": Template("orders", "import_orders", '{"count": 20}'),
    "job": Template("mail", "send_email", '{"to": "anna@example.com", "subject": "Hello"}'),
}


@click.command(cls=Command)
@click.argument("name", metavar="NAME", type=click.Path(path_type=Path))
@click.option(
    "--template",
    type=click.Choice(list(TEMPLATES)),
    default="diamond",
    help="diamond: steps side by side; map: a task per element; job: one step.",
)
@pass_app
def new(app: App, name: Path, template: str) -> None:
    """Write a new project into the directory NAME: a flow, its tests, a config.

    Nothing is ever overwritten.

    \b
    Example: pgflowd new shop && cd shop && pgflowd dev
    """
    project = name.absolute().name
    if not NAME.fullmatch(project):
        text = f"'{project}' is no name: take 1 to 32 letters, digits, _ and -"
        raise click.UsageError(text)
    files = dict(_files(project, template))
    there = [path for path in files if (name / path).exists() or (name / path).is_symlink()]
    if there:
        raise CommandRefused(f"{name} has {', '.join(there)} already; nothing was written")
    with ExitStack() as otherwise:
        for path, text in files.items():
            _write(name / path, text, otherwise)
        otherwise.pop_all()
    if app.json:
        told = {"directory": str(name.absolute()), "template": template, "files": list(files)}
        app.print_json({"schema_version": SCHEMA_VERSION, **told})
        return
    dot = " · " if app.out.unicode else ", "
    app.print(app.out.folded(f"  created {dot.join(files)}"))
    _say_what_is_next(app, name, TEMPLATES[template])


def _files(project: str, template: str) -> Iterator[tuple[str, str]]:
    """The paths and texts of a project."""
    kind = TEMPLATES[template]

    def text(path: str) -> str:
        found = (HERE / path).read_text(encoding="utf-8")
        return found.replace("<name>", project).replace("<module>", kind.module)

    yield "pgflowd.toml", text("common/pgflowd.toml")
    yield f"flows/{kind.module}.py", text(f"{template}/flow.txt")
    yield f"tests/test_{kind.module}.py", text(f"{template}/test.txt")
    yield "pyproject.toml", text("common/pyproject.toml")
    yield ".gitignore", text("common/gitignore")


def _write(path: Path, text: str, otherwise: ExitStack) -> None:
    """Write a new file, which goes again if those that follow cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            otherwise.callback(path.unlink)
            file.write(text)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None


def _say_what_is_next(app: App, directory: Path, kind: Template) -> None:
    from pgflowd.cli.main import COMMANDS

    serve = "dev" if any(entry.name == "dev" for entry in COMMANDS) else "serve"
    there = f"cd {shlex.quote(str(directory))} && pgflowd {serve}"
    start = f"pgflowd runs start {kind.flow} {shlex.quote(kind.input)} --follow"
    app.hint([(there, ""), (start, "there, in another terminal")])
