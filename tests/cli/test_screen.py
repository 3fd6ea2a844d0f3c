"""Tables, signs and colours on terminals that are wide, narrow, plain or absent."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgflowd.cli.app import App
from pgflowd.cli.terminal.screen import CUT, DASH, NEXT, Screen, TableCell, screen_for, text_width
from pgflowd.core.statuses import Mark

WIDE = Screen(colour=False, unicode=True, width=None)
TITLES = ("FLOW", "RUNNING", "P50", "RESTARTS", "OLDEST")
ROWS = [("analyze_website", "2", "2.1s", "1", "·"), ("x", "10", "84ms", "0", "1.2s")]
LOSING = ("P50", "RESTARTS", "OLDEST")


class Stream(io.StringIO):
    """A stream that may be a terminal, of some encoding."""

    encoding = "utf-8"

    def __init__(self, encoding: str, terminal: bool) -> None:
        super().__init__()
        self.encoding = encoding  # type: ignore[misc]
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def test_a_table_has_its_columns_aligned() -> None:
    assert WIDE.table(TITLES, ROWS, right=("RUNNING", "RESTARTS")).splitlines() == [
        "FLOW             RUNNING  P50   RESTARTS  OLDEST",
        "analyze_website        2  2.1s         1  ·",
        "x                     10  84ms         0  1.2s",
    ]


@pytest.mark.parametrize(
    ("width", "lost"), [(80, set()), (44, {"P50"}), (34, {"P50", "RESTARTS"}), (24, set(LOSING))]
)
def test_a_narrow_terminal_loses_columns_in_their_order(width: int, lost: set[str]) -> None:
    screen = Screen(colour=False, unicode=True, width=width)

    lines = screen.table(TITLES, ROWS, losing=LOSING).splitlines()

    assert set(TITLES) - set(lines[0].split()) == lost
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(
    ("unicode", "width", "last"),
    [(True, 30, "日本 and many wo…"), (False, 30, "日本 and many ..."), (True, 19, "")],
)
def test_the_last_column_is_cut_before_any_is_lost(unicode: bool, width: int, last: str) -> None:
    screen = Screen(colour=False, unicode=unicode, width=width)

    table = screen.table(
        ("SLUG", "ERROR"), [("a_flow_slug", "日本 and many words")], losing=["ERROR"], cutting=True
    )

    assert table.splitlines()[1] == f"a_flow_slug  {last}".rstrip()


def test_what_is_lost_makes_room_for_the_last_column() -> None:
    titles, row = ("RUN", "FLOW", "ERROR"), ("7f3a9c12", "analyze_website", "no such host")
    screen = Screen(colour=False, unicode=True, width=26)

    table = screen.table(titles, [[*row[:2], row[2] * 3]], losing=titles[1:], cutting=True)

    assert table.splitlines()[0] == "RUN       ERROR"
    assert table.splitlines()[1].startswith("7f3a9c12  no such host")


def test_a_table_without_rows_has_its_titles() -> None:
    assert WIDE.table(("A", "B"), []) == "A  B"


def test_wide_and_combining_characters_take_their_columns() -> None:
    assert text_width("日本") == 4
    assert text_width("e\u0301") == 1
    assert WIDE.table(("A", "B"), [("日本", "x"), ("ab", "y")]).splitlines()[1:] == [
        "日本  x",
        "ab    y",
    ]


def test_a_coloured_cell_is_as_wide_as_its_text() -> None:
    screen = Screen(colour=True, unicode=True, width=None)

    line = screen.table(("A", "B"), [(TableCell("up", "green"), "x")]).splitlines()[1]

    assert line == "\x1b[32mup\x1b[0m  x"


@given(st.lists(st.tuples(st.text(st.characters()), st.text(st.characters())), max_size=5))
def test_any_text_in_a_table_keeps_to_its_row(rows: list[tuple[str, str]]) -> None:
    table = WIDE.table(("A", "B"), rows)

    assert len(f"{table}.".splitlines()) == len(rows) + 1
    assert "\x1b" not in table
    table.encode()


@given(st.text("ab ö語", max_size=200), st.integers(24, 60), st.integers(0, 4))
def test_wrapped_text_keeps_to_its_width_and_loses_no_character(
    text: str, width: int, indent: int
) -> None:
    screen = Screen(colour=True, unicode=True, width=width)
    head = screen.paint("head", "red") + " "

    lines = screen.wrapped(text, head=head, indent=indent)

    assert all(screen.fits(line) for line in lines)
    assert "".join("".join(lines).split()) == "".join(f"{head}{text}".split())
    assert all(line.startswith(" " * indent) for line in lines[1:])


def test_a_head_that_fits_into_the_indent_stays_beside_its_text() -> None:
    screen = Screen(colour=False, unicode=True, width=30)

    beside = screen.wrapped("one two three four five six", head="a   ", indent=4)
    below = screen.wrapped("one two three four five six", head="a long head ", indent=4)
    path = screen.wrapped(f"see /{'x' * 40}", indent=2, whole=True)

    assert beside == ["a   one two three four five", "    six"]
    assert below == ["a long head", "    one two three four five", "    six"]
    assert path == ["  see", f"  /{'x' * 40}"]


@pytest.mark.parametrize("mark", [CUT, DASH, NEXT])
def test_every_sign_has_an_ascii_form(mark: Mark) -> None:
    plain = Screen(colour=False, unicode=False, width=None)

    assert plain.sign(mark).isascii()
    assert plain.sign(mark) != WIDE.sign(mark)


@pytest.mark.parametrize(
    ("encoding", "locale", "unicode"),
    [
        ("utf-8", "de_DE.UTF-8", True),
        ("UTF8", "", True),
        ("utf-8", "C", False),
        ("utf-8", "POSIX", False),
        ("utf-8", "C.UTF-8", True),
        ("ascii", "C.UTF-8", False),
        ("iso-8859-1", "de_DE", False),
    ],
)
def test_signs_depend_on_encoding_and_locale(
    encoding: str, locale: str, unicode: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LC_ALL", locale)

    assert screen_for(Stream(encoding, True), "auto").unicode is unicode


@pytest.mark.parametrize(
    ("color", "terminal", "no_color", "coloured"),
    [
        ("auto", True, "", True),
        ("auto", True, "1", False),
        ("auto", False, "", False),
        ("always", False, "1", True),
        ("never", True, "", False),
    ],
)
def test_colour_follows_the_flag_then_the_environment_then_the_terminal(
    color: str, terminal: bool, no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", no_color)

    assert screen_for(Stream("utf-8", terminal), color).colour is coloured


@pytest.mark.parametrize(
    ("term", "terminal", "redraws"),
    [("xterm", True, True), ("dumb", True, False), ("xterm", False, False)],
)
def test_a_stream_that_cannot_move_its_cursor_is_not_redrawn(
    term: str, terminal: bool, redraws: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("NO_COLOR", raising=False)

    screen = screen_for(Stream("utf-8", terminal), "auto")

    assert screen.redraws is redraws
    assert screen.colour is redraws


def test_only_a_terminal_has_a_width() -> None:
    assert screen_for(Stream("utf-8", False), "auto").width is None
    assert screen_for(Stream("utf-8", True), "auto").width


def test_commands_to_copy_are_never_broken():
    listed = [
        ("pgflowd -c .pgflowd/demo/pgflowd.toml runs list", "look around"),
        ("pgflowd dev", ""),
    ]

    assert Screen(False, True, None).commands("next", listed) == [
        "  next   pgflowd -c .pgflowd/demo/pgflowd.toml runs list   look around",
        "         pgflowd dev",
    ]
    assert Screen(False, True, 40).commands("next", listed) == [
        "  next",
        "    # look around",
        "    pgflowd -c .pgflowd/demo/pgflowd.toml runs list",
        "    pgflowd dev",
    ]


def test_files_below_the_current_directory_are_named_as_seen_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = f"it was at {tmp_path}/flows/a.py:3, not {tmp_path}b/c.py"

    assert App().shorten_paths(text) == f"it was at flows/a.py:3, not {tmp_path}b/c.py"
    assert App().shorten_paths(f"/other{tmp_path}/b.py") == f"/other{tmp_path}/b.py"
    monkeypatch.chdir("/")
    assert App().shorten_paths(text) == text


def test_a_command_called_by_its_path_hints_how_the_shell_finds_it(tmp_path, monkeypatch):
    listed = [("pgflowd demo", "keep it serving")]
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.prefix", str(tmp_path / ".venv"))

    monkeypatch.setenv("PATH", str(tmp_path))
    assert App().with_activation(listed) == [
        (". .venv/bin/activate", "so that pgflowd is found"),
        *listed,
    ]
    (tmp_path / "pgflowd").write_text("#!/bin/sh")
    (tmp_path / "pgflowd").chmod(0o755)
    assert App().with_activation(listed) == listed
