"""Help, flags, exit codes and suggestions of all commands, and that help imports little."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from support.covers import covers
from support.shop import on_a_terminal

from pgflowd.cli import main
from pgflowd.cli.app import App, CommandRefused
from pgflowd.cli.groups import Command, Entry, Group
from pgflowd.cli.main import COMMANDS, cli, run
from pgflowd.cli.problems import problem_columns
from pgflowd.cli.terminal.screen import Screen
from pgflowd.core.exit_codes import ExitCode, exit_for
from pgflowd.errors import (
    AccessDenied,
    Bug,
    ConfigError,
    DatabaseError,
    FlowError,
    NotFound,
    OutOfReach,
    PgflowdError,
    Problem,
    RunEnded,
    UnknownFlow,
    Unreachable,
    WaitTimeout,
)

Runs = Callable[..., "object"]


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Every command and group with the words that call it."""
    waiting: list[tuple[str, click.Command]] = [("pgflowd", cli)]
    while waiting:
        words, command = waiting.pop()
        yield words, command
        if isinstance(command, click.Group):
            ctx = click.Context(command)
            for name in command.list_commands(ctx):
                inner = command.get_command(ctx, name)
                assert inner is not None
                waiting.append((f"{words} {name}", inner))


ALL = dict(all_commands())


@pytest.mark.parametrize("words", ALL)
def test_the_help_of_every_command_has_an_example_and_names_the_global_flags(
    words: str, pgflowd: Callable
) -> None:
    ended = pgflowd(*words.split()[1:], "-h")

    assert ended.code == 0
    assert "Example: " in ended.out
    assert "--json" in ended.out
    assert ended.out.startswith(f"Usage: {words}")


@pytest.mark.parametrize("words", ALL)
def test_every_command_has_our_class_and_a_help_of_one_sentence_first(words: str) -> None:
    command = ALL[words]

    assert isinstance(command, Command | Group)
    assert command.help
    assert command.help.splitlines()[0].rstrip().endswith(".")


def test_the_table_lists_only_commands_that_exist() -> None:
    for entry in COMMANDS:
        assert f"pgflowd {entry.name}" in ALL
        assert entry.help.endswith(".")
        assert len(entry.help) <= 60


@pytest.mark.parametrize("words", ALL)
def test_help_imports_no_driver_and_no_processes(words: str, elsewhere: Path) -> None:
    args = [*words.split()[1:], "--help"]

    ended = listing_modules(f"assert run({args}) == 0")

    assert heavy(ended.stderr.split()) == set()


def test_the_help_of_all_imports_no_command() -> None:
    loaded = set(listing_modules("run(['--help'])").stderr.split())

    assert not {f"pgflowd.cli.{entry.module}" for entry in COMMANDS} & loaded
    assert "tomllib" not in loaded


@pytest.mark.parametrize("words", ["pgflowd ", "pgflowd con", "pgflowd config ", "pgflowd --co"])
def test_completion_imports_no_driver_and_no_processes(words: str, elsewhere: Path) -> None:
    last = len(words.split(" ")) - 1
    env = {"COMP_WORDS": words, "COMP_CWORD": str(last)}

    ended = listing_modules("run([])", _PGFLOWD_COMPLETE="bash_complete", **env)

    assert heavy(ended.stderr.split()) == set()
    assert ended.stdout


def listing_modules(statement: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a statement in a process of its own, which then lists its modules on stderr."""
    code = (
        f"import sys; from pgflowd.cli.main import run; {statement}; "
        "print(*sys.modules, file=sys.stderr)"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **env},
    )


def heavy(modules: list[str]) -> set[str]:
    return {"psycopg", "psycopg_binary", "multiprocess", "asyncio", "pgmq"} & set(modules)


def test_completion_suggests_commands_and_flags(process: Callable) -> None:
    def suggested(words: str) -> list[str]:
        env = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
        ended = process(**env, _PGFLOWD_COMPLETE="bash_complete")
        return [line.partition(",")[2] for line in ended.out.split()]

    assert suggested("pgflowd co") == ["config", "completion"]
    assert suggested("pgflowd config s") == ["show", "schema"]
    assert suggested("pgflowd config show --o") == ["--origin"]
    assert "--color" in suggested("pgflowd --c")


def test_a_missing_argument_is_reported_on_one_line_with_its_help(pgflowd: Callable) -> None:
    argument, value = pgflowd("completion"), pgflowd("runs", "wait", "@last", "--timeout")

    assert argument.err.splitlines() == [
        "pgflowd completion: missing argument '{bash|zsh|fish}'",
        "see pgflowd completion --help",
    ]
    assert value.err.splitlines() == [
        "pgflowd runs wait: option '--timeout' requires an argument",
        "see pgflowd runs wait --help",
    ]


def test_no_command_shows_the_help_and_is_wrong_usage(pgflowd: Callable) -> None:
    ended = pgflowd()

    assert ended.code == ExitCode.USAGE
    assert "Commands:" in ended.out
    assert pgflowd("config").code == ExitCode.USAGE


def test_an_unknown_command_gets_a_suggestion(pgflowd: Callable) -> None:
    ended = pgflowd("verison")

    assert ended.code == ExitCode.USAGE
    assert ended.out == ""
    assert "there is no command 'verison'; did you mean 'version'?" in ended.err
    assert "see pgflowd --help" in ended.err


def test_a_command_unlike_any_other_gets_none(pgflowd: Callable) -> None:
    assert "did you mean" not in pgflowd("qqqqq").err


def test_start_is_explained_because_it_has_two_meanings(pgflowd: Callable) -> None:
    ended = pgflowd("start")

    assert ended.code == ExitCode.USAGE
    assert "did you mean 'pgflowd serve' (the daemon) or 'pgflowd runs start FLOW'" in ended.err


def test_a_hint_for_the_root_is_not_given_in_a_group(pgflowd: Callable) -> None:
    assert "the daemon" not in pgflowd("config", "start").err


def test_a_wrong_flag_gets_a_suggestion(pgflowd: Callable) -> None:
    ended = pgflowd("config", "show", "--orign")

    assert ended.code == ExitCode.USAGE
    assert "did you mean '--origin'?" in ended.err
    assert "see pgflowd config show --help" in ended.err


def test_wrong_usage_is_json_if_json_was_asked_for(pgflowd: Callable) -> None:
    for args in (["--json", "verison"], ["config", "show", "--orign", "--json"]):
        ended = pgflowd(*args)

        assert ended.code == ExitCode.USAGE
        assert [set(problem) for problem in ended.problems] == [{"code", "place", "text", "next"}]


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "nul\x00", "x" * 500, "%s", "{0}", "'"])
def test_a_hostile_command_name_is_escaped_and_cut(name: str, pgflowd: Callable) -> None:
    ended = pgflowd(name)

    assert ended.code == ExitCode.USAGE
    assert len(ended.err.splitlines()) == 2
    assert len(ended.err) < 200
    assert all(char.isprintable() for char in ended.err.replace("\n", ""))


@pytest.mark.parametrize(
    "args",
    [
        ["--json", "version"],
        ["version", "--json"],
        ["--json", "config", "env"],
        ["config", "--json", "env"],
        ["config", "env", "--json"],
    ],
)
def test_global_flags_work_before_and_after_the_command(args: list[str], pgflowd: Callable) -> None:
    ended = pgflowd(*args)

    assert ended.code == 0
    assert isinstance(ended.json, dict)


def test_the_last_of_two_global_flags_wins(pgflowd: Callable, elsewhere: Path) -> None:
    (elsewhere / "b.toml").write_text('[pgflowd]\nname = "second"')

    ended = pgflowd("-c", "a.toml", "config", "show", "-c", "b.toml", "--json")

    assert ended.json["settings"]["pgflowd"]["name"] == "second"


def test_every_global_flag_has_a_place(pgflowd: Callable) -> None:
    text = pgflowd("--help").out

    for flag in ("-c, --config", "--database-url", "-i, --instance", "--json", "--color",
                 "-q, --quiet", "-v, --verbose", "-h, --help", "--version"):  # fmt: skip
        assert flag in text


def test_version_is_a_flag_everywhere(pgflowd: Callable) -> None:
    assert pgflowd("--version").out == pgflowd("config", "show", "--version").out
    assert pgflowd("--version").out.startswith("pgflowd ")


ERRORS = [
    (ConfigError([Problem("E102", "x")]), 78),
    (FlowError([Problem("E201", "x")]), 78),
    (Unreachable("x"), 69),
    (Unreachable("x", code="E310"), 69),
    (DatabaseError("x", code="E302"), 78),
    (DatabaseError("x", code="E303"), 78),
    (AccessDenied("x"), 77),
    (OutOfReach("x"), 2),
    (NotFound("x"), 4),
    (UnknownFlow("x"), 4),
    (RunEnded("x"), 6),
    (PgflowdError("x", code="E410"), 6),
    (PgflowdError("x", code="E414"), 3),
    (PgflowdError("x", code="E416"), 2),
    (PgflowdError("x", code="E401"), 1),
    (WaitTimeout("x"), 5),
    (Bug("x"), 70),
]


@pytest.mark.parametrize(("error", "code"), ERRORS)
def test_each_error_leads_to_its_exit_code(error: PgflowdError, code: int) -> None:
    assert exit_for(error) == code


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make `pgflowd version` raise this."""

    @click.command(cls=Command)
    def fail() -> None:
        raise error

    entry = Entry("version", "failing", "Fail.")
    monkeypatch.setitem(cli.entries, "version", entry)  # type: ignore[attr-defined]
    module = type(sys)("failing")
    module.version = fail  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pgflowd.cli.failing", module)


def test_an_error_of_ours_is_printed_without_a_traceback(
    pgflowd: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, NotFound("there is no run 7f3a", next="see pgflowd runs list"))

    ended = pgflowd("version")

    assert (ended.code, ended.out) == (4, "")
    assert ended.err == "E409  there is no run 7f3a; see pgflowd runs list\n"


def test_errors_are_a_list_in_json(pgflowd: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ConfigError([Problem("E102", "a", "x:1", "b"), Problem("W110", "c")]))

    ended = pgflowd("version", "--json")

    assert ended.code == 78
    assert ended.problems == [
        {"code": "E102", "place": "x:1", "text": "a", "next": "b"},
        {"code": "W110", "place": None, "text": "c", "next": None},
    ]


def test_problems_stand_in_columns_and_are_counted(
    pgflowd: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = [
        Problem("E102", "[worker] has no key", "pgflowd.toml:7", "did you mean 'x'?"),
        Problem("E201", "step charge", "flows/billing_of_customers.py:31"),
        Problem("W310", "timeout", "database"),
    ]
    failing(monkeypatch, ConfigError(problems))

    assert pgflowd("version").err == (
        "pgflowd.toml:7                    E102  [worker] has no key; did you mean 'x'?\n"
        "flows/billing_of_customers.py:31  E201  step charge\n"
        "database                          W310  timeout\n"
        "2 errors, 1 warning\n"
    )


def test_a_hostile_error_keeps_to_its_line_and_its_secret(
    pgflowd: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "cannot reach postgresql://app:c4n4ry@db1/x\n\x1b[2Jpassword='c4n4ry x'\x00"
    failing(monkeypatch, Unreachable(text, place="a\nb", next="\x07try"))

    for args in (["version"], ["version", "--json"]):
        ended = pgflowd(*args)

        assert "c4n4ry" not in ended.err
        assert not any(char in ended.err for char in "\x1b\x00\x07")
    assert len(pgflowd("version").err.splitlines()) == 1


def test_a_refusal_names_what_is_missing(
    pgflowd: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, CommandRefused("this needs --yes"))

    ended = pgflowd("version")

    assert ended.code == 6
    assert "this needs --yes" in ended.err


@covers("E901")
def test_an_unexpected_exception_is_reported_in_a_file_that_only_its_owner_reads(
    pgflowd: Callable, monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(elsewhere))
    failing(monkeypatch, KeyError("postgresql://app:c4n4ry@db1/x"))

    ended = pgflowd("version", "--database-url", "postgresql://app:c4n4ry@db1/x")

    report = next(elsewhere.glob("pgflowd-report-*"))
    text = report.read_text()
    assert ended.code == ExitCode.BUG
    assert ended.err.startswith("E901  unexpected exception: KeyError")
    assert str(report) in ended.err
    assert "Traceback" not in ended.err
    assert "Traceback" in text
    assert "postgresql://app:***@db1/x" in text
    assert "c4n4ry" not in text + ended.err
    assert report.stat().st_mode & 0o777 == 0o600


def test_an_unexpected_exception_is_json_too(
    pgflowd: Callable, monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(elsewhere))
    failing(monkeypatch, Bug("a worker cannot go from stopped to running", code="E902"))

    ended = pgflowd("version", "--json")

    assert (ended.code, ended.problems[0]["code"]) == (70, "E902")
    assert "pgflowd-report-" in ended.problems[0]["next"]


def test_a_report_that_cannot_be_written_hides_no_error(
    pgflowd: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent")
    failing(monkeypatch, ZeroDivisionError("ouch"))

    ended = pgflowd("version")

    assert ended.code == 70
    assert "ouch" in ended.err
    assert "could not be written" in ended.err


class Unspeakable(Exception):
    """An exception that cannot be formatted."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error", [Unspeakable(), ValueError("x" * 1_000_000), ValueError("\ud800")]
)
def test_an_exception_that_is_hard_to_print_is_reported_like_any_other(
    error: Exception, pgflowd: Callable, monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(elsewhere))
    failing(monkeypatch, error)

    ended = pgflowd("version")

    assert (ended.code, len(ended.err.splitlines())) == (70, 1)
    assert len(ended.err) < 1500
    assert next(elsewhere.glob("pgflowd-report-*")).stat().st_size < 1_000_000


def test_ctrl_c_ends_silently(pgflowd: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyboardInterrupt())

    ended = pgflowd("version")

    assert (ended.code, ended.err) == (130, "")


def test_an_error_that_ctrl_c_caused_is_not_a_bug(
    pgflowd: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in shutil.rmtree, which then closes a descriptor twice."""
    upset = OSError(9, "Bad file descriptor")
    upset.__context__ = KeyboardInterrupt()
    failing(monkeypatch, upset)

    ended = pgflowd("version")

    assert (ended.code, ended.err) == (130, "")


def test_a_real_ctrl_c_gives_130(elsewhere: Path) -> None:
    code = (
        "import click, signal, sys\n"
        "from pgflowd.cli import main\n"
        "main._invoke = lambda *_: (print('up', flush=True), signal.pause())\n"
        "main.main()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()

    child.send_signal(signal.SIGINT)

    _, err = child.communicate(timeout=30)
    assert (child.returncode, err) == (130, b"")


def test_a_closed_pipe_gives_141_and_no_output(elsewhere: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)

    ended = subprocess.run(
        [sys.executable, "-m", "pgflowd.cli.main", "config", "schema"],
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=60,
    )

    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_full_disk_is_not_a_bug(elsewhere: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "pgflowd.cli.main", "version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )

    assert ended.returncode == 1
    assert ended.stderr == "pgflowd: cannot write: No space left on device\n"


def test_a_path_that_cannot_be_used_is_not_a_bug(
    pgflowd: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, PermissionError(errno.EACCES, "Permission denied", "/there"))

    ended = pgflowd("version")

    assert ended.code == 77
    assert ended.err == "pgflowd: /there cannot be used: Permission denied\n"


def test_a_current_directory_that_was_removed_is_reported(
    pgflowd: Callable, elsewhere: Path
) -> None:
    (elsewhere / "gone").mkdir()
    os.chdir(elsewhere / "gone")
    (elsewhere / "gone").rmdir()

    ended = pgflowd("config", "show")

    assert ended.code == 1
    assert ended.err == "pgflowd: the current directory was removed; change to another one\n"


def test_closed_streams_are_not_a_bug(elsewhere: Path) -> None:
    command = f"{sys.executable} -m pgflowd.cli.main version >&- 2>&-"

    assert subprocess.run(["sh", "-c", command], timeout=60).returncode == 0


def test_a_failing_completion_leaves_the_prompt_alone(process: Callable) -> None:
    ended = process(_PGFLOWD_COMPLETE="bash_complete", COMP_WORDS="pgflowd 'x", COMP_CWORD="nan")

    assert (ended.code, ended.out, ended.err) == (1, "", "")


def test_a_locale_without_utf_8_shows_escapes_instead_of_failing(process: Callable) -> None:
    ended = process("ünknown", PYTHONIOENCODING="ascii", PYTHONUTF8="0")

    assert ended.code == 2
    assert "\\xfcnknown" in ended.err


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_problems_fit_a_narrow_terminal(columns: int, elsewhere: Path) -> None:
    (elsewhere / "pgflowd.toml").write_text("[worker]\nmax_concurency = 5\nkill_grace = 2\n")

    shown = on_a_terminal("config", "show", "--color", "never", columns=columns)

    assert "max_concurrency" in shown
    assert max(len(line) for line in shown.splitlines()) <= columns


def test_the_id_of_a_run_is_whole_on_a_narrow_terminal() -> None:
    run_id = "01a1f177-a7a0-742c-a286-9e0c1e315f98"
    narrow = Screen(colour=False, unicode=True, width=40)

    lines = problem_columns(App(), [Problem("E411", f"run {run_id} was cancelled")], narrow)

    assert lines == ["E411", "  run", f"  {run_id}", "  was cancelled"]


@pytest.mark.parametrize("columns", [40, 80])
def test_help_and_tables_fit_a_narrow_terminal(columns: int, elsewhere: Path) -> None:
    helped = on_a_terminal("--help", columns=columns)
    table = on_a_terminal("config", "env", "--color", "never", columns=columns + 20)

    assert max(map(len, helped.splitlines())) <= columns
    assert max(map(len, table.splitlines())) <= columns + 20


def test_colour_is_for_terminals_unless_a_setting_forbids_it(elsewhere: Path) -> None:
    assert "\x1b[" in on_a_terminal("config", "env", columns=120)
    assert "\x1b[" not in on_a_terminal("config", "env", columns=120, NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal("config", "env", columns=120, TERM="dumb")
    assert "\x1b[" not in on_a_terminal("config", "env", "--color", "never", columns=120)


def test_colour_may_be_forced_into_a_pipe(pgflowd: Callable) -> None:
    assert "\x1b[" in pgflowd("config", "env", "--color", "always").out
    assert "\x1b[" not in pgflowd("config", "env").out


def confirming(question: str, yes: bool, json_: bool = False) -> None:
    app = App()
    app.json = json_
    app.confirm(question, yes=yes)


def test_deleting_without_a_terminal_needs_yes() -> None:
    confirming("Delete flow x?", yes=True)
    with pytest.raises(CommandRefused, match="--yes"):
        confirming("Delete flow x?", yes=False)
    with pytest.raises(CommandRefused, match="--yes"):
        confirming("Delete flow x?", yes=False, json_=True)


def test_main_ends_the_process_with_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pgflowd", "qqq"])

    with pytest.raises(SystemExit) as caught:
        main.main()

    assert caught.value.code == 2


def test_json_writes_times_in_utc_and_durations_in_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from datetime import datetime, timedelta, timezone
    from uuid import UUID

    from pgflowd.core.documents import SCHEMA_VERSION

    when = datetime(2026, 1, 15, 7, 29, tzinfo=timezone(timedelta(hours=2)))
    app = App()

    app.print_json_line({"at": when, "took": timedelta(milliseconds=1500), "id": UUID(int=1)})

    assert json.loads(capsys.readouterr().out) == {
        "schema_version": SCHEMA_VERSION,
        "at": "2026-01-15T05:29:00Z",
        "took": 1.5,
        "id": "00000000-0000-0000-0000-000000000001",
    }


def test_no_exception_leaves_run(pgflowd: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, click.Abort())

    assert run(["version"]) == 130


@pytest.mark.parametrize("words", ALL)
def test_the_help_lists_options_and_no_argument_among_them(words: str, pgflowd: Callable) -> None:
    ended = pgflowd(*words.split()[1:], "-h")

    listed = re.split(r"\n(?:Everywhere|Commands)", ended.out.partition("\nOptions")[2])[0]
    heads = re.findall(r"^  (\S+)", listed, re.MULTILINE)
    assert heads
    assert all(head.startswith("-") for head in heads)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["runs", "list", "--limit", "0"], "'0' is not a whole number from 1 to 10000"),
        (["runs", "list", "--limit", "few"], "'few' is not a whole number from 1 to 10000"),
        (["dev", "--port", "80"], "'80' is not a whole number from 1024 to 65535"),
        (["db", "migrate", "--to", "x"], "'x' is not a whole number of 1 or more"),
    ],
)
def test_a_number_out_of_its_limits_is_refused_with_them(
    pgflowd: Callable, args: list[str], said: str
) -> None:
    ended = pgflowd(*args)

    assert ended.code == 2
    assert said in ended.err
