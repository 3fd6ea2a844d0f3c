"""When the sweeper looks for what is due, and what its row says; moments are numbers."""

from __future__ import annotations

import pytest

from pgflowd.core.sweeper import APART_S, AWAKE_S, BUSY_S, NEVER, ROW_S, WRITERS_S, DueLooks

INTERVAL_S = 15.0


@pytest.fixture
def looks() -> DueLooks:
    """One that is idle at moment 0, and sleeps."""
    looks = DueLooks(INTERVAL_S)
    looks.connected(0.0)
    look(looks, 0.0)
    lie_down(looks, 0.0)
    look(looks, 0.0)
    return looks


def look(looks: DueLooks, now: float, done: int | None = 0, next_s: float | None = None) -> None:
    looks.looked(now, now, done, next_s)


def lie_down(looks: DueLooks, now: float, writers: tuple[str, ...] = ()) -> float:
    for_s = looks.next_row_s(now)
    assert for_s is not None
    looks.lay_down(now, for_s, writers)
    return for_s


def test_it_looks_as_soon_as_it_is_connected_and_then_lies_down_for_long() -> None:
    looks = DueLooks(INTERVAL_S)
    looks.connected(100.0)
    assert looks.look_at == 100.0

    look(looks, 100.0)
    assert lie_down(looks, 100.0) == ROW_S

    assert looks.look_at == 100.0, "once more, since a transaction may have missed the row"
    look(looks, 100.0)
    assert looks.next_row_s(100.0) is None
    assert looks.look_at == 100.0 + INTERVAL_S


def test_while_its_row_lasts_it_looks_in_each_interval_and_leaves_the_row(looks: DueLooks) -> None:
    now, looked = 0.0, 0
    while now < ROW_S:
        assert looks.next_row_s(now) is None
        now, looked = looks.look_at, looked + 1
        look(looks, now)

    assert looked == ROW_S / INTERVAL_S
    assert looks.next_row_s(now) == ROW_S


def test_it_lies_down_until_the_moment_that_it_knows(looks: DueLooks) -> None:
    look(looks, ROW_S, next_s=3.0)

    assert lie_down(looks, ROW_S) == 3.0


def test_before_a_moment_that_is_near_it_stays_awake(looks: DueLooks) -> None:
    look(looks, ROW_S, next_s=AWAKE_S / 2)

    assert looks.next_row_s(ROW_S) is None
    assert looks.look_at == ROW_S + APART_S


def test_a_notification_lets_it_look_at_once(looks: DueLooks) -> None:
    looks.rung(3.0)

    assert looks.look_at == 3.0


def test_two_looks_are_apart(looks: DueLooks) -> None:
    look(looks, 3.0)

    looks.rung(3.001)

    assert looks.look_at == 3.0 + APART_S


def test_a_look_that_took_long_is_followed_at_once_by_another_where_there_was_work(
    looks: DueLooks,
) -> None:
    looks.looked(3.0, 3.1, 200, 0.0)

    assert looks.look_at <= 3.1


def test_after_a_notification_that_brought_work_the_row_stays_as_it_is(looks: DueLooks) -> None:
    looks.rung(3.0)
    look(looks, 3.0, done=1, next_s=0.0)
    assert looks.next_row_s(3.0) is None
    assert looks.look_at == 3.0 + APART_S

    look(looks, 3.0 + APART_S)

    assert looks.next_row_s(3.0 + APART_S) is None
    assert looks.look_at == 3.0 + APART_S + INTERVAL_S


def test_a_notification_of_what_is_due_later_shortens_the_row(looks: DueLooks) -> None:
    looks.rung(3.0)
    look(looks, 3.0, next_s=2.0)

    assert looks.next_row_s(3.0) == 2.0
    looks.shortened(3.0, 2.0)
    assert looks.look_at == looks.sleeps_until == 5.0


def test_what_it_learns_by_itself_leaves_the_row_up_for_longer(looks: DueLooks) -> None:
    look(looks, 3.0, next_s=2.0)

    assert looks.next_row_s(3.0) is None
    assert looks.look_at == 5.0


def test_work_without_a_pause_wakes_it_up_and_then_it_looks_all_the_time(looks: DueLooks) -> None:
    now = 3.0
    while (for_s := looks.next_row_s(now)) is None:
        look(looks, now, done=7, next_s=0.0)
        assert looks.look_at == now + APART_S
        now = looks.look_at

    assert for_s == 0
    assert now == pytest.approx(3.0 + BUSY_S, abs=2 * APART_S)
    looks.shortened(now, 0.0)
    look(looks, now, done=7, next_s=0.0)
    assert looks.next_row_s(now) is None
    assert looks.look_at == now + APART_S


def test_it_looks_soon_after_it_woke_up_though_its_last_look_brought_nothing(
    looks: DueLooks,
) -> None:
    now, done = 3.0, 1
    while (for_s := looks.next_row_s(now)) is None or done:
        done = 1 - done
        now += APART_S
        look(looks, now, done)

    assert for_s == 0
    looks.shortened(now, 0.0)
    assert looks.look_at <= now + APART_S


def test_pauses_let_it_sleep_on(looks: DueLooks) -> None:
    for second in range(1, 10):
        looks.rung(second)
        look(looks, second, done=1, next_s=0.0)
        assert looks.next_row_s(second) is None
        look(looks, second + 2 * AWAKE_S)
        assert looks.next_row_s(second + 2 * AWAKE_S) is None


def test_after_its_last_work_it_looks_for_a_while_and_lies_down(looks: DueLooks) -> None:
    look(looks, ROW_S, done=1, next_s=0.0)
    now, seen = ROW_S, 0

    while looks.next_row_s(now) is None:
        now, seen = looks.look_at, seen + 1
        look(looks, now)

    assert now == pytest.approx(ROW_S + AWAKE_S, abs=APART_S)
    assert seen >= 4


@pytest.mark.parametrize("now", [3.0, ROW_S + 3.0])
def test_while_another_sweeper_is_at_it_it_comes_again_and_leaves_its_row(
    looks: DueLooks, now: float
) -> None:
    looks.rung(now)
    look(looks, now, done=None, next_s=0.05)

    assert looks.next_row_s(now) is None
    assert looks.look_at == now + 0.05


def test_while_transactions_may_have_missed_its_row_it_looks_ever_later(looks: DueLooks) -> None:
    look(looks, ROW_S)
    lie_down(looks, ROW_S, ("1/2", "3/4"))
    now, pauses = ROW_S, []

    for left in [("3/4",)] * 8:
        look(looks, now)
        assert looks.next_row_s(now) is None
        pauses.append(looks.look_at - now)
        now = looks.look_at
        looks.still_open(left)

    assert pauses == pytest.approx([*WRITERS_S, WRITERS_S[-1]])
    looks.still_open(())
    look(looks, now)
    assert looks.look_at == now + INTERVAL_S


def test_after_a_lost_connection_it_does_not_count_on_its_row(looks: DueLooks) -> None:
    looks.connected(3.0)
    look(looks, 3.0)

    assert looks.look_at == 3.0 + INTERVAL_S
    assert looks.next_row_s(3.0) == ROW_S


def test_it_looks_in_each_interval_whatever_it_was_told(looks: DueLooks) -> None:
    for next_s in (None, 1e9, NEVER):
        look(looks, 3.0, next_s=next_s)

        assert looks.look_at <= 3.0 + INTERVAL_S
