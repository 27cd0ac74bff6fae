"""Everything that has a name: one line an entry, "module:object", imported only when used.

    >>> from flamejax import registry
    >>> "flame" in registry.names("methods")
    True

`register` adds an entry from outside the package; it takes the object itself or such a string.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any

from flamejax.errors import InputError

# kind -> name -> ("module:object" or the object, what `flamejax list` says of it)
_ENTRIES: dict[str, dict[str, tuple[Any, str]]] = {
    "methods": {
        "flame": ("flamejax.methods.flame:Flame", "personalized ADMM on the Moreau envelope"),
        "pfedme": ("flamejax.methods.pfedme:PFedMe", "gradient steps on the Moreau envelope"),
        "ditto": ("flamejax.methods.ditto:Ditto", "FedAvg, and models pulled to it"),
        "per_fedavg": ("flamejax.methods.per_fedavg:PerFedAvg", "one step from good (MAML)"),
        "lp_proj": ("flamejax.methods.lp_proj:LpProj", "pFedMe in a random subspace"),
        "flame_lp_proj": ("flamejax.methods.flame_lp_proj:FlameLpProj", "FLAME in such a subspace"),
        "fedadmm": ("flamejax.methods.fedadmm:FedAdmm", "consensus ADMM, one model for all"),
        "fedavg": ("flamejax.methods.fedavg:FedAvg", "the mean of locally trained models"),
        "fedprox": ("flamejax.methods.fedavg:FedProx", "FedAvg with a proximal term"),
        "local": ("flamejax.methods.local_only:Local", "no communication"),
    },
    "attacks": {
        "none": ("flamejax.attacks.none:NoAttack", "everyone is honest"),
        "label_poison": ("flamejax.attacks.label_poison:LabelPoison", "random training labels"),
        "same_value": (
            "flamejax.attacks.same_value:SameValue",
            "p in every entry, p ~ N(0, gamma2)",
        ),
        "sign_flip": ("flamejax.attacks.sign_flip:SignFlip", "-|p| times the message"),
        "gaussian": ("flamejax.attacks.gaussian:Gaussian", "noise of variance gamma2"),
        "alie": ("flamejax.attacks.alie:Alie", "a little is enough: z deviations off the mean"),
        "ipm": ("flamejax.attacks.ipm:Ipm", "inner-product manipulation: the mean step, reversed"),
    },
    "aggregators": {
        "mean": ("flamejax.aggregators.mean:Mean", "every message counts the same"),
        "weighted_mean": ("flamejax.aggregators.mean:WeightedMean", "weights: training samples"),
        "multi_krum": ("flamejax.aggregators.multi_krum:MultiKrum", "mean of the most central"),
        "median": ("flamejax.aggregators.ranked:Median", "median of each entry"),
        "trimmed_mean": ("flamejax.aggregators.ranked:TrimmedMean", "extremes of each entry cut"),
        "geometric_median": (
            "flamejax.aggregators.geometric_median:GeometricMedian",
            "least sum of distances, smoothed Weiszfeld",
        ),
        "norm_clip": ("flamejax.aggregators.clipping:NormClip", "mean of steps of bounded length"),
        "centered_clip": ("flamejax.aggregators.clipping:CenteredClip", "norm_clip, repeated"),
    },
    "partitions": {
        "iid": ("flamejax.partitions.iid:iid", "equal shares at random"),
        "qlabel": ("flamejax.partitions.qlabel:qlabel", "each client holds q classes"),
        "dirichlet": ("flamejax.partitions.dirichlet:dirichlet", "Dir(beta) share of each class"),
        "writer": ("flamejax.partitions.writer:writer", "feature skew: whole writers"),
        "quality": ("flamejax.partitions.quality:quality", "noise of variance sigma*i/m"),
        "quantity": ("flamejax.partitions.quantity:quantity", "Dir(beta) share of all samples"),
        "hybrid": ("flamejax.partitions.hybrid:hybrid", "half qlabel, half quantity"),
        "natural": ("flamejax.partitions.natural:natural", "clients as data are generated"),
    },
    "datasets": {
        "mnist_mini": ("flamejax.datasets.mnist_mini:load", "7,936 digits by 70 writers, bundled"),
        "mnist": ("flamejax.datasets.idx:mnist", "70,000 digits, idx files in data.dir"),
        "fashion_mnist": ("flamejax.datasets.idx:fashion_mnist", "70,000 garments, idx files"),
        "medical_mnist": ("flamejax.datasets.images:medical_mnist", "58,954 scans, class folders"),
        "cifar10": ("flamejax.datasets.cifar:cifar10", "60,000 photos, binary batches or folders"),
        "femnist": ("flamejax.datasets.femnist:femnist", "382,705 digits by 3,383 writers"),
        "images": ("flamejax.datasets.images:images", "your own class folders, or a zip of them"),
        "npz:PATH": ("flamejax.datasets.npz:load", "your own arrays: images, labels, writers"),
        "kept:NAME": ("flamejax.datasets.importing:load_kept", "what was imported as NAME"),
        "tfds:NAME": ("flamejax.datasets.tfds:load", "image classes of TensorFlow Datasets"),
        "synthetic": ("flamejax.datasets.synthetic:synthetic", "Synthetic(alpha, beta), generated"),
        "linreg": ("flamejax.datasets.linreg:linreg", "linear regression, generated"),
    },
    "models": {
        "auto": ("flamejax.models.dense:mlp", "the paper's for the data set, otherwise mlp"),
        "mlp": ("flamejax.models.dense:mlp", "784-128-64-10, ReLU"),
        "mlr": ("flamejax.models.dense:mlr", "multinomial logistic regression"),
        "cnn_cifar": ("flamejax.models.cnn:cnn_cifar", "conv 16, conv 32, dense 128"),
        "cnn_medical": ("flamejax.models.cnn:cnn_medical", "conv 32, conv 16, dropout, dense 64"),
        "cnn_femnist": ("flamejax.models.cnn:cnn_femnist", "conv 32 (7x7), conv 64, 62 outputs"),
        "linear": ("flamejax.models.dense:linear", "linear regression, squared loss"),
    },
    "loggers": {
        "none": ("flamejax.loggers:Logger", "only the files of a run"),
        "tensorboard": ("flamejax.loggers.tensorboard:TensorBoard", "its event files"),
        "wandb": ("flamejax.loggers.wandb:WandB", "Weights & Biases, online or offline"),
    },
}

KINDS = tuple(_ENTRIES)
GENERATED = ("synthetic", "linreg")  # data sets that make their own clients


def nearest(word: str, known: list[str], prefix: str = "") -> str:
    """A hint for a mistyped word: the word meant, with the prefix before it, or the known ones."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean '{prefix}{close[0]}'?"
    return f"; known: {', '.join(sorted(known))}"


def short(value: Any, width: int = 60) -> str:
    """A value as it is quoted in a message: in one line, and not too long a one."""
    try:
        text = repr(value)
    except RecursionError:
        text = "tables within tables"
    except ValueError:  # Python refuses to print integers of thousands of digits
        text = f"a number of {value.bit_length()} bits" if isinstance(value, int) else "..."
    return text if len(text) <= width else text[: width - 3] + "..."


def names(kind: str) -> list[str]:
    return list(_ENTRIES[kind])


def describe(kind: str) -> dict[str, str]:
    return {name: text for name, (_, text) in _ENTRIES[kind].items()}


def check(kind: str, name: str, key: str) -> None:
    """Refuse an unknown name, in the words of the config key that held it."""
    if entry(kind, name) is None:
        hint = nearest(name, names(kind))
        raise InputError(f"{key} = {short(name)} is not one of the {kind}{hint}")


def entry(kind: str, name: str) -> str | None:
    """The entry that a name belongs to: its own, or for a `prefix:rest` that of its prefix."""
    if name in _ENTRIES[kind]:
        return name
    prefix, colon, rest = name.partition(":")
    open_ended = (e for e in _ENTRIES[kind] if colon and rest and e.startswith(f"{prefix}:"))
    return next(open_ended, None)


def get(kind: str, name: str) -> Any:
    target = _ENTRIES[kind][entry(kind, name) or name][0]
    if not isinstance(target, str):
        return target
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def register(kind: str, name: str, target: Any, text: str = "registered by the user") -> None:
    """Add or replace an entry."""
    _ENTRIES[kind][name] = (target, text)


def unregister(kind: str, name: str) -> None:
    """Take an entry out again, if there is one."""
    _ENTRIES[kind].pop(name, None)
