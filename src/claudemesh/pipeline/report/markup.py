"""Elements of a page. Whatever is put into one is text: no name and no reason can become markup.

A tree is built and written out by the standard library, so there is no place where escaping could be forgotten.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias
from xml.etree.ElementTree import Element, tostring

Child: TypeAlias = "Element | str | int | float"

TEXT_MAX: Final = 300  # characters of anything that others wrote


def el(tag: str, /, *children: Child, **attributes: object) -> Element:
    """Make an element. `class_` is class, `stroke_width` is stroke-width; None leaves an attribute out."""
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            made.set(name.rstrip("_").replace("_", "-"), _number(value))
    for child in children:
        _put(made, child)
    return made


def each(tag: str, children: Iterable[Child], /, **attributes: object) -> Element:
    return el(tag, *children, **attributes)


def verbatim(tag: str, content: str) -> Element:
    """Make an element of our own text, such as a style sheet."""
    made = Element(tag)
    made.text = content
    return made


def render(page: Element) -> str:
    return "<!doctype html>\n" + tostring(page, encoding="unicode", method="html") + "\n"


def printable(text: object) -> str:
    """Return a text that can do nothing but be read: no controls, no marks that reorder what stands around them."""
    shown = "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in str(text)[: TEXT_MAX + 1])
    return shown if len(str(text)) <= TEXT_MAX else f"{shown[:TEXT_MAX]}…"


def _put(parent: Element, child: Child) -> None:
    if isinstance(child, Element):
        parent.append(child)
    elif len(parent):
        parent[-1].tail = (parent[-1].tail or "") + printable(child)
    else:
        parent.text = (parent.text or "") + printable(child)


def _number(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else printable(value)
