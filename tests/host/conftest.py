"""
A place for embedded servers, and users of it.

Tests that need root (switching to another user) are collected for root only.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.embedded import User, alive

from pgflowd.embedded.directory_users import postmaster
from pgflowd.testing import plugin
from pgflowd.testing.until import until

collect_ignore = [] if os.geteuid() == 0 else ["test_embedded_as_root.py"]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for a server, which other users may enter; nothing of it stays."""
    memory = plugin.MEMORY if plugin.has_room(plugin.MEMORY) else None  # disks vary too much
    above = Path(tempfile.mkdtemp(prefix="pgflowd-host-", dir=memory))
    above.chmod(0o711)
    yield above / "db"
    pid = postmaster(above / "db" / "server" / "data")
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)
        until(lambda: not alive(pid))
    shutil.rmtree(above)


@pytest.fixture
def user(place: Path) -> Iterator[Callable[[], User]]:
    """Start a user of the place."""
    users = []

    def start() -> User:
        users.append(User(place))
        return users[-1]

    yield start
    for one in users:
        one.kill()
