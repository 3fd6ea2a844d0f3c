"""Config files: which one is read, their errors, and the sources of secrets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.covers import covers

from pgflowd.core.settings.load import MAX_HINTS
from pgflowd.core.settings.sections import Settings
from pgflowd.core.settings.values import Ref
from pgflowd.errors import ConfigError, Problem
from pgflowd.host.config import control_path, load, read, runtime_directory

Write = Callable[[str, str], Path]


class Place:
    """A machine's directories, as far as config files matter."""

    def __init__(self, root: Path) -> None:
        self.cwd, self.etc = root / "cwd", root / "etc"
        self.cwd.mkdir()
        self.etc.mkdir()
        self.environ: dict[str, str] = {}

    def named(self, path: Path, name: str) -> None:
        path.write_text(f'[pgflowd]\nname = "{name}"\n')

    def write(self, text: str | bytes, name: str = "pgflowd.toml") -> Path:
        path = self.cwd / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(0o600)
        return path

    def load(self, **wishes: object) -> Settings:
        return load(environ=self.environ, cwd=self.cwd, etc=self.etc, **wishes)  # type: ignore[arg-type]

    def problems(self, **wishes: object) -> list[Problem]:
        with pytest.raises(ConfigError) as caught:
            self.load(**wishes)
        return caught.value.problems


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_first_of_all_places_is_read(place: Place) -> None:
    assert place.load().pgflowd.name == "pgflowd"

    place.named(place.etc / "pgflowd.toml", "etc")
    assert place.load().pgflowd.name == "etc"

    (place.cwd / "pyproject.toml").write_text('[project]\nname = "x"\n')
    assert place.load().pgflowd.name == "etc"

    (place.cwd / "pyproject.toml").write_text('[tool.pgflowd.pgflowd]\nname = "pyproject"\n')
    assert place.load().pgflowd.name == "pyproject"

    place.named(place.cwd / "pgflowd.toml", "here")
    assert place.load().pgflowd.name == "here"

    place.named(place.cwd / "other.toml", "variable")
    place.environ["PGFLOWD_CONFIG"] = "other.toml"
    assert place.load().pgflowd.name == "variable"

    place.named(place.etc / "shop.toml", "instance")
    assert place.load(instance="shop").pgflowd.name == "instance"

    place.named(place.cwd / "flag.toml", "flag")
    assert place.load(config="flag.toml", instance="shop").pgflowd.name == "flag"


def test_the_settings_know_their_file_and_the_places_of_values(place: Place) -> None:
    path = place.write('[worker]\n\npoll_min = "1s"')

    settings = place.load()

    assert settings.file == str(path)
    assert settings.origin_of("worker", "poll_min").place == "pgflowd.toml:3"


def test_a_file_of_another_directory_is_named_in_full(place: Place) -> None:
    (place.etc / "pgflowd.toml").write_text("[worker]\nx = 1")

    assert place.problems()[0].place == f"{place.etc}/pgflowd.toml:2"


@pytest.mark.parametrize("wish", [{"config": "none.toml"}, {"instance": "none"}])
def test_a_file_that_the_user_named_must_be_there(place: Place, wish: dict[str, str]) -> None:
    problem = place.problems(**wish)[0]

    assert problem.code == "E101"
    assert "No such file" in problem.text
    assert "none.toml" in (problem.place or "")


def test_a_file_named_by_the_environment_must_be_there(place: Place) -> None:
    place.environ["PGFLOWD_CONFIG"] = "none.toml"

    assert [problem.code for problem in place.problems()] == ["E101"]


def test_a_directory_is_not_a_config_file(place: Place) -> None:
    assert "Is a directory" in place.problems(config=".")[0].text


@pytest.mark.parametrize("name", ["../x", "a/b", "", "a b", "x" * 33, "a\n", "\x00"])
def test_an_instance_has_a_plain_name(place: Place, name: str) -> None:
    problem = place.problems(instance=name)[0]

    assert (problem.code, problem.place) == ("E105", "--instance")


NOT_TOML = [
    (b"[worker]\nx = \n", 2),
    (b"[worker]\nx = 1\nx = 2\n", 3),
    (b"[worker]\n\n[worker]\n", 3),
    (b'a = 1\nb = "never closed\n', 2),
    (b'a = """\nnever\nclosed', 3),
    (b"a = [1,\n2\n", 2),
    (b"\xff\xfe", 1),
    (b"[worker]\nname = '\xe4'\n", 2),
    (b"x = 1\n\x00", 2),
    (b"key", 1),
    (b"a = 1979-13-01", 1),
    (b"[a]\nb.c = 1\n[a.b]\nd = 1", 3),
]


@covers("E109")
@pytest.mark.parametrize(("content", "line"), NOT_TOML)
def test_what_is_not_toml_is_reported_with_its_line(
    place: Place, content: bytes, line: int
) -> None:
    place.write(content)

    problem = place.problems()[0]

    assert problem.code == "E109"
    assert problem.place == f"pgflowd.toml:{line}"
    assert len(str(problem).splitlines()) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"a = " + b"[" * 100_000,
        b"a = " + b"9" * 10_000,
        b"#" * (1024 * 1024 + 1),
        b"a = " + b"{a = " * 5000,
    ],
)
def test_a_monstrous_file_is_refused_and_not_swallowed(place: Place, content: bytes) -> None:
    place.write(content)

    assert [problem.code for problem in place.problems()] == ["E109"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[pgflowd]\n[pgflowd]", "Cannot declare 'pgflowd' twice"),
        (b'[a.b."c.d"]\n[a.b."c.d"]', "Cannot declare 'a.b.c.d' twice"),
        (b'[a."it\'s"]\n[a."it\'s"]', "Cannot declare 'a.it's' twice"),
    ],
)
def test_an_error_names_a_key_as_people_write_it(place: Place, content: bytes, said: str) -> None:
    place.write(content)

    assert place.problems()[0].text == f"it is not valid TOML: {said}"


def test_of_thousands_of_unknown_keys_each_is_reported_and_the_first_have_hints(
    place: Place,
) -> None:
    keys = [f"max_concurency{number} = 1" for number in range(3000)]
    place.write("\n".join(["[worker]", *keys]))

    problems = [problem for problem in place.problems() if problem.code == "E102"]

    assert len(problems) == 3000
    assert 0 < len([problem for problem in problems if problem.next]) <= MAX_HINTS


def test_a_huge_number_is_out_of_range_and_breaks_no_message(place: Place) -> None:
    place.write(f"[worker]\nmax_concurrency = 0x{'f' * 6000}")

    assert "more than 60 digits" in place.problems()[0].text


def test_a_byte_order_mark_is_forgiven(place: Place) -> None:
    place.write(b"\xef\xbb\xbf[pgflowd]\nname = 'bom'")

    assert place.load().pgflowd.name == "bom"


@pytest.mark.parametrize("text", ["tool.pgflowd = 5", "[[tool.pgflowd]]", "[tool]\npgflowd = [1]"])
def test_our_table_in_a_pyproject_must_be_a_table(place: Place, text: str) -> None:
    place.write(f"\n{text}\n", "pyproject.toml")

    (problem,) = place.problems()

    assert problem.code == "E103"
    assert problem.place == f"pyproject.toml:{text.count(chr(10)) + 2}"
    assert problem.next == "write [tool.pgflowd] on a line of its own"


@pytest.mark.parametrize(
    "text", ["tool = 3 # tool.pgflowd", "[[tool]]\n[tool.pgflowd]\nname = 'x'"]
)
def test_a_pyproject_whose_tools_are_no_table_has_none_of_ours(place: Place, text: str) -> None:
    place.write(text, "pyproject.toml")

    assert place.load().file is None


@pytest.mark.parametrize("head", ["[tool . pgflowd]", '["tool"."pgflowd"]', "[tool]\npgflowd."])
def test_our_table_in_a_pyproject_may_be_written_as_toml_allows(place: Place, head: str) -> None:
    place.write(f"{head}{'' if head.endswith('.') else chr(10)}name = 'x'", "pyproject.toml")

    assert place.load().pgflowd.name == "x"


def test_a_link_to_nowhere_is_a_file_that_is_missed(place: Place) -> None:
    (place.cwd / "pgflowd.toml").symlink_to("moved-away.toml")

    (problem,) = place.problems()

    assert (problem.code, problem.place) == ("E101", "pgflowd.toml")


def test_a_pipe_with_a_writer_is_read(place: Place) -> None:
    pipe = place.cwd / "pgflowd.toml"
    os.mkfifo(pipe)
    (problem,) = place.problems()
    assert problem.code == "E101"
    assert problem.text.endswith("it is a pipe without a writer")

    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, b"[pgflowd]\nname = 'piped'\n")
    reader = os.open(pipe, os.O_RDONLY)
    os.close(writer)
    assert place.load().pgflowd.name == "piped"
    os.close(reader)


def test_a_broken_pyproject_without_our_table_is_none_of_our_business(place: Place) -> None:
    place.write("[project", "pyproject.toml")
    assert place.load().file is None

    place.write("[tool.pgflowd.worker]\nx = ", "pyproject.toml")
    assert [problem.place for problem in place.problems()] == ["pyproject.toml:2"]


def test_a_wrong_file_shows_all_its_mistakes_in_the_order_of_its_lines(place: Place) -> None:
    place.environ = {"PGFLOWD__WORKER__KILL_GRACE": "1", "PGFLOWD__DATABASE__URL": "env:NOPE"}
    place.write(
        """\
        [pgflowd]
        name = "no such name"
        [worker]
        max_concurency = 5
        batch_size = "many"
        runner_idle = 60
        poll_min = "10s"
        [recovery]
        lease = "1000d"
        [worke]
        x = 1
        """
    )

    found = [(each.place, each.code) for each in place.problems(serving=True)]

    assert found == [
        ("PGFLOWD__DATABASE__URL", "E107"),
        ("PGFLOWD__WORKER__KILL_GRACE", "E104"),
        ("pgflowd.toml", "E111"),
        ("pgflowd.toml:2", "E105"),
        ("pgflowd.toml:4", "E102"),
        ("pgflowd.toml:5", "E103"),
        ("pgflowd.toml:6", "E104"),
        ("pgflowd.toml:7", "E106"),
        ("pgflowd.toml:9", "E105"),
        ("pgflowd.toml:10", "E102"),
    ]


@covers("E107", "E111")
def test_only_serve_needs_flows_and_readable_secrets(place: Place) -> None:
    place.write('[database]\nurl = "cred:database_url"')

    assert place.load().database.url == Ref("cred:database_url")
    assert {problem.code for problem in place.problems(serving=True)} == {"E107", "E111"}


def test_without_any_file_the_message_names_the_searched_places(place: Place) -> None:
    assert "pyproject.toml" in (place.problems(serving=True)[0].place or "")


@covers("row 102")
@pytest.mark.parametrize(
    "url", ["postgresql://u:pw@h/d", "host=h password=pw", "postgresql://h/d?password=pw"]
)
def test_a_password_in_a_file_that_others_can_read_is_warned_about(place: Place, url: str) -> None:
    path = place.write(f'[database]\nurl = "{url}"')
    assert place.load().warnings == ()

    path.chmod(0o644)
    warning = place.load().warnings[0]

    assert (warning.code, warning.place) == ("W110", "pgflowd.toml:2")
    assert "pw" not in str(warning)


def test_a_token_is_a_secret_as_well(place: Place) -> None:
    token = place.write("s3cret", "token")
    token.chmod(0o644)
    place.write('[http]\ntoken = "file:token"')
    assert [each.code for each in place.load().warnings] == ["W110"]
    assert "[http] token holds a token" in place.load().warnings[0].text

    token.unlink()

    assert {problem.code for problem in place.problems(serving=True)} == {"E107", "E111"}


@covers("row 102")
def test_a_secret_file_that_others_can_read_is_warned_about(place: Place) -> None:
    secret = place.write("postgresql://h/d", "secret")
    place.write('[database]\nurl = "file:secret"').chmod(0o644)
    assert place.load().warnings == ()

    secret.chmod(0o604)

    assert str(secret) in place.load().warnings[0].text


def test_a_directory_named_as_a_secret_has_no_warning_about_its_mode(place: Place) -> None:
    place.write('[database]\nurl = "file:."')

    assert place.load().warnings == ()


@pytest.mark.parametrize("url", ["nonsense", "mysql://u:geheim@h/d", "postgresql://u:%ZZ@h/d"])
def test_a_daemon_with_a_malformed_url_does_not_start(place: Place, url: str) -> None:
    place.write(f'[pgflowd]\nflows = ["a"]\n[database]\nurl = "{url}"')

    [problem] = place.problems(serving=True)

    assert (problem.code, problem.place) == ("E105", "pgflowd.toml:4")
    assert "geheim" not in str(problem)


def test_a_url_without_a_password_is_not_a_secret(place: Place) -> None:
    place.write('[database]\nurl = "postgresql://u@h/d"').chmod(0o644)

    assert place.load().warnings == ()


def test_a_secret_is_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("first\n")
    ref = Ref(f"file:{path}")
    assert read(ref) == "first"

    path.write_text("second\r\n")
    assert read(ref) == "second"


def test_a_secret_comes_from_the_environment_a_file_or_a_credential(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("from-cred")
    environ = {"URL": "from-env", "CREDENTIALS_DIRECTORY": str(tmp_path)}

    assert read(Ref("env:URL"), environ=environ) == "from-env"
    assert read(Ref("cred:url"), environ=environ) == "from-cred"
    assert read(Ref("postgresql://h"), environ=environ) == "postgresql://h"
    assert read(Ref("environment:x"), environ=environ) == "environment:x"


@pytest.mark.parametrize(
    ("written", "cause"),
    [
        ("env:NOPE", "no variable NOPE"),
        ("env:", "no variable"),
        ("file:/nonexistent/secret", "No such file"),
        ("file:/dev/zero", "not a regular file"),
        ("file:/", "cannot be read"),
        ("file:/a\x00b", "cannot be read"),
        ("cred:url", "no systemd credentials here"),
        ("cred:../passwd", "no systemd credentials here"),
    ],
)
def test_a_missing_value_is_reported_with_the_cause(written: str, cause: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(Ref(written), place="[database] url", environ={})

    problem = caught.value.problems[0]
    assert (problem.code, problem.place) == ("E107", "[database] url")
    assert cause in problem.text
    assert len(str(problem).splitlines()) == 1


def test_a_credential_cannot_lead_out_of_its_directory(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "credentials").mkdir()
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}

    with pytest.raises(ConfigError, match="not a valid name of a credential"):
        read(Ref("cred:../secret"), environ=environ)


def test_a_pipe_in_place_of_a_secret_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ConfigError, match="not a regular file"):
        read(Ref(f"file:{tmp_path}/pipe"))


def test_a_secret_that_is_too_large_or_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 70_000)
    (tmp_path / "bytes").write_bytes(b"\xff")

    with pytest.raises(ConfigError, match="larger than 64 KiB"):
        read(Ref(f"file:{tmp_path}/large"))
    with pytest.raises(ConfigError, match="not UTF-8"):
        read(Ref(f"file:{tmp_path}/bytes"))


def test_the_control_socket_lies_in_the_runtime_directory_unless_configured(place: Place) -> None:
    place.write('[pgflowd]\nname = "shop"')
    place.environ["RUNTIME_DIRECTORY"] = "/run/pgflowd:/run/other"
    assert control_path(place.load(), place.environ) == "/run/pgflowd/shop.sock"

    place.write('[supervisor]\ncontrol = "x.sock"')
    assert control_path(place.load(), place.environ) == f"{place.cwd}/x.sock"


def test_the_runtime_directory_is_systemds_or_the_users() -> None:
    assert runtime_directory({}, uid=0) == Path("/run/pgflowd")
    assert runtime_directory({"XDG_RUNTIME_DIR": "/run/user/7"}, 7) == Path("/run/user/7/pgflowd")
    assert runtime_directory({}, 7).name == "pgflowd-7"


@covers("E112")
def test_a_socket_path_too_long_for_the_kernel_is_found(place: Place) -> None:
    place.write(f'[supervisor]\ncontrol = "/{"s" * 120}"')

    assert [problem.code for problem in place.problems()] == ["E112"]
