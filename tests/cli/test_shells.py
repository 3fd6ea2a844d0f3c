"""Completion as people have it: in the real shells, behind the Tab key."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.typist import Typist

WAYS = [  # in which people turn completion on
    ("bash", "source <(pgflowd completion bash)"),
    ("zsh", "autoload -U compinit; compinit -u; source <(pgflowd completion zsh)"),
    (
        "zsh",
        "pgflowd completion zsh >_pgflowd; fpath=($PWD $fpath); autoload -U compinit; compinit -u",
    ),
    ("fish", "set -g fish_autosuggestion_enabled 0; pgflowd completion fish | source"),
]


@pytest.fixture(params=[way for way in WAYS if way[0] == "bash" or shutil.which(way[0])])
def typist(request, shop, elsewhere, monkeypatch) -> Iterator[Typist]:
    """A shell that finds the tested `pgflowd`, with a database that has flows."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PGFLOWD__DATABASE__URL", shop.database.dsn)
    shell, turn_on = request.param
    typist = Typist(shell, elsewhere, turn_on)
    yield typist
    typist.close()


def test_tab_completes_words_of_each_kind(typist, shop):
    run_id = str(shop.start("send_email"))[-8:]

    typist.completes("pgflowd comp", "pgflowd completion")
    typist.completes("pgflowd runs start ana", "pgflowd runs start analyze_website")
    typist.completes(f"pgflowd runs show {run_id[:5]}", f"pgflowd runs show {run_id}")
    typist.completes("pgflowd runs list --si", "pgflowd runs list --since")
    typist.completes("pgflowd completion zs", "pgflowd completion zsh")
    typist.completes("pgflowd docs quar", "pgflowd docs quarantine")


def test_tab_completes_files(typist, elsewhere):
    (elsewhere / "other.toml").write_text("")

    typist.completes("pgflowd --config oth", "pgflowd --config other.toml")
