"""
Random flows: real `Flow` objects with handlers that answer by a seed, in every shape that
the rules know: maps of steps, maps of maps and of the input, conditions, skips, cascades,
exhaustion, start delays, outputs of the wrong type, deps by parameter, list and order. With
`may_wait` their handlers keep values, sleep, and wait for signals.
"""

from __future__ import annotations

import inspect
import json
import random
import zlib
from collections.abc import Callable
from typing import Any

from pgflowd import Fail, Flow

MODES = ("fail", "skip", "skip-cascade")
SECONDS = (0, 1, 1, 5, 60)  # of sleeps, timeouts and signals, so that they meet
P = inspect.Parameter


def random_flow(seed: int, may_wait: bool = False) -> tuple[Flow, Any]:
    """A flow and an input for it; the same seed gives the same."""
    chance = random.Random(seed)
    flow = Flow("random_flow", max_attempts=chance.randint(1, 3), base_delay=chance.randint(0, 4))
    slugs = chance.sample("abcdefghijkl", chance.randint(1, 7))
    root_map = chance.random() < 0.25
    kinds: dict[str, bool] = {}
    for slug in slugs:
        placed = list(kinds)
        kinds[slug] = is_map = chance.random() < 0.35 and bool(placed or root_map)
        if is_map:
            over = (
                chance.choice(placed)
                if placed and not (root_map and chance.random() < 0.5)
                else None
            )
            flow.map(slug=slug, over=over, **_options(chance, [over] if over else []))(
                _handler(seed, slug, ["item"], may_wait)
            )
        else:
            deps = chance.sample(placed, chance.randint(0, min(3, len(placed))))
            _single(flow, chance, seed, slug, deps, may_wait)
    return flow, _input(chance, flow)


def random_signals(seed: int) -> dict[str, Any]:
    """Signals for the handlers that wait."""
    chance = random.Random(seed)
    signals: dict[str, Any] = {}
    for _ in range(chance.randint(0, 8)):
        payload = chance.choice([None, 0, "", [], {"v": chance.randint(0, 9)}])
        signals.setdefault(chance.choice("xy"), []).append((chance.choice(SECONDS), payload))
    return signals


def _single(
    flow: Flow, chance: random.Random, seed: int, slug: str, deps: list[str], may_wait: bool
) -> None:
    options = _options(chance, deps)
    way = chance.random()
    if way < 0.2:
        flow.step(slug=slug, depends_on=deps, **options)(_handler(seed, slug, ["input"], may_wait))
    elif way < 0.4 and deps:
        named, after = deps[1:], deps[:1]
        flow.step(slug=slug, after=after, **options)(_handler(seed, slug, named, may_wait, chance))
    else:
        extra = ["run"] if not deps or chance.random() < 0.3 else []
        flow.step(slug=slug, **options)(_handler(seed, slug, [*extra, *deps], may_wait, chance))


def _options(chance: random.Random, deps: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {"when_exhausted": chance.choice([None, *MODES])}
    if chance.random() < 0.3:
        name = chance.choice(["if_", "if_not"])
        options[name] = {chance.choice(deps): _pattern(chance)} if deps else _pattern(chance)
        options["when_unmet"] = chance.choice([None, *MODES])
    if chance.random() < 0.2:
        options["max_attempts"] = chance.randint(1, 3)
    if chance.random() < 0.1:
        options["start_delay"] = chance.randint(1, 5)
    if chance.random() < 0.2:
        options["version"] = chance.randint(1, 3)
    return options


def _pattern(chance: random.Random) -> dict[str, Any]:
    return chance.choice([{"v": 0}, {"v": 1}, {}])


def _input(chance: random.Random, flow: Flow) -> Any:
    if any(step.is_map and not step.deps for step in flow.steps.values()):
        return [{"v": chance.randint(0, 1)} for _ in range(chance.randint(0, 3))]
    return chance.choice([{"v": 0}, {"v": 1}, {}, None, 0, "", [1]])


def _handler(
    seed: int, slug: str, names: list[str], may_wait: bool, chance: random.Random | None = None
) -> Callable[..., Any]:
    """A function with these parameters, some with defaults, that answers by seed and arguments."""

    def handler(ctx: Any, **arguments: Any) -> Any:
        given = json.dumps([seed, slug, ctx.task_index, ctx.attempt, arguments], sort_keys=True)
        if may_wait:
            given += json.dumps(_remembered(ctx, random.Random(zlib.crc32(given.encode()))))
        return _answer(random.Random(zlib.crc32(given.encode())), given)

    optional = chance is not None and chance.random() < 0.7
    parameters = [P("ctx", P.KEYWORD_ONLY)]
    for name in names:
        default = None if optional and name not in ("run", "input", "item") else P.empty
        parameters.append(P(name, P.KEYWORD_ONLY, default=default))
    handler.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return handler


def _remembered(ctx: Any, chance: random.Random) -> list[Any]:
    """What a handler learns from calls that keep, drop, sleep and wait."""
    learned = []
    for _ in range(chance.randint(0, 4)):
        name, seconds, luck = chance.choice("mn"), chance.choice(SECONDS), chance.random()
        value = [chance.randint(0, 9)]
        if luck < 0.2:
            learned.append(ctx.memo(name, value.copy))
        elif luck < 0.3:
            ctx.save(name, value)
        elif luck < 0.4:
            ctx.drop(name)
        elif luck < 0.5:
            learned.append(ctx.load(name, "nothing"))
        elif luck < 0.7:
            ctx.sleep(seconds, name=chance.choice([None, "noon"]))
        elif luck < 0.75:
            learned.append(ctx.wait_signal(chance.choice("xy")))
        else:
            default = chance.choice([None, "none"])
            if chance.random() < 0.8:
                got = ctx.wait_signal(chance.choice("xy"), timeout=seconds, default=default)
                learned.append(got)
            else:
                learned.append(ctx.wait_signal(chance.choice("xy"), timeout=seconds))
    return learned


def _answer(chance: random.Random, given: str) -> Any:
    luck = chance.random()
    if luck < 0.12:
        raise ValueError(f"bad luck {luck:.3f}")
    if luck < 0.14:
        raise Fail("for good")
    if luck < 0.6:
        return [
            {"v": n % 2, "given": zlib.crc32(given.encode())} for n in range(chance.randint(0, 3))
        ]
    return chance.choice(
        [{"v": 0}, {"v": 1, "given": zlib.crc32(given.encode())}, None, 0, False, ""]
    )
