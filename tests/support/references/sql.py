"""The page of SQL functions, from their files and the rights of roles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pgflowd.db.connection import OURS
from pgflowd.errors import TITLES
from pgflowd.resources import shipped
from support.error_examples import PAGES
from support.references.markdown import MADE, code, item, page, paragraph, prose, table

_ABOUT = f"""\
Functions of schema `pgflowd` for applications and tools in any language, as SQL calls them. A
role that has none of the rights of `pgflowd db sql roles` needs a grant. Functions that begin
with `_`, and those that are for daemons alone, are not listed, and may change in any release.
{MADE}"""
_ROLES = ("pgflow_starter", "pgflow_viewer", "pgflow_operator")  # those for people and applications
_ROLE = re.compile(r"^--   (pgflow_\w+) +(.*(?:\n-- {10,}.*)*)", re.MULTILINE)
_CHANGES = """\
Each is executed in your transaction and takes effect at its commit. The parameters have names,
so write `key => 'order-7'`."""
_WORKER = "arm", "claim", "complete", "disarm", "fail", "heartbeat", "release"
_OF_WORKERS = """\
These are for workers in any language, psql and PL/pgSQL among them, and change no more than all
others: their names, parameters and defaults stay. They need the role `pgflow_worker`. A worker
adds itself, claims tasks, and shows with each report the token of its lease. It renews the
leases of what takes longer, and `pgflow.register_worker` again at least each minute; or it
claims with the lease null, which then lasts as long as the step's timeout. A worker of which
nothing is heard loses its tasks to others."""
_HEARS = """\
Who sleeps has a doorbell (`arm`). Each insert into the queue then notifies channel `pgflowd`,
with the name of the queue, and so does a task that waits for somebody with other caps. Put it
up, claim once more, and only then sleep, for a minute at most: a start that was under way while
it was put up need not notify, and a sweep takes down what is older than five minutes. A worker
of many flows listens once, and has a doorbell for each queue."""
_EXAMPLE = """\
select pgflow.register_worker('5e1f0c2a-7c1d-4b52-9a63-0d5f5a6f1c11', 'prices', 'a worker in SQL');
listen pgflowd;
select pgflowd.arm('prices', '5e1f0c2a-7c1d-4b52-9a63-0d5f5a6f1c11');

do $$
declare
  me constant uuid := '5e1f0c2a-7c1d-4b52-9a63-0d5f5a6f1c11';
  task record;
begin
  loop
    select * into task
      from pgflowd.claim('prices', me, 1, interval '30 s', caps => array['sql']);
    exit when not found;
    commit;  -- nobody else gets it from now on
    begin
      perform pgflowd.complete(
        task.run_id, task.step_slug, task.task_index, task.token,
        to_jsonb((task.flow_input ->> 'net')::numeric * 1.19));
    exception when data_exception then
      perform pgflowd.fail(
        task.run_id, task.step_slug, task.task_index, task.token, sqlerrm, retry => false);
    end;
    commit;
  end loop;
end $$;
"""
_READS = """\
They change nothing. `pgflow_viewer` and `pgflow_operator` may call them, and who else is named."""
_CORE = """\
The functions of schema `pgflow` are those of the contract that runtimes share; pgflowd's own
and upstream's do the same."""
_STATES = """\
An error has one of these states. Clients of Python raise the class, and `pgflowd explain` knows
the code."""
_GRANTED = re.compile(r"\('(\w+)', '(\w+)', (true|false), '([ivs]+)',\s*'(.*?)'\)")
_CREATE = re.compile(
    r"create or replace function (\w+)\.(\w+)\((.*?)\)\s*(?:returns (.*?)\s+)?language ", re.DOTALL
)
_INTERNAL = re.compile(r" ?\((?:see )?_\w+\)|[;,] see _\w+| See _\w+\.")  # of a text
_CALLERS = re.compile(
    "`pgflowd |[Cc]ommands|[Cc]lients|[Aa]pplications|[Oo]perators|[Pp]ages|dashboard"
)


@dataclass(frozen=True)
class SqlFunction:
    schema: str
    name: str
    head: str  # with the names of its arguments
    arguments: str
    returns: str
    says: str
    is_definer: bool
    volatile: str  # i, s or v, as the catalog has it
    roles: Sequence[str]
    is_for_others: bool  # than the daemon

    @property
    def call(self) -> str:
        return f"{self.schema}.{self.name}({self.arguments})"

    @property
    def may_change(self) -> bool:
        """Whether who may do so is not only for readers."""
        return {"pgflow_starter", "pgflow_operator"} & {*self.roles} != set()


def sql_page() -> str:
    ours, core = _functions("pgflowd"), _functions("pgflow")
    changing = [each for each in ours if each.is_definer and each.may_change]
    reading = [
        each
        for each in ours
        if each not in changing and "pgflow_viewer" in each.roles and each.is_for_others
    ]
    parts = [paragraph(_ABOUT), "## Roles", "\n".join(_roles())]
    parts += ["## Start, change, follow", paragraph(_CHANGES)]
    by_roles = dict[tuple[str, ...], list[SqlFunction]]()
    for each in changing:
        by_roles.setdefault(tuple(each.roles), []).append(each)
    for roles, functions in by_roles.items():
        parts += [
            f"### For {' and '.join(map(code, roles))}",
            "\n".join(map(_described, functions)),
        ]
    parts += ["## Workers in SQL", paragraph(_OF_WORKERS)]
    parts.append(f"```sql\n{_EXAMPLE}```")
    parts.append(paragraph(_HEARS))
    parts.append("\n".join(map(_described, (each for each in ours if each.name in _WORKER))))
    parts += ["## Read", paragraph(_READS), "\n".join(map(_listed, reading))]
    parts += ["## The core", paragraph(_CORE), "\n".join(map(_listed, core))]
    rows = [
        [
            code(state),
            code(error.__name__),
            f"[{number}](../errors/{number if number in PAGES else 'README'}.md)",
            prose(TITLES[number]),
        ]
        for state, (error, number) in OURS.items()
    ]
    parts += ["## Errors", paragraph(_STATES), table(("state", "class", "code", "means"), rows)]
    return page("SQL functions", *parts)


def _roles() -> list[str]:
    """What each role does, as roles.sql says."""
    said = dict(_ROLE.findall((shipped("sql") / "roles.sql").read_text("utf-8")))
    return [item(f"{code(name)} {said[name].replace('--', '')}") for name in _ROLES]


def _described(function: SqlFunction) -> str:
    returns = f" -> {function.returns}" if function.returns else ""
    return item(f"{code(function.call + returns)}: {function.says}")


def _listed(function: SqlFunction) -> str:
    first = function.says.split(". ")[0].rstrip(".")
    others = [role for role in function.roles if role == "pgflow_starter"]
    also = f"; also for {code(others[0])}" if others and function.schema == "pgflowd" else ""
    return item(f"{code(function.head)}: {first}{also}")


def _functions(schema: str) -> list[SqlFunction]:
    files = sorted((shipped("sql") / "schema" / schema / "functions").glob("[a-z]*.sql"))
    return [found for file in files if (found := _read(file.read_text("utf-8")))]


def _read(text: str) -> SqlFunction | None:
    match = _CREATE.search(text)
    if match is None:
        return None
    schema, name, arguments, returns = match.groups()
    options = text[match.end() :].partition(" as $")[0]
    found = re.search(r"\b(stable|immutable)\b", options)
    volatile, is_definer = (found[1][0] if found else "v"), "security definer" in options
    comment = " ".join(line[2:].strip() for line in text[: match.start()].splitlines())
    about, _, callers = comment.partition("Called by:")
    says = _INTERNAL.sub("", about.partition("Security definer")[0].strip())
    head, _, says = says.partition(": ")
    return SqlFunction(
        schema,
        name,
        head,
        " ".join(arguments.split()),
        " ".join((returns or "").split()),
        says[:1].upper() + says[1:],
        is_definer,
        volatile,
        _roles_of(schema, name, is_definer, volatile),
        _CALLERS.search(callers.partition("Locks:")[0]) is not None
        and not name.endswith("_violations"),
    )


def _roles_of(schema: str, name: str, is_definer: bool, volatile: str) -> list[str]:
    """The roles for people and applications that may call it."""
    grants = (shipped("sql") / "install" / "grants.sql").read_text("utf-8")
    return [
        role
        for role in _ROLES
        if any(
            (place, to, definer == "true") == (schema, role, is_definer)
            and volatile in kinds
            and re.search(names, name)
            for place, to, definer, kinds, names in _GRANTED.findall(grants)
        )
    ]
