"""Convolution and pooling as products of matrices, against XLA's own and finite differences."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.test_util import check_grads

import flamejax as fj
from flamejax import local, registry, tree
from flamejax.models.conv import convolve, convolve_and_pool, max_pool
from flamejax.types import Batch

CNNS = {  # name: shape of an image, classes, parameters
    "cnn_cifar": ((32, 32, 3), 10, 268_650),
    "cnn_medical": ((64, 64, 3), 6, 206_678),
    "cnn_femnist": ((28, 28, 1), 10, 214_590),
}


KERNELS = [(3, 1), (3, 0), (7, 3), (1, 0)]  # size and padding


def some(always, kernels, images):
    """All combinations, most of them in the long form only."""
    every = [(*image, *kernel) for kernel in kernels for image in images]
    return [x if x in always else pytest.param(*x, marks=pytest.mark.full) for x in every]


def close(a, b, tolerance):
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance), a, b
    )


MORE, FEWER = ((3, 8, 9, 5), 6), ((4, 10, 8, 2), 3)  # features than channels


@pytest.mark.parametrize(
    ("shape", "features", "size", "padding"),
    some([(*MORE, 3, 1), (*FEWER, 2, 1)], [*KERNELS, (2, 1)], (MORE, FEWER)),
)
def test_convolution_equals_xlas(rng, shape, features, size, padding):
    """With more and with fewer features than channels, which are different products."""
    with jax.enable_x64(True):
        x, kernel = rng.normal(size=shape), rng.normal(size=(size, size, shape[0], features))

        @partial(jax.jit, static_argnums=0)
        def both(native):
            out, back = jax.vjp(lambda x, k: convolve(x, k, padding, native), x, kernel)
            return out, back(jnp.cos(jnp.arange(out.size)).reshape(out.shape))

        # independent of this file's layouts: images first, as most people have them
        plain = lax.conv_general_dilated(
            x.transpose(3, 0, 1, 2), kernel.transpose(3, 2, 0, 1), (1, 1), [(padding, padding)] * 2
        )
        close(both(False)[0], plain.transpose(1, 2, 3, 0), 1e-12)
        close(both(False), both(True), 1e-11)


@pytest.mark.parametrize("features", [pytest.param(1, marks=pytest.mark.full), 4])
def test_convolution_equals_plain_loops(rng, features):
    x, kernel = rng.normal(size=(2, 5, 6, 3)), rng.normal(size=(3, 3, 2, features))
    expected = np.zeros((features, 5, 6, 3))
    for o, c, h, w in itertools.product(range(features), range(2), range(5), range(6)):
        for i, j in itertools.product(range(3), range(3)):
            if 0 <= h + i - 1 < 5 and 0 <= w + j - 1 < 6:
                expected[o, h, w] += kernel[i, j, c, o] * x[c, h + i - 1, w + j - 1]
    with jax.enable_x64(True):
        close(convolve(jnp.asarray(x), jnp.asarray(kernel), 1, False), expected, 1e-12)


@pytest.mark.parametrize(
    "shape",
    [
        (1, 7, 9, 2),
        *(pytest.param(x, marks=pytest.mark.full) for x in ((2, 6, 8, 3), (3, 2, 3, 1))),
    ],
)
@pytest.mark.parametrize("tied", [False, True])
def test_pool_equals_xlas(rng, shape, tied):
    """Ties as well: the first of equal entries, row by row, has the gradient."""
    x = rng.integers(0, 3, size=shape) if tied else rng.normal(size=shape)

    @partial(jax.jit, static_argnums=0)
    def both(native):
        out, back = jax.vjp(lambda x: max_pool(x, native), jnp.asarray(x, jnp.float32))
        return out, back(jnp.sin(jnp.arange(1.0, out.size + 1)).reshape(out.shape))

    close(both(False), both(True), 0)


ODD = ((4, 11, 8, 2), 3)


@pytest.mark.parametrize(
    ("shape", "features", "size", "padding"),
    some([(*MORE, 3, 1), (*ODD, 2, 0)], [*KERNELS, (2, 0)], (MORE, ODD)),
)
def test_both_at_once_equal_one_after_the_other(rng, shape, features, size, padding):
    """Heights and widths that the pool divides and that it does not; ties as well."""
    with jax.enable_x64(True):
        x = rng.integers(-2, 3, size=shape).astype(float)
        kernel = rng.integers(-1, 2, size=(size, size, shape[0], features)).astype(float)

        @partial(jax.jit, static_argnums=0)
        def vjp(f):
            out, back = jax.vjp(f, x, kernel)
            return out, back(jnp.cos(jnp.arange(out.size)).reshape(out.shape))

        expected = vjp(lambda x, k: max_pool(convolve(x, k, padding, True), True))
        close(vjp(lambda x, k: max_pool(convolve(x, k, padding, False), False)), expected, 1e-12)
        close(vjp(lambda x, k: convolve_and_pool(x, k, padding, False)), expected, 1e-12)


def test_a_tied_square_sends_its_gradient_to_the_first_entry():
    gradient = jax.grad(lambda x: max_pool(x, False).sum())
    square = jnp.array([[1.0, 2.0], [2.0, 2.0]]).reshape(1, 2, 2, 1)
    np.testing.assert_array_equal(gradient(square).reshape(2, 2), [[0, 1], [0, 0]])
    np.testing.assert_array_equal(gradient(0 * square).reshape(2, 2), [[1, 0], [0, 0]])


@pytest.mark.parametrize("features", [1, pytest.param(3, marks=pytest.mark.full)])
def test_gradients_equal_finite_differences(rng, features):
    with jax.enable_x64(True):
        x, kernel = jnp.asarray(rng.normal(size=(2, 6, 6, 2))), rng.normal(size=(3, 3, 2, features))

        def f(x, kernel):
            return jnp.sum(jnp.sin(max_pool(jnp.tanh(convolve(x, kernel, 1, False)), False)))

        check_grads(f, (x, jnp.asarray(kernel)), order=1, modes=["rev"], eps=1e-6)


def batch_of(rng, shape, classes, size, padding=0):
    return Batch(
        x=jnp.asarray(rng.normal(size=(size, *shape)), jnp.float32),
        y=jnp.asarray(rng.integers(classes, size=size), jnp.int32),
        weight=jnp.asarray(np.arange(size) < size - padding, jnp.float32),
        key=jax.random.key(3),
    )


def only(always):
    """All networks, most of them in the long form only."""
    return [n if n == always else pytest.param(n, marks=pytest.mark.full) for n in CNNS]


@pytest.mark.parametrize("name", only("cnn_femnist"))
def test_both_convolutions_make_the_same_network(rng, name):
    shape, classes, parameters = CNNS[name]
    batch = batch_of(rng, shape, classes, 6)
    found = []
    for how in ("matmul", "native"):
        model = registry.get("models", name)(classes, convolution=how)
        params = jax.jit(model.init)(jax.random.key(0), batch.x[:1])
        assert tree.size(params) == parameters
        found.append(jax.jit(local.loss_and_gradient(model))(params, batch))
    outputs = jax.eval_shape(model.apply, params, batch.x)
    assert outputs.shape == (6, 62 if name == "cnn_femnist" else classes)
    close(*found, 2e-5)


@pytest.mark.parametrize("name", only("cnn_medical"))
def test_clients_side_by_side_equal_one_after_the_other(rng, name):
    shape, classes, _ = CNNS[name]
    model = registry.get("models", name)(classes)
    batches = [batch_of(rng, shape, classes, 4) for _ in range(2)]
    init = jax.jit(model.init)
    params = [init(jax.random.key(i), batches[0].x[:1]) for i in range(2)]
    step = local.loss_and_gradient(model)
    stacked = jax.tree.map(lambda *xs: jnp.stack(xs), *zip(params, batches, strict=True))
    together, alone = jax.jit(jax.vmap(step))(*stacked), jax.jit(step)
    for i in range(2):
        close(jax.tree.map(lambda x, i=i: x[i], together), alone(params[i], batches[i]), 2e-5)


@pytest.mark.parametrize(
    ("size", "padding", "piece"),
    [
        (11, (0, 2, 9), 4),
        pytest.param(12, (0, 9), 4, marks=pytest.mark.full),
        pytest.param(5, (0,), 8, marks=pytest.mark.full),
    ],
)
def test_pieces_of_a_batch_equal_the_whole(rng, size, padding, piece):
    """Also where pieces do not divide it, or hold nothing but padding."""
    model = registry.get("models", "cnn_cifar")(10)
    whole, pieces = (
        jax.jit(local.loss_and_gradient(model._replace(cpu_piece=p))) for p in (None, piece)
    )
    init = jax.jit(model.init)
    for padded in padding:
        batch = batch_of(rng, (8, 8, 3), 10, size, padded)
        params = init(jax.random.key(0), batch.x[:1])
        close(whole(params, batch), pieces(params, batch), 1e-5)


@pytest.mark.full
def test_a_gray_image_stands_for_three_equal_channels(rng):
    model = registry.get("models", "cnn_medical")(6)
    gray = batch_of(rng, (64, 64, 1), 6, 3)
    wide = gray._replace(x=jnp.repeat(gray.x, 3, axis=-1))
    params = jax.jit(model.init)(jax.random.key(0), gray.x[:1])
    assert tree.size(params) == 206_678
    step = jax.jit(local.loss_and_gradient(model))
    close(step(params, gray), step(params, wide), 1e-5)


def test_dropout_is_keyed_by_client_and_step(rng):
    """Another client, round or step, another mask; none in evaluation; a fifth of the entries."""
    model = registry.get("models", "cnn_medical")(6)
    x = jnp.asarray(rng.normal(size=(2, 64, 64, 1)), jnp.float32)
    params = jax.jit(model.init)(jax.random.key(0), x)
    train, apply = jax.jit(model.train), jax.jit(model.apply)
    one, two = (train(params, x, jax.random.key(k)) for k in (1, 2))
    assert np.abs(one - two).max() > 1e-3
    close(train(params, x, jax.random.key(1)), one, 0)
    close(apply(params, x), apply(params, x), 0)
    # the mean over masks of what the dense layers see is what they see in evaluation
    dense = {"kernel": jnp.eye(3136, 6), "bias": jnp.zeros(6)}
    linear = {**params, "Dense_0": {"Dense_0": {"kernel": jnp.eye(3136, 64), "bias": jnp.zeros(64)},
                                    "Dense_1": {**dense, "kernel": jnp.eye(64, 6)}}}  # fmt: skip
    masks = jax.jit(jax.vmap(lambda k: model.train(linear, x, k)))
    many = masks(jax.random.split(jax.random.key(0), 2000))
    plain = apply(linear, x)
    kept = np.asarray(many != 0)[:, np.asarray(plain != 0)].mean()
    assert abs(kept - 0.8) < 0.01
    np.testing.assert_allclose(many.mean(0), plain, atol=0.05 * float(plain.max()))


def test_batches_carry_different_keys():
    read = lambda positions: (positions.astype(float), positions)  # noqa: E731
    shard = local.Shard(jnp.int32(0), 1, jnp.int32(40), 40, jnp.float32(1), read)
    keys = set()
    for client, epoch, step in itertools.product(range(2), range(2), range(4)):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), client), epoch)
        batch = local.read_batch(shard, key, jnp.int32(step), 10)
        keys.add(tuple(jax.random.key_data(batch.key).tolist()))
    assert len(keys) == 16


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("cnn_cifar", (8, 8, 2), "1 or 3 channels, not 8 x 8 x 2"),
        ("cnn_femnist", (8, 8, 3), "one channel"),
        ("cnn_medical", (60,), "channels, not 60"),
        ("cnn_medical", (6, 6, 3), "too small"),
    ],
)
def test_images_that_do_not_fit_are_refused(name, shape, reason):
    data = fj.Dataset(np.zeros((40, *shape), np.uint8), np.arange(40) % 2, 2)
    with pytest.raises(fj.InputError, match=reason):
        fj.run(data=data, model={"name": name}, partition={"name": "iid", "clients": 2})


@pytest.mark.full
@pytest.mark.parametrize("execution", ["map", "vmap"])
def test_a_network_with_dropout_trains_alike_on_any_devices(execution):
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    images = (rng.integers(0, 80, (60, 16, 16, 1)) + 150 * labels[:, None, None, None]) % 256
    data = fj.Dataset(images.astype(np.uint8), labels, 2, mean=0.3, std=0.3)
    runs = [
        fj.run(
            data=data,
            model={"name": "cnn_medical"},
            rounds=2,
            eval_every=1,
            partition={"name": "iid", "clients": 4},
            method={"batch": 5, "lr": 0.05},
            engine={"devices": devices, "execution": how},
            quiet=True,
        )
        for devices, how in ((1, "map"), (2, execution))
    ]
    for name in ("train_loss", "pm_loss", "gm_loss"):
        np.testing.assert_allclose(runs[0].metrics[name], runs[1].metrics[name], rtol=1e-5)
