"""What the settings of several runs have in common, and what not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Table = Mapping[str, Any]


def common(tables: Sequence[Table]) -> dict[str, Any]:
    """The entries that are in all of these nested tables.

    >>> common([{"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2, "d": 4}}])
    {'a': 1, 'b': {'c': 2}}
    """
    found: dict[str, Any] = {}
    for key, value in tables[0].items():
        all_of_it = [table.get(key) for table in tables]
        inner = [one for one in all_of_it if isinstance(one, Mapping)]
        if all(one == value for one in all_of_it):
            found[key] = value
        elif len(inner) == len(tables) and (same := common(inner)):
            found[key] = same
    return found


def flat(table: Table, without: Table | None = None) -> dict[str, Any]:
    """Key path -> value, of a nested table; `without` what is in another one as well.

    >>> flat({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2}})
    {'b.d': 3}
    """
    found: dict[str, Any] = {}
    for key, value in table.items():
        known = (without or {}).get(key)
        if isinstance(value, Mapping):
            inner = flat(value, known if isinstance(known, Mapping) else None)
            found |= {f"{key}.{rest}": one for rest, one in inner.items()}
        elif without is None or key not in without or known != value:
            found[str(key)] = value
    return found
