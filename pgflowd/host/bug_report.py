"""
Writes an exception that is a bug of pgflowd into a file, so that a user can send it.

The file is in systemd's state directory, else with the temporary files. Only its owner can
read it. Text that looks like a secret is taken out first.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from pgflowd import __version__
from pgflowd.core.redact import redact

_MAX_CHARS = 200_000  # of a report; a recursion makes a very long traceback


def write_report(
    error: BaseException, args: Sequence[str], secrets: Iterable[str] = (), directory: str = ""
) -> Path:
    """Write a report of the error into a new file of mode 0600 and return its path."""
    quoted = [each if each.isprintable() and " " not in each else repr(each) for each in args]
    lines = [
        f"pgflowd {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: pgflowd {' '.join(quoted)}",
        f"directory: {Path.cwd()}",
        f"modules: {' '.join(sorted(name for name in sys.modules if name.startswith('pgflowd')))}",
        "",
    ]
    text = "\n".join(lines) + "".join(traceback.format_exception(error))
    # cut twice: the second cut drops a secret that the first cut split, so redact missed it
    text = redact(text[: 2 * _MAX_CHARS], secrets)[:_MAX_CHARS]
    place = directory or os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if not (place and os.access(place, os.W_OK)):
        place = tempfile.gettempdir()
    handle, name = tempfile.mkstemp(prefix="pgflowd-report-", suffix=".txt", dir=place)
    with os.fdopen(handle, "wb") as file:
        file.write(text.encode("utf-8", "backslashreplace"))
    return Path(name)
