"""
The directory in which the daemon was started. Somebody may delete it while the daemon runs.

A deployment may delete it and make it anew: `restore` then returns to its path. Without one, all
goes on that needs none; only what is relative to it is not found.
"""

from __future__ import annotations

import os
from pathlib import Path

from pgflowd.errors import Problem


class WorkingDirectory:
    """The directory of this process, and whether its loss was reported."""

    def __init__(self) -> None:
        self._path = Path.cwd()
        self._is_gone = False

    def restore(self) -> Problem | None:
        """Return to the directory if it was made anew; report W114, once, if it is gone."""
        was_gone = self._is_gone
        self._is_gone = not (_has_directory() or self._return())
        if was_gone or not self._is_gone:
            return None
        text = f"the working directory {self._path} was deleted; what is relative to it is missing"
        return Problem("W114", text, None, "make it again, or restart the daemon in another one")

    def _return(self) -> bool:
        try:
            os.chdir(self._path)
        except OSError:
            return False
        return True


def _has_directory() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True
