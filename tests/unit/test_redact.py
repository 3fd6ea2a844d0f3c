"""Secrets are taken out of text wherever they stand, and a record keeps to its line."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.covers import covers

from pgflowd.core.redact import one_line, redact, redact_value, secrets_in
from pgflowd.core.settings.values import Ref

CANARY = "c4n4ry"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://app:{CANARY}@db1:5432/shop?sslmode=require",
        f"postgres://app:{CANARY}@[::1]/shop",
        f"postgresql://:{CANARY}@/shop?host=/run",
        f"postgresql://app:p@ss/{CANARY}@db1/shop",
        f"postgresql://db1/shop?user=app&password={CANARY}&sslmode=require",
        f"host=db1 password={CANARY} dbname=shop",
        f"host=db1 password = '{CANARY} with \\' blanks' dbname=shop",
        f"password='never closed {CANARY}",
        f"password=a\\ b{CANARY} x=1",
        f"sslpassword={CANARY}",
        f"PGPASSWORD={CANARY} pgflowd serve",
        f'{{"password": "{CANARY}", "user": "app"}}',
        f"{{'api_key': '{CANARY}'}}",
        f"Authorization: Bearer {CANARY}",
        f"access_token={CANARY}",
        f"Database(url='postgresql://app:{CANARY}@db1/shop')",
        f'connection to "postgresql://app:{CANARY}@db1" failed',
        f"client_secret: {CANARY}",
    ],
)
def test_a_password_is_hidden_wherever_it_stands(text: str) -> None:
    assert CANARY not in redact(text)
    assert "***" in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        'FATAL:  password authentication failed for user "app"',
        "connection to server at 127.0.0.1, port 5432 failed: Connection refused",
        "postgresql://app@db1:5432/shop",
        "host=db1 port=5432 dbname=shop user=app",
        "fe_sendauth: no password supplied",
        "https://example.com/a/b?c=d",
    ],
)
def test_what_holds_no_secret_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


def test_hosts_stay_readable_beside_a_hidden_password() -> None:
    assert redact(f"postgresql://app:{CANARY}@db1/shop") == "postgresql://app:***@db1/shop"
    assert redact(f"host=db1 password={CANARY} port=1") == "host=db1 password=*** port=1"


def test_secrets_that_the_caller_knows_are_hidden_in_every_spelling() -> None:
    text = "could not translate host name 'ss/w rd@db1' (ss%2Fw%20rd)"

    assert "ss/w rd" not in redact(text, ["ss/w rd"])
    assert "ss%2Fw%20rd" not in redact(text, ["ss/w rd"])


def test_a_dsn_without_its_scheme_has_a_secret_all_the_same() -> None:
    assert secrets_in(f"app:{CANARY}@db1/shop") == [CANARY]
    assert CANARY not in Ref(f"app:{CANARY}@db1/shop").shown
    assert secrets_in("postgresql://app@db1:5432/shop") == []


def test_the_secrets_of_a_dsn_can_be_hidden_elsewhere() -> None:
    assert secrets_in(f"postgresql://app:{CANARY}@db1/shop") == [CANARY]
    assert f"{CANARY} 'x" in secrets_in(f"host=db1 password='{CANARY} \\'x' user=app")
    assert secrets_in(f"host=db1 password={CANARY} user=app") == [CANARY]
    assert secrets_in("postgresql://app@db1/shop") == []
    assert secrets_in("host=db1 user=app") == []


@pytest.mark.parametrize(
    ("dsn", "message"),
    [
        (f"postgresql://u:x@{CANARY}@h/d", f"failed to resolve host '{CANARY}@h'"),
        (f"postgresql://u:x/{CANARY}@h/d", f'invalid port "{CANARY}@h"'),
        (f"password=x {CANARY} host=h", f'missing "=" after "{CANARY}" in connection info string'),
        (f"host=h password=x {CANARY}", f'missing "=" after "{CANARY}"'),
    ],
)
def test_a_piece_of_a_badly_written_password_is_hidden_in_the_error_of_libpq(
    dsn: str, message: str
) -> None:
    assert CANARY not in redact(message, secrets_in(dsn))


@pytest.mark.parametrize(
    "piece", ["a.", "a://b:", "password", "x=", "password=' ", "?a;", "\\", " "]
)
def test_a_long_hostile_text_costs_no_more_than_its_length(piece: str) -> None:
    text = piece * (200_000 // len(piece))

    assert len(one_line(redact(text))) < 5 * len(text)
    assert isinstance(secrets_in(text[:50_000]), list)


@given(st.text(), st.text(min_size=2, max_size=20).filter(lambda s: not s.isspace()))
def test_a_known_secret_never_survives(text: str, secret: str) -> None:
    hidden = redact(f"{text}{secret}{text}", [secret])

    assert secret not in hidden or secret in "***"


@given(st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc", "Zl", "Zp"]), min_size=1))
def test_any_password_in_a_url_is_hidden(password: str) -> None:
    url = f"postgresql://app:{CANARY}{password}@db1/shop"

    assert CANARY not in redact(f"cannot reach {url} now")
    assert redact(url).endswith("@db1/shop")


@given(st.text(st.characters(), min_size=1))
def test_any_quoted_password_of_a_conninfo_is_hidden(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace("'", "\\'")

    assert CANARY not in redact(f"host=x password='{quoted}{CANARY}' port=1")


@given(st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("nul\x00", "nul\\x00"),
        ("\u2028\u202e", "\\u2028\\u202e"),
        ("\ud800", "\\ud800"),
        ("\x9b2J", "\\x9b2J"),
        ("Zoë ✔ 日本", "Zoë ✔ 日本"),
    ],
)
def test_control_characters_are_escaped(text: str, line: str) -> None:
    assert one_line(text) == line


@covers("row 105")
@given(st.text(st.characters()), st.integers(1, 50))
def test_any_text_becomes_one_harmless_line(text: str, limit: int) -> None:
    line = one_line(text, limit)

    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
    assert not any(unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} for char in line)
    line.encode()


def test_values_of_keys_are_hidden_however_deep_they_lie():
    value: object = {"Password": ["a"], "n": 1}
    for _ in range(1000):
        value = [{"in": (value,)}]

    shown = redact_value(value, {"password"})

    for _ in range(1000):
        (inner,) = shown
        (shown,) = inner["in"]
    assert shown == {"Password": "***", "n": 1}
    assert redact_value(["x", {}, None], {"x"}) == ["x", {}, None]
