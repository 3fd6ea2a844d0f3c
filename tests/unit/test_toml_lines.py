"""The lines of TOML keys: all ways to write a key, and that hostile files cannot stop us."""

from __future__ import annotations

import tomllib
from textwrap import dedent
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pgflowd.core.settings.load import lines_of

EVERYTHING = '''\
# a comment with [brackets] and = signs
top = 1
a.b . "c d" = 2
[plain]
text = "a # no comment ] }" # but this is
"quoted\\tkey" = 1
'literal.key' = 2
many = """
one = 1
\\"" # still here
""" # done
raw = \'\'\'
two = 2
'quoted' ''\'\'\'
after = 1979-05-27 07:32:00
[plain.sub."x.y"]
z = 1
list = [
  1, # first
  [2, "],"],
  { inner = { deep = 5 }, other = [6,
    7] },
]
last = true
[[table]]
n = 1
[table.under]
k = 1
[[table]]
n = 2
[[table.nested]]
q = 1
'''


def test_every_way_to_write_a_key_has_its_line() -> None:
    lines = lines_of(EVERYTHING)

    assert tomllib.loads(EVERYTHING)
    assert lines[("top",)] == 2
    assert lines[("a", "b", "c d")] == 3
    assert lines[("plain",)] == 4
    assert lines[("plain", "text")] == 5
    assert lines[("plain", "quoted\tkey")] == 6
    assert lines[("plain", "literal.key")] == 7
    assert lines[("plain", "many")] == 8
    assert lines[("plain", "raw")] == 12
    assert lines[("plain", "after")] == 15
    assert lines[("plain", "sub", "x.y")] == 16
    assert lines[("plain", "sub", "x.y", "list")] == 18
    assert lines[("plain", "sub", "x.y", "last")] == 24
    assert lines[("table", "n")] == 26
    assert lines[("table", "under", "k")] == 28
    assert lines[("table", "nested", "q")] == 32


def test_a_table_that_only_its_inner_table_names_has_that_ones_line() -> None:
    lines = lines_of("[a]\n[b.c.d]\n[[e.f]]\n[a.g]")

    assert (lines[("b",)], lines[("b", "c")], lines[("e",)], lines[("a",)]) == (2, 2, 3, 1)


def test_windows_line_ends_and_tabs_count_as_well() -> None:
    text = dedent("""\
        [a]
        \tb\t=\t"x"
        c = 1
        """).replace("\n", "\r\n")

    assert lines_of(text)[("a", "c")] == 3


def test_an_empty_text_has_no_lines() -> None:
    assert lines_of("") == {}
    assert lines_of("# nothing") == {}


def test_a_long_file_is_walked_in_linear_time() -> None:
    text = "\n".join(f'key_{n} = "{n}"' for n in range(20_000))

    assert lines_of(text)[("key_19999",)] == 20_000


KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.one_of(
    st.integers(-(2**60), 2**60),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.floats(allow_nan=False, allow_infinity=False),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200)
@given(st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=4), max_size=4))
def test_every_key_of_any_document_has_the_line_it_was_written_on(
    document: dict[str, dict[str, Any]],
) -> None:
    text, expected, line = "", {}, 0
    for section, keys in document.items():
        text, line = f"{text}[{_quoted(section)}]\n", line + 1
        expected[(section,)] = line
        for key, value in keys.items():
            text, line = f"{text}{_quoted(key)} = {_written(value)}\n", line + 1
            expected[(section, key)] = line
    assert tomllib.loads(text) == document

    lines = lines_of(text)

    assert {path: lines[path] for path in expected} == expected


TOKENS = (
    *("a", "b.c", '"q"', "'l'", "=", " = ", " ", "\n", "\r\n", "[", "[[", "]", "]]", "{", "}"),
    *(",", "1", "true", '"s"', "#c\n", ".", "1.5", "1979-05-27", '"""m\n"""', "'''r\n'''"),
    *('""""x""""', "''''x'''", '"""\\\n  x"""', "a=1\n", "b = [1,2]\n", "[a]\n", "[[b]]\n"),
    "c={a=1}\n",
)


@settings(max_examples=1000)
@given(st.lists(st.sampled_from(TOKENS), max_size=10).map("".join))
def test_whatever_tomllib_accepts_every_key_of_it_has_a_line(text: str) -> None:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines = lines_of(text)
    assert {(name,) for name in document} <= set(lines)
    assert all(line <= text.count("\n") + 1 for line in lines.values())


def _quoted(text: str) -> str:
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    plain = char.isprintable() and char not in '"\\'
    return char if plain else f"\\U{ord(char):08x}"


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(k)} = {_written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value!r}" if "." in repr(value) or "e" in repr(value) else f"{value!r}.0"
    return _quoted(value) if isinstance(value, str) else str(value)
