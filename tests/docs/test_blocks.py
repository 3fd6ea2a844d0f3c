"""Every block of code on every page is executed, or compared with what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from support.pages import BLOCK, blocks_of
from support.walk import WALKED

from pgflowd import Flow
from pgflowd.cli.main import run
from pgflowd.core.settings.load import build, from_document, lines_of
from pgflowd.host.systemd import USERADD

PROJECT = Path(__file__).parents[2]
BACKGROUND = sorted(PROJECT.glob("docs/background/*.md"))
PAGES = [
    page
    for pattern in ("*.md", "docs/**/*.md", "sql/*.md", "sql/migrations/*.md", "bench/*.md")
    for page in sorted(PROJECT.glob(pattern))
    if page not in BACKGROUND
]
WALKED_PAGES = [PROJECT / page for page in WALKED]
INLINE = re.compile(r"`(?:\$ |sudo )?(pgflowd [^`]+)`")
STAND_FOR = {
    "RUN": "@last",
    "TASK": "@last/step#0",
}  # as docs/reference/programs.md has these words
# each has a test of its own
PICTURES = (
    "flow  ", "E201 ", "pgflowd/\n", "NAME  HOST ", " pages ", "analyze_website ",
)  # fmt: skip


class Block(NamedTuple):
    page: Path
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}: {self.text.splitlines()[0][:40]}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for match in BLOCK.finditer(page.read_text("utf-8")):
            yield Block(page, match[1], match[2])


ALL = list(blocks())
README = (PROJECT / "README.md").read_text("utf-8")


def picture(start: str) -> str:
    (text,) = {block.text for block in ALL if block.text.startswith(start)}
    return text


def commands(text: str) -> list[list[str]]:
    """The command lines behind `$`, split where a shell would."""
    lines = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    parts = [part for line in lines for part in re.split(r" (?:&&|\|) ", line.split(" > ")[0])]
    return [words for words in (shlex.split(part, comments=True) for part in parts) if words]


@pytest.mark.parametrize("block", ALL, ids=str)
def test_a_block_is_of_a_kind_that_is_tested(block):
    """Console lines run below, Python and SQL in the test of their page."""
    if block.page.parent.name == "errors":
        return  # test_error_pages.py runs what is there
    if block.page in WALKED_PAGES and block.language != "toml":
        return  # test_walked_pages.py does what is there
    if block.language == "python":
        run = (
            "README.md", "scaling.md", "waits.md", "child-runs.md", "planned-runs.md", "gates.md",
            "people.md", "quarantine.md", "progress.md", "undo.md",
            "schedules.md", "history.md", "changing-flows.md", "applications.md",
            "testing.md", "typed-handlers.md", "django.md", "web.md", "observe.md",
            "dashboard.md", "flows.md", "retries.md", "maps.md", "conditions.md", "long-steps.md",
            "start-runs.md", "handlers.md",
        )  # fmt: skip
        is_run = block.page.name in run or block.page.parent.name == "coming-from"
        assert is_run, "the Python of no other page is run"
    elif block.language == "console":
        assert all(line.startswith("$ ") for line in block.text.splitlines())
    elif block.language == "toml":
        values = from_document(tomllib.loads(block.text), lines_of(block.text), "page", "/")
        assert build(values, lambda ref: ref.written).problems == []
    elif block.language == "sql":
        run = (
            "planned-runs.md", "schedules.md", "history.md", "procrastinate.md", "start-runs.md",
            "recover.md", "security.md", "containers.md", "sql.md",
        )  # fmt: skip
        assert block.page.name in run, "the SQL of no other page is run"
    elif block.language == "nginx":  # tests/web/test_behind_nginx.py
        assert block.page.name == "dashboard.md"
    elif block.language == "dockerfile":  # tests/deploy/test_image.py
        assert block.page.name == "containers.md"
    elif block.language == "ini" and block.page.name == "systemd.md":
        return  # test_systemd_page.py takes it
    elif block.page.name == "python-api.md":
        assert block.language == "text"  # tests/docs/test_generated_pages.py compares it
    elif block.language in ("yaml", "ini", "sh"):  # tests/support/patroni.py and pgbouncer.py
        assert block.page.name == "high-availability.md"
    else:
        assert block.text.startswith(PICTURES), "no test checks this block"


RUN_ELSEWHERE = ("errors", "reference")  # test_error_pages.py; test_every_command.py, as help
CONSOLES = [
    block
    for block in ALL
    if block.language == "console"
    and block.page.parent.name not in RUN_ELSEWHERE
    and block.page not in WALKED_PAGES
]


@pytest.mark.parametrize("block", CONSOLES, ids=str)
def test_a_command_of_a_block_exists(block, tmp_path, monkeypatch):
    understood = understanding(monkeypatch, tmp_path)
    for words in commands(block.text):
        if words[:2] == ["sudo", "-u"]:
            words = words[3:]
        elif words[:2] == ["sudo", "pgflowd"]:
            words = words[1:]
        if words[:2] == ["python", "manage.py"]:
            words = words[2:]  # Django's, with ours as one of its commands
        if words[0] == "pgflowd":
            assert understood(words[1:]), words
        elif words[0] == "make":
            dry = subprocess.run(["make", "--dry-run", *words[1:]], cwd=PROJECT, env=outside_make())
            assert dry.returncode == 0
        elif words[:2] == ["pip", "install"]:
            package, _, extras = words[2].rstrip("]").partition("[")
            project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
            assert package == project["name"]
            assert {*extras.split(",")} <= {*project["optional-dependencies"], ""}
        elif words[:2] == ["sudo", "systemctl"]:
            units = [word.partition("@")[0] for word in words if word.startswith("pgflowd")]
            assert units
            for unit in units:
                assert list((PROJECT / "systemd").glob(f"{unit}*.service"))
        elif words[:2] == ["sudo", "useradd"]:
            assert words[1:-1] == shlex.split(USERADD)
        elif words[0] in ("export", "python"):
            assert block.page.name == "observe.md"  # test_observe_page.py runs them
        elif words[0] in ("prometheus", "promtool"):
            assert block.page.name == "observe.md"  # tests/process/test_prometheus.py runs them
        elif words[0] == "psql":
            assert block.page.name == "security.md"  # test_security_page.py runs it
        elif words[:2] == ["sudo", "apt-get"]:
            assert block.page.name in ("observe.md", "debian.md")  # tests/packaging/test_deb.py
        elif words[0] in ("docker", "kubectl", "echo"):
            assert block.page.name == "containers.md"  # test_containers_page.py reads them
        elif words[0] in ("createuser", "createdb"):  # of PostgreSQL
            assert block.page.name == "debian.md"
        elif words[0] == "openssl" or words[:2] == ["sudo", "install"]:
            assert block.page.name == "dashboard.md"  # test_dashboard_page.py runs them
        elif words[0] == "sudo":
            assert block.page.name == "systemd.md"  # test_systemd_page.py reads them
        elif words[0] != "cd":
            assert os.access(PROJECT / words[0], os.X_OK), words


@pytest.mark.parametrize(
    "page",
    [*PAGES, *BACKGROUND],
    ids=lambda page: str(page.relative_to(PROJECT)),
)
def test_a_command_within_a_text_exists(page, tmp_path, monkeypatch):
    understood = understanding(monkeypatch, tmp_path)
    for line in INLINE.findall(BLOCK.sub("", page.read_text("utf-8"))):
        first, *others = line.split(" | ")
        words = [word for word in shlex.split(first) if word not in {"-h", "…"}][1:]
        words = [STAND_FOR.get(word, word) for word in words]
        assert understood(words), line
        for other in others:
            assert understood([*words[:-1], other]), line


def understanding(monkeypatch, here):
    """Whether a command line is understood, without executing it."""
    monkeypatch.chdir(here)
    monkeypatch.setattr(click.Command, "invoke", lambda self, ctx: None)
    return lambda words: not words or run(words) in (0, 2 * (len(words) == 1))  # 2: a group's help


def outside_make() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}


def test_make_demo_is_the_demo():
    """Which test_demo.py runs."""
    dry = subprocess.run(
        ["make", "--dry-run", "demo"],
        cwd=PROJECT, env=outside_make(), capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert dry.stdout.splitlines()[-1] == ".venv/bin/pgflowd demo --once"


def test_the_first_steps_in_a_project_are_those_of_the_ten_minutes():
    """Whose page is walked through, with an address that needs no network."""
    (block,) = re.findall(r"Begin a project.*?```console\n(.*?)```", README, re.DOTALL)
    walked = [commands(console) for console in blocks_of("docs/start/ten-minutes.md", "console")]
    first = [words for words in chain(*walked) if words[0] != "pip"][:4]

    assert (
        first[-1][4].replace("data:,An%20example", "https://example.com") == commands(block)[3][4]
    )
    assert [words[:4] for words in first] == [words[:4] for words in commands(block)]


def test_the_picture_of_the_tree_has_a_module_or_package_for_each_process():
    tree = blocks_of("docs/background/supervision.md", "text")[0]
    names = set(re.findall(r"^[│├└─ ]*(\w+)", tree, re.MULTILINE)) - {"workers"}  # a group

    assert names == {
        "supervisor", "listener", "worker", "zygote", "runner", "sweeper", "http", "exporter",
        "discovery",
    }  # fmt: skip
    for name in names:
        place = PROJECT / "pgflowd" / "processes" / name
        assert place.is_dir() or place.with_suffix(".py").exists()


def test_the_messages_shown_are_those_of_such_mistakes():
    lines = [""] * 60
    lines[0] = "from pgflowd import Flow; flow = Flow('process_order')"
    for number, text in (
        (10, "@flow.step\ndef validate(run): ..."),
        (31, "@flow.step\ndef charge(validated): ..."),
        (41, "@flow.step\ndef email(run): ..."),
        (48, "@flow.map(over='charge')\ndef notify(item, email): ..."),
    ):
        lines[number - 1], lines[number] = text.split("\n")
    world: dict[str, object] = {"__name__": "flows.billing"}
    exec(compile("\n".join(lines), "flows/billing.py", "exec"), world)
    flow = world["flow"]
    assert isinstance(flow, Flow)

    said = [re.sub(r"\S*flows/", "flows/", str(problem)) for problem in flow.check()]

    assert said == picture("E201 ").splitlines()


def test_the_picture_of_the_package_names_what_exists():
    parents = {-1: PROJECT}  # by indentation
    for line in picture("pgflowd/\n").splitlines():
        indent = len(line) - len(line.lstrip())
        above = parents[max(each for each in parents if each < indent)]
        names = re.findall(r"(?<!\S)((?:\w+/)+|\w+\.py)(?=,?(?:\s|$))", line)
        parents = {each: path for each, path in parents.items() if each < indent}
        parents[indent] = above / names[0]
        for name in names:
            assert (above / name).exists() or (above / names[0] / name).exists(), name
