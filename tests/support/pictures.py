"""Reads pictures of the dashboard, as strictly as a browser that runs under our policy."""

from __future__ import annotations

from xml.etree.ElementTree import Element, fromstring

from pgflowd.web.svg import Picture

_DANGEROUS = ("script", "style", "foreignObject", "iframe", "use", "image", "animate", "set")


def parsed(picture: Picture | str) -> Element:
    """The picture as XML, without name spaces. It has ids once, and nothing that does anything."""
    text = picture if isinstance(picture, str) else str(picture.markup)
    root = fromstring(text.replace(' xmlns="http://www.w3.org/2000/svg"', ""))
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
