"""`pgflowd config` shows the settings in force and their origin, and never a secret."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.covers import covers

from pgflowd.core.settings.keys import keys_of
from pgflowd.core.settings.sections import SECTIONS


def test_show_prints_a_config_file_with_every_key(pgflowd: Callable) -> None:
    ended = pgflowd("config", "show")

    assert ended.code == 0
    shown = tomllib.loads(ended.out)
    for section, kind in SECTIONS.items():
        assert list(shown[section]) == list(keys_of(kind))


def test_show_prints_where_each_value_comes_from(
    pgflowd: Callable, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "pgflowd.toml").write_text(
        '[worker]\nmax_concurrency = 2\n[flows.send_email]\nkill_grace = "3s"\n'
    )
    monkeypatch.setenv("PGFLOWD__WORKER__POLL_MIN", "100ms")

    ended = pgflowd("config", "show", "--origin", "--database-url", "postgresql://db1/x")

    (web,) = re.findall(r"^\[web\]\n(?:.+\n)*", ended.out, re.MULTILINE)  # it has a url, too
    lines = {line.partition(" ")[0]: line for line in ended.out.replace(web, "").splitlines()}
    assert lines["max_concurrency"].endswith("# pgflowd.toml:2")
    assert lines["poll_min"].endswith("# PGFLOWD__WORKER__POLL_MIN")
    assert lines["url"].endswith("# --database-url")
    assert lines["poll_max"].endswith("# default")
    assert "[flows.send_email]" in lines
    assert lines["#"] == f"# {elsewhere}/pgflowd.toml"
    assert tomllib.loads(ended.out)["flows"]["send_email"] == {"kill_grace": "3s"}


def test_show_in_json_has_the_same_values(pgflowd: Callable, elsewhere: Path) -> None:
    (elsewhere / "pgflowd.toml").write_text('[flows.a]\nenabled = false\n[worker]\npoll_max="3s"')

    plain = pgflowd("config", "show", "--json").json
    origins = pgflowd("config", "show", "--json", "--origin").json

    assert plain["schema_version"] == 1
    assert plain["file"] == f"{elsewhere}/pgflowd.toml"
    assert plain["settings"]["worker"]["poll_max"] == "3s"
    assert plain["settings"]["flows"] == {"a": {"enabled": False}}
    assert origins["settings"]["worker"]["poll_max"] == {
        "value": "3s",
        "origin": "pgflowd.toml:4",
    }


def test_show_never_prints_a_secret(
    pgflowd: Callable, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "secret").write_text("postgresql://app:c4n4ry@db1/x")
    (elsewhere / "pgflowd.toml").write_text(
        '[database]\nurl = "postgresql://app:c4n4ry@db1/x"\nlisten_url = "file:secret"\n'
    )
    monkeypatch.setenv("SECRET", "c4n4ry")

    for args in ([], ["--json"], ["--origin"], ["--database-url", "env:SECRET"]):
        ended = pgflowd("config", "show", *args)

        assert ended.code == 0
        assert "c4n4ry" not in ended.out + ended.err


def test_a_warning_comes_with_the_result_unless_quiet(pgflowd: Callable, elsewhere: Path) -> None:
    path = elsewhere / "pgflowd.toml"
    path.write_text('[database]\nurl = "host=h password=c4n4ry"\n')
    path.chmod(0o644)

    loud, quiet = pgflowd("config", "show"), pgflowd("-q", "config", "show")

    assert (loud.code, quiet.code) == (0, 0)
    assert "W110" in loud.err
    assert quiet.err == ""
    assert pgflowd("config", "show", "--json").problems[0]["code"] == "W110"


@covers("row 101")
def test_a_wrong_file_shows_all_its_mistakes_and_exits_78(
    pgflowd: Callable, elsewhere: Path
) -> None:
    (elsewhere / "pgflowd.toml").write_text(
        '[pgflowd]\nflows = ["flows.analyze"]\n\n[worker]\n'
        'max_concurency = 5\nkill_grace = 2\nbatch_size = 0\npoll_min = "10s"\n'
    )

    ended = pgflowd("config", "show")

    assert ended.code == 78
    assert ended.out == ""
    assert ended.err == (
        "pgflowd.toml:5         E102  [worker] has no key 'max_concurency'; "
        "did you mean 'max_concurrency'?\n"
        "pgflowd.toml:6         E104  [worker] kill_grace is 2, without a unit; "
        'write a text such as "30s"; units are ms, s, m, h, d\n'
        "pgflowd.toml:7         E105  [worker] batch_size is 0; it must be from 1 to 1000\n"
        "pgflowd.toml:8         E106  [worker] poll_min (10s) is more than poll_max (5s)\n"
        "4 errors\n"
    )
    assert [each["code"] for each in pgflowd("config", "show", "--json").problems] == [
        "E102",
        "E104",
        "E105",
        "E106",
    ]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["-c", "none.toml"], "E101"),
        (["-i", "none_such_instance"], "E101"),
        (["-i", "../etc"], "E105"),
        (["--database-url", "a\nb"], "E105"),
    ],
)
def test_a_wrong_flag_is_named(args: list[str], code: str, pgflowd: Callable) -> None:
    ended = pgflowd("config", "show", *args)

    assert ended.code == 78
    assert f"  {code}  " in ended.err
    assert len(ended.err.splitlines()) == 1


HOSTILE = [
    b'"\\u001b[2J\\nkey" = 1\n["\\u0000"]\n[worker]\n"x\\ny" = 1\nkill_grace = "\\u001b[31m"\n',
    b'[flows."x\\"; drop table pgflow.runs; --"]\nnope = 1\n',
    b'[flows."\'$%"]\nenabled = 1\n',
    '["\u202e"]\n[worker]\nsignal_strategy = "\u2028"\n'.encode(),
]


@covers("row 107")
@pytest.mark.parametrize("content", HOSTILE)
def test_a_hostile_file_has_one_line_for_each_problem(
    content: bytes, pgflowd: Callable, elsewhere: Path
) -> None:
    (elsewhere / "pgflowd.toml").write_bytes(content)

    listed = pgflowd("config", "show", "--json").problems
    ended = pgflowd("config", "show")

    assert ended.code == 78
    assert len(ended.err.splitlines()) == len(listed) + (len(listed) > 1)
    assert all(char.isprintable() or char == "\n" for char in ended.err)


def test_schema_is_for_editors_and_knows_every_key(pgflowd: Callable) -> None:
    ended = pgflowd("config", "schema")

    assert ended.code == 0
    worker = ended.json["properties"]["worker"]["properties"]
    assert worker["max_concurrency"] == {
        "description": "tasks at once, on at most 1000 runners (1 to 10000). "
        "Refused as `E103`, `E105`: see `pgflowd explain`.",
        "type": "integer",
        "minimum": 1,
        "maximum": 10000,
        "default": 10,
    }
    assert pgflowd("config", "schema", "--json").json == ended.json
    of_pyproject = pgflowd("config", "schema", "--pyproject").json
    assert (
        of_pyproject["properties"]["name"]
        == ended.json["properties"]["pgflowd"]["properties"]["name"]
    )


def test_env_lists_the_variable_of_each_key(pgflowd: Callable) -> None:
    ended = pgflowd("config", "env")
    listed = pgflowd("config", "env", "--json").json["variables"]

    assert ended.code == 0
    assert ended.out.split()[:3] == ["VARIABLE", "KEY", "DEFAULT"]
    assert "PGFLOWD__WORKER__MAX_CONCURRENCY" in ended.out
    assert {"name", "section", "key", "default", "takes_file"} == set(listed[0])
    assert len(ended.out.splitlines()) == len(listed) + 1


def test_a_listed_variable_works(pgflowd: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in pgflowd("config", "env", "--json").json["variables"]:
        if each["default"] in ("", []) or "<" in each["name"]:
            continue
        default = each["default"]
        value = str(default).lower() if isinstance(default, bool) else default
        text = value if isinstance(value, str) else str(value).replace("'", '"')
        monkeypatch.setenv(each["name"], text)

    ended = pgflowd("config", "show", "--json", "--origin")

    assert ended.code == 0
    assert ended.json["settings"]["worker"]["kill_grace"] == {
        "value": "2s",
        "origin": "PGFLOWD__WORKER__KILL_GRACE",
    }


def test_version_lists_the_parts(pgflowd: Callable) -> None:
    from pgflowd import __version__

    ended = pgflowd("version")

    assert ended.code == 0
    assert ended.out.splitlines()[0].split() == ["pgflowd", __version__]
    assert {"pgflowd", "python", "psycopg", "pgmq"} <= set(pgflowd("version", "--json").json)


def test_version_takes_no_argument(pgflowd: Callable) -> None:
    assert pgflowd("version", "x").code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell: str, pgflowd: Callable) -> None:
    ended = pgflowd("completion", shell)

    assert ended.code == 0
    assert "_PGFLOWD_COMPLETE" in ended.out
    assert pgflowd("completion", shell, "--json").json["script"] in ended.out


def test_the_bash_script_is_bash(pgflowd: Callable) -> None:
    script = pgflowd("completion", "bash").out

    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_completion_knows_three_shells(pgflowd: Callable) -> None:
    ended = pgflowd("completion", "tcsh")

    assert ended.code == 2
    assert "bash" in ended.err
