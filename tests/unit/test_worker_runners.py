"""Which task goes to which runner, and how many the runners can take."""

from __future__ import annotations

from support.covers import covers
from support.engine import OPTIONS, Play

from pgflowd.core import messages
from pgflowd.core.worker import actions, events, runners
from pgflowd.core.worker.state import RunnerPhase, RunnerPool, RunnerState
from pgflowd.core.worker.task import NEVER


def test_places_are_idle_runners_those_that_start_for_no_task_and_those_not_started():
    pool = RunnerPool({1: RunnerState(1), 2: RunnerState(2, RunnerPhase.IDLE)}, [2], spare=1)

    assert runners.free_places(pool, OPTIONS) == 4
    pool.forks_from = 7.0  # paused: only those that are there
    assert runners.free_places(pool, OPTIONS) == 2


def test_the_next_deadline_of_a_pool_is_its_soonest():
    pool = RunnerPool()

    assert runners.deadline(pool) == NEVER
    pool.by_id = {1: RunnerState(1, due_at=9.0), 2: RunnerState(2, due_at=8.0)}
    assert runners.deadline(pool) == 8.0
    pool.forks_from = 7.0
    assert runners.deadline(pool) == 7.0


def test_an_idle_runner_takes_the_task_of_one_that_still_starts():
    play = Play(max_concurrency=2)
    play.busy(1)
    play.feed(messages.Wake("a"))
    play.claim(2)
    (fork,) = play.did(actions.ForkRunner)

    play.done(1)

    (sent,) = play.did(actions.SendTask)
    assert (sent.id, sent.task.token) == (1, 2)
    play.feed(events.RunnerReady(fork.id))
    assert play.phases() == [RunnerPhase.BUSY, RunnerPhase.IDLE]


def test_a_task_whose_lease_is_lost_is_not_begun_though_its_runner_starts():
    play = Play()
    play.claim(1)
    (fork,) = play.did(actions.ForkRunner)

    play.renewed((1, events.LeaseVerdict.LOST))
    play.feed(events.RunnerReady(fork.id))

    assert not play.did(actions.SendTask) and play.leases() == []


def test_a_task_whose_runner_starts_is_given_back_when_the_worker_drains():
    play = Play()
    play.claim(1)

    play.feed(messages.Drain())

    assert [(each.task.token, each.outcome) for each in play.sending()] == [(1, "released")]


@covers("outside 10")
def test_a_worker_that_cannot_fork_asks_for_room_once_per_pause_and_retries_when_there_is_some():
    play = Play()
    play.claim(1, 2)
    forks = play.did(actions.ForkRunner)

    play.feed(*(events.ForkRefused(fork.id, "no process", needs_room=True) for fork in forks))
    assert len(play.did(messages.MakeRoom)) == 1
    play.feed(messages.HaveRoom())

    assert play.next_deadline() == play.now


@covers("outside 10")
def test_a_worker_makes_room_by_its_idle_runners_and_lets_the_other_one_fork_first():
    play = Play(max_concurrency=3)
    play.busy(1, 2)
    play.done(1)
    play.done(2)

    play.feed(messages.MakeRoom())
    assert len(play.did(actions.CloseRunner)) == 2
    play.claim(3)
    assert not play.did(actions.ForkRunner)

    play.feed(*(events.RunnerEnded(runner) for runner in (1, 2)))
    play.feed(*(events.Reaped(runner, 0) for runner in (1, 2)))
    assert len(play.did(messages.HaveRoom)) == 2
    play.feed(events.Tick(), after_s=runners.PAUSE_S)
    assert len(play.did(actions.ForkRunner)) == 1


@covers("outside 10")
def test_a_worker_without_idle_runners_owes_the_next_one_unless_it_is_the_last():
    play = Play(max_concurrency=2)
    play.busy(1, 2)

    play.feed(messages.MakeRoom())
    assert not play.did(actions.CloseRunner)
    play.done(1)
    assert len(play.did(actions.CloseRunner)) == 1
    play.feed(events.RunnerEnded(1), events.Reaped(1, 0))

    play.feed(messages.MakeRoom())
    play.done(2)
    assert not play.did(actions.CloseRunner)
