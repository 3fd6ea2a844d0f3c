"""What a container of deploy/ starts: its command and its variables, read as pgflowd reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pgflowd.cli.main import run
from pgflowd.core.settings.load import from_environ
from pgflowd.core.settings.sections import Settings
from pgflowd.host import config

MARGIN_S = 15


def understood(args: Sequence[str], environ: Mapping[str, str], place: Path) -> Settings:
    """Return the settings of a container, whose command and variables must be ours."""
    assert run([*args, "--help"]) == 0, args
    _, problems = from_environ(environ, [], str(place))
    assert problems == []
    return config.load(environ=environ, cwd=place, etc=place)


def grace_s(settings: Settings) -> float:
    """How long a platform waits after SIGTERM, before it kills."""
    return settings.supervisor.drain_timeout_s + settings.worker.kill_grace_s + MARGIN_S
