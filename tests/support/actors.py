"""
Actors that do something at once, each in a thread, with a random generator drawn from one seed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

Actor = Callable[[random.Random], None]


def act_together(actors: Sequence[Actor], seed: int, errors: list[BaseException]) -> None:
    """Let all act until each has ended; then raise what the first one raised.

    Errors are added to the list at once, so that the others can end early.
    """

    def act(actor: Actor, number: int) -> None:
        try:
            actor(random.Random(f"{seed}/{number}"))
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=act, args=(actor, number)) for number, actor in enumerate(actors)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error
