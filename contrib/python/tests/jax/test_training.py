"""Run by every rank of a real job: optimizers, gradients, broadcasts and elastic training with JAX."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import optax

import gorun.jax as hvd
from gorun.counters import counters

hvd.init()
rank, size = hvd.rank(), hvd.size()


def make(seed):
    keys = jax.random.split(jax.random.PRNGKey(seed), 2)
    return {"w": jax.random.normal(keys[0], (4, 5)), "v": [jax.random.normal(keys[1], (5,)), jnp.zeros(())]}


def loss(params, x, y):
    return jnp.mean(jnp.square(jnp.tanh(x @ params["w"]) @ params["v"][0] + params["v"][1] - y))


def data(index, part=slice(None)):
    rng = np.random.default_rng(index)
    x = rng.normal(size=(2 * size, 4)).astype(np.float32)
    return x[part], x.sum(1)[part]


mine = slice(2 * rank, 2 * rank + 2)


def trained(optimizer, part, steps=6, params=None, **changes):
    params = make(0) if params is None else params
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, x, y):
        updates, state = optimizer.update(jax.grad(loss)(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    for index in range(steps):
        params, state = step(params, state, *data(index, part))
    return params


def same(a, b, **how):
    jax.tree_util.tree_map(
        lambda x, y: np.testing.assert_allclose(x, y, **{"rtol": 1e-4, "atol": 1e-5, **how}), a, b
    )


# All ranks together do what one process does with all the data.
for make_optimizer in (lambda: optax.sgd(0.1, momentum=0.9), lambda: optax.adamw(1e-2)):
    alone = trained(make_optimizer(), slice(None))
    same(trained(hvd.DistributedOptimizer(make_optimizer()), mine), alone)
    same(trained(hvd.DistributedOptimizer(make_optimizer(), gradient_predivide_factor=2.0), mine), alone)
    rough = trained(hvd.DistributedOptimizer(make_optimizer(), compression=hvd.Compression.bf16), mine)
    same(rough, alone, rtol=0.2, atol=0.1)
everyone = hvd.allgather_object(
    jax.tree_util.tree_map(np.asarray, trained(hvd.DistributedOptimizer(optax.adam(0.1)), mine))
)
for other in everyone[1:]:
    jax.tree_util.tree_map(np.testing.assert_array_equal, other, everyone[0])

# A compiled step counts as one, with its operations, and so does one that is not compiled.
before = counters.totals()
jax.block_until_ready(trained(hvd.DistributedOptimizer(optax.sgd(0.1)), mine, 5))
hvd.reduce_gradients(make(0))
counted = {what: value - before[what] for what, value in counters.totals().items()}
assert counted["steps"] == 6, counted
if size > 1:
    assert counted["operations"] >= 6, counted
    waits = sum(counted[what] for what in ("data", "others", "communication"))
    assert 0 < waits <= counted["elapsed"], counted

# Two backward passes for each step.
twice = hvd.DistributedOptimizer(optax.sgd(0.1), backward_passes_per_step=2)
params, state = make(0), twice.init(make(0))
x, y = data(0, mine)
first = jax.grad(loss)(params, x, y)
updates, state = jax.jit(twice.update)(first, state, params)
same(updates, jax.tree_util.tree_map(jnp.zeros_like, params))
updates, state = jax.jit(twice.update)(first, state, params)
same(updates, jax.tree_util.tree_map(lambda g: -0.2 * hvd.allreduce(g), first))

# The helpers.
value, gradients = jax.jit(hvd.value_and_grad(loss))(params, x, y)
assert np.allclose(value, loss(params, x, y))
whole = jax.grad(loss)(params, *data(0))
same(gradients, whole)
same(jax.jit(hvd.grad(loss))(params, x, y), whole)
(_, aux), _ = hvd.value_and_grad(lambda p: (jnp.sum(p), "aux"), has_aux=True)(jnp.ones(2))
assert aux == "aux"
for wrong in (
    lambda: hvd.DistributedOptimizer(optax.sgd(1.0), gradient_predivide_factor=2.0, op=hvd.Sum),
    lambda: hvd.DistributedOptimizer(optax.sgd(1.0), backward_passes_per_step=0),
):
    try:
        wrong()
        raise SystemExit("a mistake was not noticed")
    except ValueError:
        pass

# Broadcasts of trees and objects.
root = size - 1
told = hvd.broadcast_parameters(make(rank), root_rank=root)
jax.tree_util.tree_map(np.testing.assert_array_equal, told, make(root))
mixed = hvd.broadcast_pytree(
    {"epoch": rank, "rate": float(rank), "name": "own", "np": np.full(3, rank)}, root
)
assert (
    mixed["epoch"] == root
    and mixed["rate"] == root
    and mixed["name"] == "own"
    and (mixed["np"] == root).all()
)
state = hvd.broadcast_optimizer_state(optax.adam(1.0).init(make(rank)), root)
assert jax.tree_util.tree_structure(state) == jax.tree_util.tree_structure(optax.adam(1.0).init(make(0)))
assert hvd.broadcast_object({"rank": rank}, root) == {"rank": root}

# Elastic: worlds begin anew, with the same ranks, by failures of all ranks, of one, and inside of a program.
optimizer = hvd.DistributedOptimizer(optax.sgd(0.05, momentum=0.9))
STEPS = 20


@jax.jit
def plain_step(params, state, x, y):
    updates, state = optimizer.update(jax.grad(loss)(params, x, y), state, params)
    return optax.apply_updates(params, updates), state


step = jax.jit(plain_step, donate_argnums=(0, 1))
expected = trained(optax.sgd(0.05, momentum=0.9), slice(None), STEPS, make(0))
start = make(rank)  # what rank 0 has is what counts
state = hvd.elastic.JaxState(params=start, opt_state=optimizer.init(start), step=rank, best=None)
worlds = []


@hvd.elastic.run
def train(state):
    worlds.append(state.step)
    while state.step < STEPS:
        if state.step == 7 and len(worlds) == 1:
            raise hvd.HorovodInternalError("all failed")
        if state.step == 11 and len(worlds) == 2 and rank == size - 1:
            raise hvd.HorovodInternalError("only I failed")  # the others learn of it in their compiled step
        state.params, state.opt_state = step(state.params, state.opt_state, *data(state.step, mine))
        jax.block_until_ready(state.params)
        state.step += 1
        if state.step % 3 == 0:
            state.best = state.step
            state.commit()
    return "done"


os.environ["HOROVOD_ELASTIC"] = "1"
assert train(state) == "done"
assert worlds == [0, 6, 9], worlds
assert state.best == 18
same(state.params, expected, rtol=1e-3, atol=1e-4)
hvd.barrier()
print(f"rank {rank} of {size}: training is right")
