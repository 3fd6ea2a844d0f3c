"""Pages that take their reader by the hand work as they are written."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.walk import WALKED, Walk


@pytest.mark.parametrize("page", WALKED)
def test_a_reader_who_does_what_the_page_says_sees_what_it_shows(page, tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("PG", "PYTEST", "COLUMNS"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PGFLOWD__SUPERVISOR__CONTROL", str(tmp_path / "control.sock"))
    tmp_path.chmod(0o755)  # the server may run as another user

    with Walk(tmp_path) as reader:
        reader.through(page)
