"""
Removes secrets from text, and makes text safe to print on one line.

Every error, log record and report goes through `redact`. It finds passwords in URLs, in libpq's
`key=value` strings and in printed dictionaries, and removes the secrets that the caller knows.
It hides too much rather than too little. `one_line` escapes characters that could break a record
in two or control a terminal. Both are pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "***"
MAX_SHOWN = 80  # characters of a wrong value

_WORDS = (
    r"(?:\w*password|passwd|\w*pwd|passphrase|\w*secret(?:_?key)?|\w*token|api_?key|authorization)"
)
_QUOTED = r"'(?:[^'\\]|\\.|'')*(?:'|\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\Z)"

# scheme://user:SECRET@host; up to the last @ of the word, since passwords may hold one
_URL = re.compile(
    r"(?P<keep>\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@]{0,200}:)(?P<secret>\S{0,4000})@", re.I
)
# the same without its scheme; only for text that is known to be a DSN
_NO_SCHEME = re.compile(r"\A\s*(?P<keep>[^\s:/@='\"]{0,200}:)(?P<secret>(?!//)\S{1,4000})@")
_QUERY = re.compile(rf"(?P<keep>[?&;]{_WORDS}=)(?P<secret>[^\s&#]+)", re.I)
_PAIR = re.compile(
    rf"(?P<keep>(?<![\w?&;]){_WORDS}[\"']?\s*(?:=>|[=:])\s*)"
    rf"(?P<secret>(?:(?:bearer|basic)\s+\S+)|{_QUOTED}|(?:\\.|[^\s\\])+)",
    re.I | re.S,
)
_UNTIL_NEXT_KEY = re.compile(
    rf"(?<![\w?&;]){_WORDS}\s*=(?P<secret>.*?)(?=\s\w+\s*=|\Z)", re.I | re.S
)
_ALL = (_URL, _QUERY, _PAIR)
_COLOUR = r"\x1b\[[0-9;]*m"
_UNSAFE_IN_LINES = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_COLOURS_AND_UNSAFE = re.compile(f"{_COLOUR}|{_UNSAFE_IN_LINES.pattern}")
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text with everything replaced that is, or looks like, a secret."""
    known = {secret for secret in secrets if len(secret) > 1}
    spelt = {each for secret in known for each in (secret, unquote(secret), quote(secret, ""))}
    for secret in sorted(spelt, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    if "@" in text:  # checked first: most texts have none of these, and some are long
        text = _URL.sub(rf"\g<keep>{HIDDEN}@", text)
    if "=" in text:
        text = _QUERY.sub(rf"\g<keep>{HIDDEN}", text)
    if "=" in text or ":" in text:
        text = _PAIR.sub(rf"\g<keep>{HIDDEN}", text)
    return text


def redact_value(value: Any, keys: Collection[str]) -> Any:
    """
    Return a JSON value without the values of these keys, which are in lower case.

    It does not call itself, since a value may be nested a thousand deep.
    """
    whole: list[Any] = [value]
    places: list[tuple[Any, Any]] = [(whole, 0)]  # containers, and where they have another one
    while places:
        container, place = places.pop()
        part = container[place]
        if isinstance(part, Mapping):
            copy: Any = {
                key: HIDDEN if str(key).lower() in keys else each for key, each in part.items()
            }
            members: Iterable[tuple[Any, Any]] = copy.items()
        elif isinstance(part, list | tuple):
            copy = list(part)
            members = enumerate(copy)
        else:
            continue
        container[place] = copy
        places += [(copy, key) for key, each in members if isinstance(each, Mapping | list | tuple)]
    return whole[0]


def secrets_in(dsn: str) -> list[str]:
    """Return the secrets in a DSN, so that they can be hidden elsewhere too.

    A DSN is invalid if its password has an unquoted blank or an unescaped @. libpq then repeats
    pieces of the password in its message, so the pieces are secrets as well.
    """
    found = [match["secret"] for pattern in (*_ALL, _NO_SCHEME) for match in pattern.finditer(dsn)]
    found += [match["secret"] for match in _UNTIL_NEXT_KEY.finditer(dsn)]
    secrets = [_unquoted(secret.strip()) for secret in found]
    pieces = [piece for secret in secrets for piece in re.split(r"[\s@/:?#]+", secret)]
    return sorted({secret for secret in [*secrets, *pieces] if secret and secret != HIDDEN})


def one_line(text: str, limit: int | None = None) -> str:
    """Return the text as one safe line: control characters are escaped, long text is cut."""
    line = "".join(_escaped(char) if _is_unsafe(char) else char for char in text)
    if limit is not None and len(line) > limit:
        return line[: limit - 1] + "…"
    return line


def safe_lines(text: str, *, is_painted: bool = False) -> str:
    """
    Return lines in which nothing controls a terminal, but colours where they are painted.

    It is the last resort of what prints: each text from elsewhere goes through `one_line` before.
    """
    if not is_painted:
        return _UNSAFE_IN_LINES.sub(lambda found: _escaped(found[0]), text)
    return _COLOURS_AND_UNSAFE.sub(
        lambda found: found[0] if len(found[0]) > 1 else _escaped(found[0]), text
    )


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]:
        value = value[1:-1]
    return re.sub(r"\\(.)", r"\1", value, flags=re.S)


def _is_unsafe(char: str) -> bool:
    if " " <= char <= "~":
        return False
    return char in _BIDI or unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}


def _escaped(char: str) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    if short:
        return short
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def shown(value: Any, key: str = "") -> str:
    """Return a wrong value as errors show it, on one line; `key`: of the field that holds it."""
    text = one_line(redact(repr(value)[: 4 * MAX_SHOWN]), MAX_SHOWN)
    return HIDDEN if HIDDEN in redact(f"{key}={text}") else text
