"""The setting of `flamejax.theory.regression`, simulated by the engine itself.

A draw is a federation with fresh noise (and a fresh attack) on the same X_i and theta_i: one round
of the registered method, and then the personalized models that clients fit to the new global model,
which is what the next round begins with. With X'X = N b I one full-batch gradient step of the
right length is the exact minimiser, so a client's infinitely many local steps are one.

Many draws are computed side by side, for several values of rho on the same data, and leave the
device as means over batches of draws. Standard errors come from the spread of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from flamejax import config as configs
from flamejax import registry
from flamejax.cache import keep_programs
from flamejax.config import Config
from flamejax.engine.compile import over
from flamejax.engine.devices import AXIS, lay_out, make_mesh
from flamejax.engine.prepare import arrange, first_state, settings_of
from flamejax.engine.rounds import Setting, State, everyone, make_evaluate, make_round
from flamejax.federation import TEST, TRAIN, Federation, assemble, data_seeds
from flamejax.theory.regression import ATTACKS, MODELS, Problem
from flamejax.types import Attack, Generator, Method, Shard, Tree

METHODS = ("flame", "pfedme", "ditto")
BATCHES = 400  # of draws, whose means leave the device
SIDE_BY_SIDE = 256  # draws on a device: they stay in a core's cache
DRAWS = "draws"  # an axis of the mesh, beside the clients'


def exactly(config: Config, method: str, attack: str) -> Config:
    """The run of a method under an attack in which local solutions are exact.

    config: a run of FLAME on linreg; lam, rho, data, and who attacks how much are its own.
    """
    b, hyper = config.data.scale, config.method.hyper()
    lam = hyper.lam
    step = {"name": method, "lam": lam, "lr": 1 / (b + lam), "batch": config.data.samples}
    own = {
        # theta = (b theta_hat + lam w) / (b + lam), around w as in the paper's analysis
        "flame": {"rho": hyper.rho, "epochs": 1, "prox_center": "global"},
        # a w-step of this length ends at w_i = theta_hat, where endless local rounds would
        "pfedme": {"local_rounds": 1, "inner_steps": 1, "global_lr": (b + lam) / (b * lam)},
        "ditto": {"epochs": 1, "global_lr": 1 / b},  # x = theta_hat
    }
    lies = {"fraction": config.attack.fraction, "gamma2": config.attack.gamma2}
    return configs.make(
        {
            "seed": config.seed,
            "data": config.data.model_dump(),
            "partition": {"clients": config.partition.clients, "min_samples": 3},
            "method": step | own[method],
            "attack": {"name": attack, **lies},
            "selection": {"on": "test"},
            "engine": {
                "precision": "float64",
                "execution": "map",  # the draws are side by side
                "on_nonfinite": "keep",  # all are finite
                "devices": config.engine.devices,
            },
        }
    )


def clients_of(config: Config) -> tuple[Federation, Problem]:
    """The clients of such a run, and what the closed forms need to know of them."""
    make_mesh(config.engine.devices, useful=BATCHES)  # while JAX has not started yet
    with jax.enable_x64(True):
        data, federation = assemble(config)
        assert isinstance(data, Generator)
        key = jax.random.key(data_seeds(config.seed)[0])
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(federation.clients))
        theta = jax.vmap(data.parameters, (0, None))(keys, jnp.int32(config.data.samples)).theta
    problem = Problem(
        theta=np.asarray(theta),
        malicious=federation.malicious,
        samples=config.data.samples,
        scale=config.data.scale,
        noise=config.data.noise,
        lam=config.method.hyper().lam,
        gamma2=config.attack.gamma2,
    )
    return federation, problem


def relocate(federation: Federation, problem: Problem, theta: np.ndarray) -> Federation:
    """The same inputs and noise, with other true parameters [C, d]."""
    change = theta - problem.theta

    def read(arrays: Any, client: Array, positions: Array) -> tuple[Array, Array]:
        x, y = federation.read(arrays, client, positions)
        return x, y + x @ jnp.asarray(change)[client]

    return federation._replace(read=read)


class Size(NamedTuple):
    """Of a simulation: `BATCHES` x groups x side_by_side draws."""

    groups: int
    side_by_side: int

    @classmethod
    def of(cls, draws: int) -> Size:
        """At least so many draws, and as few as batches of equal size allow."""
        batch = -(-draws // BATCHES)
        groups = -(-batch // SIDE_BY_SIDE)
        return cls(groups, -(-batch // groups))

    @property
    def batch(self) -> int:
        return self.groups * self.side_by_side

    @property
    def draws(self) -> int:
        return BATCHES * self.batch


class Chosen(NamedTuple):
    """One of all attacks, so that they can share a program."""

    number: Any  # in ATTACKS
    hyper: tuple[Any, ...]  # traced settings of all


Simulation = Callable[[str, int], np.ndarray]


def compile_draws(
    config: Config, method: str, federation: Federation, rhos: Sequence[float], draws: int
) -> Simulation:
    """(attack, number of the first draw) -> mean test losses [BATCHES, rhos, C, 2], PM and GM.

    config, federation: as in `exactly`, with clients that are malicious. Draws with the same number
    have the same noise, whatever the method and the attack. rhos: for FLAME; others have one row.
    """
    keep_programs()
    size = Size.of(draws)
    with jax.enable_x64(True):
        devices = make_mesh(config.engine.devices, useful=BATCHES).devices.reshape(-1)
        used = max(n for n in range(1, len(devices) + 1) if BATCHES % n == 0)
        mesh = Mesh(devices[:used].reshape(-1, 1), (DRAWS, AXIS))
        one, setting, chosen = _one_draw(config, method, federation, rhos)
        shape = (len(rhos) if method == "flame" else 1, federation.clients, len(MODELS))
        on_mesh = over(mesh, _batches(one, size, shape), (P(), P(DRAWS)), P(DRAWS))
        starts = np.arange(BATCHES, dtype=np.uint32) * np.uint32(size.batch)
        program = jax.jit(on_mesh).lower(setting, starts).compile()

    def simulate(attack: str, first: int) -> np.ndarray:
        malicious = setting.malicious & (attack != "none")
        told = setting._replace(
            malicious=malicious, attack=chosen._replace(number=np.int32(ATTACKS.index(attack)))
        )
        with jax.enable_x64(True):
            return np.asarray(program(told, starts + np.uint32(first)))

    return simulate


def _batches(
    one: Callable[[Setting, Array], Array], size: Size, shape: tuple[int, ...]
) -> Callable[[Setting, Array], Array]:
    """(setting, first draws [n]) -> means [n, rhos, C, 2] of the batches that begin there."""

    def batch(setting: Setting, start: Array) -> Array:
        def group(total: Array, number: Array) -> tuple[Array, None]:
            draws = start + number * size.side_by_side + side_by_side
            found = jax.vmap(one, (None, 0))(setting, draws)
            return total + jnp.sum(found, axis=0), None

        side_by_side = jnp.arange(size.side_by_side, dtype=jnp.uint32)
        groups = jnp.arange(size.groups, dtype=jnp.uint32)
        return lax.scan(group, jnp.zeros(shape), groups)[0] / size.batch

    return lambda setting, starts: lax.map(lambda start: batch(setting, start), starts)


def _one_draw(
    config: Config, method: str, federation: Federation, rhos: Sequence[float]
) -> tuple[Callable[[Setting, Array], Array], Setting, Chosen]:
    """(setting, number of a draw) -> test losses [rhos, C, 2]; the setting, and its attacks."""
    attacked = [exactly(config, method, attack) for attack in ATTACKS]
    alone = configs.make(configs.lay_over(attacked[-1].model_dump(), {"engine": {"devices": 1}}))
    model = registry.get("models", "linear")(federation.classes)
    fixed = _unshuffled(alone.method.build(model))
    plan = arrange(alone, fixed, model, federation, 1)
    rules = plan.rules._replace(attack=_any_of([one.attack.build() for one in attacked]))
    layout = lay_out(federation.counts[:, TRAIN], 1)
    key, setting = settings_of(alone, rules, federation, layout)
    told = [settings_of(one, rules, federation, layout)[1].attack for one in attacked]
    chosen = Chosen(np.int32(0), tuple(told))
    one_round = make_round(rules, federation, 1, plan.plan.width, plan.guests)
    evaluate = make_evaluate(fixed, model, federation, plan.plan.width)
    tests = federation.counts[:, TEST].astype(float)

    def losses(setting: Setting) -> Array:
        """[C, 2] of one draw with one rho."""

        def again(state: State, _: None) -> tuple[State, Tree]:
            return one_round(setting, state)[0], state.server

        # the second round fits personalized models to the w that the first one ends with
        start, _ = first_state(plan, setting, key, len(layout.client))
        fitted, servers = lax.scan(again, start, length=2)
        w = jax.tree.map(lambda x: x[1], servers)
        sums = evaluate(fitted._replace(server=w), setting, everyone(setting))
        return sums.loss[layout.slot, :, 1] / tests[:, None]

    def draw(setting: Setting, number: Array) -> Array:
        setting = setting._replace(
            key=jax.random.fold_in(setting.key, number),
            arrays=setting.arrays._replace(seed=setting.arrays.seed + number),
        )
        if method != "flame":
            return losses(setting)[None]

        def with_rho(rho: Array) -> Array:
            return losses(setting._replace(hyper=setting.hyper._replace(rho=rho)))

        return jax.vmap(with_rho)(jnp.asarray(rhos))

    return draw, setting._replace(attack=chosen), chosen


def _any_of(attacks: Sequence[Attack]) -> Attack:
    """All attacks as one, of which `Chosen` names one."""

    def craft(chosen: Chosen, key: Array, message: Tree) -> Tree:
        def of(attack: Attack, hyper: Any) -> Callable[[], Tree]:
            return lambda: attack.craft(hyper, key, message) if attack.craft else message

        branches = [of(*pair) for pair in zip(attacks, chosen.hyper, strict=True)]
        return lax.switch(chosen.number, branches)

    return Attack(craft=craft)


def _unshuffled(method: Method) -> Method:
    """The same method, with the samples in the same order in all draws.

    In a full batch their order does not matter, and inputs are made once for all draws.
    """

    def client(hyper: Any, server: Tree, state: Tree, shard: Shard, key: Array) -> Any:
        return method.client(hyper, server, state, shard, jax.random.key(0))

    return method._replace(client=client)


class Estimate(NamedTuple):
    value: float
    error: float  # standard error


def _of_means(values: np.ndarray) -> Estimate:
    """Of independent estimates [n] of the same."""
    return Estimate(float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5))


def average_loss(losses: np.ndarray) -> Estimate:
    """losses [B, m_b]: batch means of the benign clients' test losses."""
    return _of_means(losses.mean(1))


def loss_variance(losses: np.ndarray) -> Estimate:
    """losses [B, m_b]. The variance over clients of their expected losses, without bias: every
    product is of two batches that are independent."""
    return _of_means(_covariances(losses))


def _covariances(losses: np.ndarray) -> np.ndarray:
    """losses [B, ..., m_b] -> covariances over clients of batches 2k and 2k + 1, [B / 2, ...]."""
    away = losses - losses.mean(-1, keepdims=True)
    return (away[::2] * away[1::2]).mean(-1)


def threshold(losses: np.ndarray, qs: Sequence[float]) -> Estimate:
    """losses [B, Q, m_b] at qs [Q]. Where the average loss is least: in every batch it is exactly
    quadratic in q. The standard error is the jackknife's over batches."""
    a, b, _ = np.polyfit(qs, losses.mean(2).T, 2)  # [B] each
    n = len(losses)
    others = -(b.sum() - b) / (2 * (a.sum() - a))  # without each of the batches
    error = ((n - 1) / n * ((others - others.mean()) ** 2).sum()) ** 0.5
    return Estimate(float(-b.sum() / (2 * a.sum())), float(error))


def variance_curvature(losses: np.ndarray, qs: Sequence[float]) -> Estimate:
    """losses [B, Q, m_b] at qs [Q]. The second derivative of the variance over clients in q: its
    expectation is quadratic in q."""
    return _of_means(2 * np.polyfit(qs, _covariances(losses).T, 2)[0])
