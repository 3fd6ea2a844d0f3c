"""
Chaos: several daemons on one PostgreSQL, random flows, random faults; then all is compared.

    python tests/chaos/chaos.py --minutes 30 --seed 7      make chaos MINUTES=30 SEED=7

The seed decides which faults come when, and the inputs of runs; the machine decides the rest, so
a seed repeats the plan but not each microsecond. A failure is printed with the command that repeats
it, and the directory with all logs, the ledger and the story is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import signal
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # for tests/support

import chaos_checks
import chaos_daemons
import chaos_versions
import chaos_wide
import psycopg
from chaos_environment import Environment, now, rest
from chaos_faults import FAULTS

from pgflowd.errors import PgflowdError
from pgflowd.testing.until import until

SETTLE_S = 90.0
SETTLE_AGAIN_S = 15.0  # a reload may come before the server answers
STOP_S = 30.0
OVERSLEPT_S = 0.5  # after a nap so late, the machine itself stood still
NO_MORE_TICKS = "select count(pgflowd.pause_schedule(name)) from pgflowd.schedules"
LOOK_S = 2.0  # between two looks at what must hold at any time


class Broken(AssertionError):
    """Something did not survive."""


def survive(seed: int, seconds: float, daemons: int, *, verbose: bool = False) -> dict[str, object]:
    """Let it rage, let it settle, and judge; returns what happened, in numbers."""
    again = f"make chaos SECONDS={seconds:g} DAEMONS={daemons} SEED={seed}"
    environment = Environment(seed, verbose=verbose)
    fine = False
    try:
        environment.create(daemons)
        _rage(environment, seconds)
        _settle(environment)
        _stop(environment)
        troubles = chaos_checks.in_the_end(environment)
        if troubles:
            shown = "\n".join(troubles[:40])
            raise Broken(f"{len(troubles)} troubles:\n{shown}\n{_happened(environment)}")
        fine = True
        return {"seed": seed, "seconds": seconds, **_happened(environment)}
    except BaseException as error:
        error.add_note(f"seed {seed}; again: {again}; what was seen is in {environment.directory}")
        raise
    finally:
        environment.close(keep=not fine)


def _happened(environment: Environment) -> dict[str, object]:
    return {**dict(sorted(environment.done.items())), **chaos_checks.counts(environment)}


def _rage(environment: Environment, seconds: float) -> None:
    """Faults at random, while runs are started."""
    end, next_fault, next_look = now() + seconds, now() + 1, now() + LOOK_S
    timers = chaos_wide.Timers()
    while now() < end:
        environment.mend()
        environment.look_after_server()
        environment.look_after_daemons()
        environment.start_runs()
        environment.send_signals()
        if now() >= next_fault:
            _do_something_bad(environment)
            next_fault = now() + environment.chance.uniform(0.1, 1.5)
        if now() >= next_look:
            began = now()
            _look(environment, timers)
            next_look = now() + max(LOOK_S, 20 * (now() - began))
        began = now()
        rest(0.02)
        if now() - began > OVERSLEPT_S:
            environment.stood_still(began)


def _do_something_bad(environment: Environment) -> None:
    environment.take_chance()
    _, name, fault = environment.chance.choices(FAULTS, [weight for weight, _, _ in FAULTS])[0]
    place = environment.chance.choice(environment.places)
    try:
        what = fault(environment, place)
    except psycopg.Error as error:
        what = ""
        environment.drop_line()
        environment.note(f"{name}: {str(error).strip().splitlines()[0]}")
    if what:
        environment.done[name] = environment.done.get(name, 0) + 1
        environment.note(f"{place.name} {name}: {what}")


def _look(environment: Environment, timers: chaos_wide.Timers) -> None:
    """Check, during the faults, what must hold at any time."""
    with contextlib.suppress(psycopg.OperationalError, psycopg.InternalError):
        conn = environment.conn()
        for trouble in (*chaos_checks.at_any_time(conn), *timers.look(conn)):
            environment.note(trouble)
            environment.troubles.append(f"while it raged: {trouble}")
        return
    environment.drop_line()


def _settle(environment: Environment) -> None:
    """No more faults: all that was begun comes to its end."""
    environment.note("no more faults")
    environment.mend(all_of_it=True)
    environment.look_after_daemons()
    next_settling = now()

    def settled() -> bool:
        nonlocal next_settling
        environment.look_after_server()
        environment.look_after_daemons()
        try:
            if now() >= next_settling:
                chaos_versions.settle(environment)
                next_settling = now() + SETTLE_AGAIN_S
            environment.conn().execute(NO_MORE_TICKS)
            return environment.count_open() == 0
        except (psycopg.Error, PgflowdError):
            environment.drop_line()
            return False

    try:
        until(settled, SETTLE_S)
    except AssertionError:
        raise Broken("\n".join(chaos_checks.what_is_open(environment))) from None
    environment.note("all runs have ended")
    living = environment.living
    for place in environment.places:
        try:
            until(place.is_ready, STOP_S)
            living[place.daemon.ask()["id"]] = place.name
        except AssertionError:
            environment.troubles.append(f"{place.name} is not ready although all is well")
    try:
        until(lambda: not chaos_daemons.missing(environment.conn(), living), STOP_S)
    except AssertionError:
        environment.troubles += chaos_daemons.missing(environment.conn(), living)


def _stop(environment: Environment) -> None:
    """All daemons end as asked; nothing is left of them."""
    for place in environment.places:
        until(place.listens, STOP_S)
        place.daemon.family()  # remembered for the clean-up
        place.daemon.process.terminate()
    for place in environment.places:
        code = place.daemon.ended(STOP_S)
        if code != 0:
            environment.troubles.append(f"{place.name} ended with {code} when asked to")
    environment.note("all daemons have ended")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--daemons", type=int, default=3)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # which tidies up
        signal.signal(number, signal.default_int_handler)
    seed = secrets.randbelow(10**6) if arguments.seed is None else arguments.seed
    seconds = arguments.minutes * 60 + arguments.seconds or 60
    try:
        results = survive(seed, seconds, arguments.daemons, verbose=True)
    except AssertionError as error:
        sys.exit("\n".join([f"BROKEN: {error}", *getattr(error, "__notes__", [])]))
    sys.stdout.write("".join(f"{name}: {value}\n" for name, value in results.items()))


if __name__ == "__main__":
    main()
