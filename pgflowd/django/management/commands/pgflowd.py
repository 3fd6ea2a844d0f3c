"""
`manage.py pgflowd …`: the command line, with the database of Django's settings.

It replaces this process by `pgflowd`, so that a daemon's supervisor has not imported the project,
and a reload reads it anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from psycopg.conninfo import make_conninfo
from psycopg.pq import Conninfo

from pgflowd.django import database_alias

_DATABASE, _CONFIG = "PGFLOWD__DATABASE__URL", "PGFLOWD_CONFIG"


class ManageCommand(BaseCommand):  # type: ignore[misc,unused-ignore]
    """Takes all arguments as they are."""

    help = "The command line of pgflowd, with the database of the settings."
    requires_system_checks: list[str] = []  # noqa: RUF012

    def run_from_argv(self, argv: list[str]) -> None:
        os.execve(sys.executable, [sys.executable, "-m", "pgflowd", *argv[2:]], environment())

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("words", nargs="*")

    def handle(self, *args: Any, **options: Any) -> None:
        words = [*args, *options.get("words", [])]
        done = subprocess.run([sys.executable, "-m", "pgflowd", *words], env=environment())
        if done.returncode:
            raise CommandError(f"pgflowd {' '.join(words)} has failed", returncode=done.returncode)


Command = ManageCommand  # the name that Django looks for


def environment() -> dict[str, str]:
    """This process's environment, with the database and the config of the settings."""
    given = connections[database_alias()].get_connection_params()
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    url = make_conninfo(**{key: value for key, value in given.items() if key in known})
    paths = [*sys.path[:1], *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    python_path = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    found = {**os.environ, _DATABASE: url, "PYTHONPATH": python_path}
    if config := getattr(settings, "PGFLOWD", {}).get("config"):
        found.setdefault(_CONFIG, str(config))
    return found
