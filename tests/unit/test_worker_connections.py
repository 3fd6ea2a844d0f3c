"""The worker's connections: which calls go on which, and when there is a second one."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.engine import ASK_FOR_SECOND, MAIN, OPTIONS, SECOND, Play

from pgflowd.core import messages
from pgflowd.core.failure import DatabaseFailure
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.connections import LOCKED_PAUSE_S
from pgflowd.core.worker.state import FetchRequest, HandlerRequest

HALF_S = OPTIONS.heartbeat_interval_s / 2
INPUT = FetchRequest(1, 1, HandlerRequest.RUN_INPUT, "")
OUTPUT = FetchRequest(1, 1, HandlerRequest.STEP_OUTPUT, "a")
SAVE = FetchRequest(1, 1, HandlerRequest.SAVE, "", "page", 1, b"7")


def at_rest(*tokens: int) -> Play:
    """A worker that works on these, with nothing under way in the database."""
    play = Play()
    play.busy(*tokens)
    if play.claiming() or play.sending():
        play.claim()
    play.feed(events.NextDueRead(None))
    return play


def with_second(*tokens: int) -> Play:
    """A worker that has worked on these for so long that it has a second connection."""
    play = at_rest(*tokens)
    play.feed(events.Tick(), after_s=HALF_S)
    play.feed(events.Connected(SECOND))
    return play


def lost(name) -> events.ConnectionLost:
    return events.ConnectionLost(name, DatabaseFailure.RETRY, "gone")


@covers("rule 57")
def test_the_second_is_opened_when_a_task_has_run_for_half_an_interval():
    play = at_rest(1)

    assert play.feed(events.Tick(), after_s=HALF_S - 0.1) == []
    play.feed(events.Tick(), after_s=0.1)
    assert play.actions == [ASK_FOR_SECOND, actions.Connect(SECOND)]


@covers("rule 57")
def test_the_second_is_closed_when_no_task_runs_long():
    play = with_second(1)
    play.done(1)
    play.answer()

    while not play.did(actions.CloseConnection):
        play.wait()
        if play.did(actions.ReadNextDue):
            play.feed(events.NextDueRead(None))

    assert play.did(actions.CloseConnection) == [actions.CloseConnection(SECOND)]
    assert play.now <= 100 + 3 * HALF_S


@covers("rule 57")
def test_a_second_that_comes_too_late_is_given_back():
    play = at_rest(1)
    play.grants = False
    play.feed(events.Tick(), after_s=HALF_S)
    assert play.did(messages.ConnectionWanted)
    play.done(1)
    play.claim()
    play.feed(events.NextDueRead(None))

    play.feed(messages.ConnectionGranted(), after_s=1.0)

    assert play.actions == [actions.SendMessage(messages.ConnectionReturned())]


@covers("rule 57")
def test_short_tasks_never_open_a_second():
    play = Play(max_concurrency=1)
    play.busy(1)
    done = []

    for token in range(2, 40):
        done += play.done(token - 1, after_s=1.0)
        play.claim(token)
        done += play.actions
        if play.did(actions.RenewLeases):
            done += play.renewed()

    assert not [each for each in done if isinstance(each, actions.Connect)]
    assert [each for each in done if isinstance(each, actions.RenewLeases)]


@covers("rule 57")
def test_a_report_that_waits_opens_the_second_which_renews_its_lease():
    play = at_rest(1)
    play.done(1)
    assert play.sending()

    play.feed(events.Tick(), after_s=HALF_S)
    assert play.did(actions.Connect) == [actions.Connect(SECOND)]
    play.feed(events.Connected(SECOND))
    play.feed(events.Tick(), after_s=HALF_S)

    assert play.did(actions.RenewLeases) == [actions.RenewLeases(SECOND, (1,))]


@covers("rule 57")
def test_without_a_second_the_main_connection_renews_leases():
    play = at_rest(1)
    play.feed(events.Tick(), after_s=HALF_S)
    play.feed(lost(SECOND))

    play.feed(events.Tick(), after_s=HALF_S)

    assert play.did(actions.RenewLeases) == [actions.RenewLeases(MAIN, (1,))]


@covers("rule 57")
def test_what_a_handler_asks_for_comes_by_the_main_connection_if_it_is_free():
    play = at_rest(1)

    assert play.feed(events.HandlerAsked(INPUT)) == [actions.Fetch(MAIN, INPUT)]


@covers("rule 57")
@pytest.mark.parametrize("event", [events.HandlerAsked(INPUT), events.OutputWaiting()])
def test_a_handler_that_finds_the_main_connection_busy_opens_the_second(event):
    play = at_rest(1, 2)
    play.done(2)

    assert actions.Connect(SECOND) in play.feed(event)
    [call] = play.feed(events.Connected(SECOND))

    assert isinstance(call, actions.Fetch | actions.PublishOutput) and call.connection is SECOND


def test_a_side_call_waits_for_one_turn_at_most():
    play = at_rest(1, 2, 3)
    play.done(2)
    play.feed(events.HandlerAsked(INPUT))
    play.feed(lost(SECOND))
    play.done(3)

    play.answer()
    assert play.sending() and not play.did(actions.SideAction)
    play.done(1)
    play.answer()
    assert play.did(actions.Fetch) == [actions.Fetch(MAIN, INPUT)]
    play.feed(events.HandlerAsked(OUTPUT))
    play.feed(events.Fetched(MAIN))
    assert play.did(actions.ReportAndClaim) and not play.did(actions.Fetch)


def test_output_is_published_before_the_report_of_its_task():
    play = at_rest(1)
    play.feed(events.HandlerAsked(INPUT))
    play.feed(events.OutputWaiting())
    play.done(1)

    assert play.feed(events.Fetched(MAIN)) == [actions.PublishOutput(MAIN)]
    assert play.feed(events.SideCallDone(MAIN)) and play.sending()


@pytest.mark.parametrize("name", [MAIN, SECOND])
def test_what_a_handler_asks_for_is_fetched_again_after_a_lost_connection(name):
    play = with_second(1) if name is SECOND else at_rest(1)
    fetch = actions.Fetch(name, INPUT)

    assert play.feed(events.HandlerAsked(INPUT)) == [fetch]
    play.feed(lost(name))
    if name is SECOND:
        assert play.did(actions.Fetch) == [actions.Fetch(MAIN, INPUT)]
        return
    play.feed(events.Tick(), after_s=1.0)
    play.feed(events.Connected(MAIN))
    play.claim()

    assert fetch in play.actions
    play.feed(events.Fetched(name))
    play.feed(lost(name))
    play.wait()
    assert not [a for a in play.feed(events.Connected(name)) if isinstance(a, actions.Fetch)]


def test_a_renewal_that_is_due_goes_before_what_handlers_ask_for():
    play = with_second(1)
    play.feed(events.HandlerAsked(INPUT))
    play.feed(events.HandlerAsked(OUTPUT), after_s=OPTIONS.heartbeat_interval_s)

    assert isinstance(play.feed(events.Fetched(SECOND))[0], actions.RenewLeases)
    assert play.renewed() == [actions.Fetch(SECOND, OUTPUT)]


def test_output_is_published_before_the_sign_off():
    play = at_rest()
    play.feed(events.OutputWaiting())
    play.feed(events.OutputWaiting())
    play.feed(messages.QuickStop())

    assert actions.PublishOutput(MAIN) in play.feed(events.SideCallDone(MAIN))
    assert actions.SignOff(MAIN) in play.feed(events.SideCallDone(MAIN))


def save_of(token: int) -> events.HandlerAsked:
    return events.HandlerAsked(SAVE._replace(token=token))


def test_nothing_is_saved_any_more_for_a_runner_that_is_gone():
    play = with_second(1)
    play.feed(events.HandlerAsked(SAVE))
    play.feed(events.HandlerAsked(OUTPUT))
    play.feed(events.RunnerEnded(1))

    assert not [a for a in play.feed(events.Fetched(SECOND, is_locked=True)) if is_fetch(a)]
    assert not [a for a in play.feed(events.Tick(), after_s=LOCKED_PAUSE_S) if is_fetch(a)]


def is_fetch(action: object) -> bool:
    return isinstance(action, actions.Fetch)


def test_what_meets_a_lock_is_tried_again_soon_and_nothing_waits_for_it():
    play = with_second(1)
    assert play.feed(events.HandlerAsked(SAVE)) == [actions.Fetch(SECOND, SAVE)]

    assert play.feed(events.Fetched(SECOND, is_locked=True)) == []
    assert play.feed(events.HandlerAsked(OUTPUT)) == [actions.Fetch(SECOND, OUTPUT)]
    play.feed(events.Fetched(SECOND))
    assert play.feed(events.Tick(), after_s=LOCKED_PAUSE_S / 2) == []

    assert play.feed(events.Tick(), after_s=LOCKED_PAUSE_S / 2) == [actions.Fetch(SECOND, SAVE)]
    assert play.feed(events.Fetched(SECOND)) == []
    assert play.waits_s() > LOCKED_PAUSE_S


def test_a_hundred_runners_that_save_delay_no_renewal_by_more_than_one_call():
    play = with_second(*range(1, 5))
    for token in range(100):
        play.feed(save_of(token))
    assert play.did(actions.SideAction) == []  # the first of them is under way

    done = play.feed(events.Fetched(SECOND), after_s=OPTIONS.heartbeat_interval_s)

    assert [type(each) for each in done] == [actions.RenewLeases]


def test_runners_that_save_without_end_do_not_hold_up_output():
    play = with_second(1)
    for token in range(10):
        play.feed(save_of(token))
    play.feed(events.OutputWaiting())

    assert play.feed(events.Fetched(SECOND)) == [actions.PublishOutput(SECOND)]
    assert [type(each) for each in play.feed(events.SideCallDone(SECOND))] == [actions.Fetch]
