"""
Status screen: draws the status document, for `status` and `tree`.

Signs carry the meaning and colours help: up, changing, off, failed, look here. A narrow
terminal loses columns; without UTF-8 there are ASCII signs. Whatever comes from outside stays
on its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pgflowd.cli.screen import Cell, Screen
from pgflowd.core.redact import one_line

_SIGNS = {"up": "up", "healthy": "up", "failed": "failed", "disabled": "off"}
_COLOURS = {"up": "green", "failed": "red", "off": None, "changing": "yellow"}
TITLES = (
    "FLOW", "WORKER", "RUNNING", "QUEUED", "OLDEST", "OK 1m", "FAIL 1m", "P50", "P95", "RESTARTS",
)  # fmt: skip
RIGHT = ("QUEUED", "OLDEST", "OK 1m", "FAIL 1m", "P50", "P95", "RESTARTS")
LOSING = ("P50", "RESTARTS", "OLDEST")
_BAR = 10


def status_lines(status: dict[str, Any], screen: Screen) -> list[str]:
    """Return the whole screen."""
    head = f"pgflowd {status['name']}  {status['version']}"
    state = _signed(status["state"], screen, status["state"])
    lines = [f"{head}    {state}   up {span(status['up_s'])}   pid {status['pid']}"]
    lines += [_database(status["database"], screen)]
    lines += [_listener(status["listener"], screen), _sweeper(status["sweeper"], screen)]
    rows = [_row(flow, screen) for flow in status["flows"]]
    lines += screen.table(TITLES, rows, right=RIGHT, losing=LOSING).splitlines()
    return lines + problem_lines(status["problems"], screen)


def problem_lines(problems: Sequence[dict[str, Any]], screen: Screen) -> list[str]:
    """Return what a person should look at, with the next step."""
    lines = []
    for each in problems:
        who = f"{each['flow']}: " if each.get("flow") else ""
        then = f"   {screen.sign('next')} {each['next']}" if each.get("next") else ""
        text = one_line(f"{who}{each.get('code') or ''} {each.get('text') or ''}{then}", 400)
        lines.append(f" {screen.paint(screen.sign('look'), 'yellow')} {text}")
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
    group = f"{_signed(_group_state(flows), screen)} workers   one_for_one   {counts}"
    more, last, _ = _branches(screen)
    return [
        f"supervisor {status['pid']}   {root['strategy']}   {budget} {period}",
        f"{more} {_member('listener', status['listener'], screen)}",
        f"{more} {group}",
        *_worker_lines(flows, screen),
        f"{last} {_member('sweeper', status['sweeper'], screen)}",
    ]


def span(seconds: float | None) -> str:
    """Return a duration as people say it: 3d 4h, 2h 3m, 12s, 340ms."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.2g}ms" if seconds < 0.01 else f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    minutes = int(seconds // 60)
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [(days, "d"), (hours, "h"), (minutes, "m")]
    shown = [f"{count}{unit}" for count, unit in parts if count]
    return " ".join(shown[:2])


def _worker_lines(flows: Sequence[dict[str, Any]], screen: Screen) -> Iterator[str]:
    more, last, past = _branches(screen)
    for index, flow in enumerate(flows):
        branch = last if index == len(flows) - 1 else more
        yield f"{past}  {branch} {_member(flow['slug'], flow, screen)}"


def _branches(screen: Screen) -> tuple[str, str, str]:
    """The lines of a tree: to one of several, to the last one, past others."""
    return ("├─", "└─", "│") if screen.unicode else ("|-", "`-", "|")


def _member(name: str, child: dict[str, Any], screen: Screen) -> str:
    parts = [f"{_signed(child['state'], screen)} {one_line(name, 80)}"]
    if child["state"] == "failed":
        error = child.get("error") or {}
        retry = child.get("retry_in_s")
        next_ = f"next try in {span(retry)}" if retry is not None else "next try on reload"
        text = one_line(f"{error.get('code')} {error.get('text')}", 200)
        parts.append(f"failed, parked {span(child.get('parked_s'))} ago: {text}, {next_}")
    elif child["pid"]:
        parts += [str(child["pid"]), f"{child['state']} {span(child['up_s'])}"]
    else:
        parts.append(child["state"])
    if child.get("zygote"):
        parts += [f"zygote {child['zygote']}", f"{child.get('runners', 0)} runners"]
    if child.get("restarts"):
        exits = child.get("exits") or ["?"]
        parts.append(f"{child['restarts']} restarts: {one_line(exits[-1], 80)}")
    return "   ".join(parts)


def _row(flow: dict[str, Any], screen: Screen) -> list[str | Cell]:
    state = flow["state"]
    dash = screen.sign("dash")
    sign = _SIGNS.get(state, "changing")
    what = f"{flow['pid'] or state}  {span(flow['up_s'])}".rstrip()
    if state == "failed":
        cells: list[str | Cell] = [flow["slug"], Cell(f"{screen.sign(sign)} failed", "red")]
        return cells + [""] + [dash] * (len(TITLES) - 3)
    return [
        flow["slug"],
        Cell(f"{screen.sign(sign)} {what}", _COLOURS[sign]),
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
    full = min(_BAR, round(running / most * _BAR))
    on, off = ("█", "░") if screen.unicode else ("#", ".")
    return f"{on * full}{off * (_BAR - full)} {running}/{most}"


def _database(database: dict[str, Any], screen: Screen) -> str:
    parts = [f" database  {_signed(database['state'], screen)}"]
    if database.get("server"):
        parts.append(f"PostgreSQL {one_line(str(database['server']), 60)}")
    if database.get("rtt_s") is not None:
        parts.append(span(database["rtt_s"]))
    for name in ("pgmq", "schema"):
        if database.get(name) is not None:
            parts.append(f"{name} {one_line(str(database[name]), 40)}")
    return "  ".join([*parts, "" if len(parts) > 1 else database["state"]]).rstrip()


def _listener(listener: dict[str, Any], screen: Screen) -> str:
    last = listener.get("last_notification_s")
    heard = f"last notification {span(last)} ago" if last is not None else "no notification yet"
    wakes = ", ".join(f"{n} {reason}" for reason, n in listener.get("wakes_1m", {}).items())
    text = f" listener  {_signed(listener['state'], screen)} {heard}"
    return f"{text}   wakes 1m: {wakes}" if wakes else text


def _sweeper(sweeper: dict[str, Any], screen: Screen) -> str:
    parts = [f" sweeper   {_signed(sweeper['state'], screen)}"]
    if sweeper.get("interval_s"):
        parts.append(f"every {span(sweeper['interval_s'])},")
    if sweeper.get("last_sweep_s") is not None:
        parts.append(f"last {span(sweeper['last_sweep_s'])} ago")
    if sweeper.get("recovered_24h") is not None:
        day = f"{sweeper['recovered_24h']} recovered, {sweeper['given_up_24h']} given up"
        parts.append(f"  24 h: {day}")
    return " ".join(parts)


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
