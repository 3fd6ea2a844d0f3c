"""
Writes elements of SVG, and of the little HTML around it.

Every text and every value of an attribute is escaped here, so the modules that draw pass on what
users, handlers and databases say as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from pgflowd.web.text import shown

Value = str | float | None


@dataclass(frozen=True)
class Picture:
    """A picture for a page, and those of its elements that live updates replace, by their ids."""

    markup: Markup
    fragments: Mapping[str, Markup] = field(default_factory=dict)

    def __html__(self) -> str:
        return self.markup


def element(name: str, *children: str, **attributes: Value) -> Markup:
    """
    An element. Children are text, unless they are elements; attributes that are None are left out.

    `data_start` is the attribute `data-start`; `class_` is `class`.
    """
    written = Markup().join(
        Markup(' {}="{}"').format(_attribute(key), _value(value))
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup().join(
        child if isinstance(child, Markup) else escape(shown(child)) for child in children
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, inner)


def picture_of(class_: str, width: float, height: float, label: str, *parts: str) -> Markup:
    """A picture of this size in pixels, with links in it."""
    return element(
        "svg",
        *parts,
        class_=class_,
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {width:g} {height:g}",
        role="group",
        aria_label=label,
    )


def _attribute(key: str) -> str:
    """The names of SVG with a capital, such as `viewBox`, are as they are."""
    return key.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    """A number with at most two digits behind the point, which is a hundredth of a pixel."""
    if isinstance(value, str):
        return shown(value)
    return f"{value:.2f}".rstrip("0").rstrip(".")
