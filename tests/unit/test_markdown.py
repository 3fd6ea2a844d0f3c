"""How pages of docs/ are read: their blocks, the spans of texts, and that no word is lost."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import click
import pytest

from pgflowd.cli.terminal.markdown_table import column_widths
from pgflowd.cli.terminal.markdown_view import block_lines, is_whole
from pgflowd.cli.terminal.screen import Screen, text_width
from pgflowd.core.documents.markdown import BlockKind, PageBlock, blocks_of
from pgflowd.core.documents.markdown_text import Span, SpanKind, page_of_link, plain, spans_of

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    str(path.relative_to(DOCS)): blocks_of(path.read_text("utf-8")) for path in DOCS.rglob("*.md")
}

PAGE = """\
# Title

A paragraph of `code`
on two lines:
- an item that
  goes on
- another one

  ```text
  printed
  ```

  1. inner
2. not an item of the same list

<a id="here"></a>

| key | is |
|---|---:|
| `a \\| b` | <a id="row-1"></a>one |

```toml
# not a heading
- a = 1
```
"""


def test_a_page_becomes_blocks():
    item = BlockKind.ITEM

    assert blocks_of(PAGE) == [
        PageBlock(BlockKind.HEADING, "Title", level=1),
        PageBlock(BlockKind.TEXT, "A paragraph of `code` on two lines:"),
        PageBlock(item, "an item that goes on"),
        PageBlock(item, "another one"),
        PageBlock(BlockKind.PRINTED, "printed", indent=2),
        PageBlock(item, "inner", mark="1.", indent=2),
        PageBlock(item, "not an item of the same list", mark="2."),
        PageBlock(BlockKind.TABLE, "", rows=(("key", "is"), ("`a | b`", "one"))),
        PageBlock(BlockKind.CODE, "# not a heading\n- a = 1", "toml"),
    ]


def test_a_text_becomes_spans():
    text = "a **b `c`**, *d e*, [`f` g](h.md#i), ``j`k``, 2*3*4, \\*, ![l](m.png)"

    assert list(spans_of(text)) == [
        Span(SpanKind.PLAIN, "a "),
        Span(SpanKind.STRONG, "b "),
        Span(SpanKind.CODE, "c"),
        Span(SpanKind.PLAIN, ", "),
        Span(SpanKind.EMPHASIS, "d e"),
        Span(SpanKind.PLAIN, ", "),
        Span(SpanKind.LINK, "f g", "h.md#i"),
        Span(SpanKind.PLAIN, ", "),
        Span(SpanKind.CODE, "j`k"),
        Span(SpanKind.PLAIN, ", 2*3*4, "),
        Span(SpanKind.PLAIN, "*"),
        Span(SpanKind.PLAIN, ", "),
        Span(SpanKind.PICTURE, "l", "m.png"),
    ]
    assert plain(text) == "a b c, d e, f g, j`k, 2*3*4, *, l"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("```toml\na = 1\n", "does not end"),
        ("```\na\n```\n", "no language"),
        ("A text:\n\n    code\n", "code stands between"),
        ("```toml\na\n```x\n", "ends with ```x"),
        ("| a |\n| b |\n", "no line of dashes"),
        ("| a | b |\n|---|---|\n| c |\n", "a row has 1 cells, its titles 2"),
    ],
)
def test_what_no_page_may_have_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        blocks_of(text)


def test_a_link_names_a_page_from_where_it_stands():
    assert page_of_link("guides/waits.md", "../operate/pause.md#now") == "operate/pause.md"
    assert page_of_link("guides/waits.md", "undo.md") == "guides/undo.md"
    assert page_of_link("index.md", "https://example.org/a.md") is None
    assert page_of_link("index.md", "#here") is None


@pytest.mark.parametrize(("colour", "width"), [(False, 40), (True, 80), (False, 120), (True, None)])
def test_every_word_of_every_page_is_shown_and_fits(colour, width):
    for page, blocks in PAGES.items():
        lines = list(map(click.unstyle, block_lines(blocks, Screen(colour, True, width))))
        written = words_of(without_marks((DOCS / page).read_text("utf-8")))
        code = {
            line.strip() for block in blocks if is_whole(block) for line in block.text.splitlines()
        }
        wide = [line for line in lines if width is not None and text_width(line) > width]

        assert (page, written - words_of("\n".join(lines))) == (page, Counter())
        assert [line for line in wide if line.strip() not in code and not is_word(line)] == [], page


def test_a_screen_without_utf_8_gets_letters_of_ascii():
    for page, blocks in PAGES.items():
        shown = "\n".join(block_lines(blocks, Screen(False, False, 80)))
        assert {char for char in shown if not char.isascii()} == set(), page


def test_a_column_gets_what_it_needs_or_its_share():
    assert column_widths([5, 100], [5, 9], 60) == [5, 53]
    assert column_widths([80, 100], [9, 9], 62) == [30, 30]
    assert column_widths([5, 100], [5, 9], None) == [5, 100]
    assert column_widths([30, 100, 100], [9, 9, 9], 40) is None


def test_a_table_that_is_too_wide_shows_one_cell_below_the_other():
    blocks = blocks_of("| a | b | c |\n|---|---|---|\n" + f"| x | {'y ' * 30} | {'z ' * 30} |\n")

    lines = list(block_lines(blocks, Screen(False, True, 40)))

    assert [line.strip()[:4] for line in lines if ":" in line] == ["a: x", "b: y", "c: z"]
    assert max(map(len, lines)) <= 40


def without_marks(text: str) -> str:
    """Markdown without where links lead and what code is written in."""
    shown = re.sub(r'<a id="[^"]*"></a>|^```\w*$', "", text, flags=re.MULTILINE)
    return re.sub(r"(?<=\])\([^)\s]+\)", "", shown)


def is_word(line: str) -> bool:
    """Whether a line cannot be broken: behind the mark of an item or the title of a cell."""
    return " " not in re.sub(r"^(- |\d+\. |[\w ]+: )", "", line.strip())


def words_of(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text))
