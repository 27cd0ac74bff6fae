"""The commands `flamejax theory ...`: the paper's analysis, to be run."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from flamejax.arguments import DONE, add_settings, settings
from flamejax.errors import InputError
from flamejax.registry import short

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
    draws = _draws(options.draws)

    from flamejax import records
    from flamejax.theory.study import configure

    config = configure(*settings(options))
    out = options.out or records.default_path(f"regression-seed{config.seed}")
    records.check_free(out)

    from flamejax.report import regression as report
    from flamejax.report.regression_figures import png
    from flamejax.report.sheet import show_all
    from flamejax.theory.study import SIMULATIONS, study

    started = time.perf_counter()
    with report.progress_bar(SIMULATIONS, options.quiet) as watch:
        found = study(config, draws, watch)
    seconds = time.perf_counter() - started
    folder = records.Folder(out, config.to_toml())
    folder.write("table.md", report.table_markdown(found).encode())
    folder.write("table.csv", report.table_csv(found).encode())
    folder.write("losses.png", png(found))
    folder.write_json("environment.json", records.environment())
    folder.write_json("result.json", {**found.to_dict(), "seconds": round(seconds, 2)})
    if not options.quiet:
        show_all(report.sheets(found), report.notes(found), out)
    return DONE


def _draws(text: str) -> int:
    if text.isascii() and text.isdigit() and 1000 <= int(text[:12]) <= 10**8:
        return int(text)
    raise InputError(f"--draws {short(text)}: should be a whole number from 1000 to 100000000")
