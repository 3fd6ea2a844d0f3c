"""Each page in Chromium: empty, full and hostile, light and dark, from phones to large screens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Page, expect
from support import web_states
from support.shop import Shop
from web.conftest import anybody, serving

from pgflowd.testing.scratch import ScratchServer
from pgflowd.web import app
from pgflowd.web.pages import PAGES
from pgflowd.web.text import shown

ROOT = Path(__file__).parents[2]
AXE = ROOT / "tests" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
PICTURES = ROOT / "docs" / "pictures"
WIDTHS = (360, 1440, 3840)
THEMES = ("light", "dark")
MAX_PAGE_BYTES, MAX_ASSET_BYTES = 100_000, 40_000
WORDS = {"step": "summary", "code": "E210", "flow": "analyze_website"}
VIEWS = [(page, view) for page in PAGES for view in ("", *page.views)]
NAMES = [f"{page.path}{f'?view={view}' if view else ''}" for page, view in VIEWS]
MORE = {  # addresses with parameters, where a page then shows something else
    "/runs?filter": "/runs?status=failed&status=started&since=7d&text=Timeout",
    "map": "/runs/{map}/steps/store?status=failed",
    "task": "/runs/{map}/steps/store?task=71",
    "map graph": "/runs/{map}",
    "codes": "/explain?words=schedule",
    "no page": "/nothing",
    "no run": "/runs/zz",
    "no flow": "/flows/analyse_website",
}
OF_ONE = ("{run}", "{flow}", "{daemon}", "{map}")  # an empty database has none of these


class State(NamedTuple):
    """A database and its dashboard."""

    address: str
    words: dict[str, str]

    def url(self, path: str) -> str:
        return self.address + path.format(**{**WORDS, **self.words})


@pytest.fixture(scope="module")
def states(pgflow_server: ScratchServer) -> Iterator[dict[str, State]]:
    with ExitStack() as stack:
        found = {}
        for name, fill in (
            ("empty", None), ("full", web_states.full), ("hostile", web_states.hostile),
        ):  # fmt: skip
            database = stack.enter_context(pgflow_server.database())
            words = fill(Shop(database)) if fill else {}
            operator = database.dsn if words else ""  # whoever may act sees forms, too
            dashboard = app(database.dsn, user=anybody, operator_url=operator)
            found[name] = State(stack.enter_context(serving(dashboard)), words)
        yield found


class Look:
    """A tab, and what its console said."""

    def __init__(self, browser: Browser) -> None:
        context = browser.new_context(reduced_motion="reduce")
        self.page: Page = context.new_page()
        self.page.set_default_timeout(15_000)
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))

    def open(self, url: str) -> int:
        """Go to a page; its status."""
        self.said.clear()
        answer = self.page.goto(url, wait_until="load")
        assert answer is not None
        assert len(answer.body()) < MAX_PAGE_BYTES, f"{url} is too large"
        if answer.status >= 400:  # the browser itself says so
            self.said = [text for text in self.said if "Failed to load resource" not in text]
        return answer.status

    def as_wide(self, width: int, theme: str = "light") -> None:
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]

    def overflow(self) -> int:
        """By how much the page is wider than the window."""
        root = "document.documentElement"
        return int(self.page.evaluate(f"{root}.scrollWidth - {root}.clientWidth"))

    def violations(self, *rules: str) -> list[str]:
        """What axe finds; of these rules, or of all."""
        if not self.page.evaluate("() => 'axe' in window"):
            self.page.evaluate(AXE.read_text("utf-8"))
        options: dict[str, Any] = {"resultTypes": ["violations"]}
        if rules:
            options["runOnly"] = {"type": "rule", "values": list(rules)}
        found = self.page.evaluate("options => axe.run(options)", options)
        return [
            f"{each['id']}: {node['html'][:200]}"
            for each in found["violations"] for node in each["nodes"][:2]
        ]  # fmt: skip


@pytest.fixture(scope="module")
def look(browser: Browser) -> Look:
    return Look(browser)


def judge(look: Look, url: str, *, is_thorough: bool) -> list[str]:
    """What is wrong with a page, in all widths and both themes."""
    faults = []
    for width in WIDTHS:
        look.as_wide(width)
        if (pixels := look.overflow()) > 0:
            faults.append(f"{width}: {pixels} pixels wider than the window")
    look.as_wide(1440)
    faults += look.violations()
    if is_thorough:
        look.as_wide(1440, "dark")
        faults += [f"dark: {each}" for each in look.violations("color-contrast")]
        look.as_wide(360)
        layout = ("color-contrast", "target-size", "scrollable-region-focusable", "empty-heading")
        faults += [f"360: {each}" for each in look.violations(*layout)]
        look.as_wide(1440)
    if look.page.locator("[data-owned]").count():
        faults.append("a text became an element")
    return [*faults, *(f"console: {text}" for text in look.said)]


ADDRESSES = {name: page for name, (page, _) in zip(NAMES, VIEWS, strict=True)}
PATHS = {**{name: name for name in ADDRESSES}, **MORE}


@pytest.mark.parametrize("name", PATHS)
def test_a_full_page_has_no_fault(look, states, name):
    url = states["full"].url(PATHS[name])

    status = look.open(url)

    assert status == (200 if not name.startswith("no ") else 400 if name == "no run" else 404)
    assert judge(look, url, is_thorough=True) == []


@pytest.mark.parametrize("name", [name for name, path in PATHS.items()
                                  if not any(word in path for word in OF_ONE)])  # fmt: skip
def test_an_empty_page_has_no_fault(look, states, name):
    url = states["empty"].url(PATHS[name])

    look.open(url)

    assert judge(look, url, is_thorough=False) == []


@pytest.mark.parametrize("name", PATHS)
def test_a_hostile_page_has_no_fault(look, states, name):
    url = states["hostile"].url(PATHS[name])

    look.open(url)

    assert judge(look, url, is_thorough=False) == []


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("/runs/{run}?view=output", web_states.MARKUP),
        ("/runs/{run}", web_states.MARKUP[:3]),
        ("/actions", web_states.MARKUP),
        ("/signals", web_states.MARKUP[:3]),
        ("/runs/{map}/steps/store", web_states.MARKUP),
    ],
)
def test_a_hostile_text_appears_as_text(look, states, path, texts):
    look.open(states["hostile"].url(path))

    text = " ".join((look.page.locator("body").text_content() or "").split())

    missing = [each for each in texts if " ".join(shown(each).split())[:40] not in text]
    assert missing == []


def test_a_hostile_parameter_appears_as_text(look, states):
    attack = web_states.MARKUP[1]
    for path in (
        "/runs?flow=",
        "/runs?text=",
        "/runs?since=",
        "/actions?actor=",
        "/explain?words=",
    ):
        look.open(states["full"].address + path + attack.replace(" ", "%20"))
        assert look.page.locator("[data-owned]").count() == 0
        assert look.said == []


def test_the_look_is_kept(look, states):
    look.open(states["full"].url("/runs?since=7d"))
    look.page.get_by_label("Theme").select_option("dark")
    look.page.get_by_role("button", name="Set").click()

    assert look.page.url.endswith("/runs?since=7d")
    assert look.page.locator("html").get_attribute("data-theme") == "dark"

    look.page.context.clear_cookies()


def test_more_of_a_value_comes_on_demand_and_in_its_place(look, states):
    look.open(states["full"].url("/runs/{run}?view=values&what=output&step=website"))
    tree = look.page.locator(".tree")
    look.page.get_by_role("link", name="{ 1 key }").click()

    expect(tree).to_contain_text("the deepest")
    assert look.said == []


def test_assets_are_small(states):
    folder = ROOT / "pgflowd" / "web" / "assets"

    sizes = {name: (folder / name).stat().st_size for name in ("pgflowd.css", "pgflowd.js")}

    assert sum(sizes.values()) < MAX_ASSET_BYTES, sizes


def test_pictures_of_pages_are_in_the_readme_and_the_guide(look, states):
    """`make pictures` takes them anew."""
    wanted = {
        "overview.png": ("/", "docs/operate/dashboard.md"),
        "run.png": ("/runs/{run}", "README.md"),
    }
    for name, (path, _) in wanted.items():
        look.open(states["full"].url(path))
        look.as_wide(1320)
        taken = look.page.screenshot()
        if os.environ.get("PGFLOWD_PICTURES"):
            PICTURES.mkdir(exist_ok=True)
            (PICTURES / name).write_bytes(taken)

    for name, (_, shown_in) in wanted.items():
        assert (PICTURES / name).stat().st_size < 200_000
        assert f"pictures/{name})" in (ROOT / shown_in).read_text("utf-8")
