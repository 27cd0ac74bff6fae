"""The paper's claims, and what an experiment says of them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from flamejax.errors import InputError
from flamejax.experiment.looks import (
    above,
    best,
    change,
    faster,
    loses,
    loses_less,
    narrows,
    overlaps,
    rises,
)
from flamejax.experiment.places import (
    Entry,
    Merit,
    along,
    along_fractions,
    along_labels,
    attacked,
    ends,
    last,
    over_rounds,
    places,
    rows,
    steps,
)
from flamejax.experiment.results import Experiment
from flamejax.experiment.rules import Average, Look, Order
from flamejax.experiment.shelf import shelf


class Claim(NamedTuple):
    """What the paper says, in other words."""

    id: str
    experiments: Sequence[str]  # that can judge it
    says: str
    where: str  # in the paper
    figure: float | None = None  # printed: percentage points, or percent of a variance
    reading: str = ""  # what the figure means, or how else the words are taken


class Verdict(NamedTuple):
    claim: str  # its id
    form: str
    verdict: str  # "reproduced", "partly", "not reproduced", "undecided" or "not judged"
    numbers: str  # what was measured, or why it is not judged


RIVALS = ("pfedme", "ditto")
MULTI_KRUM = Entry("fedavg+multi_krum", "gm")
ORACLE, HM, PM, GM = (Entry("flame", model) for model in ("oracle", "hm", "pm", "gm"))
PMS, GMS = ([Entry(method, model) for method in RIVALS] for model in ("pm", "gm"))
BOTH = {"flame PM": PM, "flame GM": GM}
THREE = {method: (Entry(method, "pm"), Entry(method, "gm")) for method in ("flame", *RIVALS)}

Q = ("q2", "q3", "q4", "q5", "q6")
LABEL = ("dirichlet", *Q)
OTHER = ("quality", "quantity", "writer")
HYBRID = rows("hybrid")
NOT_HYBRID = rows(*LABEL, *OTHER)
ALL = rows("hybrid", *LABEL, *OTHER)
ATTACKS = ("label_poison", "same_value", "sign_flip", "gaussian")
UNDER_ATTACK = along_fractions(*ATTACKS)
POISONED = along_fractions(
    "label_poison", data=("mnist", "fashion_mnist", "medical_mnist", "mnist_mini")
)
CLIENTS = "participation.clients_per_round"

accuracy, loss, variance = last("accuracy"), last("loss"), last("loss_var")
accuracies, losses = over_rounds("accuracy"), over_rounds("loss")


def top(mine: Entry, others: Sequence[Entry], *merits: Merit) -> dict[str, Look]:
    return {"": best(mine, others, *(merits or (accuracy,)))}


def _pm_or_gm(pm: bool, *merits: Merit) -> dict[str, Look]:
    """In every method one of its two models is above the other."""
    pairs = {who: pair if pm else pair[::-1] for who, pair in THREE.items()}
    return {who: best(mine, [other], *merits) for who, (mine, other) in pairs.items()}


def _trend(key: str, merit: Merit, sign: int, entries: dict[str, Entry] = BOTH) -> Order:
    looks = {who: rises(entry, merit, sign) for who, entry in entries.items()}
    return Order(steps(along(key)), looks, "steps")


def _as_fast(mine: Entry, others: Sequence[Entry]) -> Order:
    looks = {f"against {other}": faster(mine, other, accuracies) for other in others}
    return Order(HYBRID, looks, "comparisons")


RIVALS_PM_GM = [*PMS, *GMS]
LESS_LOST = {
    "PM": loses_less(PM, PMS, accuracy),
    "GM": loses_less(GM, [*GMS, MULTI_KRUM], accuracy),
}
FALLS = {str(entry): rises(entry, accuracy, -1) for entry in (ORACLE, PM, GM, *RIVALS_PM_GM)}

RULES: dict[str, Order | Average] = {
    # accuracy
    "hm-best": Order(
        ALL,
        top(ORACLE, [PM, GM, *RIVALS_PM_GM]),
        honest=top(HM, [PM, GM, *RIVALS_PM_GM]),
    ),
    "hm-gain-hybrid": Average(
        HYBRID, above(ORACLE, [PM, GM], accuracy), "points", above(HM, [PM, GM], accuracy)
    ),
    "pm-best-q": Order(rows(*Q), top(PM, [GM, *RIVALS_PM_GM])),
    "pm-falls-with-q": Order(
        steps(along_labels), {m: rises(pm, accuracy, -1) for m, (pm, _) in THREE.items()}, "steps"
    ),
    "gm-rises-with-q": Order(
        steps(along_labels), {m: rises(gm, accuracy) for m, (_, gm) in THREE.items()}, "steps"
    ),
    "pm-over-gm": Order(rows(*LABEL), _pm_or_gm(True, accuracy), "pairs", mostly=True),
    "gm-over-pm": Order(rows(*OTHER), _pm_or_gm(False, accuracy), "pairs", mostly=True),
    "pm-over-others": Order(ALL, top(PM, PMS)),
    "gm-over-others": Order(ALL, top(GM, GMS)),
    "pm-gain": Average(ALL, above(PM, PMS, accuracy), "points"),
    "gm-gain": Average(ALL, above(GM, GMS, accuracy), "points"),
    # convergence
    "hm-curve-highest": Order(HYBRID, top(HM, [PM, GM, *RIVALS_PM_GM], accuracies)),
    "hm-curve-mostly": Order(NOT_HYBRID, top(HM, [PM, GM, *RIVALS_PM_GM], accuracies), mostly=True),
    "pm-faster": _as_fast(PM, PMS),
    "gm-faster": _as_fast(GM, GMS),
    # robustness
    "attacks-hurt-all": Order(
        steps(UNDER_ATTACK), FALLS | {"multi-Krum": rises(MULTI_KRUM, accuracy, -1)}, "steps"
    ),
    "flame-loses-less": Order(ends(UNDER_ATTACK), LESS_LOST, "comparisons"),
    "flame-loses-less-mostly": Order(ends(UNDER_ATTACK), LESS_LOST, "comparisons", mostly=True),
    "poison-spares-hm": Order(
        ends(POISONED),
        {"": loses(ORACLE, accuracy, more=False)},
        honest={"": loses(HM, accuracy, more=False)},
    ),
    "poison-hurts-others": Order(
        ends(POISONED),
        {str(other): loses(other, accuracy, more=True) for other in (*RIVALS_PM_GM, MULTI_KRUM)},
        "methods",
    ),
    "hm-best-attacked": Order(
        attacked,
        top(ORACLE, [PM, GM, *RIVALS_PM_GM, MULTI_KRUM]),
        honest=top(HM, [PM, GM, *RIVALS_PM_GM, MULTI_KRUM]),
    ),
    "pm-over-others-attacked": Order(attacked, top(PM, PMS)),
    "gm-over-others-attacked": Order(attacked, top(GM, [*GMS, MULTI_KRUM])),
    "lower-loss-attacked": Order(
        attacked, {"PM": best(PM, PMS, loss), "GM": best(GM, GMS, loss)}, "comparisons"
    ),
    # fairness
    "hm-fairest": Order(HYBRID, top(HM, [PM, GM, *RIVALS_PM_GM], accuracy, variance)),
    "hm-gain-fairness": Average(
        HYBRID, above(ORACLE, [PM, GM], accuracy), "points", above(HM, [PM, GM], accuracy)
    ),
    "hm-variance": Average(HYBRID, change(HM, PM, variance), "%"),
    "pm-fairer": Order(HYBRID, top(PM, PMS, accuracy, variance)),
    "gm-fairer": Order(HYBRID, top(GM, GMS, accuracy, variance)),
    "pm-gain-fairness": Average(HYBRID, above(PM, PMS[:1], accuracy), "points"),
    "gm-gain-fairness": Average(HYBRID, above(GM, GMS[:1], accuracy), "points"),
    "pm-variance": Average(HYBRID, change(PM, PMS[0], variance), "%"),
    "gm-variance": Average(HYBRID, change(GM, GMS[0], variance), "%"),
    "hm-fairest-mostly": Order(
        NOT_HYBRID, top(HM, [PM, GM, *RIVALS_PM_GM], accuracy, variance), mostly=True
    ),
    "pm-fairer-than-gm": Order(
        rows(*LABEL), _pm_or_gm(True, accuracy, variance), "pairs", mostly=True
    ),
    "gm-fairer-than-pm": Order(
        rows(*OTHER), _pm_or_gm(False, accuracy, variance), "pairs", mostly=True
    ),
    # parameters
    "lam-slows-pm": _trend("method.lam", losses, -1, {"flame PM": PM}),
    "lam-speeds-gm": _trend("method.lam", losses, 1, {"flame GM": GM}),
    "lam-narrows-gap": Order(steps(along("method.lam")), {"": narrows(PM, GM, loss)}, "steps"),
    "epochs-speed": _trend("method.epochs", losses, 1),
    "epochs-improve": _trend("method.epochs", loss, 1),
    "epochs-overlap": Order(
        along("method.epochs"), {who: overlaps(entry) for who, entry in BOTH.items()}, "curves"
    ),
    "rho-slows": _trend("method.rho", losses, -1),
    "rho-worsens": _trend("method.rho", loss, -1),
    "clients-speed": _trend(CLIENTS, losses, 1),
    "clients-improve": _trend(CLIENTS, loss, 1),
}


@cache
def claims() -> dict[str, Claim]:
    """All claims by id, in the paper's order."""
    return read_claims(shelf() / "paper" / "claims.toml")


def read_claims(path: Path) -> dict[str, Claim]:
    """All claims of a file, by id."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        return {key: Claim(key, **table) for key, table in tables.items()}
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: cannot be read ({error}): install flamejax again") from None


def judge(experiment: Experiment) -> list[Verdict]:
    """A verdict on every claim that the experiment is about, for each form of the methods: FLAME of
    that form against the others of that form. The rules are in `flamejax.experiment.rules`."""
    verdicts = []
    for claim in claims().values():
        if experiment.name in claim.experiments:
            for form in experiment.forms:
                found = RULES[claim.id].judge(places(experiment, form), claim.figure)
                verdicts.append(Verdict(claim.id, form, *found))
    return verdicts
