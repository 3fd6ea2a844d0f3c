"""
The PostgreSQL versions the tests run on, and where their programs come from.

    15      Debian's package (pgTAP and pg_cron come with it)
    16, 18  the wheel of the embedded server
    17      npm; `make test` installs it

A missing one fails the test that needs it, and says what to install.
"""

from __future__ import annotations

from pathlib import Path

from pgflowd.host.postgres import wheel_binaries

MAJORS = (15, 16, 17, 18)
DEBIAN = Path("/usr/lib/postgresql/15/bin")
NPM = Path(__file__).parent / "npm" / "node_modules" / "pg17" / "native" / "bin"


def binaries_of(major: int) -> Path:
    """Return the directory of the programs of a major version."""
    if major == 15:
        remedy = "apt-get install postgresql-15 postgresql-15-pgtap postgresql-15-cron"
        return _there(DEBIAN, remedy)
    if major == 17:
        return _there(NPM, "npm ci --prefix tests/npm")
    return wheel_binaries(major)


def _there(binaries: Path, remedy: str) -> Path:
    if not (binaries / "postgres").exists():
        raise AssertionError(f"this test needs {binaries / 'postgres'}; run `{remedy}`")
    return binaries
