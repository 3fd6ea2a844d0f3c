"""Prints a module of flows for the tasks of another program."""

from __future__ import annotations

import sys
from pathlib import Path

USAGE = "usage: python -m pgflowd.migrate celery MODULE"


def main(words: list[str]) -> int:
    """Print the skeleton; 2 for a command line or a module that cannot be used."""
    if len(words) != 2 or words[0] != "celery":
        sys.stderr.write(f"{USAGE}\n")
        return 2
    sys.path.insert(0, str(Path.cwd()))
    from pgflowd.migrate.celery import NoTasks, skeleton

    try:
        sys.stdout.write(skeleton(words[1]))
    except NoTasks as error:
        sys.stderr.write(f"pgflowd: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
