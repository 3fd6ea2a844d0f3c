"""
Chaos: several daemons on one PostgreSQL, random flows, random faults; then all is compared.

    python tests/chaos/chaos.py --minutes 30 --seed 7      make chaos MINUTES=30 SEED=7

The seed decides which faults come when and what runs are given; the machine decides the rest, so
a seed repeats the plan and not each microsecond. What went wrong is printed with the command
that repeats it, and the directory with all logs, the ledger and the story is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import signal
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # for tests/support

import chaos_judge
import psycopg
from chaos_faults import FAULTS
from chaos_world import World, now, rest

from pgflowd.testing.until import until

SETTLE_S = 90.0
STOP_S = 30.0
OVERSLEPT_S = 0.5  # after a nap so late, the machine itself stood still
LOOK_S = 2.0  # between two looks at what must hold at any time


class Broken(AssertionError):
    """Something did not survive."""


def survive(seed: int, seconds: float, daemons: int, *, aloud: bool = False) -> dict[str, object]:
    """Let it rage, let it settle, and judge; returns what happened, in numbers."""
    again = f"make chaos SECONDS={seconds:g} DAEMONS={daemons} SEED={seed}"
    world = World(seed, aloud=aloud)
    fine = False
    try:
        world.create(daemons)
        _rage(world, seconds)
        _settle(world)
        _stop(world)
        troubles = chaos_judge.in_the_end(world)
        if troubles:
            shown = "\n".join(troubles[:40])
            raise Broken(f"{len(troubles)} troubles:\n{shown}\n{_happened(world)}")
        fine = True
        return {"seed": seed, "seconds": seconds, **_happened(world)}
    except BaseException as error:
        error.add_note(f"seed {seed}; again: {again}; what was seen is in {world.directory}")
        raise
    finally:
        world.close(keep=not fine)


def _happened(world: World) -> dict[str, object]:
    return {**dict(sorted(world.done.items())), **chaos_judge.counts(world)}


def _rage(world: World, seconds: float) -> None:
    """Faults at random, while runs are started."""
    end, next_fault, next_look = now() + seconds, now() + 1, now() + LOOK_S
    while now() < end:
        world.mend()
        world.look_after_server()
        world.look_after_daemons()
        world.start_runs()
        if now() >= next_fault:
            _do_something_bad(world)
            next_fault = now() + world.chance.uniform(0.1, 1.5)
        if now() >= next_look:
            began = now()
            _look(world)
            next_look = now() + max(LOOK_S, 20 * (now() - began))
        began = now()
        rest(0.02)
        if now() - began > OVERSLEPT_S:
            world.stood_still(began)


def _do_something_bad(world: World) -> None:
    world.take_chance()
    _, name, fault = world.chance.choices(FAULTS, [weight for weight, _, _ in FAULTS])[0]
    place = world.chance.choice(world.places)
    try:
        what = fault(world, place)
    except psycopg.Error as error:
        what = ""
        world.drop_line()
        world.say(f"{name}: {str(error).strip().splitlines()[0]}")
    if what:
        world.done[name] = world.done.get(name, 0) + 1
        world.say(f"{place.name} {name}: {what}")


def _look(world: World) -> None:
    """What must hold at any time is looked at while it rages."""
    with contextlib.suppress(psycopg.OperationalError, psycopg.InternalError):
        for trouble in chaos_judge.at_any_time(world.conn()):
            world.say(trouble)
            world.troubles.append(f"while it raged: {trouble}")
        return
    world.drop_line()


def _settle(world: World) -> None:
    """No more faults: all that was begun comes to its end."""
    world.say("no more faults")
    world.mend(all_of_it=True)
    world.look_after_daemons()

    def settled() -> bool:
        world.look_after_server()
        world.look_after_daemons()
        try:
            return world.count_open() == 0
        except psycopg.Error:
            world.drop_line()
            return False

    try:
        until(settled, SETTLE_S)
    except AssertionError:
        raise Broken("\n".join(chaos_judge.what_is_open(world))) from None
    world.say("all runs have ended")


def _stop(world: World) -> None:
    """All daemons end as asked; nothing is left of them."""
    for place in world.places:
        until(place.listens, STOP_S)
        place.daemon.family()  # who they were is remembered
        place.daemon.process.terminate()
    for place in world.places:
        code = place.daemon.ended(STOP_S)
        if code != 0:
            world.troubles.append(f"{place.name} ended with {code} when asked to")
    world.say("all daemons have ended")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--daemons", type=int, default=3)
    parser.add_argument("--seed", type=int)
    asked = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # which tidies up
        signal.signal(number, signal.default_int_handler)
    seed = secrets.randbelow(10**6) if asked.seed is None else asked.seed
    seconds = asked.minutes * 60 + asked.seconds or 60
    try:
        said = survive(seed, seconds, asked.daemons, aloud=True)
    except AssertionError as error:
        sys.exit("\n".join([f"BROKEN: {error}", *getattr(error, "__notes__", [])]))
    sys.stdout.write("".join(f"{name}: {value}\n" for name, value in said.items()))


if __name__ == "__main__":
    main()
