"""The command line. JAX is imported only by the commands that compute."""

from __future__ import annotations

import argparse
import errno
import io
import logging
import os
import sys
import warnings
from typing import Any, NoReturn

from flamejax import (
    __version__,
    cli_bench,
    cli_data,
    cli_experiment,
    cli_report,
    cli_run,
    cli_theory,
    registry,
)
from flamejax.arguments import (
    BAD_INPUT,
    DONE,
    FAILED,
    Parser,
    add_against,
    add_run,
    continues,
    ended,
    say,
    settings,
)
from flamejax.errors import InputError, RunError
from flamejax.stopping import obey

SEEDS = "e.g. 0,1,2; default: the config's seed"


def parser() -> Parser:
    top = Parser(prog="flamejax", description="Simulate personalized federated learning.")
    top.add_argument("--version", action="version", version=f"flamejax {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    cli_run.add(commands)

    compare = commands.add_parser(
        "compare",
        help="several methods on the same clients, one table",
        description="Run several methods on the same clients and seeds, and write a table, a "
        "picture of all curves, and accuracy against fairness. Every run is an ordinary results "
        "folder below DIR/runs; with the DIR of an earlier comparison, its finished runs are not "
        "repeated.",
    )
    add_run(
        compare,
        "change one setting of all runs (repeatable); a method.KEY reaches the methods that have "
        "it, e.g. --set method.lr=0.05, while the [method] of CONFIG.toml is for the one it names",
    )
    compare.add_argument(
        "--methods",
        metavar="LIST",
        help="each NAME[:PRESET][+AGGREGATOR], e.g. flame:published,fedavg+median; default: "
        "flame,pfedme,ditto,fedavg,local",
    )
    add_against(compare)
    compare.add_argument("--seeds", metavar="LIST", help=SEEDS)
    compare.add_argument(
        "--rates",
        metavar="LIST",
        help="values of method.global_lr to try for the methods that have it, e.g. "
        "0.01,0.05,0.1,0.2,0.5; the best by hybrid accuracy on the selection split is shown",
    )
    compare.set_defaults(action=compare_command)

    sweep = commands.add_parser(
        "sweep",
        help="a grid of settings and seeds, one table and a heat map",
        description="Run every point of a grid with every seed, and write a table and a heat map. "
        "Runs that differ only in seeds and in numbers of the method share a compiled program and "
        "are carried out at once. Every run is an ordinary results folder below DIR/runs; with the "
        "DIR of an earlier sweep, its finished runs are not repeated. CONFIG.toml may hold "
        "`seeds = [0, 1]` and a table [grid] of lists.",
    )
    add_run(sweep, "change one setting of all runs, e.g. --set rounds=50 (repeatable)")
    sweep.add_argument(
        "--grid",
        action="extend",
        nargs="+",
        metavar="KEY=V1,V2",
        help="values to try for a setting, e.g. --grid method.lam=0.1,1,10 method.rho=0.1,1 "
        "(repeatable); the heat map has the first one downwards and the second to the right",
    )
    sweep.add_argument("--seeds", metavar="LIST", help=SEEDS)
    sweep.add_argument(
        "--pack",
        default="auto",
        metavar="N",
        help="carry out at most so many runs at once; default: auto, as many as fit in memory",
    )
    sweep.add_argument(
        "--figure",
        choices=("pm", "gm", "hm"),
        help="the model whose figures heatmap.png shows; default: hm if there is one",
    )
    sweep.set_defaults(action=sweep_command)

    cli_experiment.add(commands)
    cli_data.add(commands)
    cli_bench.add(commands)
    cli_theory.add(commands)
    cli_report.add(commands)

    show = commands.add_parser("list", help="what can be named in a config")
    show.add_argument("kind", nargs="?", choices=registry.KINDS, metavar="|".join(registry.KINDS))
    show.set_defaults(action=list_command)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        options = parser().parse_args(arguments)
        if getattr(options, "verbose", False):
            listen()
        return options.action(options)
    except InputError as error:
        return say(error, BAD_INPUT)
    except RunError as error:
        return say(error, FAILED)
    except KeyboardInterrupt:
        return say("interrupted", FAILED)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):  # of XLA
            raise
        return say("this does not fit in memory: take fewer clients, or smaller ones", FAILED)
    except OSError as error:  # a name that the file system does not even look up
        if error.errno not in (errno.ENAMETOOLONG, errno.EACCES) or not error.filename:
            raise
        return say(f"{registry.short(error.filename)}: {error.strerror}; name another", BAD_INPUT)


def listen() -> None:
    """Show what the package reports of itself."""

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print(record.getMessage(), file=sys.stderr)  # a progress bar makes room for it

    logger = logging.getLogger("flamejax")
    if not logger.handlers:
        logger.addHandler(Shown())
    logger.setLevel(logging.INFO)


def list_command(options: argparse.Namespace) -> int:
    for kind in [options.kind] if options.kind else registry.KINDS:
        if not options.kind:
            print(f"{kind}:")
        for name, text in registry.describe(kind).items():
            print(f"  {name:<15} {text}")
    return DONE


def compare_command(options: argparse.Namespace) -> int:
    values, changes = settings(options)

    from flamejax import records
    from flamejax.comparer import METHODS, compare_all
    from flamejax.report.comparison import sheet
    from flamejax.report.sheet import show

    lists = METHODS if options.methods is None else options.methods, options.seeds, options.rates
    out = options.out or records.default_path("compare")
    try:
        comparison = compare_all(values, changes, {}, *lists, out, options.quiet, options.against)
    except KeyboardInterrupt as stopped:
        return continues(stopped, options, out)
    if not options.quiet:
        show(sheet(comparison), out)
    return ended(comparison.runs)


def sweep_command(options: argparse.Namespace) -> int:
    values, changes = settings(options)

    from flamejax import records
    from flamejax.report.sheet import show
    from flamejax.report.sweep import sheet
    from flamejax.sweeper import sweep_all

    asked = options.grid, options.seeds, options.pack
    out = options.out or records.default_path("sweep")
    try:
        found = sweep_all(values, changes, {}, *asked, out, options.quiet, options.figure)
    except KeyboardInterrupt as stopped:
        return continues(stopped, options, out)
    if not options.quiet:
        show(sheet(found), out)
    return ended(found.runs)


def _brief(message: Warning | str, *_: Any, **__: Any) -> str:
    """A warning in one line, without the place in the code."""
    return f"flamejax: warning: {message}\n"


def entry() -> NoReturn:
    """The console script."""
    obey()
    warnings.formatwarning = _brief
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files need not be text
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            code = main()
        finally:  # also after --help, which leaves by SystemExit
            sys.stdout.flush()
    except OSError as error:  # mostly nowhere to print to, and so nowhere to flush to at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        gone = isinstance(error, BrokenPipeError)  # the reader, as in `flamejax list | true`
        code = FAILED if gone else say(error, FAILED)
    sys.exit(code)
