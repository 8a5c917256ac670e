"""Elastic training with JAX in which a rank is killed: the others go on from the last commit."""

import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax

import gorun.jax as hvd

hvd.init()
optimizer = hvd.DistributedOptimizer(optax.sgd(0.1))
params = jnp.zeros(4)
state = hvd.elastic.JaxState(params=params, opt_state=optimizer.init(params), step=0, sizes=[])


@jax.jit
def step(params, state):
    updates, state = optimizer.update(jax.grad(lambda p: jnp.sum(jnp.square(p - 1.0)))(params), state, params)
    return optax.apply_updates(params, updates), state


@hvd.elastic.run
def train(state):
    while state.step < 30:
        if state.step == 10 and hvd.rank() == hvd.size() - 1 and hvd.size() == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        state.params, state.opt_state = step(state.params, state.opt_state)
        jax.block_until_ready(state.params)
        state.step += 1
        state.sizes = [*state.sizes, hvd.size()]
        state.commit()


train(state)
np.testing.assert_allclose(state.params, 1 - 0.8**30, rtol=1e-5)
print(f"rank {hvd.rank()}: {state.step} steps, worlds of {sorted(set(state.sizes))}")
