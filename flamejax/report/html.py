"""Markup in which everything that is not markup is escaped."""

from __future__ import annotations

from html import escape

VOID = {"img", "meta"}


class Html(str):
    """Markup, safe as it stands."""


def element(name: str, /, *inner: str | None, **attributes: str | bool | None) -> Html:
    """An element; what is inside is text unless it is markup, and None is nothing.

    >>> element("td", "a < b", class_="best")
    '<td class="best">a &lt; b</td>'
    """
    given = [
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    ]
    opened = f"<{name}{''.join(map(str, given))}>"
    return Html(opened if name in VOID else f"{opened}{joined(*inner)}</{name}>")


def joined(*inner: str | None) -> Html:
    """Pieces of markup and text in a row."""
    there = [piece for piece in inner if piece is not None]
    return Html("".join(p if isinstance(p, Html) else escape(p, quote=False) for p in there))
