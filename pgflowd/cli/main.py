"""
Main: the command `pgflowd`; runs a subcommand and turns what it raises into an exit code.

To add a command: write `pgflowd/cli/<name>.py`, and add an `Entry` to `COMMANDS` below.

    from pgflowd.cli.app import App, pass_app
    from pgflowd.cli.groups import Command, Group

    @click.group(cls=Group)              # a single command: @click.command(cls=Command)
    def db() -> None:
        \"\"\"Install and upgrade the schema.

        \\b
        Example: pgflowd db migrate
        \"\"\"

    @db.command()
    @pass_app
    def migrate(app: App) -> None: ...   # its docstring ends with an example as well

Import psycopg and everything that needs it inside the functions, since `--help` imports this
module. Let errors of `pgflowd.errors` rise: they are printed and become an exit code here.
`app.settings`, `app.database_url`, `app.echo_json`, `app.table`, `app.confirm`, `app.say` and
`app.exit(Exit.NO)` are there to be used; global flags such as `--json` are `app.json`.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from pgflowd.cli.app import App
from pgflowd.cli.exits import ExitCode, exit_for
from pgflowd.cli.groups import Entry, LazyGroup
from pgflowd.cli.interrupt import on_interrupt, once_more, quietly
from pgflowd.cli.terminal.screen import tolerate_any_stream
from pgflowd.errors import NotFound, PgflowdError, Problem

COMPLETE_VARIABLE = "_PGFLOWD_COMPLETE"
_OF_THE_PLACE = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR
}  # fmt: skip
_MOST_SAID = 500  # characters of an exception; the report has the rest

COMMANDS = (
    Entry("serve", "pgflowd.cli.commands.serve:serve", "Run the daemon in the foreground."),
    Entry("status", "pgflowd.cli.commands.status:status", "Show how the daemon and its flows are."),
    Entry("tree", "pgflowd.cli.commands.status:tree", "Show the daemon's processes."),
    Entry(
        "drain", "pgflowd.cli.commands.stop:drain", "Let running tasks finish, then end the daemon."
    ),
    Entry("stop", "pgflowd.cli.commands.stop:stop", "End the daemon; --now is quicker."),
    Entry("reload", "pgflowd.cli.commands.stop:reload", "Read config and flows again."),
    Entry("new", "pgflowd.cli.local.new:new", "Write a new project: a flow, its tests, a config."),
    Entry("dev", "pgflowd.cli.local.dev:dev", "Serve a project while you change it."),
    Entry("demo", "pgflowd.cli.local.demo:demo", "Show it at work, on a database of its own."),
    Entry(
        "runs", "pgflowd.cli.commands.runs:runs", "Start runs, look at them, follow, cancel, retry."
    ),
    Entry("flows", "pgflowd.cli.commands.flows:flows", "Show, compare, deploy and delete flows."),
    Entry("check", "pgflowd.cli.commands.check:check", "Check config, flows and database."),
    Entry(
        "stalled",
        "pgflowd.cli.commands.stalled:stalled",
        "List, requeue and fail tasks nobody works on.",
    ),
    Entry("doctor", "pgflowd.cli.commands.doctor:doctor", "Look at the database from all sides."),
    Entry("db", "pgflowd.cli.commands.db:db", "Install, upgrade and verify the schema."),
    Entry(
        "systemd",
        "pgflowd.cli.commands.systemd:systemd",
        "Install and examine the units for systemd.",
    ),
    Entry(
        "config",
        "pgflowd.cli.commands.config:config",
        "Show the settings, their schema and variables.",
    ),
    Entry(
        "version",
        "pgflowd.cli.commands.version:version",
        "Print the versions of pgflowd and its parts.",
    ),
    Entry("completion", "pgflowd.cli.commands.completion:completion", "Print a completion script."),
)


@click.group(
    cls=LazyGroup, entries=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
def cli() -> None:
    """Runs DAG workflows that live in PostgreSQL: durable, killable, drainable.

    \b
    Example: pgflowd demo
    """


def main() -> None:
    """Run the command line of this process and exit."""
    try:
        sys.unraisablehook = once_more
        on_interrupt(signal.default_int_handler)
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    finally:
        on_interrupt(quietly)
    sys.exit(code)


def run(args: Sequence[str]) -> int:
    """Run a command line and return its exit code. Nothing it raises gets past here."""
    tolerate_any_stream()
    app = App()
    try:
        try:
            code = _invoke(app, args)
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            raise
        except Exception as error:
            if _was_interrupted(error):
                return ExitCode.INTERRUPTED
            if isinstance(error, OSError) and error.errno == errno.EIO and error.filename is None:
                raise BrokenPipeError from error  # the terminal was closed
            app.json = app.json or "--json" in args
            return _complain(app, error, args)
    except BrokenPipeError:
        _forget_output()
        return ExitCode.BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether it came of Ctrl-C in the middle of something, such as tidying up."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _invoke(app: App, args: Sequence[str]) -> int:
    completing = os.environ.get(COMPLETE_VARIABLE)
    if completing:
        return _complete(app, completing)
    try:
        with cli.make_context("pgflowd", list(args), obj=app) as ctx:
            cli.invoke(ctx)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    return ExitCode.OK


def _complete(app: App, instruction: str) -> int:
    """Suggest words to a shell. A mistake of anyone's must not write over somebody's prompt."""
    from click.shell_completion import shell_complete

    try:
        return shell_complete(cli, {"obj": app}, "pgflowd", COMPLETE_VARIABLE, instruction)
    except Exception:
        return ExitCode.NO


def _complain(app: App, error: Exception, args: Sequence[str]) -> int:
    from pgflowd.cli.problems import complain, complain_usage

    if isinstance(error, click.Abort):
        raise error
    if isinstance(error, click.ClickException):
        complain_usage(app, error)
        return error.exit_code
    if isinstance(error, NotFound) and not error.next:
        error.next = "see `pgflowd runs list`"
    if isinstance(error, PgflowdError) and exit_for(error) != ExitCode.BUG:
        complain(app, error.problems)
        return exit_for(error)
    if isinstance(error, OSError) and (excuse := _excuse(error)):
        _forget_output()
        complain_usage(app, click.ClickException(excuse))
        return ExitCode.DENIED if isinstance(error, PermissionError) else ExitCode.NO
    complain(app, [_reported(app, error, args)])
    return ExitCode.BUG


def _excuse(error: OSError) -> str | None:
    """What is wrong with the place where we were called, if that is the cause."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"cannot write: {error.strerror}"
    try:
        Path.cwd()
    except OSError:
        return "the current directory was removed; change to another one"
    if error.filename is not None and error.errno in _OF_THE_PLACE:
        return f"{os.fsdecode(error.filename)} cannot be used: {error.strerror}"
    return None


def _reported(app: App, error: Exception, args: Sequence[str]) -> Problem:
    """Write the report of a bug of ours and return what to tell the user."""
    from pgflowd.host.bug_report import write_report

    code, text = "E901", f"unexpected exception: {_said(error)}"
    if isinstance(error, PgflowdError):
        code, text = error.code, error.text
    try:
        path = write_report(error, args, app.secrets)
    except OSError as refusal:
        return Problem(code, text, next=f"its report could not be written: {refusal}")
    return Problem(code, text, next=f"this is our mistake, please send us {path}")


def _said(error: Exception) -> str:
    """What an exception says; also one that is endless, or that cannot even say it."""
    from traceback import format_exception_only

    return "".join(format_exception_only(error)).strip()[:_MOST_SAID]


def _forget_output() -> None:
    """Nobody can read us any more: let Python's last flush go nowhere instead of complaining."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


if __name__ == "__main__":
    main()
