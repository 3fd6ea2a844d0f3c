"""
What `pgflowd top` shows, and what a key makes of it. Pure: a state and a key give the next state,
and what is to be done.

A row is known by its key, a slug or an id, so that the choice stays on it while rows come and go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from pgflowd.cli.top.keys import NamedKey


class TopView(Enum):
    """What the screen shows."""

    FLOWS = "flows"
    RUNS = "runs"  # of a flow
    RUN = "run"
    EVENTS = "events"  # of a run that is followed


class TopVerb(Enum):
    """What a person may do here; the word asks for it."""

    PAUSE = "pause flow"
    RESUME = "resume flow"
    CANCEL = "cancel run"
    RETRY = "retry run"


class Act(NamedTuple):
    """A verb, and the slug or id of what it is done to."""

    verb: TopVerb
    target: str


class Effect(NamedTuple):
    """What has to be done after a key."""

    act: Act | None = None
    reads: bool = False  # something else is shown now
    quits: bool = False


NOTHING, READ, QUIT = Effect(), Effect(reads=True), Effect(quits=True)
SORTS = {
    TopView.FLOWS: ("name", "queue", "running", "oldest", "failures"),
    TopView.RUNS: ("newest", "status", "longest"),
}
_ABOVE = {
    TopView.RUNS: TopView.FLOWS,
    TopView.RUN: TopView.RUNS,
    TopView.EVENTS: TopView.RUN,
}


@dataclass(frozen=True)
class State:
    """What is shown and chosen."""

    view: TopView = TopView.FLOWS
    flow: str | None = None  # the chosen one
    run: str | None = None
    back: TopView | None = None  # from where events were asked for
    filters: tuple[str, str] = ("", "")  # of flows, of runs
    sorts: tuple[int, int] = (0, 0)
    place: int = 0  # of the chosen row; for the time when its key is gone
    scroll: int = 0  # lines of a long text above the screen; of events, below it
    is_typing: bool = False  # a filter
    is_stopped: bool = False
    shows_help: bool = False
    question: Act | None = None
    note: str = ""

    @property
    def is_list(self) -> bool:
        return self.view in SORTS

    @property
    def filter(self) -> str:
        return self.filters[_list(self)] if self.is_list else ""

    @property
    def sort(self) -> str:
        return SORTS[self.view][self.sorts[_list(self)]] if self.is_list else ""

    @property
    def chosen(self) -> str | None:
        return self.flow if self.view is TopView.FLOWS else self.run


def choose(state: State, keys: Sequence[str]) -> State:
    """The state with a chosen row that exists: the same one, or the one that has its place."""
    if not state.is_list:
        return state
    if state.chosen in keys:
        return replace(state, place=keys.index(state.chosen or ""))
    return _chosen(state, keys, state.place)


def limited(state: State, lines: int, room: int) -> State:
    """The state without a scroll beyond the text."""
    return replace(state, scroll=max(min(state.scroll, lines - room), 0))


def press(
    state: State, key: str, keys: Sequence[str], page: int, paused: bool
) -> tuple[State, Effect]:
    """
    The next state after a key, and what has to be done.

    `keys` are those of the rows as they are shown, `page` is how many fit; `paused` says whether
    the chosen flow is.
    """
    if state.question is not None:
        asked, state = state.question, replace(state, question=None)
        if key in ("y", "Y"):
            return state, Effect(asked)
        return replace(state, note="nothing was changed"), NOTHING
    if state.is_typing:
        return _typed(state, key)
    state = replace(state, note="")
    if state.shows_help and key not in _MOVES:
        return replace(state, shows_help=False, scroll=0), QUIT if key == "q" else NOTHING
    if key in _MOVES:
        return _moved(state, key, keys, page), NOTHING
    if key == "q":
        return state, QUIT
    if key == "?":
        return replace(state, shows_help=True, scroll=0), NOTHING
    if key == " ":
        return replace(state, is_stopped=not state.is_stopped), Effect(reads=state.is_stopped)
    if key == NamedKey.ENTER:
        return _entered(state)
    if key in (NamedKey.ESCAPE, NamedKey.BACKSPACE):
        return _left(state)
    if key in ("/", "s") and state.is_list:
        return (replace(state, is_typing=True) if key == "/" else _sorted(state)), NOTHING
    return _asked(state, key, paused)


_MOVES = {
    NamedKey.UP,
    NamedKey.DOWN,
    NamedKey.PAGE_UP,
    NamedKey.PAGE_DOWN,
    NamedKey.HOME,
    NamedKey.END,
    "j",
    "k",
    "g",
    "G",
}


def _list(state: State) -> int:
    return 0 if state.view is TopView.FLOWS else 1


def _chosen(state: State, keys: Sequence[str], place: int) -> State:
    place = max(min(place, len(keys) - 1), 0)
    found = keys[place] if keys else None
    if state.view is TopView.FLOWS:
        return replace(state, flow=found, place=place)
    return replace(state, run=found, place=place)


def _moved(state: State, key: str, keys: Sequence[str], page: int) -> State:
    """Another row, or other lines of a text; what is beyond its end the picture knows."""
    far = 10**6
    step = {
        NamedKey.UP: -1, "k": -1, NamedKey.DOWN: 1, "j": 1,
        NamedKey.PAGE_UP: -page, NamedKey.PAGE_DOWN: page,
        NamedKey.HOME: -far, "g": -far, NamedKey.END: far, "G": far,
    }[key]  # fmt: skip
    if state.is_list and not state.shows_help:
        return _chosen(state, keys, state.place + step)
    if state.view is TopView.EVENTS and not state.shows_help:  # their newest are below
        step = -step
    return replace(state, scroll=max(state.scroll + step, 0))


def _typed(state: State, key: str) -> tuple[State, Effect]:
    """A key of a filter: Enter keeps it, Escape forgets it."""
    text = state.filter
    if key == NamedKey.ENTER:
        return replace(state, is_typing=False), NOTHING
    if key == NamedKey.ESCAPE:
        state, text = replace(state, is_typing=False), ""
    elif key == NamedKey.BACKSPACE:
        text = text[:-1]
    elif len(key) == 1 and len(text) < 60:
        text += key
    return _filtered(state, text), READ


def _filtered(state: State, text: str) -> State:
    flows, runs = state.filters
    filters = (text, runs) if state.view is TopView.FLOWS else (flows, text)
    return replace(state, filters=filters)


def _sorted(state: State) -> State:
    sorts = list(state.sorts)
    sorts[_list(state)] = (sorts[_list(state)] + 1) % len(SORTS[state.view])
    return replace(state, sorts=(sorts[0], sorts[1]))


def _entered(state: State) -> tuple[State, Effect]:
    """What is behind the chosen row."""
    if state.view is TopView.FLOWS and state.flow is not None:
        state = replace(state, view=TopView.RUNS, run=None, place=0, filters=(state.filters[0], ""))
    elif state.view is TopView.RUNS and state.run is not None:
        state = replace(state, view=TopView.RUN, scroll=0)
    else:
        return state, NOTHING
    return state, READ


def _left(state: State) -> tuple[State, Effect]:
    """What is above; first without the filter."""
    if state.filter:
        return _filtered(state, ""), READ
    above = state.back if state.view is TopView.EVENTS else _ABOVE.get(state.view)
    return (state, NOTHING) if above is None else (replace(state, view=above, scroll=0), READ)


def _asked(state: State, key: str, paused: bool) -> tuple[State, Effect]:
    """A question before an action; or the events of a run."""
    if key == "p" and state.flow is not None:
        verb = TopVerb.RESUME if paused else TopVerb.PAUSE
        return replace(state, question=Act(verb, state.flow)), NOTHING
    if key not in ("f", "c", "r"):
        return state, NOTHING
    if state.view is TopView.FLOWS or state.run is None:
        return replace(state, note="choose a run first: Enter shows those of a flow"), NOTHING
    if key != "f":
        verb = TopVerb.CANCEL if key == "c" else TopVerb.RETRY
        return replace(state, question=Act(verb, state.run)), NOTHING
    if state.view is TopView.EVENTS:
        return state, NOTHING
    return replace(state, view=TopView.EVENTS, back=state.view, scroll=0), READ
