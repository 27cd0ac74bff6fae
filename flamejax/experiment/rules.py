"""How a claim is judged: fixed rules, the same for every claim of a kind.

*Orders* ("FLAME's PM is above the others' in every row"). The claim is looked at case by case, and
a case has one or more margins, positive if it is as claimed. It holds if no margin is below zero by
more than its standard error: a tie does not count against a claim. The error is that of the
differences seed by seed, as what is compared has the same clients and the same noise in a seed;
where only means and deviations are known, as of the paper's table, that of independent figures.
With one seed only equal figures are ties, as no error is known. What is said of all cases is
"reproduced" if it holds in all, "partly" if in at least half, else "not reproduced"; what is said
of most, if it holds in more than half, in at least a quarter, in fewer. If all cases in which it
holds are ties, nothing is shown, and the claim is "undecided". Runs that diverged are below those
that did not.

*Averages* ("3.9 % more accurate"). Ours is set against what the paper's table gives on the same
rows, or against the printed figure if the table does not have them. "reproduced" if it has the same
sign and is between half and twice that, "partly" if it has the same sign, else "not reproduced".
Runs that diverged are left out.

Cases for which something is missing are left out and counted; with none left it is "not judged".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from flamejax.experiment.paper import table
from flamejax.experiment.places import Measured, MissingError, Place, Unit, Units

Margins = tuple[Measured, ...]
Look = Callable[..., Margins]  # at the places of a unit
Gain = Callable[[Place], float]


class Found(NamedTuple):
    verdict: str
    numbers: str  # a short sentence


class Order(NamedTuple):
    """Looks, by what a case of each is called beside its place; "" if that says enough."""

    units: Units
    looks: dict[str, Look]
    noun: str = "rows"
    mostly: bool = False  # said of most cases, not of all
    honest: dict[str, Look] | None = None  # the same of the hybrid chosen on validation samples

    def judge(self, places: Sequence[Place], printed: float | None) -> Found:
        held, cases, left_out = self._count(places, self.looks)
        if not cases:
            return Found("not judged", _reason(left_out))
        full, part = (0.5, 0.25) if self.mostly else (1, 0.5)
        share = len(held) / len(cases)
        reproduced = share > full if self.mostly else share == full
        verdict = "reproduced" if reproduced else "partly" if share >= part else "not reproduced"
        if share >= part and not any(all(map(_clear, cases[where])) for where in held):
            verdict = "undecided"
        return Found(verdict, "; ".join(self._say(places, held, cases, left_out)))

    def _count(
        self, places: Sequence[Place], looks: dict[str, Look]
    ) -> tuple[list[str], dict[str, Margins], list[str]]:
        """Names of cases that hold, all cases, and why others are not judged."""
        cases, left_out = {}, []
        for unit in self.units(places):
            for who, look in looks.items():
                try:
                    margins = look(*unit)
                except MissingError as missing:
                    left_out.append(str(missing))
                    continue
                cases[" ".join(filter(None, [who, _name(unit)]))] = margins
        held = [where for where, margins in cases.items() if all(map(_holds, margins))]
        return held, cases, left_out

    def _say(
        self,
        places: Sequence[Place],
        held: list[str],
        cases: dict[str, Margins],
        left_out: list[str],
    ) -> Iterable[str]:
        ties = sum(not all(map(_clear, cases[where])) for where in held)
        where = _data([unit[0] for unit in self.units(places)])
        yield f"{_of(held, cases, self.noun)} {where}" + (f", {ties} tied" if ties else "")
        if failed := [where for where in cases if where not in held]:
            yield f"except {_some(failed)}"
        single = [m[0].mean for m in cases.values() if len(m) == 1 and math.isfinite(m[0].mean)]
        if single:
            ends = [f"{value:+z.4f}" for value in (min(single), max(single))]
            yield f"margins {' to '.join(dict.fromkeys(ends))}"
        if self.honest and (honest := self._count(places, self.honest)[:2])[1]:
            yield f"of the honest HM {_of(*honest, self.noun)}"
        if left_out:
            yield f"{len(left_out)} not judged ({left_out[0]})"


class Average(NamedTuple):
    """A mean over rows, in percentage points or percent."""

    units: Units
    gain: Gain
    unit: str
    honest: Gain | None = None  # the same of the hybrid chosen on validation samples

    def judge(self, places: Sequence[Place], printed: float | None) -> Found:
        if printed is None:
            raise ValueError("the claim has no figure")
        found = [place for (place,) in self.units(places)]
        ours, left_out = _gains(self.gain, found)
        if not ours:
            return Found("not judged", _reason(left_out))
        judged = [place for place, _ in ours]
        theirs = _gains(self.gain, map(_of_paper, judged))[0]
        mean, paper = _mean(ours), _mean(theirs) if len(theirs) == len(ours) else printed
        within = mean * paper > 0 and 0.5 <= mean / paper <= 2
        verdict = "reproduced" if within else "partly" if mean * paper > 0 else "not reproduced"
        said = [f"{mean:+.1f} {self.unit}, mean of {_many(len(ours), 'rows')} {_data(judged)}"]
        said.append(f"the paper's text {printed:+.1f}")
        if len(theirs) == len(ours):
            said[-1] += f", its table {paper:+.1f} on these rows"
        if self.honest and (honest := _gains(self.honest, judged)[0]):
            said.append(f"of the honest HM {_mean(honest):+.1f}")
        if left_out:
            said.append(f"{len(left_out)} not judged ({left_out[0]})")
        return Found(verdict, "; ".join(said))


def _holds(margin: Measured) -> bool:
    return margin.mean >= -margin.error


def _clear(margin: Measured) -> bool:
    return margin.mean > margin.error


def _name(unit: Unit) -> str:
    if len(unit) == 1:
        return str(unit[0])
    first, *_, final = unit
    return f"{first} to {final.at or final.partition}"


def _of(held: Sequence[str], cases: dict[str, Margins], noun: str) -> str:
    return f"{len(held)} of {_many(len(cases), noun)}"


def _many(number: int, noun: str) -> str:
    return f"{number} {noun if number != 1 else noun[:-1]}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _reason(left_out: Sequence[str]) -> str:
    return left_out[0] if left_out else "no runs of the kind that the claim is about"


def _data(places: Iterable[Place]) -> str:
    return "on " + ", ".join(dict.fromkeys(place.data for place in places))


def _gains(gain: Gain, places: Iterable[Place]) -> tuple[list[tuple[Place, float]], list[str]]:
    """Places with their gains, and why others have none."""
    gains, left_out = [], []
    for place in places:
        try:
            gains.append((place, gain(place)))
        except MissingError as missing:
            left_out.append(str(missing))
    return gains, left_out


def _mean(gains: Sequence[tuple[Place, float]]) -> float:
    return float(np.mean([value for _, value in gains]))


def _of_paper(place: Place) -> Place:
    return place._replace(rows=table().get((place.data, place.partition), {}), curves={})
