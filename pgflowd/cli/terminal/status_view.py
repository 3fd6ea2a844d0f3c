"""
Status screen: draws the status document, for `status` and `tree`.

Signs carry the meaning and colours help: up, changing, off, failed, look here. A narrow
terminal loses columns; without UTF-8 there are ASCII signs. Whatever comes from outside stays
on its line.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import click

from pgflowd.cli.terminal.screen import Screen, TableCell, text_width
from pgflowd.core.redact import one_line
from pgflowd.core.text import counted, spoken

_SIGNS = {"up": "up", "healthy": "up", "failed": "failed", "disabled": "off"}
_COLOURS = {"up": "green", "failed": "red", "off": None, "changing": "yellow"}
TITLES = (
    "FLOW", "WORKER", "RUNNING", "QUEUED", "OLDEST", "OK 1m", "FAIL 1m", "P50", "P95", "RESTARTS",
)  # fmt: skip
RIGHT = ("QUEUED", "OLDEST", "OK 1m", "FAIL 1m", "P50", "P95", "RESTARTS")
LOSING = ("P50", "RESTARTS", "OLDEST", "P95", "OK 1m", "FAIL 1m", "QUEUED")
_NARROW = 60  # below this many columns there is no bar
_BAR = 10


def status_lines(status: dict[str, Any], screen: Screen) -> list[str]:
    """Return the whole screen."""
    parts = [
        f"pgflowd {status['name']}  {status['version']} ",
        _signed(status["state"], screen, status["state"]),
        f"up {span(status['up_s'])}",
        f"pid {status['pid']}",
    ]
    lines = _packed("", parts, screen)
    lines += database_lines(status["database"], screen)
    lines += _packed(" listener  ", _listener(status["listener"], screen), screen)
    lines += _packed(" sweeper   ", _sweeper(status["sweeper"], screen), screen)
    rows = [_row(flow, screen) for flow in status["flows"]]
    inner = screen if screen.width is None else replace(screen, width=screen.width - 1)
    table = inner.table(TITLES, rows, right=RIGHT, losing=LOSING)
    lines += [f" {line}" for line in table.splitlines()]
    parked = {flow["slug"] for flow in status["flows"] if flow["state"] == "failed"}
    return lines + problem_lines(status["problems"], screen, parked)


def database_lines(database: dict[str, Any], screen: Screen) -> list[str]:
    """Return what is known of the database."""
    return _packed(" database  ", _database(database, screen), screen)


def problem_lines(
    problems: Sequence[dict[str, Any]], screen: Screen, parked: Collection[str] = ()
) -> list[str]:
    """Return what a person should look at, with the next step."""
    lines = []
    for each in problems:
        flow, code = each.get("flow"), each.get("code")
        who = [flow] if flow else []
        if flow in parked:
            who = [f"{flow} is parked:"]
        elif flow and code:
            who = [f"{flow}:"]
        then = f"  {screen.sign('next')} {each['next']}" if each.get("next") else ""
        words = [*who, code or "", each.get("text") or "", then]
        text = one_line(" ".join(filter(None, words)), 400)
        first, *rest = screen.folded(f"   {text}").splitlines()
        lines += [f" {screen.paint(screen.sign('look'), 'yellow')} {first.lstrip()}", *rest]
    return lines


def tree_lines(status: dict[str, Any], screen: Screen) -> list[str]:
    """Return the processes as a tree."""
    root = status["supervisor"]
    budget = f"restarts {root['restarts']} of {root['max_restarts']}"
    period = f"in {root['max_period_s']:g} s"
    flows = status["flows"]
    counts = ", ".join(
        f"{sum(flow['state'] == state for flow in flows)} {state}"
        for state in dict.fromkeys(flow["state"] for flow in flows)
    )
    more, last, past = _branches(screen)
    width = max([8, *(text_width(one_line(flow["slug"], 80)) + 3 for flow in flows)])
    lines = _packed("", [f"supervisor {status['pid']}", root["strategy"], f"{budget} {period}"],
                    screen)  # fmt: skip
    lines += _member(f"{more} ", f"{past}  ", "listener", width, status["listener"], screen)
    group = f"{_signed(_group_state(flows), screen)} {_padded('workers', width)}"
    lines += _packed(f"{more} ", [group, "one_for_one", *filter(None, [counts])], screen,
                     f"{past}    ")  # fmt: skip
    for flow in flows:
        is_last = flow is flows[-1]
        head, below = f"{past}  {last if is_last else more} ", f"{past}  {' ' if is_last else past}"
        lines += _member(head, f"{below}  ", flow["slug"], width - 3, flow, screen)
    return lines + _member(f"{last} ", "   ", "sweeper", width, status["sweeper"], screen)


def span(seconds: float | None) -> str:
    """Return a duration for columns: 3d 4h, 2h 3m, 12s, 1.2s, 340ms."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.2g}ms" if seconds < 0.01 else f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.2g}s" if seconds < 9.95 else f"{int(seconds + 0.5)}s"
    minutes = int(seconds // 60)
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [(days, "d"), (hours, "h"), (minutes, "m")]
    shown = [f"{count}{unit}" for count, unit in parts if count]
    return " ".join(shown[:2])


def _spoken(seconds: float) -> str:
    """A duration for sentences: 0.8 ms, 0.4 s, 9 s."""
    return f"{seconds * 1000:.2g} ms" if seconds < 0.1 else spoken(round(seconds, 1))


def _packed(head: str, parts: Sequence[str], screen: Screen, below: str | None = None) -> list[str]:
    """The parts side by side, on as many lines as a narrow terminal needs."""
    below = " " * len(head) if below is None else below
    whole = head + "   ".join(parts)
    if screen.width is None or _columns(whole) <= screen.width:
        return [whole]
    room = max(screen.width - len(head), 20)
    lines: list[str] = []
    for part in parts:
        if lines and _columns(f"{lines[-1]}   {part}") <= room:
            lines[-1] += f"   {part}"
        elif _columns(part) <= room:
            lines.append(part)
        else:
            lines += textwrap.wrap(click.unstyle(part), room, break_on_hyphens=False)
    return [f"{below if index else head}{line}" for index, line in enumerate(lines)]


def _columns(text: str) -> int:
    return text_width(click.unstyle(text))


def _branches(screen: Screen) -> tuple[str, str, str]:
    """The lines of a tree: to one of several, to the last one, past others."""
    return ("├─", "└─", "│") if screen.unicode else ("|-", "`-", "|")


def _padded(text: str, width: int) -> str:
    return text + " " * (width - text_width(text))


def _member(
    head: str, below: str, name: str, width: int, child: dict[str, Any], screen: Screen
) -> list[str]:
    parts = [f"{_signed(child['state'], screen)} {_padded(one_line(name, 80), width)}"]
    if child["state"] == "failed":
        retry = child.get("retry_in_s")
        next_ = f"next try in {span(retry)}" if retry is not None else "next try on reload"
        code = one_line(str((child.get("error") or {}).get("code")), 40)
        parts.append(f"failed, parked {span(child.get('parked_s'))} ago: {code}, {next_}")
    elif child["pid"]:
        parts += [str(child["pid"]), f"{child['state']} {span(child['up_s'])}"]
    else:
        parts.append(child["state"])
    if child.get("zygote"):
        parts += [f"zygote {child['zygote']}", counted(child.get("runners", 0), "runner")]
    if child.get("restarts"):
        exits = child.get("exits") or ["?"]
        parts.append(f"{counted(child['restarts'], 'restart')}: {one_line(exits[-1], 80)}")
    return _packed(head, parts, screen, below)


def _row(flow: dict[str, Any], screen: Screen) -> list[str | TableCell]:
    state = flow["state"]
    dash = screen.sign("dash")
    sign = _SIGNS.get(state, "changing")
    what = f"{flow['pid'] or state}  {span(flow['up_s']).partition(' ')[0]}".rstrip()
    if state == "failed":
        cells: list[str | TableCell] = [
            flow["slug"],
            TableCell(f"{screen.sign(sign)} failed", "red"),
        ]
        return cells + [""] + [dash] * (len(TITLES) - 3)
    return [
        flow["slug"],
        TableCell(f"{screen.sign(sign)} {what}", _COLOURS[sign]),
        _bar(flow["running"], flow["max_concurrency"], screen),
        _number(flow["queued"], dash),
        span(flow["oldest_queued_s"]) or dash,
        _number(flow["completed_1m"], dash),
        _number(flow["failed_1m"], dash),
        span(flow["p50_s"]) or dash,
        span(flow["p95_s"]) or dash,
        str(flow["restarts"]),
    ]


def _bar(running: int, most: int | None, screen: Screen) -> str:
    if not most:
        return ""
    if screen.width is not None and screen.width < _NARROW:
        return f"{running}/{most}"
    full = min(_BAR, round(running / most * _BAR))
    on, off = ("█", "░") if screen.unicode else ("#", ".")
    return f"{on * full}{off * (_BAR - full)} {running}/{most}"


def _database(database: dict[str, Any], screen: Screen) -> list[str]:
    sign = _signed(database["state"], screen)
    if not database.get("server"):
        return [f"{sign} {database['state']}"]
    parts = [f"{sign} PostgreSQL {one_line(str(database['server']), 60)}"]
    if database.get("place"):
        parts[0] += f" at {one_line(str(database['place']), 120)}"
    if database.get("rtt_s") is not None:
        parts.append(_spoken(database["rtt_s"]))
    for name in ("pgmq", "schema"):
        if database.get(name) is not None:
            parts.append(f"{name} {one_line(str(database[name]), 40)}")
    if database.get("clock_skew_s") is not None:
        parts.append(f"clock {round(database['clock_skew_s'] * 1000):+} ms")
    return parts


def _listener(listener: dict[str, Any], screen: Screen) -> list[str]:
    last = listener.get("last_notification_s")
    heard = f"last notification {_spoken(last)} ago" if last is not None else "no notification yet"
    counts = sorted(listener.get("wakes_1m", {}).items(), key=lambda item: item[0] == "fallback")
    wakes = ", ".join(f"{n} {reason}" for reason, n in counts)
    told = [f"{_signed(listener['state'], screen)} {heard}"]
    return [*told, f"wakes 1m: {wakes}"] if wakes else told


def _sweeper(sweeper: dict[str, Any], screen: Screen) -> list[str]:
    told = []
    if sweeper.get("interval_s"):
        told.append(f"every {spoken(sweeper['interval_s'])}")
    if sweeper.get("last_sweep_s") is not None:
        told.append(f"last {_spoken(sweeper['last_sweep_s'])} ago")
    parts = [f"{_signed(sweeper['state'], screen)} {', '.join(told)}".rstrip()]
    if sweeper.get("recovered_24h") is not None:
        day = f"{sweeper['recovered_24h']} recovered, {sweeper['given_up_24h']} given up"
        parts.append(f"24 h: {day}")
    return parts


def _group_state(flows: Sequence[dict[str, Any]]) -> str:
    states = {flow["state"] for flow in flows} - {"disabled"}
    if states == {"up"}:
        return "up"
    return "failed" if states == {"failed"} else "restarting"


def _signed(state: str, screen: Screen, text: str = "") -> str:
    sign = _SIGNS.get(state, "changing")
    shown = f"{screen.sign(sign)} {text}".rstrip()
    return screen.paint(shown, _COLOURS[sign])


def _number(value: Any, dash: str) -> str:
    return dash if value is None else f"{value:g}"
