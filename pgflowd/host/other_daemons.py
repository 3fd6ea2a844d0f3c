"""
Finds a daemon that another user, or another session of ours, has started under the same name.

The runtime directory depends on the user and the session, so a command may look in another one than
its daemon. Only what we may ask is found: root may ask all.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pgflowd.host.socket_place import is_listening

_PLACES = (("/run", "pgflowd"), ("/run", "user/*/pgflowd"), ("/tmp", "pgflowd-*"))


@dataclass(frozen=True)
class OtherDaemon:
    """The socket of a daemon, and the name of its user."""

    socket: Path
    user: str


def other_daemons(name: str) -> Iterator[OtherDaemon]:
    """Yield the daemons of this name, in whichever runtime directory they listen."""
    for top, pattern in _PLACES:
        with contextlib.suppress(OSError):
            for path in sorted(Path(top).glob(f"{pattern}/{name}.sock")):
                with contextlib.suppress(OSError):
                    state = path.lstat()
                    may_ask = os.geteuid() in {0, state.st_uid}
                    if stat.S_ISSOCK(state.st_mode) and may_ask and is_listening(path):
                        yield OtherDaemon(path, owner_of(path) or "?")


def owner_of(path: Path) -> str | None:
    """Return the user to whom a path belongs, or else its directory."""
    for place in (path, path.parent):
        with contextlib.suppress(OSError):
            uid = place.lstat().st_uid
            try:
                return pwd.getpwuid(uid).pw_name
            except KeyError:
                return str(uid)
    return None
