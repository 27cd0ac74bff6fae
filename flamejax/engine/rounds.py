"""One communication round, as each device of the mesh sees it.

A device owns some slots of the stacked client state and has a full copy of the samples and of the
server. Functions here run inside `shard_map`; sums over clients end in one `psum`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from flamejax import tree
from flamejax.engine.cohort import deal_out, select, send, send_back
from flamejax.engine.devices import AXIS, total
from flamejax.engine.messages import center_of, combine, conspire
from flamejax.engine.visit import Cohort, visit
from flamejax.evaluate import Sums, score
from flamejax.federation import TRAIN, Federation
from flamejax.theory.lagrangian import Measured
from flamejax.types import Aggregator, Attack, Method, Model, Shard, Tree

CULPRITS = 8  # clients with numbers that are not finite, named per round


class Client(NamedTuple):
    """What is stored of a client; stacked [slots, ...]."""

    state: Tree  # the method's
    sent: Tree | None  # its last message, where the method cannot tell it from the state


class State(NamedTuple):
    """Everything the next round needs."""

    round: Any  # scalar: rounds done
    server: Tree
    clients: Any  # a Client, stacked [slots, ...]
    mean: Tree  # what the server heard last,
    lost: Tree | None  # and what rounding has taken from it, where it is a running sum


class RoundInfo(NamedTuple):
    """Sums over the selected clients of one round."""

    loss: Array  # of benign clients
    samples: Array
    steps: Array  # optimiser steps the clients needed
    executed: Array  # steps computed for them, padding included
    nonfinite: Array  # clients left out because some number was not finite
    culprits: Array  # [CULPRITS] the first of them, and then C
    theory: Measured | None = None  # where it is recorded; over all clients


class Setting(NamedTuple):
    """Traced inputs that stay the same from round to round."""

    hyper: Any  # traced settings of the method,
    attack: Any  # the attack,
    aggregator: Any  # and the aggregator
    key: Any
    arrays: Tree  # the federation's
    counts: Any  # [C + 1, 3], the last row is zero
    samples: Any  # for training, of all clients
    client: Any  # [slots] the client in each slot, C where it is empty
    present: Any  # [n] the clients in slots, in order; C at the end, if there are fewer
    slot: Any  # [n] their slots
    malicious: Any  # [C + 1] bool
    weight: Any  # [C + 1] weights in the mean; those of all clients sum to 1
    smoothness: Any  # L of the clients' losses, where the theory is recorded


def everyone(setting: Setting) -> Cohort:
    """All clients of this device."""
    return Cohort(jnp.arange(len(setting.client), dtype=jnp.int32), setting.client)


def make_shard(federation: Federation, setting: Setting, client: Array) -> Shard:
    samples = setting.counts[client, TRAIN]
    return Shard(
        client=client,
        clients=federation.clients,
        samples=samples,
        largest=int(federation.counts[:, TRAIN].max()),
        share=samples.astype(float) / setting.samples,
        read=lambda positions: federation.read(setting.arrays, client, positions),
    )


def make_evaluate(
    method: Method, model: Model, federation: Federation, width: int
) -> Callable[[State, Setting, Cohort], Sums]:
    """Figures of a cohort on this device, [k, ...]."""
    scores = score(model, federation)

    def evaluate(state: State, setting: Setting, cohort: Cohort) -> Sums:
        def one(client: Client, number: Array) -> tuple[None, None, Sums]:
            shared, personal = method.models(state.server, client.state)
            if method.personalize:
                shard = make_shard(federation, setting, number)
                with jax.named_scope("client"):
                    personal = method.personalize(setting.hyper, state.server, client.state, shard)
            models = (personal,) if shared is None else (personal, shared)
            return None, None, scores(setting.arrays, setting.counts[number], number, models)

        return visit(one, state.clients, cohort, width, federation.clients)[2]

    return evaluate


class Rules(NamedTuple):
    """How a round goes, fixed when it is compiled."""

    method: Method
    attack: Attack
    aggregator: Aggregator
    selected: int  # clients per round
    clients: int  # in all
    on_nonfinite: str

    @property
    def stacked(self) -> bool:
        """Messages are kept side by side, not summed on the way."""
        return bool(self.attack.collude) or not self.aggregator.linear

    @property
    def keeps_messages(self) -> bool:
        """The server's memory of a client is not a function of the client's state."""
        return bool(self.method.last_message) and (self.stacked or bool(self.attack.craft))

    @property
    def everyone_speaks(self) -> bool:
        return self.selected == self.clients

    @property
    def running(self) -> bool:
        """The mean is last round's, plus what has changed."""
        return bool(self.method.last_message) and not (self.stacked or self.everyone_speaks)

    @property
    def needs_all(self) -> bool:
        """A round looks at the states of clients that were not selected, too."""
        return self.everyone_speaks or (bool(self.method.last_message) and self.stacked)


class Heard(NamedTuple):
    """What reaches the server from the clients of one device."""

    total: Tree  # weighted sum of messages (or of their changes); None when stacked
    weight: Array  # its weight
    messages: Tree  # [k, ...] when stacked, or None
    weights: Array  # [k]


def make_round(
    rules: Rules, federation: Federation, devices: int, width: int, guests: int
) -> Callable[[Setting, State], tuple[State, RoundInfo]]:
    method, attack, aggregator = rules.method, rules.attack, rules.aggregator
    clients, selected, recall = federation.clients, rules.selected, method.last_message

    def remembered(setting: Setting, client: Client, shard: Shard) -> Tree:
        assert recall
        if client.sent is not None:
            return client.sent
        return recall(setting.hyper, client.state, shard)

    def tell(setting: Setting, client: Client, shard: Shard, message: Tree, ok: Array) -> Tree:
        """A client's part in the sum: of all messages, or of their changes where some are absent;
        a message that is not ok is as if it had not been sent."""
        weight = setting.weight[shard.client]
        if not recall:
            return lax.cond(
                ok, lambda: tree.scale(weight, message), lambda: tree.zeros_like(message)
            )
        last = partial(remembered, setting, client, shard)
        if rules.everyone_speaks:
            return tree.scale(weight, lax.cond(ok, lambda: message, last))
        change = tree.scale(weight, tree.subtract(message, last()))
        return tree.where(ok, change, tree.zeros_like(message))

    @jax.named_scope("message")
    def train(
        setting: Setting, state: State, store: Client, cohort: Cohort
    ) -> tuple[Client, Heard, RoundInfo]:
        """Local training of a cohort: the updated store, and this device's sums."""
        key = jax.random.fold_in(setting.key, state.round)

        def one(client: Client, number: Array) -> tuple[Client, Tree, Tree]:
            shard = make_shard(federation, setting, number)
            own = jax.random.fold_in(key, number)
            with jax.named_scope("client"):
                new, message, info = method.client(
                    setting.hyper, state.server, client.state, shard, own
                )
            malicious = setting.malicious[number]
            if craft := attack.craft:
                noise = jax.random.fold_in(key, clients + 1 + number)
                message = lax.cond(
                    malicious,
                    lambda message: craft(setting.attack, noise, message),
                    lambda message: message,
                    message,
                )
            ok = jnp.array(True)
            if rules.on_nonfinite != "keep":
                # the server cannot see how a lie came about
                ok = tree.finite(message) & (malicious | jnp.isfinite(info.loss))
            weight = jnp.where(ok, setting.weight[number], 0)
            told = tell(setting, client, shard, message, ok)
            counts = (ok & ~malicious).astype(info.loss.dtype)
            summed = (
                None if rules.stacked else told,
                weight,
                jnp.where(counts > 0, info.loss, 0),
                counts * info.samples,
                info.steps,
            )
            kept = (info.steps, ok, message if rules.stacked else None)
            after = Client(new, message if rules.keeps_messages else None)
            return tree.where(ok, after, client), summed, kept

        last = None  # of what colluders said, should nobody hear their lie
        if attack.collude and rules.keeps_messages:
            last = tree.take(store.sent, cohort.rows)
        store, summed, (steps, ok, messages) = visit(one, store, cohort, width, clients)
        told, weight, loss, samples, needed = summed
        here = cohort.ids < clients
        if attack.collude:
            center = center_of(method, state.server, state.mean)
            malicious = setting.malicious[cohort.ids]
            lie = conspire(attack, setting.attack, messages, here & ok, malicious, center)
            liars = here & ok & malicious
            messages = tree.choose(liars, lie, messages)
            if rules.on_nonfinite != "keep":
                ok = ok & (~malicious | tree.finite(lie))
            if rules.keeps_messages:  # what is not heard is not remembered either
                sent = tree.select(here & ok, messages, last)
                store = store._replace(sent=tree.put(store.sent, cohort.rows, sent))
        bad = here & ~ok
        worst = jnp.sort(jnp.where(bad, cohort.ids, clients))[:CULPRITS]
        log = RoundInfo(
            loss=loss,
            samples=samples,
            steps=needed,
            executed=executed(steps),
            nonfinite=jnp.sum(bad, dtype=jnp.int32),
            culprits=jnp.pad(worst, (0, CULPRITS - len(worst)), constant_values=clients),
        )
        weights = jnp.where(here & ok, setting.weight[cohort.ids], 0)
        return store, Heard(told, weight, messages, weights), log

    def executed(steps: Array) -> Array:
        """Steps computed for clients that needed steps [k], `width` of them side by side."""
        groups = jnp.pad(steps, (0, -len(steps) % width)).reshape(-1, width)
        return width * jnp.sum(jnp.max(groups, axis=1), dtype=jnp.int32)

    def hear(
        setting: Setting, state: State, store: Client, heard: Heard
    ) -> tuple[Tree, Tree | None, Array]:
        """What the server makes of the messages, what rounding takes from it, and whether there
        was anything to hear."""
        if rules.stacked:
            messages, weights = heard.messages, heard.weights
            if recall:  # absent clients' last messages count too
                messages, weights = store.sent, setting.weight[setting.client]
            center = center_of(method, state.server, state.mean)
            mean = combine(aggregator, setting.aggregator, messages, weights, center)
            return mean, None, lax.psum(jnp.sum(weights), AXIS) > 0
        summed, weight = total((heard.total, heard.weight))
        if not recall:
            least = jnp.finfo(weight.dtype).tiny
            return tree.scale(1 / jnp.maximum(weight, least), summed), None, weight > 0
        if not rules.running:
            return summed, None, jnp.array(True)
        # Kahan's sum: what a long run of small changes loses to rounding comes back
        change = tree.add(summed, state.lost)
        mean = tree.add(state.mean, change)
        return mean, tree.subtract(change, tree.subtract(mean, state.mean)), jnp.array(True)

    def train_selected(setting: Setting, state: State) -> tuple[Client, Heard, RoundInfo]:
        rows = len(setting.client)
        with jax.named_scope("select"):
            ids = select(setting.key, state.round, selected, clients)
            slot = setting.slot[jnp.searchsorted(setting.present, ids)]
            work = setting.counts[ids, TRAIN]
            cohorts, trips = deal_out(ids, slot, work, clients, rows, guests, devices)
            cohort = jax.tree.map(lambda x: x[lax.axis_index(AXIS)], cohorts)
            store = send(state.clients, trips) if guests else state.clients
        store, heard, log = train(setting, state, store, cohort)
        with jax.named_scope("select"):
            return send_back(store, trips) if guests else store, heard, log

    def round(setting: Setting, state: State) -> tuple[State, RoundInfo]:
        if not rules.everyone_speaks:
            store, heard, log = train_selected(setting, state)
        else:
            store, heard, log = train(setting, state, state.clients, everyone(setting))
        with jax.named_scope("mean"):
            mean, lost, anything = hear(setting, state, store, heard)
            server = method.server(setting.hyper, state.server, mean)
            server, mean = tree.where(anything, (server, mean), (state.server, state.mean))
        return State(state.round + 1, server, store, mean, lost), gather(log)

    @jax.named_scope("mean")
    def gather(log: RoundInfo) -> RoundInfo:
        """The sums of all devices."""
        named = jnp.sort(lax.all_gather(log.culprits, AXIS).reshape(-1))[:CULPRITS]
        sums = total(log._replace(culprits=jnp.zeros((), jnp.int32)))
        return sums._replace(culprits=named)

    return round
