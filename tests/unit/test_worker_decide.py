"""What a worker decides, one rule at a time; test_worker_random.py tries everything at once."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.engine import MAIN, OPTIONS, SECOND, Play, task

from pgflowd.core import messages
from pgflowd.core.failure import DatabaseFailure
from pgflowd.core.metrics.definitions import WAKES
from pgflowd.core.settings.sections import DatabaseSettings
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.events import Verdict
from pgflowd.core.worker.state import RowState, RunnerPhase, TaskPhase, WorkerMode
from pgflowd.core.worker.task import NEVER, TaskReport


def test_a_claim_asks_for_as_many_tasks_as_there_are_free_runners():
    play = Play()

    assert play.claiming() == 4
    play.busy(1)
    play.feed(messages.Wake("a"))

    assert play.did(actions.ReportAndClaim) == [actions.ReportAndClaim((), 3)]


def test_short_tasks_are_claimed_ahead_and_long_ones_are_not():
    play = Play(batch_size=50)
    for token in range(1, 100):
        play.busy(token)
        play.now += 0.001
        play.done(token)

    assert play.claiming() == 50
    play.busy(100)
    play.now += 5
    play.done(100)

    assert play.claiming() == 4


def test_a_report_takes_the_next_claim_along():
    play = Play()
    play.busy(1)

    play.done(1)

    [turn] = play.did(actions.ReportAndClaim)
    assert [report.task.token for report in turn.reports] == [1]
    assert turn.claim == 4


def test_a_claim_ahead_waits_for_the_next_reports_while_runners_have_enough_to_do():
    play = Play(max_concurrency=1, batch_size=100, pace_s=0.001)
    play.busy(*range(1, 10))
    play.claim()
    play.feed(events.NextDueRead(None))

    play.feed(messages.Wake("a"))
    assert not play.did(actions.ReportAndClaim)
    play.done(1)
    play.feed(events.Tick(), after_s=0.002)

    [turn] = play.did(actions.ReportAndClaim)
    assert len(turn.reports) == 1 and turn.claim > 1


def test_reports_wait_for_others_only_while_more_tasks_wait_for_a_runner():
    play = Play(max_concurrency=1, batch_size=100, pace_s=0.001)
    play.busy(1, 2, 3)
    play.claim()
    play.feed(events.NextDueRead(None))

    assert not [a for a in play.done(1) if isinstance(a, actions.ReportAndClaim)]
    assert play.waits_s() == pytest.approx(0.002)
    play.feed(events.Tick(), after_s=0.002)

    assert len(play.did(actions.ReportAndClaim)) == 1


@covers("rule 36")
def test_the_last_used_runner_goes_first():
    play = Play()
    play.busy(1, 2)
    play.done(1)
    play.claim()
    play.done(2)
    play.claim(3)

    [send] = play.did(actions.SendTask)
    assert send.id == 2


@covers("rule 37")
def test_an_outcome_in_the_socket_wins_over_the_deadline():
    play = Play()
    play.busy(1, timeout_s=1.0)

    play.feed(events.Tick(), after_s=1.0)
    assert play.actions == [actions.ReadResult(1, 1)]
    play.done(1)

    assert play.did(actions.ReportAndClaim)[0].reports[0].outcome == "completed"
    assert not play.feed(events.NoResultYet(1, 1))


@covers("rule 37")
def test_term_grace_kill_reap_and_only_then_the_report():
    play = Play()
    play.busy(1, timeout_s=1.0)
    play.feed(events.Tick(), after_s=1.0)

    assert play.feed(events.NoResultYet(1, 1)) == [actions.TerminateRunner(1)]
    assert actions.ReadResult(1, 1) in play.feed(events.Tick(), after_s=2.0)
    assert actions.KillRunner(1) in play.feed(events.NoResultYet(1, 1))
    assert play.feed(events.RunnerEnded(1)) == [actions.ReapRunner(1)]
    play.feed(
        events.Reaped(1, 9, 0.5, 4096, 'Current thread 0x1:\n  File "flows/a.py", line 7 in a')
    )

    [report] = play.did(actions.ReportAndClaim)[0].reports
    assert report.outcome == "timed_out"
    assert report.error_message == "timed out after 1 s; it was at flows/a.py:7 in a"


def asked_to_end(play: Play, cause: str) -> None:
    """Let task 1 get SIGTERM."""
    if cause == "stop":
        play.feed(messages.QuickStop())
    elif cause == "timeout":
        play.feed(events.Tick(), after_s=60.0)
    else:
        play.renewed((1, events.LeaseVerdict(cause)))
    assert play.did(actions.ReadResult) == [actions.ReadResult(1, 1)]
    play.feed(events.NoResultYet(1, 1))
    assert play.did(actions.TerminateRunner) == [actions.TerminateRunner(1)]


def reports_of_the_end(play: Play) -> list[TaskReport]:
    play.feed(events.RunnerEnded(1))
    assert not play.did(actions.ReportAndClaim), "reported before it was reaped"
    play.feed(events.Reaped(1, 9))
    return [*play.sending(), *play.waiting_reports()]


@covers("rule 37")
@pytest.mark.parametrize("when", ["in the grace", "at its end", "as it is killed"])
@pytest.mark.parametrize(("cause", "outcome"), [
    ("cancel", "completed"), ("lost", "completed"), ("timeout", "timed_out"), ("stop", "released"),
])  # fmt: skip
def test_what_a_handler_returns_after_sigterm_goes_along_with_the_settled_outcome(
    cause, outcome, when
):
    play = Play()
    play.busy(1)
    asked_to_end(play, cause)

    if when != "in the grace":
        play.feed(events.Tick(), after_s=2.0)
        assert play.did(actions.ReadResult) == [actions.ReadResult(1, 1)]
    if when == "as it is killed":
        play.feed(events.NoResultYet(1, 1))
        assert play.did(actions.KillRunner)
    play.done(1, output=b'"charged"')
    assert bool(play.did(actions.KillRunner)) is (when != "as it is killed")

    [report] = reports_of_the_end(play)
    assert (report.outcome, report.output) == (outcome, b'"charged"')


def test_an_outcome_that_is_no_result_only_shortens_the_wait():
    play = Play()
    play.busy(1)
    asked_to_end(play, "cancel")

    play.failed(1)

    assert play.did(actions.KillRunner) == [actions.KillRunner(1)]
    [report] = reports_of_the_end(play)
    assert (report.error_type, report.output) == ("Cancelled", None)


def test_a_report_whose_late_output_is_refused_is_sent_without_it():
    play = Play()
    play.busy(1)
    asked_to_end(play, "timeout")
    play.done(1, output=b'"1e999999"')
    reports_of_the_end(play)
    if not play.sending():  # a claim is under way
        play.answer()

    play.answer(events.Verdict.ERROR, sqlstate="22P02", message="no jsonb")

    [report] = play.sending()
    assert (report.outcome, report.output) == ("timed_out", None)


@covers("row 43")
def test_an_outcome_with_children_is_reported_when_they_are_dead():
    play = Play()
    play.busy(1)

    play.done(1, children=("sleep",))
    assert play.did(actions.KillRunner) and not play.sending()
    play.feed(events.RunnerEnded(1))
    play.feed(events.Reaped(1, 9))

    assert play.waiting_reports()[0].outcome == "completed"


@covers("row 17")
def test_a_runner_that_cannot_be_killed_is_reported_and_its_place_is_lost():
    play = Play(max_concurrency=1)
    play.busy(1, timeout_s=1.0)
    play.feed(events.Tick(), after_s=1.0)
    play.feed(events.NoResultYet(1, 1))
    play.feed(events.Tick(), after_s=2.0)
    play.feed(events.NoResultYet(1, 1))

    play.feed(events.Tick(), after_s=10.0)

    assert play.did(actions.WriteLog)[0].level == "error"
    assert play.did(actions.ReportAndClaim)[0] == actions.ReportAndClaim(
        play.sending(), 0, ("run1",)
    )
    assert play.phases() == [RunnerPhase.STUCK]


@covers("row 10")
def test_a_zygote_that_does_not_answer_is_killed_after_five_seconds():
    play = Play()
    play.claim(1)

    play.feed(events.Tick(), after_s=4.9)
    assert not play.did(actions.KillZygote)
    play.feed(events.Tick(), after_s=0.1)

    assert play.did(actions.KillZygote)


@covers("row 10")
def test_a_zygote_that_forks_many_slowly_is_killed_only_when_it_is_silent():
    play = Play(max_concurrency=4)
    play.claim(1, 2, 3, 4)
    forks = play.did(actions.ForkRunner)

    for fork in forks[:3]:
        play.feed(events.Tick(), after_s=4.0)
        assert not play.did(actions.KillZygote)
        play.feed(events.Forked(fork.id, 100 + fork.id))
        assert not play.did(actions.KillZygote)
    play.feed(events.Tick(), after_s=4.9)
    assert not play.did(actions.KillZygote)
    play.feed(events.Tick(), after_s=0.1)

    assert play.did(actions.KillZygote)


@covers("row 36")
def test_a_refused_fork_gives_the_task_back_and_pauses_longer_each_time():
    play = Play(backoff_min_s=0.1, max_concurrency=1)
    pauses = []
    for token in range(1, 5):
        play.claim(token)
        play.feed(events.ForkRefused(play.did(actions.ForkRunner)[0].id, "no memory"))
        assert play.did(actions.ReportAndClaim)[0] == actions.ReportAndClaim(play.sending(), 0)
        assert play.sending()[0].outcome == "released"
        pauses.append(play.did(actions.WriteLog)[0].fields["wait_s"])
        play.feed(events.ReportAndClaimDone((events.ReportAnswer(Verdict.QUEUED),), ()))
        play.feed(events.Tick(), after_s=pauses[-1])
        assert play.claiming() == 1

    assert pauses == [0.1, 0.2, 0.4, 0.8]


@covers("rule 39")
def test_three_unready_deaths_in_a_row_are_a_bug():
    play = Play(max_concurrency=1)
    for token in (1, 2, 3):
        play.claim(token)
        [fork] = play.did(actions.ForkRunner)
        play.feed(events.RunnerEnded(fork.id))
        play.feed(events.Reaped(fork.id, 256))
        assert {report.outcome for report in play.sending()} == {"released"}

    assert play.exit_code() == 70
    assert play.mode() is WorkerMode.DRAINING


@covers("rule 41")
def test_outcomes_stay_in_order_while_the_database_is_away():
    play = Play(database=DatabaseSettings(reconnect_min_s=0.1, reconnect_max_s=1.0))
    play.busy(1, 2, 3)
    play.done(2)
    play.feed(events.ConnectionLost(MAIN, DatabaseFailure.RETRY, "gone", 1.0))
    play.done(1)
    play.done(3)

    assert [report.task.token for report in play.waiting_reports()] == [2, 1, 3]
    assert play.feed(events.Tick(), after_s=0.1)[-1] == actions.Connect(MAIN)
    play.feed(events.Connected(MAIN))

    assert [report.task.token for report in play.sending()] == [2, 1, 3]


def test_waits_for_the_database_grow_and_are_jittered():
    play = Play(database=DatabaseSettings(reconnect_min_s=0.25, reconnect_max_s=1.0))
    naps = []
    for chance in (0.0, 1.0, 0.0, 1.0):
        play.feed(events.ConnectionLost(MAIN, DatabaseFailure.RETRY, "gone", chance))
        naps.append(round(play.waits_s(), 3))
        play.wait()

    assert naps == [0.125, 0.5, 0.5, 1.0]


def test_a_call_over_its_limit_has_its_socket_shut_down():
    play = Play(call_limit_s=8.0)

    play.feed(events.Tick(), after_s=8.0)

    assert actions.CutConnection(MAIN) in play.actions


@covers("row 74")
def test_a_report_whose_run_is_locked_is_sent_again():
    play = Play(database=DatabaseSettings(reconnect_min_s=0.1))
    play.busy(1)
    play.done(1)

    play.feed(
        events.ReportAndClaimDone((events.ReportAnswer(Verdict.ERROR, "55P03", "locked"),), ())
    )
    assert not play.did(actions.ReportAndClaim)
    play.feed(events.Tick(), after_s=0.1)

    assert play.did(actions.ReportAndClaim)[0].reports[0].outcome == "completed"


@covers("G3")
def test_a_task_that_still_runs_here_is_killed_before_it_is_begun_again():
    play = Play()
    play.busy(1)
    play.feed(messages.Wake("a"))

    play.feed(events.ReportAndClaimDone((), (task(1)._replace(token=2, attempt=2),)))

    assert play.task_phases() == [TaskPhase.CHECKED] and play.runner_of(1)
    (turn,) = play.did(actions.ReportAndClaim)
    (given_back,) = turn.reports
    assert (given_back.outcome, given_back.task.token) == ("released", 2)
    assert given_back.delay_s > OPTIONS.kill_grace_s


@covers("G3")
def test_a_task_that_still_waits_here_waits_once():
    play = Play()
    play.claim(1)

    play.feed(events.ReportAndClaimDone((), (task(1)._replace(token=2, attempt=2),)))

    assert play.unassigned() == [2]


@covers("rule 41")
def test_an_outcome_whose_lease_is_lost_is_dropped_with_e407():
    play = Play()
    play.busy(1)
    play.done(1)

    play.feed(events.ReportAndClaimDone((events.ReportAnswer(Verdict.LOST, "PF001"),), ()))

    assert play.did(actions.WriteLog)[0].fields["code"] == "E407"
    assert not play.waiting_reports()


def test_a_renewal_names_running_unassigned_and_unreported_tasks():
    play = Play(max_concurrency=1, pace_s=0.001)
    play.busy(1, 2, 3)
    play.done(1)

    play.feed(events.Tick(), after_s=5.0)
    play.feed(events.Connected(SECOND))

    assert set(play.did(actions.RenewLeases)[0].tokens) == {1, 2, 3}


@covers("rule 57")
def test_a_worker_without_tasks_renews_nothing():
    play = Play()
    play.claim()
    play.feed(events.NextDueRead(None))
    done = []

    while play.now < 1000:
        done += play.wait()
        if play.did(actions.ReportAndClaim):
            play.claim()

    kinds = {type(each) for each in done}
    assert kinds == {actions.ReportAndClaim, actions.Count}, "fallbacks, and their counts"


def test_a_cancelled_run_is_asked_about_soon_after_a_wake():
    play = Play()
    play.busy(1)

    play.feed(messages.Wake("a"), after_s=1.0)
    play.claim()

    assert play.did(actions.RenewLeases) == [actions.RenewLeases(MAIN, (1,))]


def test_each_claim_is_logged_at_level_debug_only():
    quiet, told = Play(), Play(is_debug=True)

    for play in (quiet, told):
        play.claim(1)

    assert quiet.did(actions.WriteLog) == []
    first = told.did(actions.WriteLog)[0]
    assert first == actions.WriteLog("debug", "worker.poll", {"wanted": 4, "claimed": 1})


def test_an_idle_worker_claims_again_when_the_next_message_is_due():
    play = Play()
    play.claim()
    assert play.did(actions.ReadNextDue)

    play.feed(events.NextDueRead(1.5))

    assert play.waits_s() == 1.5
    play.feed(events.Tick(), after_s=1.5)
    assert play.did(actions.ReportAndClaim) and play.counted(WAKES) == [("due", 1)]


def test_an_idle_worker_asks_at_most_once_in_ten_seconds():
    play = Play()
    play.claim()
    play.feed(events.NextDueRead(None))
    began, asked = play.now, 0

    while play.now < began + 300:
        play.now += play.waits_s() or 0.001
        wanted = play.feed(events.Tick())
        asked += len(wanted) - len(play.did(actions.Count))
        if play.did(actions.ReportAndClaim):
            play.claim()
            asked += len(play.actions)

    assert asked <= 30


def test_an_unassigned_task_waits_a_second_at_most():
    play = Play(max_concurrency=1, pace_s=0.001)
    play.busy(1, 2)
    play.claim()
    play.feed(events.NextDueRead(None))

    play.feed(events.Tick(), after_s=1.0)

    assert [(r.task.token, r.outcome) for r in play.sending()] == [(2, "released")]


@covers("rule 33")
def test_a_drain_claims_nothing_and_waits_for_what_runs():
    play = Play()
    play.busy(1, 2)

    assert play.feed(messages.Drain(10.0)) == [actions.AnnounceStop(1), actions.AnnounceStop(2)]
    play.done(1)
    assert play.did(actions.ReportAndClaim)[0].claim == 0
    play.feed(events.ReportAndClaimDone((events.ReportAnswer(Verdict.COMPLETED),), ()))
    play.done(2)
    play.feed(events.ReportAndClaimDone((events.ReportAnswer(Verdict.COMPLETED),), ()))
    for runner in (1, 2):
        play.feed(events.RunnerEnded(runner))
        play.feed(events.Reaped(runner, 0))

    assert play.did(actions.SignOff)
    assert play.feed(events.SignedOff(MAIN)) == [actions.Leave(0)]
    assert play.waits_s() == NEVER


@covers("rule 32")
def test_a_drain_becomes_a_quick_stop_when_its_time_is_over():
    play = Play()
    play.busy(1)
    play.feed(messages.Drain(3.0))

    play.feed(events.Tick(), after_s=3.0)

    assert actions.ReadResult(1, 1) in play.actions


def test_a_quick_stop_reports_what_was_done_and_releases_the_rest():
    play = Play()
    play.busy(1, 2)
    play.feed(messages.QuickStop())
    play.done(1)
    play.feed(events.NoResultYet(2, 2))
    play.feed(events.RunnerEnded(2))
    play.feed(events.Reaped(2, 15))

    told = [*play.sending(), *play.waiting_reports()]
    assert [(r.task.token, r.outcome) for r in told] == [(1, "completed"), (2, "released")]


@covers("row 26")
def test_a_quick_stop_ends_even_if_no_runner_answers():
    play = Play(kill_grace_s=0.5)
    play.busy(1)
    play.feed(messages.QuickStop())

    play.feed(events.Tick(), after_s=3.5)

    [told], [leave] = play.did(actions.WriteLog), play.did(actions.Leave)
    assert told.fields["count"] == 1
    assert leave.code == 1
    assert play.did(actions.Leave)


@covers("rule 40")
@pytest.mark.parametrize("row", [RowState.DEPRECATED, RowState.GONE])
def test_a_deprecated_worker_drains_and_exits_10(row):
    play = Play()
    play.claim()

    play.feed(messages.WorkerStanding("w", row))
    play.feed(events.NextDueRead(None))
    play.feed(events.SignedOff(MAIN))

    assert play.did(actions.Leave)[0].code == 10


def test_tasks_that_come_after_a_drain_began_are_given_back():
    play = Play()
    play.feed(messages.Drain())

    play.claim(1, 2)

    assert [report.outcome for report in play.sending()] == ["released"] * 2


@covers("D3")
def test_while_outcomes_are_refused_as_a_fault_nothing_more_is_claimed():
    play = Play(database=DatabaseSettings(reconnect_max_s=30.0))
    play.busy(1)
    play.done(1)
    (report,) = play.sending()

    play.feed(
        events.ReportAndClaimDone(
            (events.ReportAnswer(Verdict.ERROR, "42501", "permission denied"),), ()
        )
    )
    play.feed(messages.Wake("a"))
    assert play.did(actions.ReportAndClaim) == []
    play.feed(events.Tick(), after_s=30.0)
    assert play.did(actions.ReportAndClaim) == [actions.ReportAndClaim((report,), 0)]
    play.feed(events.ReportAndClaimDone((events.ReportAnswer(Verdict.COMPLETED),), ()))

    assert play.did(actions.ReportAndClaim)[0].claim == 4


def test_a_report_that_the_server_refuses_becomes_a_failure_once():
    play = Play()
    play.busy(1)
    play.done(1)
    play.feed(
        events.ReportAndClaimDone((events.ReportAnswer(Verdict.ERROR, "54000", "too large"),), ())
    )

    [report] = play.sending()
    assert report.outcome == "failed" and "too large (54000)" in report.error_message
    play.feed(
        events.ReportAndClaimDone((events.ReportAnswer(Verdict.ERROR, "54000", "too large"),), ())
    )

    assert not play.sending() and play.did(actions.WriteLog)[0].level == "error"


def test_foreign_messages_are_logged_once_a_minute_with_their_number():
    play, told = Play(), []

    for count, pause_s in ((2, 0.0), (3, 30.0), (4, 31.0)):
        play.feed(events.ForeignMessagesArchived(count), after_s=pause_s)
        told += [said for said in play.did(actions.WriteLog) if said.event == "worker.strangers"]

    assert [said.level for said in told] == ["warning", "warning"]
    assert [said.fields["error"].split()[0] for said in told] == ["2", "7"]
