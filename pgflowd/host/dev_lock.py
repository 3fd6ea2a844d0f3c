"""
The file that gives other terminals the database URL of a running `pgflowd dev`.

While `dev` runs it holds a lock on `.pgflowd/dev.url` next to the config file. Without the lock the
file is left over from a kill and is ignored.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FILE = Path(".pgflowd", "dev.url")
_MAX_URL = 4096  # bytes; far above any URL


class DevAlreadyRunning(Exception):
    """Another `pgflowd dev` runs here."""


@contextmanager
def announce_url(root: Path, url: str) -> Iterator[None]:
    """Offer this URL to other terminals until the block is left."""
    path = root / _FILE
    path.parent.mkdir(exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DevAlreadyRunning(str(root)) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, url.encode(), 0)
        yield
        with suppress(OSError):
            path.unlink()
    finally:
        os.close(handle)


def unset_libpq_variables() -> None:
    """Unset libpq's variables, which name another database than that of `pgflowd dev`."""
    for name in [name for name in os.environ if name.startswith("PG") and name.isalpha()]:
        del os.environ[name]


def development_url(config: str | None) -> str:
    """Return the URL of the `dev` that runs in the directory of this config file, or ""."""
    path = (Path(config).absolute().parent if config else Path.cwd()) / _FILE
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held: it runs
        return os.pread(handle, _MAX_URL, 0).decode()
    finally:
        os.close(handle)
    return ""
