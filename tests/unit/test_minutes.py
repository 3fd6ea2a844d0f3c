"""What a worker adds to the statistics: the growth of its counters."""

from __future__ import annotations

from copy import deepcopy

from support.covers import covers
from support.engine import Play

from pgflowd.core.documents.run_tasks import Undecided, problem_of
from pgflowd.core.metrics.definitions import MINUTE, MINUTE_S, Counters, minute_of, observe
from pgflowd.core.worker import actions, events


def counted() -> Counters:
    tasks, runs, took, waited = MINUTE
    counters = Counters(*MINUTE)
    counters.count(tasks, "a", "completed", by=2)
    counters.count(tasks, "a", "suspended")
    counters.count(runs, "failed")
    for metric, step, seconds in ((took, "a", 0.3), (waited, "b", 1000.0)):
        observe(counters.numbers[metric.key].setdefault(step, []), seconds)
    return counters


def test_it_is_what_has_grown_by_step_and_of_runs():
    counters = counted()
    before = deepcopy(counters.numbers)

    a, b, runs = minute_of(before, {})
    assert (a["step"], a["completed"], sum(a["ran"]), a["ran"][6]) == ("a", 2, 1, 1)
    assert "suspended" not in a and "waited" not in a
    assert (b["step"], b["waited"][-1]) == ("b", 1)
    assert runs == {"step": "", "failed": 1}

    assert minute_of(counters.numbers, before) == []
    counters.count(MINUTE[0], "a", "crashed")
    assert minute_of(counters.numbers, before) == [{"step": "a", "crashed": 1}]


def minutes_told(play: Play, for_s: int) -> int:
    """How often it adds a minute within this time, in which all calls are answered at once."""
    told, until = 0, play.now + for_s
    while play.now < until:
        if calls := play.did(actions.AddMinute):
            told += 1
            play.feed(events.SideCallDone(calls[0].connection))
        elif play.claiming():
            play.claim()
        elif play.did(actions.ReadNextDue):
            play.feed(events.NextDueRead(None))
        else:
            play.feed(events.Tick(), after_s=1.0)
    return told


def test_a_worker_tells_a_minute_after_a_task_ended_and_then_no_more():
    play = Play()
    play.busy(1)
    play.done(1)
    play.answer()

    assert minutes_told(play, int(MINUTE_S) - 1) == 0
    assert minutes_told(play, 3) == 1
    assert minutes_told(play, 1000) == 0


@covers("W328", "W329", "W330", "W332")
def test_problems_say_how_many_which_first_and_what_next():
    run = "01234567-89ab-7def-8123-456789abcdef"
    need = problem_of(Undecided("render", "need", "gpu", run, 3))
    quarantined = problem_of(Undecided("render", "quarantined", None, run, 100))

    assert need.text == (
        "render: 3 tasks wait for a worker with gpu, and none that lives has it;"
        " the first is of run 89abcdef"
    )
    assert "caps" in str(need.next)
    assert quarantined.text.startswith("render: 100 tasks or more in quarantine")
    assert "stalled requeue" in str(quarantined.next)
    assert (need.code, quarantined.code) == ("W328", "W329")
    one = problem_of(Undecided("render", "need", "gpu", run, 1))
    assert "1 task waits for" in one.text
    paused = problem_of(Undecided("render", "paused", "jane: too hot", None, 0))
    assert paused.text == "flow render is paused by jane: too hot; none of its tasks begins"
    assert (paused.code, "flows resume render" in str(paused.next)) == ("W330", True)
    cycle = problem_of(Undecided("render", "cycle", "0" * 28 + "beef" * 2, run, 2))
    assert cycle.text == (
        "run 89abcdef of render waits for run beefbeef, which waits for it; 2 runs wait so"
    )
    assert (cycle.code, "runs cancel" in str(cycle.next)) == ("W332", True)
