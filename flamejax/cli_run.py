"""The command `flamejax run`."""

from __future__ import annotations

import argparse
import os
import shlex
from typing import TYPE_CHECKING, Any

from flamejax import catalog, hosts
from flamejax.arguments import (
    DONE,
    FAILED,
    INTERRUPTED,
    add_against,
    add_run,
    say,
    settings,
)
from flamejax.errors import InputError

if TYPE_CHECKING:
    from flamejax.config import Config


def add(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="train and evaluate one method",
        description="Train one method and write a results folder. With no arguments: FLAME on "
        "the bundled digits, hybrid skew, 10 clients.",
    )
    add_run(run, "change one setting, e.g. --set method.lam=3 (repeatable)")
    add_against(run)
    run.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run in DIR from its newest checkpoint, with its own settings",
    )
    _add_processes(run)
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="only say how much memory it would take; exit 2: too much",
    )
    run.add_argument(
        "--profile",
        action="store_true",
        help="write a trace of one round for Perfetto or TensorBoard, and a table of costs by "
        "stage, to DIR/profile",
    )
    run.set_defaults(action=run_command)


def _add_processes(command: argparse.ArgumentParser) -> None:
    several = command.add_argument_group(
        "several processes", "the same command for each of them, with its own --rank"
    )
    several.add_argument("--coordinator", metavar="HOST:PORT", help="a free port of rank 0's host")
    several.add_argument("--processes", metavar="N", help="how many there are")
    several.add_argument("--rank", metavar="I", help="which one this is, 0 .. N-1")
    several.add_argument(
        "--cluster",
        action="store_true",
        help="take these from the environment variables of Slurm, Open MPI or torchrun",
    )


def _place(options: argparse.Namespace) -> hosts.Place | None:
    """Of this process in a run of several, if it is one."""
    given = {name: getattr(options, name) for name in hosts.Place._fields}
    if options.cluster:
        place = hosts.from_cluster(given, os.environ)
    elif not any(given.values()):
        return None
    elif missing := next((name for name, value in given.items() if value is None), None):
        raise InputError(f"--{missing} is missing: several processes need all three, or --cluster")
    else:
        place = hosts.placed(**given)
    if options.profile and place.processes > 1:
        raise InputError("--profile traces a run of one process; leave out one of the two")
    if options.out is None and place.processes > 1:
        raise InputError("several processes need --out DIR, a folder that all of them see")
    return place if place.processes > 1 else None


def run_command(options: argparse.Namespace) -> int:
    from flamejax import config as configs
    from flamejax import records

    config, out, place = None, options.out, _place(options)
    if options.resume:
        if options.config or options.assignments or out is None:
            raise InputError("--resume goes with --out DIR alone: the run there has its settings")
        if (there := records.read(out)) and there.summary["status"] == "finished":
            return say(f"{out} is finished: nothing to resume", DONE)
    else:
        values, changes = settings(options)
        config = configs.make(configs.lay_over(values, changes))
        if options.against == "bytes" and config.method.name == "local":
            raise InputError("--against bytes: method.name = 'local' sends nothing; leave it out")
        data = catalog.stem(config.data.name)
        stem = f"{config.method.name}-{data}-{config.partition.name}-seed{config.seed}"
        out = out or records.default_path(stem)
        if place is None:
            records.check_free(out)
    if options.dry_run:
        return _foresee(config, options)

    from flamejax.report import costs
    from flamejax.report.curves import png
    from flamejax.report.terminal import show
    from flamejax.runner import run

    token = config.to_toml() if config else "resume"
    try:
        with hosts.join(place, token):
            result = run(
                config,
                out=out,
                quiet=options.quiet,
                profile=options.profile,
                resume=options.resume,
            )
    except KeyboardInterrupt as stopped:
        if stopped.args:
            goes_on = f"flamejax run --resume --out {shlex.quote(str(out))}"
            return say(f"interrupted after {stopped}; {goes_on} continues", INTERRUPTED)
        found = f"; what was measured is in {out}" if out.exists() else " before the first round"
        return say(f"interrupted{found}", FAILED)
    if place and place.rank > 0:
        return DONE
    if options.against != "rounds":
        records.write(out / "curves.png", png(result, options.against))
    if not options.quiet:
        show(result.summary, out)
        if options.profile:
            costs.show(out / "profile")
    return DONE


def _foresee(config: Config | None, options: argparse.Namespace) -> int:
    from flamejax.readying import outlook
    from flamejax.report.terminal import show_need

    if config is None or options.coordinator or options.cluster:
        raise InputError("--dry-run goes with a config: leave out --resume and other processes")
    show_need(*outlook(config, options.quiet))
    return DONE
