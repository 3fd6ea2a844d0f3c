"""Runs failed tests once more, alone, and names those that pass only then: each is a bug."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")


def failed() -> set[str]:
    return set(json.loads(FAILED.read_text())) if FAILED.exists() else set()


def main() -> int:
    before = failed()
    again = ["-q", "--last-failed", "--last-failed-no-failures", "none"]
    code = subprocess.run([sys.executable, "-m", "pytest", *again], check=False).returncode
    flaky = sorted(before - failed())
    if flaky:
        lines = "\n".join(f"  {name}" for name in flaky)
        sys.stdout.write(f"passed only at the second try, which is a bug:\n{lines}\n")
    return code if before else 1  # nothing failed, and yet the first run did


if __name__ == "__main__":
    sys.exit(main())
