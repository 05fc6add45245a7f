"""Check the tape against JAX's own gradients, through everything that JAX does with functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from padiff_flax.tape import Taped, at_eager_level, backward, leaf, taping

X = np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32)
W = np.random.default_rng(1).standard_normal((4, 4), dtype=np.float32)


@jax.custom_vjp
def doubled(x: Any) -> Any:
    return x * 2


doubled.defvjp(lambda x: (x * 2, x), lambda x, gradient: (gradient * 100 * x,))


@jax.custom_jvp
def halved(x: Any) -> Any:
    return x / 2


@halved.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return halved(primals[0]), tangents[0] * 7


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "operators": lambda x, w: ((x @ w) * x - 2.0) / (x * x + 1),
    "numpy functions": lambda x, w: jnp.where(x > 0, jnp.sin(x), jnp.einsum("ij,jk->ik", x, w)).sum(0),
    "indexing": lambda x, w: x[1:, ::2] * w[0, 0] + x.at[0].set(1.0)[1:, :2],
    "nn functions": lambda x, w: jax.nn.softmax(jax.nn.gelu(x @ w)) + jax.nn.relu(x) + jax.nn.silu(x),
    "several results": lambda x, w: jnp.split(x @ w, 2, axis=1)[1] + jax.lax.top_k(x, 2)[0],
    "custom vjp": lambda x, w: doubled(x @ w),
    "custom jvp": lambda x, w: halved(x @ w),
    "jit": jax.jit(lambda x, w: jnp.tanh(x @ w) * x),
    "jit that closes over the tape": lambda x, w: jax.jit(lambda y: y @ w + x)(x),
    "vmap": lambda x, w: jax.vmap(lambda row: row @ w * row)(x),
    "scan": lambda x, w: jax.lax.scan(lambda carry, row: (jnp.tanh(carry @ w + row), carry), x[0], x)[1],
    "cond": lambda x, w: jax.lax.cond(x[0, 0] > 0, lambda: x @ w, lambda: x * w[:3]),
    "while": lambda x, w: jax.lax.fori_loop(0, 3, lambda i, y: y * 0.5 + x @ w, x),
    "checkpoint": lambda x, w: jax.checkpoint(lambda y: jnp.sin(y @ w))(x),
    "a gradient inside": lambda x, w: jax.grad(lambda y: (y @ w * y).sum())(x),
    "stop_gradient": lambda x, w: jax.lax.stop_gradient(x) * (x @ w),
    "control flow of Python": lambda x, w: x @ w if x[0, 0] > 0 and bool((w > -10).all()) else x - w[:3],
    "iteration": lambda x, w: sum(row * (index + 1) for index, row in enumerate(x @ w)),
    "integers": lambda x, w: x[jnp.argsort(x[:, 0])] * jnp.argmax(w) + (x @ w).astype(jnp.int32),
    "random numbers": lambda x, w: jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, x.shape), x @ w, 0),
    "fft": lambda x, w: jnp.abs(jnp.fft.fft(x @ w)),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_values_have_the_bits_of_eager_jax_and_gradients_are_right(function: Callable[[Any, Any], Any]) -> None:
    expected, pull = jax.vjp(function, jnp.asarray(X), jnp.asarray(W))
    cotangent = np.random.default_rng(2).standard_normal(expected.shape).astype(expected.dtype)
    wanted = pull(jnp.asarray(cotangent))
    x, w = leaf(jnp.asarray(X)), leaf(jnp.asarray(W))
    with taping():
        output = function(x, w)
    assert isinstance(output, Taped)
    assert np.asarray(output).tobytes() == np.asarray(function(jnp.asarray(X), jnp.asarray(W))).tobytes()
    for gradient, right in zip(backward([(output, jnp.asarray(cotangent))], [x, w]), wanted, strict=True):
        found = np.zeros_like(right) if gradient is None else np.asarray(gradient)
        np.testing.assert_allclose(found, right, rtol=2e-5, atol=1e-6)


def test_what_no_gradient_reaches_is_a_plain_array() -> None:
    x = leaf(jnp.asarray(X))
    with taping():
        plain = (jax.lax.stop_gradient(x), x > 0, jnp.argmax(x), x.astype(int), jnp.ones(3) * 2)
    assert not any(isinstance(one, Taped) for one in plain)


def test_a_value_answers_as_an_array_does() -> None:
    x = leaf(jnp.float32(2.5))
    assert (float(x), x.item(), complex(x), f"{x:.2f}") == (2.5, 2.5, 2.5 + 0j, "2.50")
    assert x.tolist() == 2.5
    assert np.asarray(x) == np.float32(2.5)
    assert int(leaf(jnp.float32(3.0))) == 3
    assert x.devices() == jnp.float32(2.5).devices()
    assert isinstance(x, jax.Array)


def test_a_hook_gets_the_sum_over_all_uses_once_and_may_replace_it() -> None:
    x, reported = leaf(jnp.float32(3.0)), list[float]()

    def answer(gradient: Any) -> Any:
        reported.append(float(gradient))
        return jnp.float32(10.0)

    with taping():
        before = x * 2
        used_earlier = before * 5
        before.node.hooks.setdefault(before.index, []).append(answer)
        output = before * before + used_earlier
    assert [float(one) for one in backward([(output, None)], [x])] == [20.0]
    assert reported == [2 * 6.0 + 5]


def test_another_value_is_used_by_later_code_alone() -> None:
    x = leaf(jnp.float32(3.0))
    with taping():
        middle = x * 2
        earlier = middle * middle
        middle.value = jnp.float32(1.0)
        output = earlier + middle * middle
    assert float(output) == 37.0
    assert [float(one) for one in backward([(output, None)], [x])] == [2 * (2 * 6.0 + 2 * 1.0)]


def test_the_tape_is_an_eager_level_and_a_transformation_is_none() -> None:
    seen = []
    with taping():
        seen.append(at_eager_level())
        jax.jit(lambda x: seen.append(at_eager_level()))(1.0)
        jax.vmap(lambda x: seen.append(at_eager_level()) or x)(jnp.ones(2))
    assert [*seen, at_eager_level()] == [True, False, False, True]


def test_leaves_that_nothing_reaches_have_no_gradient() -> None:
    x, y = leaf(jnp.float32(1.0)), leaf(jnp.float32(2.0))
    with taping():
        output = x * 3
    assert backward([(output, None)], [y]) == [None]
    assert backward([], [x]) == [None]
