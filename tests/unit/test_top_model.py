"""What keys do to the state of `pgflowd top`, and what is drawn, without a terminal."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pgflowd.cli.terminal.screen import Screen, columns
from pgflowd.cli.top.differences import CLEAR, differences, fitted
from pgflowd.cli.top.keys import KeyReader, NamedKey
from pgflowd.cli.top.model import Act, State, TopVerb, TopView, choose, limited, press
from pgflowd.cli.top.source import runs_wanted

FLOWS = ["alpha", "beta", "gamma"]
RUN = "01a1f504-9f56-781e-99fa-d136f8429a4c"


def after(state: State, *keys: str, rows=FLOWS, paused=False) -> State:
    for key in keys:
        state, _ = press(choose(state, rows), key, rows, 10, paused)
    return state


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"jk", ["j", "k"]),
        (b"\x1b[A\x1bOB\r", [NamedKey.UP, NamedKey.DOWN, NamedKey.ENTER]),
        (
            b"\x1b[5~\x1b[6~\x1b[H\x1b[4~",
            [NamedKey.PAGE_UP, NamedKey.PAGE_DOWN, NamedKey.HOME, NamedKey.END],
        ),
        (b"\x1b[1;5C\x1b[?62;c\x1b[200~x", ["x"]),  # unknown ones are no keys
        (b"\x1bj", [NamedKey.ESCAPE, "j"]),
        (b"\x1b\x1b[A", [NamedKey.ESCAPE, NamedKey.UP]),
        ("ä€".encode(), ["ä", "€"]),
        (b"\x7f\x08\x00\x01", [NamedKey.BACKSPACE, NamedKey.BACKSPACE]),
    ],
)
def test_bytes_are_the_same_keys_however_they_come(data, keys):
    whole, single = KeyReader(), KeyReader()

    assert whole.feed(data) == keys
    assert [key for byte in data for key in single.feed(bytes([byte]))] == keys


def test_an_escape_is_a_key_when_nothing_follows():
    reader = KeyReader()

    assert (reader.feed(b"\x1b"), reader.is_waiting) == ([], True)
    assert (reader.end_waiting(), reader.is_waiting) == ([NamedKey.ESCAPE], False)


def test_the_choice_stays_on_its_row_and_then_on_its_place():
    state = after(State(), "j")

    assert state.flow == "beta"
    assert choose(state, ["aaa", *FLOWS]).flow == "beta"
    assert choose(state, ["alpha", "gamma"]).flow == "gamma"
    assert choose(state, ["alpha"]).flow == "alpha"
    assert choose(state, []).flow is None
    assert after(state, "G").flow == after(state, NamedKey.END, "j").flow == "gamma"
    assert after(state, "g").flow == after(state, NamedKey.HOME, "k").flow == "alpha"


def test_enter_goes_down_to_a_run_and_escape_back():
    runs = choose(after(State(), "j", NamedKey.ENTER, rows=FLOWS), [RUN, "other"])
    run = after(runs, NamedKey.ENTER, rows=[RUN])
    events = after(run, "f")

    assert (runs.view, runs.flow, runs.run) == (TopView.RUNS, "beta", RUN)
    assert (run.view, events.view) == (TopView.RUN, TopView.EVENTS)
    assert after(events, NamedKey.ESCAPE).view is TopView.RUN
    assert after(runs, "f", NamedKey.BACKSPACE, rows=[RUN]).view is TopView.RUNS
    assert after(run, NamedKey.ESCAPE, NamedKey.ESCAPE).view is TopView.FLOWS
    assert after(State(), NamedKey.ENTER, rows=[]).view is TopView.FLOWS


@pytest.mark.parametrize(
    ("view", "key", "paused", "act"),
    [
        (TopView.FLOWS, "p", False, Act(TopVerb.PAUSE, "beta")),
        (TopView.RUNS, "p", True, Act(TopVerb.RESUME, "beta")),
        (TopView.RUNS, "c", False, Act(TopVerb.CANCEL, RUN)),
        (TopView.EVENTS, "r", False, Act(TopVerb.RETRY, RUN)),
    ],
)
def test_nothing_is_done_without_a_yes(view, key, paused, act):
    state = State(view, flow="beta", run=RUN, place=1)
    rows = FLOWS if view is TopView.FLOWS else ["x", RUN]
    asked, effect = press(state, key, rows, 10, paused)

    assert (asked.question, effect.act) == (act, None)
    for other in ("n", "q", NamedKey.ENTER, NamedKey.ESCAPE, " ", "Y "):
        left, effect = press(asked, other, rows, 10, paused)
        assert (left.question, effect.act, effect.quits) == (None, None, False)
    done, effect = press(asked, "y", rows, 10, paused)
    assert (done.question, effect.act) == (None, act)


def test_runs_are_not_cancelled_where_none_is_chosen():
    state, effect = press(State(flow="beta", run=RUN), "c", FLOWS, 10, False)

    assert (state.question, effect.act) == (None, None)
    assert "choose a run first" in state.note


def test_a_filter_takes_every_key_as_text():
    state = after(State(), "/", "q", "?", " ", "x", NamedKey.BACKSPACE)

    assert (state.filter, state.is_typing) == ("q? ", True)
    assert after(state, NamedKey.ENTER).is_typing is False
    assert after(state, NamedKey.ESCAPE).filter == ""
    kept = after(state, NamedKey.ENTER, NamedKey.ESCAPE)  # forgets the filter first
    assert (kept.filter, kept.view) == ("", TopView.FLOWS)


def test_a_status_filters_by_status_and_other_words_by_text():
    runs = State(TopView.RUNS, flow="beta", filters=("", "failed"))

    assert runs_wanted(runs).statuses == ["failed"]
    assert runs_wanted(replace(runs, filters=("", "bank"))).text == "bank"


def test_other_keys_change_what_they_say():
    assert after(State(), "s").sort == "queue"
    assert after(State(), *"sssss").sort == "name"
    assert after(State(), " ").is_stopped
    assert after(State(), "?").shows_help
    assert not after(State(), "?", "x").shows_help
    helped = after(State(), "?", "j")
    assert (helped.shows_help, helped.scroll, helped.flow) == (True, 1, "alpha")
    assert after(helped, "x").scroll == 0
    assert press(State(), "q", FLOWS, 10, False)[1].quits
    assert press(State(shows_help=True), "q", FLOWS, 10, False)[1].quits


def test_a_text_is_not_moved_beyond_its_end():
    run = State(TopView.RUN, run=RUN)

    assert limited(after(run, "G"), 100, 20).scroll == 80
    assert limited(after(run, "G"), 10, 20).scroll == 0
    assert after(run, "k").scroll == 0
    assert after(replace(run, view=TopView.EVENTS), "k").scroll == 1  # the newest are below


def test_no_keys_leave_a_state_that_cannot_be():
    keys = [*NamedKey, *"jkgGqsfcrp/ ?y"]
    chance = random.Random(7)
    state = State()
    for _ in range(5000):
        rows = chance.choice([FLOWS, [RUN], []])
        state, effect = press(choose(state, rows), chance.choice(keys), rows, 10, False)
        assert effect.act is None or effect.act.target
        assert state.view is TopView.FLOWS or state.flow is not None
        assert state.view in (TopView.FLOWS, TopView.RUNS) or state.run is not None


def test_only_lines_that_differ_are_drawn():
    assert differences(None, ["a", "b"]) == f"{CLEAR}\x1b[1;1H\x1b[Ka\x1b[2;1H\x1b[Kb"
    assert differences(["a", "b"], ["a", "c"]) == "\x1b[2;1H\x1b[Kc"
    assert differences(["a", "b"], ["a", "b"]) == ""


@pytest.mark.parametrize("width", [40, 80, 120, 300])
def test_no_line_is_wider_than_the_screen_or_controls_it(width):
    screen = Screen(True, True, width, True)
    hostile = "\x1b[32m" + "漢字\x1b[2J\x07\u202e\r\n\x9b3J" * 40 + "\x1b[0m"

    (line,) = fitted([hostile], screen, 1)
    (ascii_line,) = fitted([hostile], replace(screen, unicode=False), 1)

    for each in (line, ascii_line):
        assert width - 2 <= columns(each) <= width
        assert each.startswith("\x1b[32m") and each.endswith("\x1b[0m")
        assert each[5:-4].isprintable()
    assert ascii_line[5:-4].isascii()
