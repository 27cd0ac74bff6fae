"""The commands `flamejax theory ...`: the paper's analysis, to be run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flamejax.arguments import DONE, add_settings

FORMS = (".png", ".pdf", ".svg")


def add(commands: Any) -> None:
    """The parsers of these commands."""
    theory = commands.add_parser(
        "theory",
        help="check convergence conditions, or theory against simulation",
        description="The paper's analysis: when its convergence proof applies, and its closed "
        "forms for linear regression beside simulation.",
    )
    theory.set_defaults(action=lambda options: theory.print_help() or DONE)
    kinds = theory.add_subparsers(metavar="COMMAND")

    check = kinds.add_parser(
        "check",
        help="which convergence conditions hold, and by how much",
        description="Say which of the convergence conditions hold, by how much, and which lam and "
        "rho nearby satisfy all of them. What is not given is taken from the config; the "
        "smoothness L is then estimated on its model and data. Exit code 0 if all hold, else 1.",
    )
    add_settings(check, "change one setting of the config, e.g. --set model.name=mlr (repeatable)")
    check.add_argument("--lam", metavar="X", help="lambda; default: method.lam")
    check.add_argument("--rho", metavar="X", help="rho; default: method.rho")
    check.add_argument("--clients", metavar="M", help="alpha = 1/M; default: partition.clients")
    check.add_argument("--alpha", metavar="X", help="weight of a client, instead of --clients")
    check.add_argument(
        "--smoothness", metavar="L", help="Lipschitz constant of the clients' gradients"
    )
    check.add_argument(
        "--plot",
        nargs="?",
        const="feasible.png",
        metavar="FILE",
        help=f"draw the feasible region to FILE ({', '.join(FORMS)}); default: feasible.png",
    )
    check.set_defaults(action=check_command)

    regression = kinds.add_parser(
        "regression",
        help="closed forms for linear regression beside the engine",
        description="Federated linear regression with X'X = N b I, one round, exact local "
        "solutions: test losses of FLAME, pFedMe and Ditto with and without attack, fairness "
        "and thresholds on q, by formula and by simulation. Settings: data.features (d), "
        "data.samples (N), data.scale (b), data.noise (sigma), data.spread, partition.clients, "
        "attack.fraction, attack.gamma2, method.lam, method.rho, seed.",
    )
    add_settings(regression, "change one setting, e.g. --set method.rho=0.5 (repeatable)")
    regression.add_argument("--draws", default="200000", metavar="N", help="default: 200000")
    regression.add_argument("--out", type=Path, metavar="DIR", help="results; default: runs/...")
    regression.add_argument("--quiet", action="store_true", help="no progress bar and no table")
    regression.set_defaults(action=regression_command)


def check_command(options: argparse.Namespace) -> int:
    raise NotImplementedError


def regression_command(options: argparse.Namespace) -> int:
    raise NotImplementedError
