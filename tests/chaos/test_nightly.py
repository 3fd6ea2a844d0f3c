"""`make nightly`: a part that fails or hangs is told, and the others go on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import nightly
import pytest
from nightly import PARTS, Part


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(nightly, "PLACE", tmp_path)
    return tmp_path


def part(place: Path, name: str, code: str, share: float = 0.1) -> Part:
    script = place / f"{name}.py"
    script.write_text(f"import sys, time\n{code}\n")
    return Part(name, share, str(script))


def test_what_parts_did_is_told_and_which_failed(place):
    fine = part(place, "fine", "print('story\\nseed: 7\\nruns: 12\\nkills of daemons: 3.5')")
    bad = part(place, "bad", "print(sys.argv[1:]); print('runs: 1'); sys.exit('WRONG: a run')")

    outcomes = [nightly.perform(each, 20.0, 7) for each in (fine, bad)]

    assert [each.fault for each in outcomes] == ["", "exit 1"]
    head, first, second = nightly.table(outcomes).splitlines()
    assert head.split() == ["part", "took", "what", "it", "did"]
    assert first.split()[3] == "ok" and first.endswith("12 runs, 3.5 kills of daemons")
    assert "FAILED (exit 1)" in second and second.endswith("1 runs")
    assert "['--minutes', '2.00', '--seed', '7']" in (place / "bad.log").read_text()


def test_a_part_that_does_not_end_is_ended(place, monkeypatch):
    monkeypatch.setattr(nightly, "MORE_S", 1.0)
    tidies = "try: time.sleep(600)\nfinally: print('tidied: 1', flush=True)"

    outcome = nightly.perform(part(place, "endless", tidies, share=0.0), 20.0, 7)

    assert outcome.fault == "not done after 1 s" and outcome.deeds == "1 tidied"


def test_the_parts_share_all_minutes_and_each_is_there():
    assert sum(each.share for each in PARTS) == pytest.approx(1)
    assert all((nightly.HERE / each.script).exists() for each in PARTS)
    commands = [each.command(25.0, 7) for each in PARTS]
    assert [("--seed" in words) for words in commands] == [each.has_seed for each in PARTS]
    tiny = [dataclasses.replace(each, share=0.0).command(25.0, 7) for each in PARTS]
    assert all("0" not in words for words in tiny)


def test_the_summary_of_pytest_is_what_its_tests_did():
    assert nightly.deeds("...\n===== 11 passed, 3 deselected in 34.20s =====\n") == (
        "11 passed, 3 deselected in 34.20s"
    )
