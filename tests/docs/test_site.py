"""
The documentation as a site: what `make site` builds of docs/ and mkdocs.yml, in a browser too.

GitHub and the site read some lists differently, so lists, tables and blocks of code are counted.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt
from playwright.sync_api import Browser, Page, expect
from starlette.staticfiles import StaticFiles
from web.conftest import browser, serving  # noqa: F401

from pgflowd.core.documents.documentation import TableOfContents
from pgflowd.errors import TITLES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href"}
LINK = re.compile(r"\]\(([^)#\s]+)\)")


class Html(HTMLParser):
    """What a page of the site has: elements of its article, links, and files that it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self._is_article, self._depth = False, 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._is_article = self._is_article or tag == "article"
        if self._is_article:
            self._depth += tag == "li"
            self.counted[f"nested {tag}" if tag == "li" and self._depth > 1 else tag] += 1
        if tag == "a" and given.get("href"):
            self.links.add(str(given["href"]))
        if tag in LOADED and (file := given.get(LOADED[tag])):
            self.loaded.add(file)

    def handle_endtag(self, tag: str) -> None:
        self._is_article = self._is_article and tag != "article"
        self._depth -= self._is_article and tag == "li"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; the links of all pages are sound."""
    place = tmp_path_factory.mktemp("site")
    shutil.copytree(DOCS, place / "docs")
    shutil.copy(ROOT / "mkdocs.yml", place)
    built = build(place)
    assert built.returncode == 0, built.stdout
    done = run(sys.executable, ROOT / "tools" / "llms.py", place / "build" / "site")
    assert done.returncode == 0, done.stdout
    return place / "build" / "site"


@pytest.mark.parametrize(
    ("link", "said"),
    [("other.md", None), ("nowhere.md", "page does not exist"), ("#nowhere", "anchor does not")],
)
def test_a_broken_link_and_a_broken_anchor_fail_the_build(link, said, tmp_path):
    settings, _, _ = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")
    (tmp_path / "mkdocs.yml").write_text(settings)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Title\n\nA [link]({link}).\n")
    (tmp_path / "docs" / "other.md").write_text("# Other\n")

    built = build(tmp_path)

    assert (built.returncode == 0) is (said is None)
    assert said is None or said in built.stdout


def test_the_navigation_has_the_parts_and_pages_of_the_contents():
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    nav = yaml.safe_load(settings)["nav"]
    contents = TableOfContents((DOCS / "index.md").read_text("utf-8"))

    assert nav == [
        "index.md",
        *(
            {part.title: [{page.title: page.path} for page in part.pages]}
            for part in contents.parts
        ),
    ], "run `make site`"


def test_every_page_is_there_and_linked(site):
    start = Html((site / "index.html").read_text("utf-8"))
    codes = Html((site / "errors" / "index.html").read_text("utf-8"))

    for page in PAGES:
        assert (site / html_of(page)).is_file(), page
    assert {html_of(page) for page in PAGES if not is_code(page)} - start.links <= {"index.html"}
    assert {Path(html_of(page)).name for page in PAGES if is_code(page)} <= codes.links


def test_pages_have_the_lists_tables_and_code_that_were_written(site):
    """Lists within items are indented by four columns; an empty line stands before a list."""
    for page in PAGES:
        tokens = MarkdownIt("commonmark").enable("table").parse((DOCS / page).read_text("utf-8"))
        kinds = Counter(token.type for token in tokens)
        nested = sum(token.type == "list_item_open" and token.level > 1 for token in tokens)
        found = Html((site / html_of(page)).read_text("utf-8")).counted

        assert (page, {tag: found[tag] for tag in ("li", "nested li", "table", "pre", "h1")}) == (
            page,
            {
                "li": kinds["list_item_open"] - nested,
                "nested li": nested,
                "table": kinds["table_open"],
                "pre": kinds["fence"] + kinds["code_block"],
                "h1": 1,
            },
        )


def test_no_page_loads_anything_from_another_host(site):
    loaded = {file for page in site.rglob("*.html") for file in Html(page.read_text()).loaded}
    styles = [path.read_text("utf-8") for path in site.rglob("*.css")]

    assert loaded
    assert [file for file in loaded if re.match(r"(\w+:)?//", file)] == []
    elsewhere = re.compile(r"(?:url\(|@import\s+)['\"]?(?:\w+:)?//[^)]*")
    assert [url for text in styles for url in elsewhere.findall(text)] == []


@pytest.fixture
def page(site: Path, browser: Browser) -> Iterator[Page]:  # noqa: F811
    """A tab with the site; what its console says, and a request that fails, are mistakes."""
    faults: list[str] = []
    with serving(StaticFiles(directory=site)) as address:
        context = browser.new_context(base_url=address, reduced_motion="reduce")
        context.on("console", lambda message: faults.append(message.text))
        context.on("weberror", lambda error: faults.append(str(error.error)))
        context.on("requestfailed", lambda request: faults.append(request.url))
        context.on(
            "request",
            lambda request: None if request.url.startswith(address) else faults.append(request.url),
        )
        context.set_default_timeout(30_000)
        yield context.new_page()
        context.close()
    assert faults == []


def test_pages_fit_phones_and_large_screens_and_load_without_a_fault(page):
    root = "document.documentElement"
    for name in ("index.html", "background/supervision.html"):  # which has a table, and code
        page.set_viewport_size({"width": 360, "height": 900})
        page.goto(f"/{name}", wait_until="networkidle")
        for width in (360, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(f"{root}.scrollWidth - {root}.clientWidth") <= 0, (name, width)
            assert page.locator("h1").is_visible()


def test_a_copied_command_has_no_prompt_and_a_key_stands_in_one_line(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/start/ten-minutes.html", wait_until="networkidle")
    page.locator(".highlight", has_text="pgflowd new shop").get_by_role("button").first.click()
    page.wait_for_function("navigator.clipboard.readText().then((text) => text != '')")

    assert page.evaluate("navigator.clipboard.readText()") == "pgflowd new shop"

    page.goto("/reference/config.html", wait_until="networkidle")
    keys = page.locator("td:first-child code", has_text="_")
    heights = keys.evaluate_all("(all) => all.map((one) => one.getClientRects().length)")
    assert set(heights) == {1}


def test_a_search_finds_a_page_without_another_host(page):
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/index.html", wait_until="networkidle")

    page.keyboard.press("Control+k")
    page.keyboard.type("singleton")

    found = page.get_by_text("E421: another run has the singleton key")  # no word of the start page
    expect(found.first).to_be_visible(timeout=30_000)


def test_assistants_find_every_page(site):
    short, whole = ((site / name).read_text("utf-8") for name in ("llms.txt", "llms-full.txt"))
    links = LINK.findall(short)

    assert short.startswith("# pgflowd\n\n> ")
    assert set(links) | {"index.md"} == {page for page in PAGES if not is_code(page)}
    for page in {*links, *(page for page in PAGES if is_code(page))}:
        text = (DOCS / page).read_text("utf-8")
        assert (site / page).read_text("utf-8") == text
        assert f"Page: {page}\n\n{text}" in whole


def html_of(page: str) -> str:
    return re.sub(r"README\.md$", "index.md", page).removesuffix(".md") + ".html"


def is_code(page: str) -> bool:
    return Path(page).stem in TITLES


def build(place: Path) -> subprocess.CompletedProcess[str]:
    zensical = Path(sys.executable).with_name("zensical")
    return run(zensical, "build", "--strict", cwd=place)


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
