"""
The command `pgflowd`: runs a subcommand and turns the error that it raises into an exit code.

To add a command: add an `Entry` to `COMMANDS`, and write `pgflowd/cli/commands/<name>.py`. A
command is a function with `@click.command(cls=Command)`, or `@group.command()`, and `@pass_app`; a
group is one with `@click.group(cls=Group)`. The docstring is the help; it ends with an example.

`--help` imports the command's module, which must not import psycopg: `from pgflowd import db` loads
a module of `db` when it is used; import what else needs psycopg inside the functions. Do not catch
errors of `pgflowd.errors`: here they are printed and become an exit code. `App` has the settings,
the global flags (`app.json`) and the methods that print.
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
from pgflowd.cli.groups import Entry, LazyGroup
from pgflowd.cli.interrupt import exit_quietly, on_interrupt, repeat_interrupt
from pgflowd.cli.terminal.screen import tolerate_any_stream
from pgflowd.core.exit_codes import ExitCode, exit_for
from pgflowd.errors import NotFound, PgflowdError, Problem

COMPLETE_VARIABLE = "_PGFLOWD_COMPLETE"
_PATH_ERRORS = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR
}  # fmt: skip
_MAX_ERROR_CHARS = 500  # of an exception in a message; the bug report has the rest

COMMANDS = (
    Entry("serve", "commands.serve", "Run the daemon in the foreground."),
    Entry("status", "commands.daemons", "Show the state of the daemon and its flows."),
    Entry("tree", "commands.daemons", "Show the daemon's processes."),
    Entry("top", "commands.serve", "Watch flows and runs on a terminal, and act on them."),
    Entry("drain", "commands.daemons", "Let running tasks finish, then end the daemon."),
    Entry("stop", "commands.daemons", "Stop the daemon; --now gives running tasks less time."),
    Entry("reload", "commands.daemons", "Reload config and flows."),
    Entry("wake", "commands.daemons", "Start the worker of a sleeping flow."),
    Entry("daemons", "commands.daemons", "List the daemons of all machines, restart a worker."),
    Entry("new", "local.new", "Create a project: a flow, its tests, a config."),
    Entry("dev", "commands.serve", "Serve a project while you change it."),
    Entry("demo", "commands.serve", "Run example flows on a database of their own."),
    Entry("runs", "commands.runs", "Start, show, follow, signal and change runs."),
    Entry("tasks", "commands.tasks", "List open tasks, end the wait of one, and do one by hand."),
    Entry("signals", "commands.runs", "List the signals that were sent to runs."),
    Entry("flows", "commands.flows", "Show, compare, deploy and delete flows."),
    Entry("schedules", "commands.schedules", "List schedules, and fire, pause and change them."),
    Entry("check", "commands.check", "Check config, flows and database."),
    Entry("stalled", "commands.tasks", "List, requeue and fail stalled tasks."),
    Entry("dead", "commands.tasks", "List tasks that have failed for good."),
    Entry("log", "commands.log", "Show what people and clients did."),
    Entry("doctor", "commands.doctor", "Examine the database: versions, permissions, clocks."),
    Entry("db", "commands.db", "Install, upgrade and verify the schema."),
    Entry("web", "commands.web", "Serve the dashboard; its passwords and tokens."),
    Entry("systemd", "commands.systemd", "Install and examine the units for systemd."),
    Entry("monitoring", "commands.files", "Print what Prometheus and Grafana need."),
    Entry("config", "commands.config", "Show the settings, their schema and variables."),
    Entry("docs", "commands.docs", "Show the documentation, without a network."),
    Entry("explain", "commands.docs", "Explain the code of an error or a warning."),
    Entry("version", "commands.files", "Print the versions of pgflowd and its dependencies."),
    Entry("completion", "commands.files", "Print a completion script."),
)


@click.group(
    cls=LazyGroup, entries=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
def cli() -> None:
    """Run workflows (DAGs of steps) that are stored in PostgreSQL.

    \b
    Example: pgflowd demo
    """


def main() -> None:
    """Run the command line of this process and exit."""
    try:
        sys.unraisablehook = repeat_interrupt
        on_interrupt(signal.default_int_handler)
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    finally:
        on_interrupt(exit_quietly)
    sys.exit(code)


def run(args: Sequence[str]) -> int:
    """Run a command line and return its exit code. No exception leaves this function."""
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
            return _print_error(app, error, args)
    except BrokenPipeError:
        _discard_output()
        return ExitCode.BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused it, for example during a cleanup."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _invoke(app: App, args: Sequence[str]) -> int:
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        from click.shell_completion import shell_complete

        try:
            return shell_complete(cli, {"obj": app}, "pgflowd", COMPLETE_VARIABLE, instruction)
        except Exception:  # it must not write over the user's prompt
            return ExitCode.NO
    try:
        with cli.make_context("pgflowd", list(args), obj=app) as ctx:
            cli.invoke(ctx)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    return ExitCode.OK


def _print_error(app: App, error: Exception, args: Sequence[str]) -> int:
    from pgflowd.cli.problems import print_problems, print_usage_error

    if isinstance(error, click.Abort):
        raise error
    if isinstance(error, click.ClickException):
        print_usage_error(app, error)
        return error.exit_code
    if isinstance(error, NotFound) and not error.next:
        error.next = "see `pgflowd runs list`"
    if isinstance(error, PgflowdError) and exit_for(error) != ExitCode.BUG:
        print_problems(app, error.problems)
        return exit_for(error)
    if isinstance(error, OSError) and (text := _environment_error(error)):
        _discard_output()
        print_usage_error(app, click.ClickException(text))
        return ExitCode.DENIED if isinstance(error, PermissionError) else ExitCode.NO
    print_problems(app, [_report_bug(app, error, args)])
    return ExitCode.BUG


def _environment_error(error: OSError) -> str | None:
    """What is wrong with the user's disk or directory, if that is the cause."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"cannot write: {error.strerror}"
    try:
        Path.cwd()
    except OSError:
        return "the current directory was removed; change to another one"
    if error.filename is not None and error.errno in _PATH_ERRORS:
        return f"{os.fsdecode(error.filename)} cannot be used: {error.strerror}"
    return None


def _report_bug(app: App, error: Exception, args: Sequence[str]) -> Problem:
    """Write a bug report, and return the problem to print."""
    from traceback import format_exception_only

    from pgflowd.host.bug_report import write_report

    if isinstance(error, PgflowdError):
        code, text = error.code, error.text
    else:  # an exception may be endless, or fail to format itself
        shown = "".join(format_exception_only(error)).strip()[:_MAX_ERROR_CHARS]
        code, text = "E901", f"unexpected exception: {shown}"
    try:
        path = write_report(error, args, app.secrets)
    except OSError as refusal:
        return Problem(code, text, next=f"its report could not be written: {refusal}")
    return Problem(code, text, next=f"this is a bug in pgflowd; please send us {path}")


def _discard_output() -> None:
    """Send later output of Python to /dev/null, because the reader is gone."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(devnull, stream.fileno())


if __name__ == "__main__":
    main()
