"""
Development: where the database of a running `pgflowd dev` is, for other terminals.

While it runs it holds a lock on `.pgflowd/dev.url` beside the config file, and the file says
where. Without the lock the file is left over from a kill, and counts for nothing.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PLACE = Path(".pgflowd", "dev.url")
_LONGEST = 4096


class DevServer(Exception):
    """Another `pgflowd dev` runs here."""


@contextmanager
def announced(root: Path, url: str) -> Iterator[None]:
    """Tell other terminals of this database until the block is left."""
    path = root / _PLACE
    path.parent.mkdir(exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DevServer(str(root)) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, url.encode(), 0)
        yield
        with suppress(OSError):
            path.unlink()
    finally:
        os.close(handle)


def forget_libpq() -> None:
    """Drop libpq's variables, which are meant for another database than that of `pgflowd dev`."""
    for name in [name for name in os.environ if name.startswith("PG") and name.isalpha()]:
        del os.environ[name]


def development_url(config: str | None) -> str:
    """Return the URL of the `dev` that runs beside this config file, or nothing."""
    path = (Path(config).absolute().parent if config else Path.cwd()) / _PLACE
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held: it runs
        return os.pread(handle, _LONGEST, 0).decode()
    finally:
        os.close(handle)
    return ""
