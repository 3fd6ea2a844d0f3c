"""Which texts name flows and steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.covers import covers


def valid(plain, slug):
    return plain.value("select pgflow.is_valid_slug(%s)", slug)


@pytest.mark.parametrize(
    "slug",
    ["a", "A", "_", "_a", "a1", "snake_case", "camelCase", "RUN", "Run", "runs", "a__b", "a_"],
)
def test_letters_digits_and_underscores_are_valid(plain, slug):
    assert valid(plain, slug) is True


@covers("row 107")
@pytest.mark.parametrize(
    "slug",
    ["", "1a", "a-b", "a b", " a", "a ", "a.b", "a/b", "ä", "a\n", "\na", "a\nb", "run", "a'b",
     'a"b', "a;b", "a$b", "日本", "a\tb", "-", "a\u200bb"],
)  # fmt: skip
def test_anything_else_is_not(plain, slug):
    assert valid(plain, slug) is False


def test_null_is_invalid_and_not_null(plain):
    assert valid(plain, None) is False


def test_128_characters_are_the_limit(plain):
    assert valid(plain, "a" * 128) is True
    assert valid(plain, "a" * 129) is False


def test_only_lower_case_run_is_reserved(plain):
    assert [valid(plain, slug) for slug in ("run", "RUN", "Run", "run_")] == [
        False,
        True,
        True,
        True,
    ]


def test_the_parameter_is_named_slug(plain):
    assert plain.value("select pgflow.is_valid_slug(slug => 'abc')") is True


def test_every_text_is_judged_by_the_rule(plain):
    @given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8))
    def judged(slug):
        plain_word = slug.isascii() and slug.isidentifier()
        assert valid(plain, slug) is (plain_word and slug != "run")

    judged()
