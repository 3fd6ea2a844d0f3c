"""
The classes of all commands and groups of `pgflowd`.

`Command` and `Group` accept the global flags before and after the subcommand (the last one
wins), and list them apart from the command's own options. `LazyGroup` has its commands as a
table; it imports a command's module to run the command, not for help or completion. An
unknown name gets a suggestion.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from pgflowd.cli.app import App
from pgflowd.core.redact import one_line
from pgflowd.errors import PgflowdError

START = "did you mean 'pgflowd serve' (the daemon) or 'pgflowd runs start FLOW' (a run)?"


class Entry(NamedTuple):
    """A command that is imported when it runs, and its line in the help of all commands."""

    name: str  # also of its function
    module: str  # below pgflowd.cli
    help: str


def _store_on_app(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        setattr(ctx.ensure_object(App), str(param.name), value)


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        from pgflowd import __version__

        click.echo(f"pgflowd {__version__}")
        ctx.exit()


def _flag(*names: str, **attributes: Any) -> click.Option:
    return click.Option(list(names), expose_value=False, callback=_store_on_app, **attributes)


def global_options() -> list[click.Option]:
    """Return new options for the flags that every command accepts."""
    return [
        # whether it can be read is seen when it is read (E101)
        _flag("-c", "--config", type=click.Path(readable=False), metavar="FILE",
              help="Read this config file."),
        _flag("--database-url", "flag_database_url", metavar="URL",
              help="Use this database; env:NAME and file:PATH work, too."),
        _flag("-i", "--instance", metavar="NAME", help="Read /etc/pgflowd/NAME.toml."),
        _flag("--json", is_flag=True, help="Print JSON; streams print one object per line."),
        _flag("--color", type=click.Choice(["auto", "always", "never"]), help="Colour the output."),
        _flag("-q", "--quiet", is_flag=True, help="Print only results and errors."),
        _flag("-v", "--verbose", is_flag=True, help="Print more."),
        click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False,
                     callback=_show_version, help="Print the version."),
    ]  # fmt: skip


class Formatter(click.HelpFormatter):
    """Formats help for terminals of 40 columns and more; click needs 50."""

    def __init__(self, *_: Any, **__: Any) -> None:
        columns = shutil.get_terminal_size((80, 24)).columns
        super().__init__(width=max(min(columns, 80) - 2, 30))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        super().write_dl(list(rows), min(col_max, self.width // 2 - 2), col_spacing)


class CommandContext(click.Context):
    """A click context that formats help with `Formatter`."""

    formatter_class = Formatter


@contextmanager
def _usage_errors(ctx: click.Context) -> Iterator[None]:
    """Let faults of the command line name this command's help; a word is one that is unclear."""
    try:
        yield
    except click.UsageError as error:
        error.ctx = error.ctx or ctx
        raise
    except PgflowdError as error:
        if error.code != "E506":
            raise
        raise click.UsageError(error.text, ctx) from error


class Command(click.Command):
    """A command with the global flags."""

    context_class = CommandContext

    def __init__(self, *args: Any, prints: Any = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        # the document that it prints with `--json`, by the option that changes it; "": without one
        self.prints: dict[str, Any] = prints if isinstance(prints, dict) else {"": prints}
        self.global_options = global_options()
        self.params.extend(self.global_options)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _usage_errors(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with _usage_errors(ctx):
            return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options; the global ones in full only in the root's help."""
        params = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        own = [param for param in params if param not in self.global_options]
        if ctx.parent is None:
            own += self.global_options
        records = [record for record in (param.get_help_record(ctx) for param in own) if record]
        with formatter.section("Options" if ctx.parent else "Options, before or after a command"):
            formatter.write_dl(records)
        if ctx.parent is not None:
            names = "-c, --database-url, -i, --json, --color, -q, -v"
            formatter.write_paragraph()
            formatter.write_text(f"Everywhere: {names}; see {ctx.find_root().info_name} --help.")


class Group(Command, click.Group):
    """A group with the global flags; its commands and groups are of these classes, too."""

    command_class = Command
    group_class = type

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of the source

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(200)) for name, each in self.commands.items()]
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            from pgflowd.core.text import did_you_mean

            is_start = ctx.parent is None and args[0] == "start"
            hint = START if is_start else did_you_mean(args[0], known)
            text = f"there is no command '{one_line(args[0], 60)}'"
            ctx.fail(f"{text}; {hint}" if hint else text)
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """A group whose commands are a table; each is imported when it runs."""

    def __init__(self, *args: Any, entries: Iterable[Entry], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.entries = {entry.name: entry for entry in entries}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        command = getattr(import_module(f"pgflowd.cli.{entry.module}"), entry.name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.help) for entry in self.entries.values()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        matching = [entry for entry in self.entries.values() if entry.name.startswith(incomplete)]
        return [CompletionItem(entry.name, help=entry.help) for entry in matching]
