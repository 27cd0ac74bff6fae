"""The commands `flamejax data ...`: what there is, what it looks like, how it would be dealt."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flamejax import catalog, registry
from flamejax.arguments import (
    DONE,
    FORMS,
    add_settings,
    picture_path,
    settings,
    write_picture,
)
from flamejax.errors import InputError

if TYPE_CHECKING:
    from flamejax.datasets.store import Kept


def add(commands: Any) -> None:
    """The parsers of these commands."""
    data = commands.add_parser(
        "data",
        help="list, look at and import data sets, or see how one is dealt",
        description="Data sets: what is known and present, what it looks like, how to get it, and "
        "how a config deals it to clients.",
    )
    data.set_defaults(action=lambda options: data.print_help() or DONE)
    kinds = data.add_subparsers(metavar="COMMAND")

    show = kinds.add_parser("list", help="every known data set, and where it is")
    show.set_defaults(action=list_command)

    info = kinds.add_parser(
        "info",
        help="classes, writers and a picture of examples",
        description="Count classes and writers, and write a picture with examples of every class.",
    )
    info.add_argument("name", metavar="NAME", help="as in data.name, e.g. mnist or npz:PATH")
    info.add_argument("--dir", default="", help="where its files are; not if bundled or imported")
    info.add_argument(
        "--out", type=Path, default=Path(), metavar="DIR", help="for the picture; default: here"
    )
    info.set_defaults(action=info_command)

    take = kinds.add_parser(
        "import",
        help="decode files once, and find them by name ever after",
        description="Recognise the files of a data set, decode them and keep them in the cache\n"
        "folder, where every run finds them by name.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=catalog.recognised(),
    )
    take.add_argument("path", type=Path, metavar="PATH", help="a folder, an archive or a file")
    take.add_argument("--name", help="what to call it; default: what it is recognised as")
    take.set_defaults(action=import_command)

    prepare = kinds.add_parser(
        "prepare",
        help="download a data set through TensorFlow Datasets",
        description="Download a data set through TensorFlow Datasets and keep it like an import.",
    )
    prepare.add_argument("name", metavar="NAME", help="e.g. mnist, cifar10 or tfds:emnist/digits")
    prepare.set_defaults(action=prepare_command)

    deal = kinds.add_parser(
        "partition",
        help="what each client of a config would hold",
        description="Deal the samples exactly as a run of this config would, and say how unlike "
        "the clients are.",
    )
    add_settings(deal, "change one setting, e.g. --set partition.name=dirichlet (repeatable)")
    deal.add_argument(
        "--plot",
        nargs="?",
        const="",
        metavar="FILE",
        help=f"draw clients x classes to FILE ({', '.join(FORMS)}); default: named by the settings",
    )
    deal.set_defaults(action=partition_command)


def list_command(options: argparse.Namespace) -> int:
    from flamejax.datasets import store

    for line in catalog.listing(store.kept()):
        print(line)
    return DONE


def info_command(options: argparse.Namespace) -> int:
    from flamejax.report import data as report
    from flamejax.types import Dataset

    data = catalog.load_data(options.name, options.dir, quiet=False)
    if not isinstance(data, Dataset):
        report.show_generated(options.name, data)
        return DONE
    known = catalog.KNOWN.get(options.name)
    report.show_data(options.name, data, known.about if known else "")

    from flamejax.report import data_figures

    if not data_figures.drawable(data):
        print("Not drawn: the samples are not images of bytes.")
        return DONE
    path = options.out / f"{catalog.stem(options.name)}.png"
    write_picture(path, data_figures.mosaic(data))
    print(f"Examples: {path}")
    return DONE


def import_command(options: argparse.Namespace) -> int:
    from flamejax.datasets import importing

    kind, started = importing.recognise(options.path), time.perf_counter()
    print(f"{options.path}: {catalog.FORMS.get(kind, f'files of {kind}')}", flush=True)
    kept = importing.import_path(options.path, options.name, quiet=False)
    _welcome(kept, time.perf_counter() - started)
    return DONE


def prepare_command(options: argparse.Namespace) -> int:
    name = options.name
    known = catalog.KNOWN.get(name)
    if name in registry.GENERATED or name == "mnist_mini":
        how = "comes with flamejax" if known else "is generated"
        raise InputError(f"{name} {how}: there is nothing to prepare")
    if known and not known.tfds:
        raise InputError(
            f"{name} is not in TensorFlow Datasets; get {known.files}, then "
            "flamejax data import PATH"
        )
    if not known and not name.startswith("tfds:"):
        there = [name for name, known in catalog.KNOWN.items() if known.tfds]
        hint = registry.nearest(name, there)
        raise InputError(f"{name}: other sets of TensorFlow Datasets are written tfds:NAME{hint}")

    from flamejax.datasets import tfds

    started = time.perf_counter()
    _welcome(tfds.prepare(name, quiet=False), time.perf_counter() - started)
    return DONE


def _welcome(kept: Kept, seconds: float) -> None:
    shape = "x".join(map(str, kept.shape))
    writers = f", {kept.writers:,} writers" if kept.writers else ""
    print(
        f"{kept.name}: {kept.samples:,} samples of {shape}, {kept.classes} classes{writers}, in "
        f"{seconds:.1f} s",
        f"kept in {kept.path} ({catalog.size(kept.bytes)})",
        f"flamejax run --set data.name={catalog.data_name(kept)}",
        sep="\n",
    )


def partition_command(options: argparse.Namespace) -> int:
    from flamejax import config as configs

    values, changes = settings(options)
    config = configs.make(configs.lay_over(values, changes))
    path = None
    if options.plot is not None:
        stem = (
            f"{catalog.stem(config.data.name)}-{config.partition.name}-{config.partition.clients}"
        )
        path = picture_path(options.plot or f"{stem}.png")

    import jax

    from flamejax.federation import assemble
    from flamejax.heterogeneity import clients_of
    from flamejax.report import data as report

    with jax.enable_x64(config.engine.precision == "float64"):  # generated numbers depend on it
        data, federation = assemble(config, quiet=False)
        clients = clients_of(data, federation)
    report.show_clients(config, clients)
    if path is not None:
        from flamejax.report import data_figures

        write_picture(path, data_figures.partition(config, clients, data, path.suffix[1:]))
        print(f"Picture: {path}")
    return DONE
