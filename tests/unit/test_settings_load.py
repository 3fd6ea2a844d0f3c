"""Settings from given values: defaults, precedence, flows, and every mistake with its code."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.config_mistakes import MISTAKES
from support.covers import covers

from pgflowd.core.settings.keys import GivenValue, MissingReference, Origin, keys_of
from pgflowd.core.settings.load import (
    build,
    from_document,
    from_environ,
    from_flags,
    lines_of,
    missing_flows,
    rows,
    socket_too_long,
    unserved,
    variable,
)
from pgflowd.core.settings.sections import SECTIONS, Settings
from pgflowd.core.settings.values import Address, Ref
from pgflowd.errors import Problem

ELSEWHERE = {"env:NAME": "from-env", "file:/etc/x/name.txt": "from_file", "env:BAD": "not a name!"}


def look_up(ref: Ref) -> str:
    if ref.written not in ELSEWHERE:
        raise MissingReference("it is nowhere")
    return ELSEWHERE[ref.written]


def read(
    text: str = "", environ: dict[str, str] | None = None, url: str | None = None
) -> tuple[Settings, list[Problem]]:
    """Build settings from a file's text, an environment and a --database-url."""
    document = from_document(tomllib.loads(text), lines_of(text), "pgflowd.toml", "/etc/x")
    slugs = [each.path[1] for each in document if each.path[0] == "flows" and each.path[1:]]
    variables, doubled = from_environ(environ or {}, slugs, "/cwd")
    flags = from_flags({"--database-url": (("database", "url"), url)}, "/cwd")
    built = build([*flags, *variables, *document], look_up, file="pgflowd.toml")
    return built.settings, [*doubled, *built.problems]


def good(text: str = "", environ: dict[str, str] | None = None, url: str | None = None) -> Settings:
    settings, problems = read(text, environ, url)
    assert problems == []
    return settings


def only(text: str = "", environ: dict[str, str] | None = None) -> Problem:
    _, problems = read(text, environ)
    assert len(problems) == 1, problems
    return problems[0]


def test_without_anything_every_key_has_its_default() -> None:
    settings = good()

    assert settings == Settings(file="pgflowd.toml")
    assert settings.worker.max_concurrency == 10
    assert settings.worker.notify_throttle_s == 0.25
    assert settings.worker.max_output_bytes == 16 * 1024 * 1024
    assert settings.database.startup_wait_s == 300
    assert settings.supervisor.drain_timeout_s == 60
    assert settings.recovery.lease_s == 30
    assert settings.logging.redact == ("password", "secret", "token", "authorization")


def test_every_default_passes_its_own_check() -> None:
    for section, kind in SECTIONS.items():
        for key, (name, meta) in keys_of(kind).items():
            value = meta.read(GivenValue((section, key), meta.default, Origin()), look_up)
            assert value == getattr(kind(), name)


def test_a_flag_beats_the_environment_and_that_beats_the_file() -> None:
    text = '[database]\nurl = "file-url"\nlisten_url = "file-listen"\nreconnect_min = "1s"'
    environ = {"PGFLOWD__DATABASE__URL": "env-url", "PGFLOWD__DATABASE__LISTEN_URL": "env-listen"}

    settings = good(text, environ, url="flag-url")

    assert settings.database.url == Ref("flag-url")
    assert settings.database.listen_url == Ref("env-listen")
    assert settings.database.reconnect_min_s == 1.0
    assert str(settings.origin_of("database", "url")) == "--database-url"
    assert str(settings.origin_of("database", "listen_url")) == "PGFLOWD__DATABASE__LISTEN_URL"
    assert str(settings.origin_of("database", "reconnect_min")) == "pgflowd.toml:4"
    assert str(settings.origin_of("database", "reconnect_max")) == "default"


def test_the_environment_carries_every_kind_of_value() -> None:
    settings = good(
        environ={
            "PGFLOWD__WORKER__MAX_CONCURRENCY": "4",
            "PGFLOWD__WORKER__KILL_GRACE": "1m30s",
            "PGFLOWD__WORKER__MAX_OUTPUT": "1KiB",
            "PGFLOWD__LOGGING__PAYLOADS": "true",
            "PGFLOWD__LOGGING__LEVEL": "debug",
            "PGFLOWD__LOGGING__LEVELS": '{"httpx": "warning"}',
            "PGFLOWD__PGFLOWD__FLOWS": '["shop", "bank:flow"]',
            "PGFLOWD__PGFLOWD__PYTHON_PATH": '["src", "/abs"]',
            "PGFLOWD_CONFIG": "not one of these",
        }
    )

    assert settings.worker.max_concurrency == 4
    assert settings.worker.kill_grace_s == 90
    assert settings.worker.max_output_bytes == 1024
    assert settings.logging.payloads is True
    assert settings.logging.level == "debug"
    assert settings.logging.levels == (("httpx", "warning"),)
    assert settings.pgflowd.flows == ("shop", "bank:flow")
    assert settings.pgflowd.python_path == ("/cwd/src", "/abs")


def test_paths_are_relative_to_the_file() -> None:
    text = '[pgflowd]\npython_path = ["src", "../lib"]\n[supervisor]\ncontrol = "run/x.sock"'

    settings = good(text)

    assert settings.pgflowd.python_path == ("/etc/x/src", "/etc/lib")
    assert settings.supervisor.control == "/etc/x/run/x.sock"


def test_a_flow_overrides_keys_of_its_worker() -> None:
    settings = good(
        '[worker]\nkill_grace = "1s"\n[flows.sendEmail]\nmax_concurrency = 2\n'
        '[flows.off]\nenabled = false\n[flows."empty"]'
    )

    assert settings.worker_for("sendEmail").max_concurrency == 2
    assert settings.worker_for("sendEmail").kill_grace_s == 1
    assert settings.worker_for("other") == settings.worker
    assert settings.is_enabled("sendEmail")
    assert not settings.is_enabled("off")
    assert settings.flows["empty"].worker == {}


def test_what_undoes_the_runs_of_a_flow_has_its_settings() -> None:
    settings = good(
        "[flows.orders]\nenabled = false\nmax_concurrency = 2\n"
        "[flows.mails]\nmax_concurrency = 3\n[flows.undo_mails]\nmax_concurrency = 4"
    )

    assert settings.worker_for("undo_Orders").max_concurrency == 2
    assert not settings.is_enabled("undo_orders")
    assert settings.worker_for("undo_mails").max_concurrency == 4
    assert settings.worker_for("mails").max_concurrency == 3


def test_a_variable_finds_the_flow_whose_capitals_it_has() -> None:
    environ = {
        "PGFLOWD__FLOWS__SENDEMAIL__MAX_CONCURRENCY": "3",
        "PGFLOWD__FLOWS__SENDEMAIL__ENABLED": "0",
        "PGFLOWD__FLOWS__A__B__ENABLED": "false",
        "PGFLOWD__FLOWS__NEW_ONE__POLL_MIN": "1s",
    }

    settings = good('[flows.sendEmail]\nkill_grace = "1s"', environ)

    assert settings.flows["sendemail"].slug == "sendEmail"
    assert settings.worker_for("sendEmail").max_concurrency == 3
    assert settings.worker_for("sendEmail").kill_grace_s == 1
    assert not settings.is_enabled("sendEmail")
    assert not settings.is_enabled("a__b")
    assert settings.worker_for("New_One").poll_min_s == 1


def test_texts_may_stand_elsewhere_and_secrets_stay_there() -> None:
    settings = good('[pgflowd]\nname = "env:NAME"\n[database]\nurl = "cred:database_url"')

    assert settings.pgflowd.name == "from-env"
    assert settings.database.url == Ref("cred:database_url")
    assert settings.database.url.scheme == "cred"


def test_what_stands_elsewhere_is_shown_as_its_place() -> None:
    settings = good('[pgflowd]\nname = "env:NAME"\n[flows.a]\nworker_name = "file:name.txt"')

    shown = {(row.section, row.key): row.value for row in rows(settings)}

    assert shown[("pgflowd",), "name"] == "env:NAME"
    assert shown[("flows", "a"), "worker_name"] == "file:name.txt"


def test_a_file_variable_is_relative_to_where_it_was_typed_and_a_file_value_to_its_file() -> None:
    assert good(environ={"PGFLOWD__DATABASE__URL_FILE": "secret"}).database.url == Ref(
        "file:/cwd/secret"
    )
    assert good('[database]\nurl = "file:secret"').database.url == Ref("file:/etc/x/secret")
    assert good('[pgflowd]\nname = "file:name.txt"').pgflowd.name == "from_file"


def test_the_name_is_that_of_the_instance_unless_configured() -> None:
    assert build([], look_up, instance="shop").settings.pgflowd.name == "shop"

    text = '[pgflowd]\nname = "mine"'
    document = from_document(tomllib.loads(text), {}, "x.toml", "/")

    assert build(document, look_up, instance="shop").settings.pgflowd.name == "mine"


def test_a_secret_is_not_in_the_repr_of_anything() -> None:
    settings = good('[database]\nurl = "postgresql://u:hunter2@h/d"')

    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings.database.url)
    assert "hunter2" not in f"{settings.database}"


def test_a_dashboard_that_asks_for_logins_may_be_reached_by_others() -> None:
    web = good(
        "[web]\nlisten = '0.0.0.0:7460'\nauth = 'password'\nusers = 'users'\n"
        "hosts = ['flows.example', '::1']\ntrusted_proxies = ['unix', '10.0.0.0/8', '::1']\n"
        "base_path = '/a/b-c'"
    ).web

    assert (web.users, web.address) == ("/etc/x/users", Address("0.0.0.0", 7460))


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:7461", Address("127.0.0.1", 7461)),
        ("localhost:1", Address("127.0.0.1", 1)),
        ("[::1]:65535", Address("::1", 65535)),
        ("unix:run/http.sock", Address(path="/etc/x/run/http.sock")),
        ("", None),
    ],
)
def test_an_address_of_this_machine_needs_no_token(listen: str, address: Address | None) -> None:
    assert good(f'[http]\nlisten = "{listen}"').http.address == address


def test_an_address_that_others_reach_is_right_with_a_token() -> None:
    http = good('[http]\nlisten = "0.0.0.0:7461"\ntoken = "file:t"').http

    assert (http.address, http.token) == (Address("0.0.0.0", 7461), Ref("file:/etc/x/t"))


@covers("row 101")
@pytest.mark.parametrize(("text", "code", "part"), MISTAKES)
def test_each_mistake_has_its_code_and_its_line(text: str, code: str, part: str) -> None:
    problem = only(text)

    assert problem.code == code
    assert part in problem.text
    line = 1 if part.startswith("no section") else text.count("\n") + 1
    assert problem.place == f"pgflowd.toml:{line}"


@pytest.mark.parametrize(
    ("text", "next_"),
    [
        ("[worker]\nmax_concurency = 5", "did you mean 'max_concurrency'?"),
        ("[Worker]\nx = 1", "did you mean [worker]?"),
        ("[worker]\nlease = '1s'", "it belongs in [recovery]"),
        ("drain_timeout = '1s'", "it belongs in [supervisor]"),
        ("[flows.a]\nenable = true", "did you mean 'enabled'?"),
        ("[worker]\nqqq = 1", None),
    ],
)
def test_an_unknown_key_gets_a_suggestion_where_there_is_one(text: str, next_: str | None) -> None:
    assert only(text).next == next_


VARIABLES = [
    ("PGFLOWD__WORKER__POLL_MINN", "1s", "E102"),
    ("PGFLOWD__NOPE__X", "1", "E102"),
    ("PGFLOWD__", "1", "E102"),
    ("PGFLOWD__WORKER", "1", "E103"),
    ("PGFLOWD__FLOWS__A", "1", "E102"),
    ("PGFLOWD__FLOWS__A__NOPE", "1", "E102"),
    ("PGFLOWD__WORKER__MAX_CONCURRENCY", "many", "E103"),
    ("PGFLOWD__WORKER__MAX_CONCURRENCY", "", "E103"),
    ("PGFLOWD__WORKER__MAX_CONCURRENCY", "9" * 5000, "E103"),
    ("PGFLOWD__LOGGING__PAYLOADS", "yes", "E103"),
    ("PGFLOWD__LOGGING__REDACT", "password", "E103"),
    ("PGFLOWD__LOGGING__REDACT", "[" * 100_000, "E103"),
    ("PGFLOWD__LOGGING__REDACT", '{"a": 1}', "E103"),
    ("PGFLOWD__WORKER__KILL_GRACE", "2", "E104"),
    ("PGFLOWD__WORKER__KILL_GRACE_FILE", "x", "E102"),
    ("PGFLOWD__PGFLOWD__NAME_FILE", "missing", "E107"),
    ("PGFLOWD__DATABASE__URL", "host=\udcff", "E105"),
]


@pytest.mark.parametrize(("name", "value", "code"), VARIABLES)
def test_a_wrong_variable_is_named_by_its_problem(name: str, value: str, code: str) -> None:
    problem = only(environ={name: value})

    assert (problem.code, problem.place) == (code, name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("PGFLOWD__WORKER__POLL_MINN", "PGFLOWD__WORKER__POLL_MIN"),
        ("PGFLOWD__WORKR__POLL_MIN", "PGFLOWD__WORKER__POLL_MIN"),
        ("PGFLOWD__FLOWS", "PGFLOWD__PGFLOWD__FLOWS"),
        ("PGFLOWD__FLOWS__SEND__KILLGRACE", "PGFLOWD__FLOWS__SEND__KILL_GRACE"),
    ],
)
def test_an_unknown_variable_gets_a_whole_variable_as_a_suggestion(name: str, meant: str) -> None:
    assert only(environ={name: "1"}).next == f"did you mean {meant}?"


def test_a_value_and_its_file_at_once_contradict_each_other() -> None:
    environ = {"PGFLOWD__DATABASE__URL": "x", "PGFLOWD__DATABASE__URL_FILE": "y"}

    assert only(environ=environ).code == "E106"


@covers("row 101")
def test_all_mistakes_of_all_sources_are_reported_at_once() -> None:
    text = "[worker]\nmax_concurency = 5\nkill_grace = 2"

    _, problems = read(text, {"PGFLOWD__WORKER__POLL_MIN": "1", "PGFLOWD__X__Y": ""})

    assert {problem.code for problem in problems} == {"E102", "E104"}
    assert len(problems) == 4


def test_a_value_that_another_overrides_is_checked_too() -> None:
    _, problems = read("[worker]\nkill_grace = 2", {"PGFLOWD__WORKER__KILL_GRACE": "2s"})

    assert [problem.code for problem in problems] == ["E104"]


def test_a_broken_key_is_not_reported_as_a_contradiction_too() -> None:
    _, problems = read('[worker]\npoll_max = "6m"\npoll_min = "5m"')

    assert [problem.code for problem in problems] == ["E105"]


def test_a_contradiction_of_the_workers_is_not_repeated_for_each_flow() -> None:
    _, problems = read("[worker]\npoll_min = '10s'\n[flows.a]\nmax_concurrency = 1\n[flows.b]")

    assert [problem.text[:8] for problem in problems] == ["[worker]"]


def test_keys_of_the_daemon_may_stand_in_tool_pgflowd_itself() -> None:
    text = '[tool.pgflowd]\nflows = ["shop"]\n[tool.pgflowd.worker]\nmax_concurrency = 2\nx = 1'
    document = tomllib.loads(text)["tool"]["pgflowd"]

    given_ = from_document(document, lines_of(text), "pyproject.toml", "/p", ("tool", "pgflowd"))
    built = build(given_, look_up)

    assert built.settings.pgflowd.flows == ("shop",)
    assert built.settings.worker.max_concurrency == 2
    assert [problem.place for problem in built.problems] == ["pyproject.toml:5"]


def test_a_key_cannot_stand_both_in_tool_pgflowd_and_one_level_deeper() -> None:
    text = '[tool.pgflowd]\nname = "a"\n[tool.pgflowd.pgflowd]\nname = "b"'
    document = tomllib.loads(text)["tool"]["pgflowd"]

    given_ = from_document(document, lines_of(text), "pyproject.toml", "/p", ("tool", "pgflowd"))
    problem = build(given_, look_up).problems[0]

    assert (problem.code, problem.place) == ("E106", "pyproject.toml:4")
    assert "pyproject.toml:2" in problem.text


def test_the_error_of_a_daemon_without_flows_shows_how_to_name_them() -> None:
    assert [problem.code for problem in missing_flows(good(), "x.toml")] == ["E111"]
    assert missing_flows(good('[pgflowd]\nflows = ["shop"]'), "x.toml") == []


def test_overrides_for_a_flow_that_is_not_served_are_found() -> None:
    settings = good("[flows.send_emial]\nmax_concurrency = 1\n[flows.Other]")

    problems = unserved(settings, ["send_email", "other"])

    assert [(each.code, each.place, each.next) for each in problems] == [
        ("E108", "pgflowd.toml:1", "did you mean [flows.send_email]?")
    ]


def test_a_socket_path_that_the_kernel_would_refuse_is_found() -> None:
    settings = good(f'[supervisor]\ncontrol = "/{"s" * 107}"')

    problem = socket_too_long(settings, settings.supervisor.control)[0]

    assert (problem.code, problem.place) == ("E112", "pgflowd.toml:2")
    assert "108 bytes" in problem.text
    assert socket_too_long(settings, "/" + "s" * 106) == []


def test_each_key_has_a_variable_of_its_own() -> None:
    names = [variable(section, key) for section, kind in SECTIONS.items() for key in keys_of(kind)]

    assert len(names) == len(set(names))
    assert "PGFLOWD__WORKER__MAX_CONCURRENCY" in names


RAW = st.recursive(
    st.none().map(lambda _: 5)
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["worker", "flows", "poll_min", "url", "name", "database", "pgflowd"])


@given(st.dictionaries(NAMES | st.text(st.characters()), RAW, max_size=4))
def test_any_document_gives_settings_or_problems_of_one_line_each(document: dict[str, Any]) -> None:
    built = build(from_document(document, {}, "x.toml", "/"), look_up)

    for problem in built.problems:
        assert len(str(problem).splitlines()) == 1
        assert len(str(problem)) < 600
        str(problem).encode()


@given(st.sampled_from(list(SECTIONS)), st.data())
def test_any_value_of_any_key_is_taken_or_refused_with_a_code(section: str, data: Any) -> None:
    key = data.draw(st.sampled_from(list(keys_of(SECTIONS[section]))))
    raw = data.draw(RAW | st.text("0123456789smhdKiB-. ", max_size=8))

    built = build(from_document({section: {key: raw}}, {}, "x.toml", "/"), look_up)

    assert all(problem.code[:2] in {"E1", "E2"} for problem in built.problems)
