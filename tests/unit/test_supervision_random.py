"""
The rules as invariants, over random sequences of events.

`World` does what the actions say with imaginary processes, and refuses whatever no supervisor
may ever do: two processes of one child, a start above something that is still going down, a
stop out of order, anything after the end.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as some
from support.covers import covers
from support.trees import (
    ASLEEP,
    CANNOT,
    CRASH,
    REPLACE,
    before,
    on_begin,
    on_discovered,
    on_exit,
    on_falling_asleep,
    on_message,
    on_next_due,
    on_ready,
    on_reload,
    on_reload_refused,
    on_stop,
    on_tick,
    on_waiting,
    on_wake,
    singles,
    worker,
)

from pgflowd.core.messages import Drain, FallingAsleep
from pgflowd.core.statuses import ChildState
from pgflowd.core.supervision.decide import WakeCause, next_due
from pgflowd.core.supervision.reload import BrokenEntry
from pgflowd.core.supervision.transition import (
    MAX_STARTING,
    Announce,
    Discover,
    End,
    KillChild,
    SendToChild,
    StartChild,
)
from pgflowd.core.supervision.tree import Announcement, DaemonPhase

IDS = ["listener", "worker a", "worker b", "worker c", "sweeper", "http"]
EXITS = [CRASH, CRASH, CRASH, CANNOT, REPLACE]
child = some.sampled_from(IDS)
flows = some.lists(
    some.tuples(some.sampled_from("abc"), some.sampled_from("12"), some.booleans()),
    unique_by=lambda flow: flow[0],
    max_size=3,
)
event = some.one_of(
    some.tuples(some.just("ready"), child),
    some.tuples(some.just("ready"), child),
    some.tuples(some.just("ready all"), some.none()),
    some.tuples(some.just("exit"), some.tuples(child, some.sampled_from(EXITS))),
    some.tuples(some.just("exit asked"), some.none()),
    some.tuples(some.just("fall asleep"), some.tuples(child, some.none() | some.floats(0, 50))),
    some.tuples(some.just("exit asleep"), child),
    some.tuples(some.just("wake"), child),
    some.tuples(some.just("next due"), some.tuples(child, some.floats(0, 50))),
    some.tuples(some.just("wait"), some.tuples(child, some.sampled_from(["database", None]))),
    some.tuples(some.just("time"), some.floats(0.001, 100)),
    some.tuples(some.just("reload"), some.none()),
    some.tuples(some.just("found"), flows),
)
stop = some.tuples(
    some.just("stop"), some.sampled_from([(True, 60.0), (True, None), (False, None)])
)
events = some.lists(some.one_of(event, event, event, event, event, event, stop), max_size=40)


class World:
    """Imaginary processes, and the rules they must never see broken."""

    def __init__(self, policy):
        self.tree = before(observers=True, **policy)
        self.now = 0.0
        self.alive: dict[str, str] = {}  # id: "starting", "up", "asked"
        self.killed: list[str] = []
        self.woken: set[str] = set()  # of those that sleep or fall asleep
        self.discovering = True
        self.stopping = False
        self.has_reloaded = False
        self.end: int | None = None
        self.announced = 0
        self.happen(on_begin(self.tree, self.now))

    def happen(self, result):
        self.tree, actions = result
        for action in actions:
            assert self.end is None, "nothing comes after the end"
            getattr(self, f"do_{type(action).__name__.lower()}", lambda action: None)(action)
        self.check()

    def do_startchild(self, action: StartChild):
        assert action.id not in self.alive, "two processes of one child"
        is_observer = action.id == "http"
        assert is_observer or not self.stopping, "started during the stop"
        self.woken.discard(action.id)
        position = self.position(action.id)
        if self.tree.phase is DaemonPhase.RESTARTING and not (self.has_reloaded or is_observer):
            above = [id for id in self.asked() if self.position(id) > position]
            assert not above, "started while others go down"
        if position > 0 and not self.has_reloaded:
            assert self.alive.get("listener") == "up", "started before the listener was up"
        self.alive[action.id] = "starting"

    def do_sendtochild(self, action: SendToChild):
        assert action.id in self.alive, "asked a dead child"
        if not self.has_reloaded:
            above = [id for id in self.alive if self.position(id) > self.position(action.id)]
            assert not above, f"asked {action.id} before {above} were gone"
        assert isinstance(action.how, Drain) <= action.id.startswith("worker")
        self.alive[action.id] = "asked"

    def do_killchild(self, action: KillChild):
        assert action.id in self.alive
        self.killed.append(action.id)

    def do_discover(self, action: Discover):
        assert not self.discovering, "two discoveries at once"
        self.discovering = True

    def do_announce(self, action: Announce):
        if action.what is Announcement.READY:
            self.announced += 1
            assert self.has_reloaded or set(self.alive) >= {"listener", "sweeper"}
            workers = {each.id for each in self.tree.workers if each.state is ChildState.ASLEEP}
            assert any(id.startswith("worker") for id in workers | set(self.alive))
        else:
            self.stopping = True

    def do_end(self, action: End):
        assert not self.alive, "ended before its children"
        self.end = action.code

    def position(self, id):
        return ["http", "listener", "worker", "sweeper"].index(id.split()[0]) - 1

    def asked(self):
        return [id for id, what in self.alive.items() if what == "asked"]

    def check(self):
        for each in self.tree.children:
            assert each.state.is_alive == (each.id in self.alive), each
            if each.state is ChildState.ASLEEP:
                assert each.id not in self.woken or self.stopping, "a wake was lost"
        starting = [id for id, what in self.alive.items() if what == "starting"]
        assert len(starting) <= MAX_STARTING + 3
        assert self.alive.keys() <= {each.id for each in self.tree.children}, "removed while alive"
        assert self.tree.budget.count(self.now) <= self.tree.policy.max_restarts + 1
        assert self.announced <= 1

    def ready(self, id):
        if self.alive.get(id) == "starting":
            self.alive[id] = "up"
            self.happen(on_ready(self.tree, id, self.now))

    def exit(self, id, exit):
        if self.alive.pop(id, None):
            before = set(self.alive)
            self.happen(on_exit(self.tree, id, exit, self.now))
            earlier = {other for other in before if self.position(other) < self.position(id)}
            assert self.stopping or earlier <= set(self.alive), "an earlier child was lost"
            assert id != "http" or before <= set(self.alive), "an observer took others along"

    def fall_asleep(self, id, in_s):
        if self.alive.get(id) == "up" and id.startswith("worker"):
            self.woken.discard(id)
            message = FallingAsleep(30.0, None if in_s is None else self.now + in_s)
            self.happen(on_falling_asleep(self.tree, id, message, self.now))

    def exit_asleep(self, id):
        child = self.tree.child(id)
        if child is not None and child.sleep is not None and child.state.is_alive:
            self.exit(id, ASLEEP)

    def wake(self, id):
        child = self.tree.child(id)
        if child is not None and child.sleep is not None:
            self.woken.add(id)
        self.happen(on_wake(self.tree, id, WakeCause.NOTIFICATION, self.now))

    def time(self, passed):
        self.now += passed
        for id, what in list(self.alive.items()):
            if what == "up":
                self.tree, _ = on_message(self.tree, id, self.now)
        self.happen(on_tick(self.tree, self.now))
        while self.killed:
            self.exit(self.killed.pop(), CRASH)
        self.tick_until_nothing_is_due()

    def tick_until_nothing_is_due(self):
        """A loop that waits for the next deadline must come to rest."""
        for _ in range(10):
            due = next_due(self.tree)
            if due is None or due > self.now or self.end is not None:
                return
            self.happen(on_tick(self.tree, self.now))
            while self.killed:
                self.exit(self.killed.pop(), CRASH)
        raise AssertionError(f"something is due again and again: {due} at {self.now}")

    def found(self, flows):
        if self.discovering:
            self.discovering = False
            specs = [worker(slug, fingerprint=f, enabled=on) for slug, f, on in flows]
            mark = "".join(f for _, f, _ in flows)
            if self.tree.phase is not DaemonPhase.DISCOVERING:
                self.has_reloaded = True  # what it replaces goes and comes out of order
                specs += singles(observers=len(flows) != 1, fingerprint=mark)
            broken = [BrokenEntry("shop", "E210", "")] if len(flows) % 2 else []
            self.happen(on_discovered(self.tree, specs, broken, self.now))

    def handle(self, what, how):
        if self.end is not None:
            return
        if what == "ready":
            self.ready(how)
        elif what == "ready all":
            for id in IDS:
                self.ready(id)
        elif what == "exit":
            self.exit(*how)
        elif what == "exit asked":
            for id in self.asked():
                self.exit(id, CRASH)
        elif what == "fall asleep":
            self.fall_asleep(*how)
        elif what == "exit asleep":
            self.exit_asleep(how)
        elif what == "wake":
            self.wake(how)
        elif what == "next due":
            id, in_s = how
            self.happen(on_next_due(self.tree, id, self.now + in_s, self.now))
        elif what == "wait":
            self.happen(on_waiting(self.tree, *how, self.now))
        elif what == "time":
            self.time(how)
        elif what == "reload":
            self.happen(on_reload(self.tree, self.now))
        elif what == "found":
            self.found(how)
        elif what == "stop":
            drain, within_s = how
            self.happen(on_stop(self.tree, self.now, drain=drain, within_s=within_s))

    def calm_down(self):
        """Everything goes well from here on."""
        for _ in range(40):
            for id in self.asked():
                self.exit(id, CRASH)
            for id in list(self.alive):
                self.exit_asleep(id)
                self.ready(id)
            if self.discovering and self.end is None:
                self.discovering = False
                self.happen(on_reload_refused(self.tree, self.now))
            due = next_due(self.tree)
            if due is not None and self.end is None:
                self.time(max(0.0, min(due - self.now, 1.0)))
        for id in list(self.alive):  # one that woke up last
            self.ready(id)


policies = some.fixed_dictionaries(
    {
        "max_restarts": some.integers(0, 4),
        "max_period_s": some.sampled_from([1.0, 60.0]),
        "startup_wait_s": some.sampled_from([0.0, 5.0, 300.0]),
    }
)


@settings(max_examples=1000, deadline=None)
@given(policies, flows, events)
def test_no_sequence_of_events_breaks_the_rules_and_all_end_up_or_ended(policy, first, happened):
    world = World(policy)
    world.found([*first, ("a", "1", True)] if "a" not in [flow[0] for flow in first] else first)

    for what, how in happened:
        world.handle(what, how)
    world.calm_down()

    if world.end is None:
        assert world.tree.phase is DaemonPhase.RUNNING
        for each in world.tree.children:
            assert each.state in {
                ChildState.UP, ChildState.ASLEEP, ChildState.PARKED, ChildState.DISABLED,
            }, each  # fmt: skip
        assert world.alive.keys() >= {"listener", "sweeper"}
    else:
        assert not world.alive
        assert world.end in {0, 1, 69, 78}


@covers("rule 45")
@settings(max_examples=250, deadline=None)
@given(policies, flows, events)
def test_after_a_stop_everything_ends_whatever_happens(policy, first, happened):
    world = World(policy)
    world.found(first)
    world.handle("stop", (False, None))
    for what, how in happened:
        world.handle(what, how)

    world.calm_down()

    assert world.end in {0, 1, 69, 78}
