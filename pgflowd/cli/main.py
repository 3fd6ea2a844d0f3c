"""
Main: the command `pgflowd`; runs a subcommand and turns what it raises into an exit code.

To add a command: write `pgflowd/cli/<name>.py`, and add an `Entry` to `COMMANDS` below.

    from pgflowd.cli.app import App, pass_app
    from pgflowd.cli.frame import Command, Group

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
`app.leave(Exit.NO)` are there to be used; global flags such as `--json` are `app.json`.
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
from pgflowd.cli.entry import on_interrupt, once_more, quietly
from pgflowd.cli.exits import Exit, exit_for
from pgflowd.cli.frame import Entry, LazyGroup
from pgflowd.cli.screen import tolerate_any_stream
from pgflowd.errors import NotFound, PgflowdError, Problem

COMPLETE_VARIABLE = "_PGFLOWD_COMPLETE"
_OF_THE_PLACE = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR
}  # fmt: skip
_MOST_SAID = 500  # characters of an exception; the report has the rest

COMMANDS = (
    Entry("serve", "pgflowd.cli.serve:serve", "Run the daemon in the foreground."),
    Entry("status", "pgflowd.cli.status:status", "Show how the daemon and its flows are."),
    Entry("tree", "pgflowd.cli.status:tree", "Show the daemon's processes."),
    Entry("drain", "pgflowd.cli.stop:drain", "Let running tasks finish, then end the daemon."),
    Entry("stop", "pgflowd.cli.stop:stop", "End the daemon; --now is quicker."),
    Entry("reload", "pgflowd.cli.stop:reload", "Read config and flows again."),
    Entry("new", "pgflowd.cli.new:new", "Write a new project: a flow, its tests, a config."),
    Entry("dev", "pgflowd.cli.dev:dev", "Serve a project while you change it."),
    Entry("demo", "pgflowd.cli.demo:demo", "Show it at work, on a database of its own."),
    Entry("runs", "pgflowd.cli.runs:runs", "Start runs, look at them, follow, cancel, retry."),
    Entry("flows", "pgflowd.cli.flows:flows", "Show, compare, deploy and delete flows."),
    Entry("check", "pgflowd.cli.check:check", "Check config, flows and database."),
    Entry(
        "stalled", "pgflowd.cli.stalled:stalled", "List, requeue and fail tasks nobody works on."
    ),
    Entry("doctor", "pgflowd.cli.doctor:doctor", "Look at the database from all sides."),
    Entry("db", "pgflowd.cli.db:db", "Install, upgrade and verify the schema."),
    Entry("systemd", "pgflowd.cli.systemd:systemd", "Install and examine the units for systemd."),
    Entry("config", "pgflowd.cli.config:config", "Show the settings, their schema and variables."),
    Entry("version", "pgflowd.cli.version:version", "Print the versions of pgflowd and its parts."),
    Entry("completion", "pgflowd.cli.completion:completion", "Print a completion script."),
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
        code = Exit.INTERRUPTED
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
                return Exit.INTERRUPTED
            if isinstance(error, OSError) and error.errno == errno.EIO and error.filename is None:
                raise BrokenPipeError from error  # the terminal was closed
            app.json = app.json or "--json" in args
            return _complain(app, error, args)
    except BrokenPipeError:
        _forget_output()
        return Exit.BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED


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
    return Exit.OK


def _complete(app: App, instruction: str) -> int:
    """Suggest words to a shell. A mistake of anyone's must not write over somebody's prompt."""
    from click.shell_completion import shell_complete

    try:
        return shell_complete(cli, {"obj": app}, "pgflowd", COMPLETE_VARIABLE, instruction)
    except Exception:
        return Exit.NO


def _complain(app: App, error: Exception, args: Sequence[str]) -> int:
    from pgflowd.cli.complaints import complain, complain_usage

    if isinstance(error, click.Abort):
        raise error
    if isinstance(error, click.ClickException):
        complain_usage(app, error)
        return error.exit_code
    if isinstance(error, NotFound) and not error.next:
        error.next = "see `pgflowd runs list`"
    if isinstance(error, PgflowdError) and exit_for(error) != Exit.BUG:
        complain(app, error.problems)
        return exit_for(error)
    if isinstance(error, OSError) and (excuse := _excuse(error)):
        _forget_output()
        complain_usage(app, click.ClickException(excuse))
        return Exit.DENIED if isinstance(error, PermissionError) else Exit.NO
    complain(app, [_reported(app, error, args)])
    return Exit.BUG


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
    from pgflowd.host.report import write_report

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
