"""The roles of docs/operate/security.md: what `pgflowd doctor` says that each may do."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo
from support.pages import ROOT, blocks_of

from pgflowd.cli.main import run
from pgflowd.embedded import wheel_binaries

PAGE = "docs/operate/security.md"
((SCRIPT,), (USERS,)) = blocks_of(PAGE, "console"), blocks_of(PAGE, "sql")
ROWS = re.findall(
    r"^\| `(\w+)` \|.*\| (may [^|]+) \|$", (ROOT / PAGE).read_text("utf-8"), re.MULTILINE
)
USER_OF = dict(re.findall(r"grant (\w+) to (\w+);", USERS))


@pytest.fixture
def users(database: Any) -> Iterator[dict[str, str]]:
    """The user of each role, after the commands and statements of the page."""
    conn, mark = database.connect(), f"shop{os.getpid()}_"
    made, given = (shlex.split(part) for part in SCRIPT.removeprefix("$ ").split("|"))
    assert (given[0], given[-1]) == ("psql", "shop")
    printed = subprocess.run(
        [sys.executable, "-m", *made], capture_output=True, check=True, timeout=60
    ).stdout
    psql = [wheel_binaries() / "psql", "-qX", *given[1:-1], database.dsn]
    subprocess.run(psql, input=printed, check=True, timeout=60)
    conn.execute(USERS.replace("shop_", mark))
    named = {role: user.replace("shop_", mark) for role, user in USER_OF.items()}
    yield named
    for user in named.values():
        conn.execute(f"drop owned by {user}; drop role {user}")


def test_each_user_may_do_what_the_table_says(
    users: dict[str, str], database: Any, capsys: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert [role for role, _ in ROWS] == list(users)

    for role, said in ROWS:
        run(["doctor", "--database-url", make_conninfo(database.dsn, user=users[role])])

        assert f"{users[role]} {said}\n" in capsys.readouterr().out
