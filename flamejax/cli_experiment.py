"""The command `flamejax experiment`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from flamejax.arguments import DONE, add_changes, changes_of, continues, ended
from flamejax.errors import InputError

FORMS = ("standard", "published")


def add(commands: Any) -> None:
    command = commands.add_parser(
        "experiment",
        help="a table or figure of the paper",
        description="Run an experiment of the paper and put its results beside the paper's. "
        "Without a name: which there are. All experiments with the same --out share their runs, "
        "each an ordinary results folder below DIR/runs; finished ones are not repeated, and "
        "interrupted ones go on. What is made of them goes to DIR/NAME.",
    )
    command.add_argument(
        "name", nargs="?", metavar="NAME", help="of an experiment, or your own FILE.toml"
    )
    command.add_argument(
        "--datasets", metavar="LIST", help="e.g. mnist,fmnist; default: all of the experiment"
    )
    command.add_argument(
        "--partitions",
        metavar="LIST",
        help="e.g. hybrid,dirichlet,q2,quality; default: all of the experiment",
    )
    command.add_argument(
        "--methods", metavar="LIST", help="e.g. flame,ditto; default: all of the experiment"
    )
    command.add_argument("--seeds", metavar="LIST", help="e.g. 1,2,3; default: the experiment's")
    command.add_argument("--rounds", type=int, metavar="N", help="default: the config's")
    command.add_argument(
        "--form",
        choices=FORMS,
        help="methods as their authors define them, or as in the paper's experiments; default: "
        "both",
    )
    command.add_argument(
        "--smoke",
        action="store_true",
        help="see whether everything works: two rounds on a few of the bundled digits",
    )
    command.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="processes that share the cores and carry out runs side by side; default: 1, which "
        "uses all cores for one run after the other",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="only list the runs, and guess how long they take"
    )
    add_changes(command, "change one setting of all runs (repeatable)")
    command.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="default: runs/experiments, or runs/experiments-smoke",
    )
    command.add_argument("--quiet", action="store_true", help="no progress bars and no tables")
    command.add_argument(
        "-v", "--verbose", action="store_true", help="say how the engine runs it, and why"
    )
    command.set_defaults(action=experiment_command)


def experiment_command(options: argparse.Namespace) -> int:
    if options.smoke and "jax" not in sys.modules:  # two rounds take less time than compiling them
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    from flamejax.experiment.definition import FORMS as BOTH
    from flamejax.experiment.definition import Choice, names

    if options.name is None:
        for name, title in names().items():
            print(f"{name:<17} {title}")
        return DONE
    for option in ("rounds", "jobs"):
        if (given := getattr(options, option)) is not None and given < 1:
            raise InputError(f"--{option} {given} should be at least 1")
    from flamejax import experimenter
    from flamejax.report.section import section
    from flamejax.report.sheet import show_all

    choice = Choice(
        BOTH if options.form is None else (options.form,),
        options.datasets,
        options.partitions,
        options.methods,
        options.seeds,
        options.rounds,
        options.smoke,
    )
    plan = experimenter.prepare(options.name, choice, changes_of(options))
    out = options.out or Path("runs", "experiments-smoke" if options.smoke else "experiments")
    if options.dry_run:
        print(experimenter.outlook(plan, out, options.jobs))
        return DONE
    try:
        found = experimenter.experiment(plan, out, options.quiet, options.jobs)
    except KeyboardInterrupt as stopped:
        return continues(stopped, options, out)
    if not options.quiet:
        sheets = [sheet for part in section(found).parts for sheet in part.sheets]
        show_all(sheets, [], out / plan.heading["name"] / "report" / "report.html")
    return ended({"name": run.name, **run.record.summary} for run in found.runs)
