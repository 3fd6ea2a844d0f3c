"""`pgflowd top` on a real terminal: its keys, its sizes, what it loses, and how it leaves."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.daemon import DaemonSetup
from support.live_terminal import (
    BACKSPACE,
    CTRL_C,
    CTRL_Z,
    DOWN,
    ENTER,
    ESCAPE,
    UP,
    LiveTerminal,
)

from pgflowd.cli.app import App
from pgflowd.cli.top.live import Top
from pgflowd.cli.top.source import TopSource
from pgflowd.core.text import short_id
from pgflowd.testing.until import until

TOP = [sys.executable, "-m", "pgflowd.cli.main", "top"]
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b3J\r\n\u202egrün 漢字"
LEAVE = b"\x1b[?1049l"
CRASH = """
from pgflowd.cli.top import lines
drawn, heads = lines.head_line, []
def head_line(*arguments):
    heads.append(1)
    return drawn(*arguments) if len(heads) < 3 else 1 / 0
lines.head_line = head_line
from pgflowd.cli.main import main
main()
"""

Open = Callable[..., LiveTerminal]


@pytest.fixture
def opened(shop: Any, elsewhere: Any) -> Iterator[Open]:
    """Start a program on a terminal, on the database of the shop and without a daemon."""
    terminals: list[LiveTerminal] = []

    def opens(words: list[str] = TOP, columns: int = 120, lines: int = 30, **env: str) -> Any:
        environ = {"PGFLOWD__DATABASE__URL": shop.database.dsn,
                   "PGFLOWD__SUPERVISOR__CONTROL": str(elsewhere / "control"), **env}  # fmt: skip
        terminals.append(LiveTerminal(words, columns, lines, **environ))
        return terminals[-1]

    yield opens
    for terminal in terminals:
        terminal.close()


def fail(shop: Any, error: str) -> str:
    run_id = shop.start()
    key = shop.claim_all()["website#0"]
    shop.conn.execute("select pgflowd.fail(%s, %s, %s, %s, %s, retry => false)", (*key, error))
    return short_id(run_id)


def leave(top: LiveTerminal, *texts: str) -> None:
    press(top, ESCAPE, *texts)


def press(top: LiveTerminal, key: str, *texts: str) -> None:
    """Type a key, and wait for what it shows; the next one may be for something else on it."""
    top.type(key)
    top.sees(*texts)


def seek(top: LiveTerminal, text: str) -> None:
    press(top, "/", "Enter keeps the filter")
    top.type(text)


def click(top: LiveTerminal, text: str) -> None:
    """Press and release the left button on a text, as xterm sends it."""
    at, line = next((at, line) for at, line in enumerate(top.lines) if text in line)
    place = f"{line.index(text) + 2};{at + 1}"
    top.type(f"\x1b[<0;{place}M\x1b[<0;{place}m")


def status_of(shop: Any, word: str) -> str:
    query = "select status from pgflow.runs where right(run_id::text, 8) = %s"
    return str(shop.value(query, word))


def test_every_key_and_every_size(shop, opened):
    """One process: it is walked through, resized, suspended by Ctrl-Z, and quits."""
    done, failed = short_id(shop.run_through()), fail(shop, HOSTILE)
    waits = shop.start("send_email")
    top = opened(["bash", "--noprofile", "--norc", "-i"])
    top.type(f"{shlex.join(TOP)}\r")

    # the flows, of a database without a daemon
    top.sees("no daemon here", "analyze_website", " send_email", " store_items", "1 queued")
    top.sees(">analyze_website")
    top.type("jk" + DOWN)
    top.sees(">send_email")
    top.type(UP + "G")
    top.sees(">store_items")
    seek(top, "EMAIL")
    top.sees("EMAIL", "send_email")
    top.sees_no("store_items")
    top.type(ENTER)
    top.sees("/EMAIL   Escape shows all")
    top.type(ESCAPE)
    top.sees("sort: name", " store_items")
    top.sees(">send_email")
    top.type("s")
    until(lambda: top.sees("sort: queue").index("send_email") < top.text.index("analyze_website"))

    # pausing asks first
    top.type("p")
    top.sees("pause flow send_email? y/n")
    top.type("n")
    top.sees("nothing was changed")
    press(top, "p", "pause flow send_email? y/n")
    press(top, "y", "flow send_email paused", "‖ paused")
    press(top, "p", "resume flow send_email? y/n")
    press(top, "y", "flow send_email resumed", "no worker")
    top.type("c")
    top.sees("choose a run first")
    top.type("?")
    top.sees("only flows with this in their name", "Ctrl-Z", "others go back")
    press(top, "xy", "sort: queue")

    # its runs, and one of them
    top.type(ENTER)
    top.sees("runs of send_email", short_id(waits), "▶ started")
    press(top, "c", "cancel run")
    press(top, "y", f"run {short_id(waits)} cancelled", "⊘ cancelled")
    press(top, "r", "retry run")
    press(top, "y", "E411", "was cancelled; `pgflowd runs retry", "--even-if-cancelled")
    assert status_of(shop, short_id(waits)) == "failed"  # as other runtimes see it
    leave(top, "sort: queue")
    top.type("gss")
    seek(top, "analyze")
    press(top, ENTER, "/analyze   Escape shows all")
    press(top, ENTER, "runs of analyze_website", done, failed, r"\x1b[2J", r"\x9b3J")
    seek(top, "failed")
    press(top, ENTER, "/failed   Escape shows all", f">{failed}")
    top.sees_no(done)
    top.type(ENTER)
    top.sees("run of analyze_website", "website", "✖ failed", "save_to_db", r"\x1b]0;owned")
    top.type("f")
    top.sees("events of analyze_website", f"run {failed}", "started", "attempt 1")
    press(top, "r", "retry run")
    press(top, "y", f"run {failed} retried")
    assert status_of(shop, failed) == "started"
    top.type(BACKSPACE)
    top.sees("run of analyze_website")
    leave(top, "no run of it fits")  # its status is another one now
    leave(top, done, failed)

    # sizes
    leave(top, "/analyze   Escape shows all")
    leave(top, ">analyze_website", " store_items")
    for columns, titles in (
        (40, ["FLOW"]),
        (80, ["QUEUED"]),
        (120, ["LAST HOUR"]),
        (300, ["WORKER"]),
    ):
        top.resize(columns, 12)
        lines = top.sees(*titles, "analyze_website", "q quit").splitlines()
        assert len(lines) == 12 and max(map(len, lines)) <= columns
        assert lines[0].startswith(" pgflowd") and lines[-1].endswith("q quit")
        top.type(ENTER)
        top.sees("RUN ", done)
        leave(top, "FLOW ", " store_items")
    top.resize(10, 3)  # too small for anything, and no crash
    until(lambda: "pgf" in top.text)
    top.resize(120, 30)
    top.sees("LAST HOUR", "q quit")

    # without updates nothing changes
    top.type(" ")
    top.sees("stopped", "Space go on")
    shop.start("store_items", [])
    top.type(" ")
    top.sees("Space stop updates")
    top.sees_no("stopped  ")

    # to the shell and back
    top.type(CTRL_Z)
    top.sees("Stopped")
    assert LEAVE in top.sent
    left = top.sent.count(LEAVE)
    top.resize(100, 20)
    top.type("fg\r")
    top.sees(">analyze_website", "q quit")
    top.sees(">analyze_website")
    top.type("j")
    top.sees(">send_email")
    top.type("q")
    until(lambda: top.lines and top.sent.count(LEAVE) == left + 1, within_s=15)
    top.type("echo it ende''d $?\r")
    top.sees("it ended 0")


def test_a_mouse_opens_a_flow_and_its_run_and_presses_the_keys_of_the_last_line(shop, opened):
    done = short_id(shop.run_through())
    top = opened(columns=80)
    top.sees(">analyze_website", "q quit")
    click(top, "analyze_website")
    top.sees("runs of analyze_website", done)
    click(top, done)
    top.sees("run of analyze_website", "save_to_db")
    click(top, "f follow")
    top.sees("events of analyze_website", "completed in")
    click(top, "Esc back")
    top.sees("run of analyze_website")
    click(top, "p pause flow")
    top.sees("pause flow analyze_website? y/n", "y yes")
    click(top, "n no")
    top.sees("nothing was changed")
    click(top, "q quit")

    assert top.ended() == 0
    assert top.settings == top.settings_before


def test_a_lost_database_is_shown_until_it_is_back_on_a_terminal_without_unicode(
    shop, opened, proxy
):
    word = fail(shop, HOSTILE)
    top = opened(columns=80, PGFLOWD__DATABASE__URL=proxy.dsn, LC_ALL="C")
    top.sees(">analyze_website")
    proxy.do("refuse")
    top.sees("! numbers", "E301", "numbers are ", " old: ", ">analyze_website")
    top.type("j")
    top.sees(">send_email")
    proxy.do("pass")
    top.sees_no("E301")
    top.type("k" + ENTER)
    top.sees(word, "x failed", r"\x1b[2J")
    top.type(ENTER)
    top.sees("website", r"\x1b]0;owned")

    top.process.send_signal(signal.SIGTERM)

    assert top.ended() == -signal.SIGTERM
    assert top.sent.isascii()
    assert b"\x1b]0;" not in top.sent
    assert LEAVE in top.sent
    assert top.settings == top.settings_before


def test_a_frozen_database_holds_no_key_for_long(shop, opened, proxy):
    top = opened(PGFLOWD__DATABASE__URL=proxy.dsn)
    top.sees(">analyze_website")
    proxy.do("hold")
    top.sees("numbers are", "old: E301")

    top.type(CTRL_C)

    assert top.ended() == 130
    assert top.sent.rfind(LEAVE) > top.sent.rfind(b"numbers are")
    assert top.settings == top.settings_before


def test_a_crash_is_reported_on_the_terminal_as_it_was(opened, elsewhere):
    top = opened([sys.executable, "-c", CRASH, "top"], STATE_DIRECTORY=str(elsewhere))

    assert top.ended() == 70
    shown, left, after = top.sent.rpartition(LEAVE)
    assert left and b"E901" not in shown
    assert b"E901" in after and b"ZeroDivisionError" in after
    assert top.settings == top.settings_before


def test_a_daemon_that_ends_leaves_what_the_database_has(database, elsewhere, opened):
    setup = DaemonSetup(elsewhere, database.dsn)
    setup.flow("alpha")
    try:
        daemon = setup.serve()
        top = opened([*TOP, "-c", str(setup.config())], PGFLOWD__DATABASE__URL=database.dsn,
                     PGFLOWD__SUPERVISOR__CONTROL=str(setup.control()))  # fmt: skip
        top.sees(" pgflowd t ", "● healthy", ">alpha", "P95", "░")
        daemon.send(signal.SIGTERM)
        top.sees("no daemon here", "numbers are the database's: no daemon is running", ">alpha")
        os.kill(top.process.pid, signal.SIGHUP)
        assert top.ended() == -signal.SIGHUP
        assert top.settings == top.settings_before
    finally:
        setup.close()


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_each_view_fits_each_width(columns, shop, elsewhere, monkeypatch):
    monkeypatch.setenv("PGFLOWD__DATABASE__URL", shop.database.dsn)
    monkeypatch.setenv("PGFLOWD__SUPERVISOR__CONTROL", str(elsewhere / "control"))
    done = short_id(shop.run_through())

    async def walk() -> None:
        live = Top(App(), TopSource(App()))
        async with live.run_test(size=(columns, 12)) as pilot:

            async def sees(*texts: str) -> list[str]:
                """Wait until all these are on the screen; return its lines."""
                lines: list[str] = []
                deadline = time.monotonic() + 60
                while not all(text in "\n".join(lines) for text in texts):
                    assert time.monotonic() < deadline, (texts, lines)
                    await pilot.pause(0.05)
                    lines = [strip.text for strip in live.screen._compositor.render_strips()]
                assert len(lines) == 12 and all(map(columns.__eq__, map(len, lines)))
                return lines

            lines = await sees("no daemon here", ">analyze_website", " store_items", "q quit")
            words = ["Enter open", "/ filter", "s sort: name", "p pause flow", "Space stop updates"]
            shown = [word for word in words if word in lines[-1]]
            assert shown == words[: {40: 2, 80: 4}.get(columns, 5)]
            await pilot.press("G")
            await sees(">store_items")
            await pilot.press("g", "enter")
            await sees(f">{done}", "RUN ")
            await pilot.press("enter")
            await sees("save_to_db")
            await pilot.press("f")
            await sees("started", "completed in")
            await pilot.press("question_mark")
            await sees("arrows", "others go back")
            await pilot.press("x", "escape")
            await sees("save_to_db")
            await pilot.press("escape")
            await sees(f">{done}")
            await pilot.resize_terminal(columns, 12)
            await pilot.press("p")
            await sees("pause flow analyze_website? y/n", "n no")
            await pilot.press("n")
            await sees("nothing was changed")
            await pilot.press("q")
        assert live.crash is None

    asyncio.run(walk())


def test_without_textual_it_says_what_to_install(shop, opened, elsewhere):
    (elsewhere / "sitecustomize.py").write_text("import sys; sys.modules['textual'] = None\n")
    top = opened(PYTHONPATH=str(elsewhere))

    assert top.ended() == 78
    assert "E503  top needs more packages; pip install 'pgflowd[top]'" in top.text


def test_without_a_terminal_it_names_what_prints(pgflowd, project):
    for_people, for_programs = pgflowd("top"), pgflowd("top", "--json")

    assert (for_people.code, for_people.out) == (1, "")
    assert "top needs a terminal; `pgflowd status --watch`" in for_people.err
    assert for_programs.code == 2
    assert "`pgflowd status --watch --json`" in for_programs.problems[0]["text"]
