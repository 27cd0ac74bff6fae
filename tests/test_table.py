"""Every method x partition x attack x aggregator, each beside a NumPy check of two whole rounds.

All that differs between the runs of a method is chosen by numbers in one program: which attack and
which aggregator (`lax.switch` over those that the registry has), and who holds which samples. What
clients send comes from the method's own functions, called here for one client after another; who is
heard, what attackers make of it and what the server hears is written down once more in NumPy. That
the methods' functions are right is what the loops of `test_flame.py` and `test_baselines.py` show.

The partition `natural` is of generated data: `test_generated.py`.
"""

import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.flatten_util import ravel_pytree
from scipy.stats import norm

from flamejax import config, registry
from flamejax.config import AggregatorSettings, AttackSettings
from flamejax.federation import TRAIN, Federation, federate
from flamejax.models import from_flax
from flamejax.models.dense import Dense
from flamejax.types import Aggregator, Attack, Shard

from .plain import shuffled
from .problems import blobs, rounds_of_many

METHODS, ATTACKS, AGGREGATORS = map(registry.names, ("methods", "attacks", "aggregators"))
PARTITIONS = [name for name in registry.names("partitions") if name != "natural"]
# a client that is not finite does not count, unless what it sends is a lie that is
BROKEN = {"iid, a benign client not finite": False, "iid, an attacker not finite": True}
CASES = [*PARTITIONS, *BROKEN]
ROUNDS = 2
TOLERANCE = 1e-9
FEW_STEPS = {
    "pfedme": {"local_rounds": 2, "inner_steps": 2},
    "lp_proj": {"local_rounds": 2, "inner_steps": 2},
    "per_fedavg": {"local_steps": 2},
}


# --- all attacks and all aggregators, of which a traced number chooses one --------------------


class Chosen(NamedTuple):
    number: Any
    hyper: tuple[Any, ...]  # traced settings of all

    def one(self, branches, *operands):
        """What the chosen branch makes of its settings and the operands."""
        choices = [functools.partial(f, x) for f, x in zip(branches, self.hyper, strict=True)]
        return lax.switch(self.number.astype(jnp.int32), choices, *operands)


@functools.cache
def settings_of(section, name):
    return getattr(config.make({section: {"name": name}}), section)


@functools.cache
def hyper_of(section, name):
    return settings_of(section, name).hyper()


class AnyAttack(AttackSettings):
    name: str = "any"
    presets: ClassVar = {}
    among: tuple[str, ...]
    choice: float

    def hyper(self) -> Chosen:
        return Chosen(self.choice, tuple(hyper_of("attack", name) for name in self.among))

    def build(self) -> Attack:
        attacks = [settings_of("attack", name).build() for name in self.among]
        if attacks[0].collude:
            return Attack(collude=lambda chosen, *of: chosen.one([a.collude for a in attacks], *of))
        if not any(attack.craft for attack in attacks):
            return Attack()
        crafts = [attack.craft or (lambda hyper, key, message: message) for attack in attacks]
        return Attack(craft=lambda chosen, *of: chosen.one(crafts, *of))


ALL_HONEST = " of honest clients"


class AnyAggregator(AggregatorSettings):
    name: str = "any"
    among: tuple[str, ...]
    choice: float

    def hyper(self) -> Chosen:
        names = [name.removesuffix(ALL_HONEST) for name in self.among]
        return Chosen(self.choice, tuple(hyper_of("aggregator", n) for n in names))

    def build(self, messages: int, malicious: int) -> Aggregator:
        rules = []
        for name in self.among:
            suspected = 0 if name.endswith(ALL_HONEST) else malicious
            settings = settings_of("aggregator", name.removesuffix(ALL_HONEST))
            rules.append(settings.build(messages, suspected))

        def combine(chosen, messages, weights, center, total):
            branches = [functools.partial(rule.combine, total=total) for rule in rules]
            return chosen.one(branches, messages, weights, center)

        weight = rules[int(self.choice)].weight
        return Aggregator(combine, weight, linear=all(rule.linear for rule in rules))


@pytest.fixture(scope="module", autouse=True)
def _registered():
    registry.register("attacks", "any", AnyAttack)
    registry.register("aggregators", "any", AnyAggregator)
    yield
    registry.unregister("attacks", "any")
    registry.unregister("aggregators", "any")


def colludes(attack):
    return bool(settings_of("attack", attack).build().collude)


def crafts(attack):
    return bool(settings_of("attack", attack).build().craft)


def is_mean(aggregator):
    return settings_of("aggregator", aggregator).build(7, 0).linear


def suspicious(aggregator):
    return hasattr(settings_of("aggregator", aggregator), "suspects")


CRAFTED = [name for name in ATTACKS if not colludes(name)]
COLLUDING = [name for name in ATTACKS if colludes(name)]
MEANS = [name for name in AGGREGATORS if is_mean(name)]
OTHERS = [name for name in AGGREGATORS if not is_mean(name)]
# what is summed on the way, what is kept side by side, and where attackers know what others send
PROGRAMS = {
    "summed": (CRAFTED, MEANS),
    "side by side": (CRAFTED, OTHERS),
    "overheard": (COLLUDING, AGGREGATORS),
}


# --- runs, and their data ------------------------------------------------------------------------


class Run(NamedTuple):
    case: str
    attack: str
    aggregator: str


CLIENTS, SAMPLES = 8, 160


class Size(NamedTuple):
    selected: int  # clients per round
    devices: int


@functools.cache
def data():
    writers = np.random.default_rng(1).integers(12, size=SAMPLES)
    return blobs(SAMPLES)._replace(writers=writers)


def model():
    """That it starts at numbers which are there already makes its programs smaller."""
    found = from_flax(Dense((3,)))
    start = found.init(jax.random.key(1), np.zeros((1, 6), np.float32))
    start = jax.tree.map(np.asarray, start)
    return found._replace(
        init=lambda key, x: jax.tree.map(lambda p: jnp.asarray(p, x.dtype), start)
    )


MODEL = model()


@functools.cache
def made(partition, attack) -> Federation:
    values = {
        "partition": {"name": partition, "clients": CLIENTS},
        "attack": {"name": attack, "fraction": 0.3},
    }
    return federate(config.make(values), data(), np.random.default_rng(0))


@functools.cache
def reader():
    """(arrays) -> all samples of all clients, [C, N, ...]; of any partition and attack."""
    read, positions = made("quality", "label_poison").read, jnp.arange(SAMPLES, dtype="int32")
    of_client = jax.vmap(lambda arrays, client: read(arrays, client, positions), (None, 0))
    return jax.jit(lambda arrays: of_client(arrays, jnp.arange(CLIENTS, dtype="int32")))


@functools.cache
def federation(size, case, attack) -> Federation:
    """All have arrays of the same sizes, and read them in the same way: what noise and poisoners
    make of the samples is stored in their place."""
    attack = attack if attack in ("none", "label_poison") else "gaussian"
    found = made("iid" if case in BROKEN else case, attack)
    arrays, samples = found.arrays, found.counts.sum(1)
    rows = np.pad(arrays.rows, (0, SAMPLES - len(arrays.rows)))
    arrays = arrays._replace(rows=rows)
    images, labels = arrays.images.copy(), arrays.labels.copy()
    for client, (x, y) in enumerate(zip(*map(np.asarray, reader()(arrays)), strict=True)):
        own = rows[arrays.starts[client] :][: samples[client]]
        images[own], labels[own] = x[: len(own)], y[: len(own)]
    if case in BROKEN:
        malicious = made("iid", "gaussian").malicious
        clients = [*chosen_clients(size.selected)[0], *range(CLIENTS)]
        client = next(i for i in clients if malicious[i] == BROKEN[case])
        images[rows[arrays.starts[client]]] = np.nan
    arrays = arrays._replace(images=images, labels=labels)
    return found._replace(arrays=arrays, read=made("iid", "none").read)


def round_key(number):
    return jax.random.fold_in(jax.random.split(jax.random.key(0))[1], number)


@functools.cache
def chosen_clients(selected):
    """[rounds, selected]"""
    choosers = [jax.random.fold_in(round_key(t), CLIENTS) for t in range(ROUNDS)]
    return np.stack([np.asarray(shuffled(key, CLIENTS, selected)) for key in choosers])


# --- what clients send, by the method's own functions -----------------------------------------


class Trained(NamedTuple):
    """Of the clients in a round, whether or not they are selected; messages are flat."""

    states: Any  # [C, ...] after it
    messages: Any  # [C, d]
    loss: Any  # [C]
    before: Any  # [C, d] their messages before, where the server remembers them
    center: Any  # [d] what one sends that does not move
    server: Any  # after it has heard what it has heard


def flat(tree):
    return ravel_pytree(tree)[0]


@functools.cache
def method_of(name):
    own = {"name": name, "lr": 0.1, "batch": 16, **FEW_STEPS.get(name, {})}
    settings = config.make({"method": own}).method
    return own, settings, settings.build(MODEL)


PIECE = 16  # runs of a method that are trained in one call, so that all programs share this one


@functools.cache
def trainer(name, read, largest):
    _, settings, method = method_of(name)

    def round(arrays, counts, key, server, states, heard):
        hyper = jax.tree.map(jnp.asarray, settings.hyper())
        samples = counts[:, TRAIN]
        all_samples = jnp.sum(samples).astype(float)

        def one(number, state):
            shard = Shard(
                number, len(counts), samples[number], largest,
                samples[number].astype(float) / all_samples, lambda at: read(arrays, number, at),
            )  # fmt: skip
            key_of_client = jax.random.fold_in(key, number)
            new, message, info = method.client(hyper, server, state, shard, key_of_client)
            before = flat(method.last_message(hyper, state, shard)) if method.last_message else None
            return new, flat(message), info.loss, before

        new, messages, loss, before = jax.vmap(one)(jnp.arange(len(counts), dtype="int32"), states)
        center = jnp.zeros(messages.shape[1:])
        if not method.sends_updates and messages.shape[1]:
            center = flat(method.broadcast(server))
        after = method.server(hyper, server, heard)
        return Trained(new, messages, loss, before, center, after)

    def of_run(run):
        arrays, counts, *of_rounds = run
        rounds = (jax.vmap(round_key)(jnp.arange(ROUNDS)), *of_rounds)
        return lax.map(lambda of: round(arrays, counts, *of), rounds)

    return jax.jit(lambda runs: lax.map(of_run, runs))


def train(name, federations, found) -> Trained:
    """Leaves [R, rounds, ...], from the states that the runs have before each round."""
    largest = max(int(f.counts[:, TRAIN].max()) for f in federations)
    program = trainer(name, federations[0].read, largest)
    data = [(f.arrays, f.counts.astype(np.int32)) for f in federations]
    before = jax.tree.map(lambda x: x[:, :-1], (found.server, found.clients))
    after = jax.tree.map(lambda x: x[:, 1:], found.mean)
    runs = (*jax.tree.map(lambda *x: np.stack(x), *data), *before, after)
    pieces = []
    for first in range(0, len(federations), PIECE):
        here = np.arange(first, first + PIECE) % len(federations)
        pieces.append(program(jax.tree.map(lambda x, here=here: x[here], runs)))
    return jax.tree.map(lambda *x: np.concatenate(x)[: len(federations)], *pieces)


# --- attacks and aggregators from their definitions -------------------------------------------


@functools.cache
def draws(shapes):
    """Normal numbers of each round and client: one, [rounds, C], and a message, [rounds, C, d]."""

    def of(number, client):
        key = jax.random.fold_in(round_key(number), CLIENTS + 1 + client)
        leaves = [jax.random.normal(jax.random.fold_in(key, i), s) for i, s in enumerate(shapes)]
        return jax.random.normal(key), flat(leaves)

    of_rounds = jax.jit(jax.vmap(jax.vmap(of, (None, 0)), (0, None)))
    return jax.tree.map(np.asarray, of_rounds(np.arange(ROUNDS), np.arange(CLIENTS)))


def crafted(attack, message, one, many):
    std = 0.1**0.5
    if attack == "same_value":
        return np.full_like(message, std * one)
    if attack == "sign_flip":
        return -abs(std * one) * message
    return std * many if attack == "gaussian" else message


def lie(attack, benign, center, senders, liars):
    """It is not a number where one benign client is heard and z is infinite: nobody hears it."""
    middle = benign.mean(0)
    if attack == "ipm":
        return center - 0.5 * (middle - center)
    others = senders - liars
    z = norm.ppf(min((others - (senders // 2 + 1 - liars)) / max(others, 1), 0.999))
    return middle - z * benign.std(0)


def combined(aggregator, rows, weights, center, messages, malicious):
    """What is made of rows [n, d]; messages, malicious: how many there should be at most."""
    n, weights = len(rows), weights / weights.sum()
    if aggregator in ("mean", "weighted_mean"):
        return weights @ rows
    if aggregator == "median":
        return np.median(rows, axis=0)
    if aggregator == "trimmed_mean":
        cut = min(malicious, (messages - 1) // 2, (n - 1) // 2)
        return np.sort(rows, axis=0)[cut : n - cut].mean(0)
    if aggregator == "multi_krum":
        suspects = min(malicious, (messages - 3) // 2)
        away = ((rows[:, None] - rows[None]) ** 2).sum(-1)
        nearest = np.sort(away, axis=1)[:, 1:]  # itself is the first
        scores = nearest[:, : max(n - suspects - 2, 1)].sum(1)
        return rows[np.argsort(scores)[: max(n - suspects, 1)]].mean(0)
    if aggregator == "geometric_median":
        v = center
        for _ in range(8):
            b = weights / np.maximum(1e-6, np.linalg.norm(rows - v, axis=1))
            v = b @ rows / b.sum()
        return v
    v = center
    for _ in range({"norm_clip": 1, "centered_clip": 3}[aggregator]):
        steps = rows - v
        length = np.linalg.norm(steps, axis=1)
        radius = np.sort(length)[(n - 1) // 2]
        v = v + weights @ (np.minimum(1, radius / np.maximum(length, 1e-300))[:, None] * steps)
    return v


class Server:
    """What it hears in the rounds of a run."""

    def __init__(self, run, fed, size, remembers):
        self.run, self.fed, self.size = run, fed, size
        self.last = None  # messages of all clients, where it remembers them
        self.remembers = remembers
        meeting = CLIENTS if remembers else size.selected
        malicious = int(fed.malicious.sum())
        self.expected = meeting, -(-malicious * meeting // CLIENTS)
        of_samples = run.aggregator == "weighted_mean"
        self.weights = fed.counts[:, TRAIN] * 1.0 if of_samples else np.ones(CLIENTS)

    def hear(self, number, trained, drawn):
        """[d], whose training counts [C], and who was heard [C]; trained: of this run and round."""
        selected = np.zeros(CLIENTS, bool)
        selected[chosen_clients(self.size.selected)[number]] = True
        malicious, sent = self.fed.malicious, trained.messages.copy()
        for i in np.flatnonzero(malicious):
            sent[i] = crafted(self.run.attack, sent[i], *(x[number, i] for x in drawn))
        ok = selected & np.isfinite(sent).all(1) & (malicious | np.isfinite(trained.loss))
        liars, counts = ok & malicious, ok
        if colludes(self.run.attack) and liars.any():
            overheard = sent[ok & ~malicious] if (ok & ~malicious).any() else sent[liars]
            sent[liars] = lie(self.run.attack, overheard, trained.center, ok.sum(), liars.sum())
            ok = ok & np.isfinite(sent).all(1)
        there = ok
        if self.remembers:
            self.last = trained.before.copy() if self.last is None else self.last
            self.last[ok] = sent[ok]
            sent, there = self.last, np.ones(len(ok), bool)
        rows, weights = sent[there], self.weights[there]
        mean = combined(self.run.aggregator, rows, weights, trained.center, *self.expected)
        return mean, counts, ok


def far(a, b):
    """How far apart entries are, relative to the larger of them and one: [R, ...] -> [R]."""
    away = np.abs(a - b) / np.maximum(1, np.abs(b))
    away = np.where(np.isnan(a) & np.isnan(b), 0, away)  # states of attackers
    return np.where(np.isnan(away), np.inf, away).reshape(len(a), -1).max(1, initial=0)


def farthest(found, expected):
    """Of two states, [R]."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return np.max([far(x, y) for x, y in pairs], axis=0, initial=0.0)


def of_round(tree, t):
    return jax.tree.map(lambda x: x[:, t], tree)


def kept(counts, new, old):
    """States of clients [R, C, ...]: new ones of those whose training counts [R, C]."""

    def one(new, old):
        return np.where(counts.reshape(*counts.shape, *[1] * (new.ndim - 2)), new, old)

    return jax.tree.map(one, new, old)


def settings(own, runs, size):
    """A config for each; those without attackers suspect nobody."""
    attacks = tuple(dict.fromkeys(run.attack for run in runs))
    rules = tuple(dict.fromkeys(run.aggregator for run in runs))
    rules += tuple(rule + ALL_HONEST for rule in rules if suspicious(rule) and "none" in attacks)
    for run in runs:
        honest = run.aggregator + ALL_HONEST
        rule = honest if run.attack == "none" and honest in rules else run.aggregator
        attack = {"among": attacks, "choice": float(attacks.index(run.attack))}
        yield config.make(
            {
                "partition": {"name": "iid", "clients": CLIENTS},
                "participation": {"clients_per_round": size.selected},
                "method": own,
                "attack": {"name": "any", "fraction": 0.3, **attack},
                "aggregator": {"name": "any", "among": rules, "choice": float(rules.index(rule))},
                "engine": {"devices": size.devices, "precision": "float64", "execution": "map"},
            }
        )


def check(name, runs, size):
    """Both rounds of all runs, the first of which has attackers if any has."""
    own, _, method = method_of(name)
    with jax.enable_x64(True):
        federations = [federation(size, run.case, run.attack) for run in runs]
        configs = [*settings(own, runs, size)]
        found = rounds_of_many(configs, method, MODEL, federations, ROUNDS)
        trained = train(name, federations, found)
        drawn = draws(tuple(x.shape[2:] for x in jax.tree.leaves(found.mean)))
    assert found.repeats
    assert found.alike
    means = [x.reshape(*x.shape[:2], -1) for x in jax.tree.leaves(found.mean)]
    means = np.concatenate([np.zeros((len(runs), ROUNDS + 1, 0)), *means], axis=-1)
    servers = [Server(*of, size, remembers(name)) for of in zip(runs, federations, strict=True)]
    wrong = []
    for t in range(ROUNDS):
        now, before = of_round(trained, t), of_round((found.server, found.clients), t)
        each = [jax.tree.map(lambda x, r=r: x[r], now) for r in range(len(runs))]
        heard = [server.hear(t, one, drawn) for server, one in zip(servers, each, strict=True)]
        mean, counts, ok = (np.stack(x) for x in zip(*heard, strict=True))
        after = of_round((found.server, found.clients), t + 1)
        apart = {
            "a number": np.where(np.isfinite(mean).all(1), 0, np.inf),
            "what the server heard": far(means[:, t + 1], mean),
            "clients left out": far(found.nonfinite[:, t], size.selected - ok.sum(1)),
            "the server": farthest(after[0], now.server),
            "the clients": farthest(after[1], kept(counts, now.states, before[1])),
        }
        apart["that anything moves"] = np.where(farthest(after, before) > 0, 0, np.inf)
        for what, distances in apart.items():
            for r in np.flatnonzero(~(distances < TOLERANCE)):
                line = (
                    f"{' + '.join(runs[r])}: {what} in round {t + 1} is off by {distances[r]:.2g}"
                )
                wrong.append(line)
    assert not wrong, "\n".join([f"{name}, {len(wrong)} differences:", *wrong[:40]])


SOME = Size(selected=7, devices=1)
SPREAD = Size(selected=3, devices=4)  # one of the devices has nobody to train


def remembers(method):
    return bool(method_of(method)[2].last_message)


EVERY = [(method, program) for method in METHODS for program in PROGRAMS]


def runs_of(attacks, rules):
    attacks = sorted(attacks, key="none".__eq__)  # whoever has attackers comes first
    return [Run(case, attack, rule) for attack in attacks for case in CASES for rule in rules]


@pytest.mark.parametrize(("method", "program"), EVERY)
def test_every_triple(method, program):
    check(method, runs_of(*PROGRAMS[program]), SOME)


def marks(method, program):
    return [] if (method, program) == ("fedprox", "side by side") else [pytest.mark.full]


@pytest.mark.parametrize(
    ("method", "program"), [pytest.param(*each, marks=marks(*each)) for each in EVERY]
)
def test_every_triple_on_several_devices(method, program):
    check(method, runs_of(*PROGRAMS[program]), SPREAD)


@pytest.mark.parametrize(
    "method",
    [
        method if method == "flame" else pytest.param(method, marks=pytest.mark.full)
        for method in filter(remembers, METHODS)
    ],
)
def test_messages_that_are_made_from_states_again(method):
    """Where no message is made up, the server keeps none."""
    check(method, runs_of([name for name in CRAFTED if not crafts(name)], MEANS), SOME)


def test_nothing_is_left_out():
    triples = {(a, g) for attacks, rules in PROGRAMS.values() for a in attacks for g in rules}
    assert triples == {(a, g) for a in ATTACKS for g in AGGREGATORS}
