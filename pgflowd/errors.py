"""
All errors of pgflowd. Each has a code and says what is wrong, what was expected, what to do next.

Several mistakes at once are `Problem` values, a list of a `ConfigError` or `FlowError`. No code of
`TITLES` is used again for something else. `Fail` and `RetryAfter` are no errors of pgflowd.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uuid import UUID

TITLES: dict[str, str] = {
    "E101": "no such config file",
    "E102": "unknown key",
    "E103": "wrong type",
    "E104": "a unit is missing",
    "E105": "out of range",
    "E106": "keys contradict each other",
    "E107": "a referenced value was not found",
    "E108": "[flows.x] is not a served flow",
    "E109": "not valid TOML",
    "W110": "a secret is in a file that others can read",
    "E111": "no flows are configured",
    "E112": "the path of the control socket is too long",
    "E113": "this change needs a restart, not a reload",
    "W114": "the daemon's working directory was deleted",
    "E115": "the installation lacks a page of the documentation",
    "E201": "unknown parameter or dependency",
    "E202": "dependencies form a cycle",
    "E203": "illegal or reserved slug",
    "E204": "wrong dependencies of a map step",
    "E205": "step defined twice",
    "E206": "parameter not allowed here",
    "E207": "slugs differ in case only",
    "E208": "slug too long",
    "E209": "bad option",
    "E210": "a flow module cannot be imported",
    "E211": "a flow module takes too long to import",
    "E212": "no flow found",
    "E213": "flow defined twice",
    "E214": "a pattern is not a JSON object",
    "E215": "when_unmet without a condition",
    "E216": "an annotation cannot be decoded",
    "E217": "what a step returns does not fit what another one takes",
    "W217": "what a step returns does not fit a note of another one",
    "E224": "bad schedule",
    "E225": "bad undo",
    "E226": "bad limit",
    "E227": "slug reserved for undo",
    "E228": "a condition asks for what no dependency is",
    "W220": "a skippable dependency has no default",
    "W221": "newer pgflow releases refuse this slug",
    "W222": "the import left threads, sockets or pipes open",
    "E301": "the database cannot be reached",
    "E302": "the schema is missing or older",
    "E303": "the schema is newer than this pgflowd",
    "E304": "pgmq is missing or too old",
    "E305": "a permission is missing",
    "E306": "the flow's shape differs from the database",
    "E307": "the functions of schema pgflow are not this pgflowd's",
    "E308": "the flow is missing in the database",
    "E309": "the server's version is not supported",
    "E310": "the server has no free connection",
    "W310": "options differ from the database",
    "W311": "no notification trigger on the queue",
    "W312": "clocks differ",
    "W313": "another recovery job is active",
    "W314": "the listener connects through a transaction pooler",
    "W315": "synchronous_commit is off",
    "W316": "the connection to another machine is not encrypted",
    "W317": "transactions are not read committed by default",
    "E318": "a queued task waits too long",
    "W318": "workers of another runtime serve a flow that waits or has gates",
    "E319": "the notification queue is not emptied",
    "W319": "a schedule whose flow is not in the code",
    "W320": "the server allows too few connections",
    "E321": "a transaction or slot keeps dead rows",
    "E322": "the calls of a worker to the database fail, or take too long",
    "W321": "runs are started in an old version",
    "W322": "the code cannot serve a version with open runs",
    "W323": "a schema of the platform is not trusted",
    "E324": "a task or run whose time has come cannot go on",
    "E325": "runs older than the retention cannot be deleted",
    "W326": "a large database from which nothing is deleted",
    "E327": "a schedule does not start its runs",
    "W328": "tasks wait for what no worker has",
    "W329": "tasks are in quarantine",
    "W330": "a flow is paused",
    "E331": "a part of the sweeper's work is not done",
    "W332": "runs wait for each other",
    "W333": "there is no history to make traces of",
    "E401": "the task timed out",
    "E402": "the runner crashed",
    "E403": "the output is not JSON",
    "E404": "an output or input is too large",
    "E405": "a dependency was skipped and has no default",
    "E406": "the code does not know this step",
    "E407": "the lease is lost",
    "E408": "the task crashed or stalled too often",
    "E409": "no such run",
    "E410": "the run already exists",
    "E411": "the run is in the wrong state",
    "E412": "the worker is parked",
    "E413": "the restart budget is spent",
    "E414": "the daemon does not answer",
    "E415": "no such flow",
    "E416": "the input of a map is not an array",
    "E417": "a value does not fit its type",
    "E418": "an output does not fit its annotation",
    "E420": "the run is being, or was, undone",
    "E421": "another run has the singleton key",
    "E422": "a run to wait for is unknown",
    "E423": "the task does not wait, or cannot be taken",
    "E424": "a checkpoint or signal is too large",
    "E425": "a checkpoint was saved by newer code",
    "E426": "the handler caught its suspension",
    "E427": "a signal, or the end of runs, did not come in time",
    "E428": "a run before it did not complete",
    "E429": "a name, the dedup of a signal, or needs cannot be used",
    "E430": "the time of a wait or a start cannot be used",
    "E431": "what a handler wrote cannot be committed",
    "E432": "the wishes of a start cannot be met",
    "E433": "the lifespan of a flow failed",
    "E434": "what a list asks for cannot be",
    "E501": "the dashboard would be open to others",
    "E502": "a file with logins cannot be used",
    "E503": "an extra is not installed",
    "E504": "the address for health and metrics cannot be used",
    "E505": "spans cannot be exported",
    "E506": "the address of a page cannot be used",
    "E507": "there is no such page",
    "E508": "the dashboard refuses the request",
    "E509": "nobody is logged in",
    "E510": "the address of the dashboard cannot be used",
    "E511": "a field of a form cannot be used",
    "E901": "unexpected exception",
    "E902": "illegal change of a state",
    "E903": "unreadable data on a pipe",
}

GROUPS = {  # by the first digit of a code: what it is about
    "1": "config, environment and flags",
    "2": "definitions of flows",
    "3": "the database",
    "4": "runs, tasks and the daemon",
    "5": "the dashboard, health, metrics and spans",
    "9": "mistakes in pgflowd",
}


@dataclass(frozen=True)
class Problem:
    """One of several findings: where, what is wrong, and what to do next."""

    code: str
    text: str
    place: str | None = None  # "pgflowd.toml:7", "flows/billing.py:31", "database"
    next: str | None = None

    @property
    def is_warning(self) -> bool:
        return self.code.startswith("W")

    @property
    def position(self) -> tuple[str, int]:
        """File and line, by which problems are sorted; the line 0 if there is none."""
        place, _, line = (self.place or "").rpartition(":")
        is_line = line.isdecimal() and line.isascii()
        return (place, int(line)) if is_line else (self.place or "", 0)

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        return f"{self.code} {where}{self.text}" + (f"; {self.next}" if self.next else "")


class PgflowdError(Exception):
    """
    The base of all: `code`, `text`, `next` (what to do), `place`, and `problems`, all of them.

    `str()` returns the whole line that a user reads.
    """

    default_code = "E901"

    def __init_subclass__(cls, code: str | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if code is not None:
            cls.default_code = code

    def __init__(
        self,
        text: str,
        *,
        code: str | None = None,
        next: str | None = None,
        place: str | None = None,
    ) -> None:
        self.code = code or self.default_code
        if self.code not in TITLES:
            raise KeyError(f"{self.code} is not in the registry of codes")
        self.text = text
        self.next = next
        self.place = place
        super().__init__(text)

    @property
    def problems(self) -> list[Problem]:
        return [Problem(self.code, self.text, self.place, self.next)]

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class _ManyProblems(PgflowdError):
    """An error that may carry several problems at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self._problems = list(problems)
        if not self._problems:
            raise ValueError("an error needs at least one problem")
        first = self._problems[0]
        super().__init__(first.text, code=first.code, next=first.next, place=first.place)

    @property
    def problems(self) -> list[Problem]:
        return self._problems


class ConfigError(_ManyProblems, code="E103"):
    """The config file, the environment or a flag is wrong: E1xx."""


class FlowError(_ManyProblems, code="E209"):
    """A flow is used whose definition is wrong: E2xx."""


class DatabaseError(PgflowdError, code="E302"):
    """The database cannot be used as it is: E3xx."""


class Unreachable(DatabaseError, code="E301"):
    """It does not answer (E301), or has no free connection (E310); try again later."""


class AccessDenied(DatabaseError, code="E305"):
    """A permission is missing."""


class OutOfReach(DatabaseError):
    """The database has no schema, or one of another version."""


class RunError(PgflowdError, code="E411"):
    """The base of the errors about runs and tasks: E4xx."""


class OutputError(RunError, code="E403"):
    """
    A value is not JSON (E403), is too large (E404), or does not fit the annotation of its handler
    (E418). It fails the task for good if it is not JSON.
    """


class LeaseLost(RunError, code="E407"):
    """Another worker has the task now."""


class NotFound(RunError, code="E409"):
    """There is no such run."""


class BadDependency(NotFound, code="E422"):
    """A run to wait for does not exist."""


class RunExists(RunError, code="E410"):
    """A run with the chosen id exists."""


class WrongState(RunError, code="E411"):
    """The state of the run forbids it."""


class RunEnded(WrongState):
    """A run that has ended is cancelled or paused, or one that has not begun is paused."""


class NotRetryable(WrongState):
    """A run is retried that did not fail, or was cancelled."""


class UndoStarted(WrongState, code="E420"):
    """The run is being, or was, undone: no retry."""


class KeyTaken(WrongState, code="E421"):
    """Another run, with id `run_id`, has the singleton key."""

    run_id: UUID | None = None


class NotOpen(WrongState, code="E423"):
    """A step is answered that is no approval; or a task does not wait, or somebody else has it."""


class UnknownFlow(RunError, code="E415"):
    """The database has no such flow."""


class MapInput(RunError, code="E416"):
    """The input of a flow with a root map is not an array."""


class TypeMismatch(RunError, code="E417"):
    """A value does not fit the type that it is decoded as; it fails the task for good."""


class TooLarge(RunError, code="E424"):
    """A checkpoint or a signal is too large, or a task has too many checkpoints."""


class SignalTimeout(RunError, TimeoutError, code="E427"):
    """The time of `ctx.wait_signal` or `ctx.wait` is over; it fails the task for good."""


class WaitTimeout(RunError, TimeoutError):
    """The time of `wait` is over; the run with id `run_id` continues."""

    run_id: UUID | None = None


class Bug(PgflowdError, code="E901"):
    """A mistake in pgflowd."""
