"""
The type of `ctx`, the argument by which a handler reads facts about its task, its run and steps,
remembers, waits, and starts other runs.

A handler with a parameter `ctx` gets one. In a daemon the runner makes it, in tests
`pgflowd.testing`; these know where the checkpoints of a task are kept. Use it in annotations:
`def website(run, ctx: Context)`. A wait ends by a checkpoint: a handler that waits raises
`Suspended`, begins again when the wait is over, finds the checkpoint, and passes that line.

    sleep 1, sleep NAME       {"slept": true}
    signal NAME 1             {"got": payload} or {"timeout": true}; counted for each name
    runs 1                    {"ended": true} or {"timeout": true}

So a name of the user's own may not begin like one of these.

`database_of_task` is set in a runner only, while it executes a task: `Client()` connects to the
daemon's database there, whose password is not in the environment of handlers.
"""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Unpack, overload

from pgflowd.core.ids import child_id, run_id_of
from pgflowd.core.json import as_stored, deep_copy
from pgflowd.core.progress import Document, progress_of
from pgflowd.core.settings.values import needs_fault, sorted_needs
from pgflowd.core.text import did_you_mean
from pgflowd.core.typed.codec import read_as, stored_value
from pgflowd.core.undo import Undo
from pgflowd.core.waiting import (
    MAX_RUNS,
    MAX_WAIT_S,
    RAISE,
    Checkpoint,
    Keep,
    P,
    Suspended,
    T,
    Time,
    Wait,
    WaitKind,
    bad_name,
    bad_time,
    check_name,
    check_signal_name,
    moment_of,
    name_fault,
    seconds_of,
    wait_for_newer_code,
)
from pgflowd.core.wishes import ChildRun, ChildStart, Wishes, checked, require_slug
from pgflowd.errors import RunError, SignalTimeout

if TYPE_CHECKING:
    from psycopg import Connection

MAX_NOTE_CHARS = 1000
_NEEDS_NEXT = 'name caps that other workers have, such as needs=["gpu"]'

database_of_task: Callable[[], str] | None = None  # returns the URL
# called by runners, for libraries that keep connections: before the first task, and around each
after_fork: list[Callable[[], None]] = []
around_tasks: list[Callable[[], None]] = []


class Signal(Protocol):
    """An event that becomes set once."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Context(ABC):
    """One attempt of one task."""

    run_id: str
    flow_slug: str
    step_slug: str
    task_index: int
    attempt: int  # 1 for the first one
    max_attempts: int
    deadline: datetime  # when the attempt times out
    token: int  # grows with every attempt in the database; for systems that can refuse older ones
    caps: frozenset[str]  # what the worker has that executes this attempt: its `caps` in the config
    log: logging.Logger  # its records carry flow, run, step and task
    cancelled: Signal  # set at the timeout, the end of a drain, and the run's cancel or failure
    stopping: Signal  # set when a drain begins: of the daemon, or of its worker, at a reload
    traceparent: str | None  # its span as W3C writes it, for calls that no library makes
    labels: Mapping[str, str]  # of the run; the first question fetches them
    scheduled_for: datetime | None  # when the run was to begin, if its start said so
    resources: Any  # what the flow's lifespan has yielded in this process; None without one
    undo: Undo | None  # what an undo handler undoes; None for others
    _suspended: Suspended | None = None  # raised in this attempt; it must leave the handler
    _known: dict[str, Checkpoint] | None = None  # by name; None: not read yet
    _version: int  # the option `version` of the step

    @overload
    def flow_input(self) -> Any:
        """The run's input, fetched by this call; with a type, decoded as that."""

    @overload
    def flow_input(self, as_type: type[T], /) -> T: ...
    def flow_input(self, as_type: Any = None) -> Any:
        return read_as(self._read_input(), as_type, "run")

    @overload
    def step_output(self, slug: str) -> Any:
        """The output of a dep, fetched by this call; with a type, decoded as that. None if it was
        skipped. E201: no such step."""

    @overload
    def step_output(self, slug: str, as_type: type[T], /) -> T | None: ...
    def step_output(self, slug: str, as_type: Any = None) -> Any:
        value = self._read_output(slug)
        return None if value is None else read_as(value, as_type, slug)

    @abstractmethod
    def conn(self) -> Connection[Any]:
        """A psycopg connection of this runner alone, opened by the first call. What is written over
        it is committed with the completion of the task, or not at all."""

    def memo(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `fn` unless it has returned in an earlier attempt; return what it returned, as JSON.
        What an async function returns is to be awaited, as usual."""
        check_name(name)
        called = getattr(fn, "__call__", None)  # noqa: B004  an object whose call is async
        if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(called):
            return self._memo_async(name, fn, *args, **kwargs)  # type: ignore[return-value]
        if name in self._saved:
            return self._value(name)  # type: ignore[no-any-return]
        with self._work_of_memo() as keep:
            return self._save(name, fn(*args, **kwargs), keep)  # type: ignore[no-any-return]

    async def _memo_async(self, name: str, fn: Any, *args: Any, **kwargs: Any) -> Any:
        if name in self._saved:
            return self._value(name)
        with self._work_of_memo() as keep:
            return self._save(name, await fn(*args, **kwargs), keep)

    def save(self, name: str, value: Any) -> None:
        """Keep a JSON value for the attempts to come of this task."""
        check_name(name)
        self._save(name, value, self._keep)

    def load(self, name: str, default: Any = None) -> Any:
        """What `save` or `memo` has kept under this name."""
        check_name(name)
        return self._value(name) if name in self._saved else default

    def drop(self, name: str) -> None:
        """Forget what was kept under this name."""
        check_name(name)
        if name in self._saved:
            self._forget(name)
            del self._saved[name]

    def progress(
        self, done: float, total: float | None = None, text: str = "", **detail: Any
    ) -> None:
        """Tell how far the task is, such as `ctx.progress(12, 30, "pages")`, for those who look."""
        self._tell_progress(progress_of(done, total, text, detail))

    def sleep(
        self,
        duration: Time | None = None,
        *,
        until: datetime | None = None,
        name: str | None = None,
    ) -> None:
        """End this attempt, unspent; the handler begins again after that time, and passes here.
        With a name if the order of sleeps may differ between attempts."""
        if name is None:
            self._counts["sleep"] += 1
            checkpoint = f"sleep {self._counts['sleep']}"
        else:
            checkpoint = f"sleep {name}"
            fault = name_fault(name)
            if not fault and name.isdecimal():
                fault = "is a number, as sleeps without a name have one"
            elif not fault and self._counts[checkpoint]:  # one that is over would not last again
                fault = "was slept before in this attempt"
            if fault:
                raise bad_name("a sleep", name, fault, "give it another name, or none")
            self._counts[checkpoint] += 1
        if until is not None and duration is None:
            if (moment_of(until, "until") - self._moment()).total_seconds() > MAX_WAIT_S:
                raise bad_time(f"until is {until.isoformat()}, more than 100 years ahead")
            wait = Wait(WaitKind.SLEEP, checkpoint=checkpoint, until=until)
        elif duration is not None and until is None:
            in_s = seconds_of(duration, "the duration of a sleep")
            wait = Wait(WaitKind.SLEEP, checkpoint=checkpoint, in_s=in_s)
        else:
            raise bad_time("a sleep has a duration or a moment, one of the two")
        self._end_of(wait)

    @overload
    def wait_signal(self, name: str, *, timeout: Time | None = None, default: Any = RAISE) -> Any:
        """End this attempt, unspent, until the run gets a signal of this name; return what was sent
        with it; with a type, decoded as that. After the timeout return the default, or raise
        SignalTimeout."""

    @overload
    def wait_signal(
        self, name: str, as_type: type[T], /, *, timeout: Time | None = None, default: Any = RAISE
    ) -> T: ...
    def wait_signal(
        self,
        name: str,
        as_type: Any = None,
        *,
        timeout: Time | None = None,
        default: Any = RAISE,
    ) -> Any:
        check_signal_name(name)
        in_s = None if timeout is None else seconds_of(timeout, f"the timeout of signal '{name}'")
        self._counts[f"signal {name}"] += 1
        checkpoint = f"signal {name} {self._counts[f'signal {name}']}"
        end = self._end_of(Wait(WaitKind.SIGNAL, name, checkpoint, in_s))
        if "got" in end:
            return read_as(deep_copy(end["got"]), as_type, f"signal '{name}'")
        if default is RAISE:
            raise SignalTimeout(f"step {self.step_slug}: signal '{name}' did not come in time")
        return default

    def hand_on(self, *, needs: Sequence[str], note: str = "") -> NoReturn:
        """End this attempt, unspent; the handler begins again on a worker that has all of these
        among its caps, and finds what was saved. The next attempt after that needs what its step
        needs."""
        if fault := needs_fault(needs):
            raise bad_name("a task that is handed on", needs, fault, _NEEDS_NEXT, kind="needs")
        note = str(note)[:MAX_NOTE_CHARS]
        self._suspend(Wait(WaitKind.NEED, why=note or None, needs=sorted_needs(needs)))

    def start(
        self, flow: str, input: Any, *, key: str | None = None, **wishes: Unpack[Wishes]
    ) -> str:
        """Start a run as a child of this one, and return its id. When the handler begins again, the
        same child is returned, by its key, or by the number of the call if it has none."""
        require_slug(flow)
        given = checked(wishes, key)
        if key is None:
            self._counts[f"start {flow}"] += 1
        name = f"nr {self._counts[f'start {flow}']}" if key is None else f"key {key}"
        new_id = child_id(self.run_id, self.step_slug, self.task_index, flow, name)
        if new_id not in self._children:
            stored = stored_value(input, what=f"the input of flow {flow}")
            self._children[new_id] = self._start_child(ChildStart(new_id, flow, stored, given))
        return self._children[new_id]

    def wait(self, *runs: str, timeout: Time | None = None) -> list[ChildRun]:
        """End this attempt, unspent, until these runs have ended, however they end; return them.
        After the timeout raise SignalTimeout."""
        run_ids = [str(run_id_of(each)) for each in runs]
        in_s = None if timeout is None else seconds_of(timeout, "the timeout of a wait for runs")
        if len(run_ids) > MAX_RUNS:
            raise ValueError(f"one ctx.wait takes {MAX_RUNS} runs, not {len(runs)}; call it again")
        if self.run_id in run_ids:
            raise ValueError(f"step {self.step_slug} waits for the end of its own run")
        if not run_ids:
            return []
        self._counts["runs"] += 1
        checkpoint, different = f"runs {self._counts['runs']}", tuple(dict.fromkeys(run_ids))
        named = f"run {different[0]}" if len(different) == 1 else f"{len(different)} runs"
        wait = Wait(WaitKind.RUNS, None, checkpoint, in_s, why=named, runs=different)
        if "ended" not in self._end_of(wait):
            raise SignalTimeout(f"step {self.step_slug}: {wait.why} did not end in time")
        found = {each.run_id: each for each in self._read_runs(different)}
        if not all(each.status.is_end for each in found.values()):  # one was retried since
            self._suspend(wait)
        return [found[run_id] for run_id in run_ids]

    # -- where this task runs decides ----------------------------------------------------

    @abstractmethod
    def _moment(self) -> datetime: ...
    @abstractmethod
    def _read_input(self) -> Any: ...
    @abstractmethod
    def _read_output(self, slug: str) -> Any: ...
    @abstractmethod
    def _tell_progress(self, told: Document) -> None: ...
    @abstractmethod
    def _read_checkpoints(self) -> Iterable[Checkpoint]:
        """All of the task's; asked once, at the first use."""

    @abstractmethod
    def _keep(self, checkpoint: Checkpoint) -> None:
        """Keep it for the attempts to come, or raise, and keep what was there."""

    @abstractmethod
    def _forget(self, name: str) -> None: ...
    @abstractmethod
    def _read_children(self) -> Mapping[str, str]:
        """What the task has started in earlier attempts: for the id of each child the run's, which
        differs where another run was there already; asked once, at the first start."""

    @abstractmethod
    def _start_child(self, child: ChildStart) -> str:
        """Start it unless that was done before, and return the id of the run."""

    @abstractmethod
    def _read_runs(self, run_ids: Sequence[str]) -> list[ChildRun]:
        """These runs as they are now. E409 for one that is unknown, or was deleted."""

    # -- inside --------------------------------------------------------------------------

    @contextmanager
    def _work_of_memo(self) -> Iterator[Keep]:
        """Around the function of a memo; gives what keeps its result."""
        yield self._keep

    @property
    def _saved(self) -> dict[str, Checkpoint]:
        if self._known is None:
            read = {each.name: each for each in self._read_checkpoints()}
            for each in read.values():
                if each.version > self._version:
                    self._suspend(wait_for_newer_code(each, self._version))
            if self._known is None:  # else another thread was faster, and may have saved since
                self._known = read
        return self._known

    @cached_property
    def _counts(self) -> Counter[str]:
        """How often this attempt has slept, by names, too, and waited for each signal."""
        return Counter()

    def _value(self, name: str) -> Any:
        return deep_copy(self._data(name))

    def _data(self, name: str) -> Any:
        """What a checkpoint holds."""
        return self._saved[name].data

    def _save(self, name: str, value: Any, keep: Keep) -> Any:
        """Keep a value; return it as every later attempt will see it."""
        checkpoint = Checkpoint(name, self._version, as_stored(value, what=f"checkpoint '{name}'"))
        saved = self._saved
        keep(checkpoint)
        saved[name] = checkpoint
        return self._value(name)

    def _end_of(self, wait: Wait) -> Any:
        """How the wait ended; suspends the task if it has not."""
        if wait.checkpoint not in self._saved:
            self._suspend(wait)
        return self._data(str(wait.checkpoint))

    def _suspend(self, wait: Wait) -> NoReturn:
        """End the handler. One that goes on nevertheless waits for what it waited for first."""
        self._suspended = self._suspended or Suspended(wait)
        raise self._suspended

    def _refuse_swallowed(self) -> None:
        """Raise E426 if a handler returns although it waits."""
        if self._suspended is not None:
            text = f"the handler caught what ends it while it {self._suspended}"
            raise RunError(text, code="E426", next="catch Exception, not BaseException")

    @cached_property
    def _children(self) -> dict[str, str]:
        return dict(self._read_children())


def refuse_unknown_step(slug: str, steps: Collection[str], flow_slug: str) -> None:
    """Raise E201 if a handler asks for the output of a step that its flow does not have."""
    if slug not in steps:
        hint = did_you_mean(str(slug), steps)
        raise RunError(f"'{slug}' is not a step of {flow_slug}", code="E201", next=hint)
