"""The commands `flamejax theory ...`: the paper's analysis, to be run."""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flamejax.arguments import (
    DONE,
    FORMS,
    add_settings,
    picture_path,
    settings,
    write_picture,
)
from flamejax.errors import InputError
from flamejax.registry import short

if TYPE_CHECKING:
    from flamejax.config import Config
    from flamejax.theory.smoothness import Estimate

VIOLATED = 1  # the exit code where a condition does not hold
LEAST, MOST = 1e-30, 1e30  # of what can be asked for


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
    from flamejax.report import conditions as report
    from flamejax.theory.conditions import Point, all_hold

    path = None if options.plot is None else picture_path(options.plot)
    asked: dict[str, Any] = {name: _number(options, name, LEAST) for name in ("lam", "rho")}
    asked["alpha"], weight = _weight(options)
    asked["smoothness"] = _number(options, "smoothness", 0.0)
    estimate = None
    # a config takes a while to load, and may not be needed
    if options.config or options.assignments or None in asked.values():
        config = _config(options)
        for name in ("lam", "rho"):
            asked[name] = _of_method(config, name) if asked[name] is None else asked[name]
        if asked["alpha"] is None:
            asked["alpha"], weight = _equal_weight(config)
        if asked["smoothness"] is None:
            estimate = _estimate(config)
            asked["smoothness"] = estimate.smoothness
    point = Point(**asked)
    report.show(point, weight, estimate)
    if path is not None:
        from flamejax.report import conditions_figure

        write_picture(path, conditions_figure.render(point, path.suffix[1:]))
        print(f"Picture: {path}")
    return DONE if all_hold(point) else VIOLATED


def _number(options: argparse.Namespace, name: str, least: float) -> float | None:
    """A number that was given, or None."""
    text = getattr(options, name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= MOST:
        wish = f"a number from {least:g} to {MOST:g}"
        raise InputError(f"--{name} {short(text)}: should be {wish}")
    return value


def _weight(options: argparse.Namespace) -> tuple[float | None, str]:
    """The weight of a client that was given, and how: --clients or --alpha."""
    if options.clients is None:
        alpha = _number(options, "alpha", LEAST)
        return alpha, f"--alpha {alpha!r}"
    if options.alpha is not None:
        raise InputError("--clients M means --alpha 1/M: leave out one of the two")
    try:
        clients = int(options.clients)
    except ValueError:
        clients = 0
    if not 0 < clients < 2**31:
        raise InputError(f"--clients {short(options.clients)}: should be a positive whole number")
    return 1 / clients, f"--clients {clients}"


def _config(options: argparse.Namespace) -> Config:
    from flamejax import config as configs

    values, changes = settings(options)
    return configs.make(configs.lay_over(values, changes))


def _of_method(config: Config, name: str) -> float:
    """A parameter of the config's method."""
    value = getattr(config.method, name, None)
    if value is None:
        raise InputError(f"method.name = '{config.method.name}' has no {name}: give --{name}")
    if not LEAST <= value <= MOST:
        raise InputError(f"method.{name} = {value!r}: should be from {LEAST:g} to {MOST:g}")
    return value


def _equal_weight(config: Config) -> tuple[float, str]:
    if getattr(config.method, "alpha", "uniform") != "uniform":
        raise InputError("method.alpha = 'samples': clients' weights differ; give one with --alpha")
    return 1 / config.partition.clients, f"--clients {config.partition.clients}"


def _estimate(config: Config) -> Estimate:
    """The smoothness of the config's losses, at the point where a run of it starts."""
    from flamejax.federation import assemble
    from flamejax.readying import model_of, precision
    from flamejax.theory.smoothness import LOOKED_AT, estimate

    with precision(config):
        federation = assemble(config, quiet=False)[1]
        name, model = model_of(config, None, federation)
        many = min(LOOKED_AT, federation.clients)
        said = f"estimating L on {many} clients; --smoothness L would save the time"
        print(said, file=sys.stderr)
        return estimate(config, name, model, federation)


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
