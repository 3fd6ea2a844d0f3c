"""
More than one machine: fixtures `network`, `servers` and `setup`.

Tests with network namespaces are collected for root only, since they create them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import DaemonSetup
from support.network import Network
from support.servers import Servers

collect_ignore = [] if os.geteuid() == 0 else ["test_three_machines.py"]


@pytest.fixture
def servers() -> Iterator[Servers]:
    running = Servers()
    yield running
    running.close()


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[DaemonSetup]:
    """A setup without a database yet."""
    setup = DaemonSetup(tmp_path, "")
    yield setup
    setup.close()
