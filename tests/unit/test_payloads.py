"""How the dashboard shows inputs and outputs: all, without some keys, or their sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgflowd.core.documents.run_tasks import ValueMember, ValuePart
from pgflowd.core.payloads import Payloads

VALUE = {"user": "jane", "Password": "x", "list": [{"token": 1, "n": 0}], "empty": {}}
REDACTED = Payloads("redacted", frozenset({"password", "token"}))


@dataclass(frozen=True)
class Step:
    name: str
    output: Any


@dataclass(frozen=True)
class Document:
    input: Any
    token: int  # a word of ours, not of a payload
    steps: dict[str, Step]
    rows: tuple[Step, ...] = ()


def test_values_of_some_keys_are_not_shown():
    document = Document(VALUE, 7, {"a": Step("a", VALUE)}, (Step("b", [VALUE]), Step("c", None)))
    shown = {"user": "jane", "Password": "***", "list": [{"token": "***", "n": 0}], "empty": {}}

    assert REDACTED.of(document) == Document(
        shown, 7, {"a": Step("a", shown)}, (Step("b", [shown]), Step("c", None))
    )
    assert document.input is VALUE and VALUE["Password"] == "x"


def test_values_that_are_nothing_stay_what_they_are():
    for value in (0, "", False, None, [], {}):
        assert REDACTED.show(value) == value
        assert Payloads().show(value) is value
    assert Payloads("hidden").show(None) is None


def test_hidden_values_show_their_size():
    document = Payloads("hidden").of(Document(VALUE, 7, {"a": Step("a", "ä" * 2000)}))

    assert document.input == "*** 78 B"
    assert document.steps["a"].output == "*** 4.0 kB"


def test_all_is_shown_if_it_may_be():
    document = Document(VALUE, 7, {})

    assert Payloads().of(document) is document


def test_a_part_of_a_value_hides_what_lies_below_a_key():
    member = ValueMember("token", "object", 3, False, None)
    part = ValuePart(["list", "0"], 0, "object", 1, True, None, [member])
    below = ValuePart(["TOKEN", "x"], 0, "string", 3, True, "abc", [])

    assert REDACTED.of(part).members == [ValueMember("token", "string", None, True, "***")]
    assert REDACTED.of(below).value == "***"
    hidden = Payloads("hidden").of(part)
    assert (hidden.value, hidden.members, hidden.next) == ("*** object of 1 member", (), None)
    assert Payloads("hidden").of(below).value == "*** string of 3 characters"
