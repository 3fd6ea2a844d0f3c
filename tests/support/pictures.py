"""Reads pictures of the dashboard, as strictly as a browser that runs under our policy."""

from __future__ import annotations

import re
from typing import Any
from xml.etree.ElementTree import Element, fromstring

from pgflowd.web.rendering import Rendered, _environment, render

_DANGEROUS = ("script", "style", "foreignObject", "iframe", "use", "image", "animate", "set")


def drawn(macro: str, *given: Any) -> Rendered:
    """What a macro of the pictures draws of this."""
    names = [f"given{index}" for index in range(len(given))]
    call = f"{{{{ {macro}({', '.join(names)}) }}}}"
    text = f'{{% from "pictures.html" import {macro} with context %}}{call}'
    template: Any = _environment.from_string(text)
    return render(template, **dict(zip(names, given, strict=True)))


def parsed(picture: Rendered | str) -> Element:
    """The picture as XML. It has ids once, and nothing that does anything."""
    text = str(picture if isinstance(picture, str) else picture.html)
    text = re.sub(r" (data-[a-z]+)(?=[ >])", r' \1=""', text)
    root = fromstring(f"<div>{text}</div>")
    root = root[0] if len(root) == 1 else root
    found = list(root.iter())
    ids = [each.attrib["id"] for each in found if "id" in each.attrib]
    assert len(ids) == len(set(ids))
    assert not any(set(id) & set(" \t\n") for id in ids)
    for each in found:
        assert each.tag not in _DANGEROUS
        assert not any(key == "style" or key.startswith("on") for key in each.attrib)
    return root


def texts_of(node: Element) -> list[str]:
    """The texts of an element, in their order."""
    return [text for text in node.itertext() if text.strip()]
