"""
`pgflowd new`: creates a project that works: a flow, its tests, a config.

The files are in `templates/`: `common/` is for all projects, the other directories for one kind
each. No file is ever overwritten.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, NamedTuple, TypedDict

import click

from pgflowd.cli.app import App, CommandRefused, pass_app
from pgflowd.cli.groups import Command
from pgflowd.core.settings.load import json_schema
from pgflowd.core.settings.values import NAME

HERE = Path(__file__).parent / "templates"
SCHEMA = "pgflowd.schema.json"  # of pgflowd.toml, which names it for editors


class Template(NamedTuple):
    """A kind of project: its module, its flow, and an input for a first run."""

    module: str
    flow: str
    input: str


TEMPLATES = {
    "diamond": Template("analyze", "analyze_website", '{"url": "https://example.com"}'),
    "map": Template("orders", "import_orders", '{"count": 20}'),
    "saga": Template("booking", "book_trip", '{"city": "Lisbon", "sold_out": true}'),
    "job": Template("mail", "send_email", '{"to": "anna@example.com", "subject": "Hello"}'),
}


class NewProject(TypedDict):
    directory: Annotated[str, "where the project is"]
    template: Annotated[str, "which kind it is"]
    files: Annotated[list[str], "what was written"]


@click.command(cls=Command, prints=NewProject)
@click.argument("name", metavar="NAME", type=click.Path(path_type=Path))
@click.option(
    "--template",
    type=click.Choice(list(TEMPLATES)),
    default="diamond",
    help="diamond: parallel steps; map: a task per element; saga: steps with undo; job: one step.",
)
@pass_app
def new(app: App, name: Path, template: str) -> None:
    """Create a project in the directory NAME: a flow, its tests, a config.

    No file is ever overwritten.

    \b
    Example: pgflowd new shop && cd shop && pgflowd dev
    """
    project = name.absolute().name
    if not NAME.fits(project):
        text = f"'{project}' is not a valid name: use {NAME.means}"
        raise click.UsageError(text)
    files = dict(_files(project, template))
    existing = [path for path in files if (name / path).exists() or (name / path).is_symlink()]
    if existing:
        raise CommandRefused(f"{name} already has {', '.join(existing)}; nothing was written")
    with ExitStack() as on_error:
        for path, text in files.items():
            _write(name / path, text, on_error)
        on_error.pop_all()
    if app.json:
        where = str(name.absolute())
        app.print_document(NewProject(directory=where, template=template, files=list(files)))
        return
    dot = " · " if app.out.unicode else ", "
    app.print(app.out.folded(f"  created {dot.join(files)}"))
    kind = TEMPLATES[template]
    develop = f"cd {shlex.quote(str(name))} && pgflowd dev"
    start = f"pgflowd runs start {kind.flow} {shlex.quote(kind.input)} --follow"
    app.hint([(develop, ""), (start, "there, in another terminal")])


def _files(project: str, template: str) -> Iterator[tuple[str, str]]:
    """The paths and texts of a project."""
    kind = TEMPLATES[template]

    def text(path: str) -> str:
        found = (HERE / path).read_text(encoding="utf-8")
        return found.replace("<name>", project).replace("<module>", kind.module)

    yield "pgflowd.toml", text("common/pgflowd.toml")
    yield SCHEMA, json.dumps(json_schema(), indent=2) + "\n"
    yield f"flows/{kind.module}.py", text(f"{template}/flow.txt")
    yield f"tests/test_{kind.module}.py", text(f"{template}/test.txt")
    yield "pyproject.toml", text("common/pyproject.toml")
    yield ".gitignore", text("common/gitignore")


def _write(path: Path, text: str, on_error: ExitStack) -> None:
    """Write a new file; it is deleted again if a later one cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            on_error.callback(path.unlink)
            file.write(text)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None
