"""
Shows `pgflowd top` on a terminal, with Textual.

Each view is a Textual screen: flows, the runs of one, a run, its events. A thread reads what the
uppermost view shows, again and again. A line at the bottom has the keys, which may be clicked.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App as TextualApp
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Key
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from pgflowd.cli.app import App
from pgflowd.cli.terminal import screen as screens
from pgflowd.cli.top import lines
from pgflowd.cli.top.lines import SORTS, PrintedPage
from pgflowd.cli.top.source import TopSource, TopSubject, TopView
from pgflowd.core import verbs
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.redact import one_line, safe_lines
from pgflowd.core.text import short_id
from pgflowd.core.verbs import Target

EVERY_S = 2.0  # between two reads; longer where they take long
SHARE = 5  # at most a fifth of the time is spent reading
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
SCROLLING = ("up", "down", "pageup", "pagedown", "home", "end", *"jkgG")  # keys of the help
_MOVES = "choose a row, or move a text; also the keys for pages, Home and End, g and G"
_OPENS = "the runs of the flow; the run as `pgflowd runs show` has it; a click does it, too"
_FILTERS = "only flows with this in their name; of runs a status, or what is in error, label or id"
_HIDDEN = {  # keys that do nothing in a view, or say that a run is to be chosen first
    TopView.FLOWS: ("back", "follow", "cancel", "retry"),
    TopView.RUN: ("filter", "sort"),
    TopView.EVENTS: ("filter", "sort", "follow", "pause"),
}


def _key(key: str, action: str, label: str, means: str, word: str = "") -> Binding:
    """What a key does: in the help, and in a word of the last line."""
    return Binding(key, action, word, True, label, key.startswith("ctrl"), means)


class Top(TextualApp[ExitCode]):
    """One `top`: what it reads, and its views."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    * { background: ansi_default; color: ansi_default; scrollbar-size: 0 0; text-wrap: nowrap;
        text-overflow: ellipsis; link-style: none; link-style-hover: reverse;
        link-color: ansi_default; link-background: ansi_default;
        link-color-hover: ansi_default; link-background-hover: ansi_default; }
    #rows, #text { height: 1fr; border: none; padding: 0; }
    #rows > .option-list--option { padding: 0; }
    #rows > .option-list--option-highlighted { text-style: bold; background: ansi_default;
                                               color: ansi_default; }
    #rows > .option-list--option-hover { background: ansi_default; }
    #head, #titles, #keys { height: 1; }
    #keys { text-style: bold; }
    #filter { height: 1; border: none; padding: 0 1; display: none; }
    Question { align: left bottom; background: transparent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        _key("space", "stop", "Space", "stop updates, and go on", "stop updates"),
        _key("ctrl+z", "suspend_process", "Ctrl-Z", "back to the shell; `fg` comes back here"),
        _key("ctrl+c", "interrupt", "Ctrl-C", "quit"),
        _key("question_mark", "help", "?", "this help", "help"),
        _key("q", "quit", "q", "quit", "quit"),
    ]

    def __init__(self, app: App, source: TopSource) -> None:
        super().__init__(ansi_color=True)
        self.source, self.secrets = source, app.secrets
        self._out = app.out  # of the terminal; Textual catches what is printed
        self.is_stopped = False
        self.ended_by: signal.Signals | None = None
        self.crash: Exception | None = None
        self._wake = asyncio.Event()

    def lines_screen(self, margin: int = 0) -> screens.Screen:
        """What this terminal can show, and how wide it is."""
        return replace(self._out, width=max(self.size.width - margin, 1))

    def get_default_screen(self) -> Screen[None]:
        return ListView(TopSubject())

    def on_mount(self) -> None:
        if not self.is_headless:
            for number in ENDING:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
                    asyncio.get_running_loop().add_signal_handler(number, self._end, number)
        self.set_interval(1.0, self._tick)
        self.run_worker(self._read_forever())

    def painted(self, text: str) -> Text:
        """Lines in which nothing controls the terminal but colours."""
        text = safe_lines(text, is_painted=True)
        if not self._out.unicode:
            text = text.encode("ascii", "backslashreplace").decode()
        return Text.from_ansi(text)

    def reread(self) -> None:
        """Something else is shown now: read it, and do not wait."""
        self.redraw()
        self._wake.set()

    def redraw(self) -> None:
        """Show what is known now."""
        for each in self.screen_stack:
            if isinstance(each, TopScreen) and each.is_mounted:
                each.draw()

    async def do(self, verb: verbs.Verb[Any], target: str) -> None:
        """Ask, and after a yes do it."""
        name = f"flow {target}" if verb.target is Target.FLOW else f"run {short_id(target)}"
        note = "nothing was changed"
        if await self.push_screen_wait(Question(f" {verb.name} {one_line(name)}? y/n")):
            note = await asyncio.to_thread(self.source.act, verb, target)
        self.view.note = note
        self.reread()

    def action_stop(self) -> None:
        self.is_stopped = not self.is_stopped
        self.reread()

    def action_help(self) -> None:
        self.push_screen(Help())

    def action_interrupt(self) -> None:
        self._leave(ExitCode.INTERRUPTED)

    async def action_quit(self) -> None:
        self._leave(ExitCode.OK)

    async def _read_forever(self) -> None:
        pause_s = 0.0
        while True:
            self._wake.clear()
            if not self.is_stopped:
                began = time.monotonic()
                await asyncio.to_thread(self.source.read, self.view.subject)
                self.redraw()
                pause_s = max(EVERY_S, (time.monotonic() - began) * SHARE)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), None if self.is_stopped else pause_s)

    @property
    def view(self) -> TopScreen:
        """The uppermost one."""
        return next(each for each in reversed(self.screen_stack) if isinstance(each, TopScreen))

    def _tick(self) -> None:
        if not self.is_headless:
            try:
                os.tcgetpgrp(sys.__stdin__.fileno())  # type: ignore[union-attr]
            except OSError:  # the terminal is gone, and nohup holds its signal back
                self._leave(ExitCode.OK)
        if not self.is_stopped:
            self.redraw()

    def _end(self, number: signal.Signals) -> None:
        self.ended_by = number
        self._leave(ExitCode.INTERRUPTED)

    def _leave(self, code: ExitCode) -> None:
        self.source.close()
        self.exit(code)

    def _handle_exception(self, error: Exception) -> None:
        """Leave, for the command to report it; Textual would print all local variables."""
        self.crash = self.crash or error
        self._leave(ExitCode.BUG)


class TopScreen(Screen[None]):
    """A head, what was read, problems, and the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("escape", "back", "Esc", "back; Backspace, too", "back"),
        ("backspace", "back"),
        _key("slash", "filter", "/", _FILTERS, "filter"),
        _key("s", "sort", "s", "sort by another column", "sort"),
        _key("f", "follow", "f", "follow the run: what happens in it, the newest below", "follow"),
        _key("c", "cancel", "c", "cancel the run", "cancel"),
        _key("r", "retry", "r", "retry the failed steps of the run", "retry"),
        _key("p", "pause", "p", "pause the flow, or let it go on", "pause flow"),
    ]
    app: Top

    def __init__(self, subject: TopSubject) -> None:
        super().__init__()
        self.subject = subject
        self.note = ""
        self.sorts = SORTS.get(subject.kind, ("",))  # the first one applies
        self._shown: dict[str, str] = {}

    @property
    def chosen(self) -> tuple[str, str]:
        """The flow and the run that are chosen; empty where none is."""
        return self.subject.flow, self.subject.run

    def draw(self) -> None:
        """Show what was read."""
        app, seen = self.app, self.app.source.seen
        screen, wall = app.lines_screen(), datetime.now().astimezone()
        head = lines.head_line(self.subject, seen, screen, wall, app.is_stopped)
        self._show("head", head)
        below = lines.trouble_lines(self.subject, seen, screen, time.monotonic())
        below = below[: max(self.size.height // 3, 1)]
        if self.note:
            below += screen.wrapped(one_line(self.note), head=" ", indent=1)[:3]
        elif isinstance(self.focused, Input):
            below.append(" Enter keeps the filter, Escape shows all")
        elif self.subject.filter:
            below.append(f" /{one_line(self.subject.filter)}   Escape shows all")
        self.query_one("#below").display = bool(below)
        self._show("below", "\n".join(below))
        hidden, words = _HIDDEN.get(self.subject.kind, ()), {"sort": f"sort: {self.sorts[0]}"}
        if self.app.is_stopped:
            words["stop"] = "go on"
        keys = [
            (key, each.key_display or "", words.get(each.action, each.description))
            for key, (_, each, *_) in self.active_bindings.items()
            if each.show and each.description and each.action not in hidden
        ]
        while len(keys) > 2 and _clickable(keys).cell_length > self.size.width:
            del keys[-3]  # but for how to get help, and to leave
        self.query_one("#keys", Static).update(_clickable(keys), layout=False)

    def on_screen_resume(self) -> None:
        self.app.reread()

    def on_resize(self) -> None:
        self.draw()

    def on_key(self, event: Key) -> None:
        self.note = ""

    def action_back(self) -> None:
        if self.app.screen is self and len(self.app.screen_stack) > 1:
            self.app.pop_screen()

    def action_pause(self) -> None:
        flow = self.chosen[0]
        is_paused = lines.is_paused(flow, self.app.source.seen)
        self._do(verbs.RESUME_FLOW if is_paused else verbs.PAUSE_FLOW, flow)

    def action_cancel(self) -> None:
        self._do(verbs.CANCEL, self._run())

    def action_retry(self) -> None:
        self._do(verbs.RETRY, self._run())

    def action_follow(self) -> None:
        if self.subject.kind is not TopView.EVENTS and (run := self._run()):
            self.app.push_screen(TextView(TopSubject(TopView.EVENTS, self.subject.flow, run)))

    def _do(self, verb: verbs.Verb[Any], target: str) -> None:
        if target:
            self.app.run_worker(self.app.do(verb, target))

    def _show(self, id: str, text: str) -> None:
        """Show lines, unless they are shown: only what differs is sent to the terminal."""
        if self._shown.get(id) != text:
            before, self._shown[id] = self._shown.get(id, ""), text
            has_moved = before.count("\n") != text.count("\n")
            shown = self.app.painted(text)
            self.query_one(f"#{id}", Static).update(shown, layout=has_moved)

    def _run(self) -> str:
        run = self.chosen[1]
        if not run:
            self.note = "choose a run first: Enter shows those of a flow"
            self.draw()
        return run


class TextScroll(VerticalScroll):
    """A text that may be longer than the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("j", "scroll_down"),
        ("k", "scroll_up"),
        ("g", "scroll_home"),
        ("G", "scroll_end"),
    ]


class RowList(OptionList):
    """Rows, of which one is chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("j", "cursor_down", "arrows, j, k, wheel", _MOVES),
        ("k", "cursor_up"),
        ("g", "first"),
        ("G", "last"),
        _key("enter", "select", "Enter", _OPENS, "open"),
    ]


class ListView(TopScreen):
    """The flows, or the runs of one."""

    keys: Sequence[str] = ()

    @property
    def chosen(self) -> tuple[str, str]:
        place = self.query_one(OptionList).highlighted
        key = "" if place is None else self.keys[place]
        return (key, "") if self.subject.kind is TopView.FLOWS else (self.subject.flow, key)

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="titles")
        yield RowList(id="rows", markup=False)
        yield Static(id="below")
        yield Input(id="filter", placeholder="filter", max_length=60)
        yield Static(id="keys")

    def draw(self) -> None:
        super().draw()
        page = PrintedPage(self.app.lines_screen(1), self.app.secrets)
        found = lines.list_rows(self.subject, self.app.source.seen, self.sorts[0], page)
        self._show("titles", f" {found.titles}")
        rows, chosen = self.query_one(OptionList), self.chosen
        if found.keys != self.keys or not found.keys:
            place = rows.highlighted or 0
            self.keys = found.keys
            empty = Option(self.app.painted(f" {found.empty}"), disabled=True)
            rows.clear_options()
            rows.add_options([Option("") for _ in found.keys] or [empty])
            there = [at for at, key in enumerate(found.keys) if key in chosen]
            if found.keys:
                rows.highlighted = there[0] if there else min(place, len(found.keys) - 1)
        for at, line in enumerate(found.lines):
            is_chosen = at == rows.highlighted
            sign = self.app.lines_screen().paint(">", "cyan", bold=True) if is_chosen else " "
            rows.replace_option_prompt_at_index(at, self.app.painted(f"{sign}{line}"))

    def on_option_list_option_highlighted(self) -> None:
        self.draw()

    def action_back(self) -> None:
        if self.subject.filter:
            self._filter("")
        else:
            super().action_back()

    def action_sort(self) -> None:
        self.sorts = (*self.sorts[1:], self.sorts[0])
        self.draw()

    def action_filter(self) -> None:
        typed = self.query_one(Input)
        typed.display = True
        typed.value = self.subject.filter
        self.set_focus(typed)
        self.draw()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.display:
            self._filter(event.value)

    def on_input_submitted(self) -> None:
        self.query_one(Input).display = False
        self.set_focus(self.query_one(OptionList))
        self.draw()

    def on_key(self, event: Key) -> None:
        super().on_key(event)
        if event.key == "escape" and self.query_one(Input).has_focus:
            event.stop()
            event.prevent_default()
            self.on_input_submitted()
            self._filter("")

    def on_option_list_option_selected(self) -> None:
        flow, run = self.chosen
        if self.subject.kind is TopView.FLOWS:
            self.app.push_screen(ListView(TopSubject(TopView.RUNS, flow)))
        else:
            self.app.push_screen(TextView(TopSubject(TopView.RUN, flow, run)))

    def _filter(self, text: str) -> None:
        self.subject = self.subject._replace(filter=text)
        self.app.reread()


class TextView(TopScreen):
    """A run, or what happens in it."""

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        with TextScroll(id="text"):
            yield Static(id="lines")
        yield Static(id="below")
        yield Static(id="keys")

    def draw(self) -> None:
        super().draw()
        text = self.query_one(VerticalScroll)
        is_at_end = text.scroll_y >= text.max_scroll_y
        page = PrintedPage(self.app.lines_screen(), self.app.secrets)
        shown = lines.text_lines(self.subject, self.app.source.seen, page)
        self._show("lines", "\n".join(shown))
        if is_at_end and self.subject.kind is TopView.EVENTS:  # the newest are below
            self.call_after_refresh(text.scroll_end, animate=False)


class Help(Screen[None]):
    """What each key does; another key goes back."""

    app: Top

    def compose(self) -> ComposeResult:
        with TextScroll(id="text"):
            yield Static(id="lines")
        words = [("", "arrows", "move"), ("", "others", "go back"), ("q", "q", "quit")]
        yield Static(_clickable(words), id="keys")

    def on_resize(self) -> None:
        screen = self.app.lines_screen()
        indent = 3 if screen.is_narrow else 22
        shown = [
            line
            for key in (*RowList.BINDINGS, *TopScreen.BINDINGS, *Top.BINDINGS)
            if isinstance(key, Binding) and key.tooltip
            for line in screen.wrapped(
                key.tooltip, head=f" {key.key_display:<20} ", indent=indent, whole=True
            )
        ]
        self.query_one("#lines", Static).update(self.app.painted("\n".join(shown)))

    def on_key(self, event: Key) -> None:
        if event.key not in SCROLLING and event.key != "q":
            event.stop()
            if self.app.screen is self:  # else the key before has left it
                self.dismiss()


class Question(ModalScreen[bool]):
    """Asks before something is changed; only a yes is one."""

    app: Top

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        yield Static(self.app.painted(self.app.lines_screen().paint(self.text, "yellow")))
        yield Static(_clickable([("y", "y", "yes"), ("n", "n", "no")]), id="keys")

    def on_key(self, event: Key) -> None:
        event.stop()
        if self.app.screen is self:  # else the key before has answered
            self.dismiss(event.key in ("y", "Y"))


def _clickable(keys: Sequence[tuple[str, str, str]]) -> Content:
    """Keys, their names and what they do; a click on one is as if it was pressed."""
    shown = [
        Content.from_markup(
            f"[@click=app.simulate_key('{key}')]$name $word[/]" if key else "$name $word",
            name=name,
            word=word,
        )
        for key, name, word in keys
    ]
    return Content(" ") + Content("   ").join(shown)
