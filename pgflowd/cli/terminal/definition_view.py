"""Shows how flows in the code differ from those in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgflowd.core.definition.option_values import OptionValues, option_text

if TYPE_CHECKING:
    from pgflowd.cli.app import App
    from pgflowd.db.flows import Comparison


def print_comparison(app: App, flow: str, place: str, found: Comparison) -> None:
    """What `flows diff` says: differences of the shape, and the three values of options."""
    if not found.exists:
        text = f"{flow} is not in the database; `pgflowd flows deploy {flow}` creates it"
        app.print(app.out.folded(text))
        return
    for text in [*found.shape, *found.stale]:
        app.print(app.out.folded(text))
    differing = [each for each in found.values if each.differs]
    if differing:
        rows = [
            [
                f"{each.step}/{each.name}" if each.step else each.name,
                option_text(each.code),
                option_text(each.deployed),
                option_text(each.database),
                _what_next(each),
            ]
            for each in differing
        ]
        titles = ("OPTION", "CODE", "DEPLOYED", "DATABASE", "NEXT")
        app.print_table(titles, rows, losing=("NEXT", "DEPLOYED"))
    if found.shape:
        text = f"so in {place}, not in {found.current}; deploy makes it the next version"
        app.note(text)
    elif any(each.is_tuned for each in differing):
        app.note(f"`pgflowd flows deploy {flow} --take-code` takes tuned options from the code")
    elif not differing and not found.stale:
        version = f" ({found.flow_slug})" if found.flow_slug != flow else ""
        app.print(app.out.folded(f"{flow} is the same in code and database{version}"))
    if not found.shape and found.is_new_version:
        app.note(f"but starts go to {found.current}; `pgflowd flows deploy {flow}` changes that")


def _what_next(values: OptionValues) -> str:
    if not values.is_tuned:
        return "deploy takes the code's"
    if values.tuned_by and values.tuned_at:
        return f"tuned by {values.tuned_by} {values.tuned_at:%Y-%m-%d %H:%M}"
    return "tuned in the database"
