"""When a worker arms and disarms, and when it looks by itself (docs/background/doorbells.md)."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.engine import MAIN, Play

from pgflowd.core import messages
from pgflowd.core.failure import DatabaseFailure
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.doorbell import (
    ARM_S,
    LEAST_ARMED_S,
    MEASURE_S,
    UNARMED,
    UNMEASURED,
    WRITERS_S,
    Doorbell,
    DoorbellCall,
    DoorbellRow,
)

CALLS = {
    DoorbellCall.ARM: "arm",
    DoorbellCall.DISARM: "disarm",
    DoorbellCall.LIST_WRITERS: "list",
    DoorbellCall.NONE: "-",
}


class Turns:
    """A doorbell, and turns with it."""

    def __init__(self, doorbell: Doorbell = UNARMED) -> None:
        self.bell, self.now = doorbell, 1000.0

    def turn(
        self,
        got: int = 0,
        *,
        wanted: int = 4,
        after_s: float = 0.0,
        needs_wake: bool = True,
        is_new: bool = True,
        writers: tuple[str, ...] = (),
    ) -> str:
        """Take a turn, and say what it did with the doorbell."""
        self.now += after_s
        self.bell = self.bell.begin(self.now, has_claim=wanted > 0, needs_wake=needs_wake)
        did = CALLS[self.bell.call]
        self.bell = self.bell.end(self.now, wanted=wanted, got=got, is_new=is_new, writers=writers)
        return did

    def look(self, got: int = 0) -> tuple[float, str]:
        """The next look: how long it was waited for, and what it did."""
        waits_s = self.bell.look_at - self.now
        return round(waits_s, 6), self.turn(got, after_s=waits_s)

    def be_busy(self, seconds: float, *, needs_wake: bool = False) -> list[str]:
        """Claims that bring a task each millisecond."""
        turns = range(round(seconds * 1000))
        return [self.turn(1, after_s=0.001, needs_wake=needs_wake) for _ in turns]


@pytest.fixture
def armed() -> Turns:
    turns = Turns()
    assert [turns.turn(), turns.turn()] == ["arm", "list"]
    assert turns.bell.row is DoorbellRow.UP
    turns.now += 3600
    return turns


@pytest.fixture
def unarmed(armed: Turns) -> Turns:
    armed.be_busy(MEASURE_S + 0.02)
    assert armed.bell.row is DoorbellRow.DOWN
    return armed


def test_the_first_claim_arms_and_the_second_looks_at_once_at_those_that_missed_it():
    turns = Turns()

    assert turns.turn() == "arm"
    assert turns.look() == (0.0, "list")
    assert turns.bell.look_at == float("inf"), "it rests"


def test_while_transactions_are_open_it_looks_again_after_longer_and_longer_pauses():
    turns = Turns()
    turns.turn()
    turns.turn(writers=("1/1", "2/2"))

    for pause_s in (*WRITERS_S, WRITERS_S[-1]):
        assert turns.bell.writers == ("1/1", "2/2")
        assert round(turns.bell.look_at - turns.now, 6) == pause_s
        turns.turn(after_s=pause_s, writers=("1/1", "2/2"))
    turns.turn(after_s=2.0, writers=("2/2",))
    assert turns.bell.writers == ("2/2",)
    turns.turn(after_s=2.0)

    assert turns.bell.row is DoorbellRow.UP
    assert turns.bell.look_at == float("inf")


def test_a_claim_between_two_looks_asks_for_nothing():
    turns = Turns()
    turns.turn()
    turns.turn(writers=("1/1",))

    assert turns.turn(after_s=WRITERS_S[0] / 2) == "-"
    assert turns.turn(after_s=WRITERS_S[0]) == "list"


def test_busy_for_a_while_it_disarms_and_not_at_once(armed: Turns):
    assert set(armed.be_busy(MEASURE_S - 0.01)) == {"-"}
    assert armed.be_busy(0.03).count("disarm") == 1


def test_a_disarming_needs_no_claim(armed: Turns):
    while armed.bell.usefulness == UNMEASURED:
        armed.be_busy(0.001)

    assert armed.turn(wanted=0) == "disarm"


def test_starts_one_after_the_other_keep_the_doorbell(armed: Turns):
    """As a client that waits for each of its runs: without a wake each would wait for a look."""
    assert set(armed.be_busy(5 * MEASURE_S, needs_wake=True)) == {"-"}


def test_pauses_keep_the_doorbell_however_busy_it_is_between_them(armed: Turns):
    for _ in range(10):
        assert "disarm" not in armed.be_busy(MEASURE_S / 2)
        armed.turn()
        armed.now += ARM_S


def test_without_work_it_looks_and_then_arms(unarmed: Turns):
    unarmed.turn()

    found = [unarmed.look() for _ in range(5)]

    assert found == [(0.002, "-"), (0.003, "-"), (0.005, "-"), (0.01, "arm"), (0.0, "list")]
    assert unarmed.bell.row is DoorbellRow.UP


def test_a_look_that_brings_work_begins_anew(unarmed: Turns):
    unarmed.turn()
    unarmed.look()
    unarmed.look(got=1)

    assert [unarmed.look()[0] for _ in range(4)] == [0.002, 0.003, 0.005, 0.01]


def test_while_claims_bring_all_that_they_ask_for_it_does_not_look(unarmed: Turns):
    unarmed.turn(4)

    assert unarmed.bell.look_at == float("inf")


def test_if_only_looks_bring_work_it_arms(unarmed: Turns):
    """A client that waits for each of its runs, after a busy time."""
    did = [unarmed.turn(1, after_s=0.003) for _ in range(100)]

    assert did.count("arm") == 1
    assert "disarm" not in did


def test_it_stays_armed_for_a_while_at_least(unarmed: Turns):
    unarmed.turn()
    while unarmed.turn(after_s=ARM_S) != "arm":
        pass

    assert "disarm" not in unarmed.be_busy(LEAST_ARMED_S - 0.01)
    assert "disarm" in unarmed.be_busy(2 * MEASURE_S)


def test_after_a_lost_connection_it_arms_again(armed: Turns):
    armed.bell = armed.bell.lost()

    assert [armed.turn(is_new=False), armed.turn()] == ["arm", "list"]


def test_after_a_lost_connection_a_busy_worker_makes_sure_that_it_is_not_armed(unarmed: Turns):
    unarmed.bell = unarmed.bell.lost()

    assert unarmed.be_busy(2 * LEAST_ARMED_S).count("disarm") == 1


@pytest.mark.parametrize(("is_new", "then"), [(False, "-"), (True, "list")])
def test_a_row_in_doubt_is_put_up_again_and_looked_at_only_if_it_was_gone(
    armed: Turns, is_new: bool, then: str
):
    armed.bell = armed.bell.doubted()

    assert [armed.turn(is_new=is_new), armed.turn()] == ["arm", then]


# by the engine


def is_armed_by(play: Play) -> list[str]:
    return [CALLS[each.doorbell] for each in play.did(actions.ReportAndClaim)]


@covers("G9")
def test_a_general_wake_and_a_fallback_put_the_row_in_doubt():
    play = Play()
    play.answer()
    play.feed(events.NextDueRead(None))

    play.feed(messages.Wake("a"))
    assert is_armed_by(play) == ["-"]
    play.answer()
    play.feed(events.NextDueRead(None))
    play.feed(messages.Wake())
    assert is_armed_by(play) == ["arm"]
    play.answer()
    play.feed(events.NextDueRead(None))
    play.feed(events.Tick(), after_s=30.0)
    assert is_armed_by(play) == ["arm"]


def test_a_new_connection_arms():
    play = Play()
    play.feed(events.ConnectionLost(MAIN, DatabaseFailure.RETRY, "gone"))

    play.wait()
    play.feed(events.Connected(MAIN))

    assert is_armed_by(play) == ["arm"]


def test_a_polling_worker_never_arms():
    play = Play(is_polling=True)
    play.feed(events.ConnectionLost(MAIN, DatabaseFailure.RETRY, "gone"))
    play.wait()
    play.feed(events.Connected(MAIN))

    for _ in range(20):
        assert set(is_armed_by(play)) <= {"-"}
        play.answer()
        play.wait()


def test_while_it_looks_it_does_not_ask_when_the_next_message_is_due():
    play = Play()
    play.busy(1)
    play.feed(events.ConnectionLost(MAIN, DatabaseFailure.RETRY, "gone"))
    play.wait()
    play.feed(events.Connected(MAIN))
    assert is_armed_by(play) == ["arm"]

    play.answer()
    assert is_armed_by(play) == ["list"], "first it looks, then it asks"
    play.answer()

    assert play.did(actions.ReadNextDue)
