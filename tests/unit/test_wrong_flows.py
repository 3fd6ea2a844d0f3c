"""A file of wrong definitions, and the problems that are reported about each."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.covers import covers

from pgflowd.errors import FlowError, Problem

DIRECTORY = Path(__file__).parent / "wrong_flows"


@pytest.fixture(scope="module")
def wrong() -> ModuleType:
    path = DIRECTORY / "wrong_flows.py"
    spec = importlib.util.spec_from_file_location("wrong_flows", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up annotations
    spec.loader.exec_module(module)
    return module


def line(problem: Problem) -> str:
    """The problem without the directory, which differs from machine to machine."""
    text = str(problem)
    for place in {word for word in text.replace(":", " ").split() if "wrong_flows.py" in word}:
        text = text.replace(place, Path(place).name)
    return text


@covers("use 4", "promise 5", "E214", "E215")
def test_every_wrong_definition_is_reported(wrong):
    found = [line(problem) for flow in wrong.FLOWS for problem in flow.check()]

    assert "\n".join(found) + "\n" == (DIRECTORY / "wrong_flows.txt").read_text("utf-8")


CODES = """
    E201 E202 E203 E204 E205 E206 E207 E208 E209 E214 E215 E216 E217 E228
    W217 W220 W221
"""


@pytest.mark.parametrize("code", CODES.split())
def test_every_code_about_definitions_is_provoked(code):
    reported = (DIRECTORY / "wrong_flows.txt").read_text("utf-8")

    assert f"\n{code} " in f"\n{reported}"


def test_a_wrong_flow_is_refused_at_its_first_use_with_all_errors_and_no_warning(wrong):
    with pytest.raises(FlowError) as caught:
        wrong.options.shape()

    codes = [problem.code for problem in caught.value.problems]
    assert len(codes) == 12
    assert "W220" not in codes
