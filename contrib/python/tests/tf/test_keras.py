"""Run by every rank of a real job: Keras on the backend of KERAS_BACKEND; with one argument, tf.keras.

Exits non-zero if ranks end with other weights than one process that sees all of the data.
"""

import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

if len(sys.argv) > 1:
    import horovod.tensorflow.keras as hvd
    import tensorflow

    keras = tensorflow.keras
else:
    import horovod.keras as hvd
    import keras

hvd.init()
rank, size = hvd.rank(), hvd.size()
KERAS_3 = hasattr(keras, "ops")
BACKEND = keras.backend.backend()
ROWS, STEPS = 8, 6


def data(r):
    x = np.random.RandomState(100 + r).randn(STEPS * ROWS, 5).astype("f")
    return x, x.sum(1, keepdims=True)


def model(optimizer, seed=1, **options):
    keras.utils.set_random_seed(seed)
    made = keras.Sequential([keras.layers.Dense(7, activation="tanh"), keras.layers.Dense(1)])
    made.build((None, 5))
    made.compile(optimizer, "mse", metrics=["mae"], **options)
    return made


def fit(made, x, y, rows=ROWS, **options):
    return made.fit(x, y, batch_size=rows, shuffle=False, verbose=0, **options)


def close(made, want, what):
    for mine, theirs in zip(made.get_weights(), want):
        assert np.allclose(mine, theirs, rtol=1e-4, atol=1e-5), (what, np.abs(mine - theirs).max())


def value(variable):
    """Return the value of a variable or tensor."""
    return np.array(keras.ops.convert_to_numpy(variable) if KERAS_3 else variable)


def adam(**options):
    return keras.optimizers.Adam(0.01, **options)


# One process with the data of all ranks, batch by batch.
whole = [np.concatenate([data(r)[i].reshape(STEPS, ROWS, -1) for r in range(size)], 1) for i in (0, 1)]
reference = model(adam())
fit(reference, whole[0].reshape(-1, 5), whole[1].reshape(-1, 1), ROWS * size, epochs=2)
want = reference.get_weights()

callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
]
made = model(hvd.DistributedOptimizer(adam()), seed=1)
history = fit(made, *data(rank), epochs=2, callbacks=callbacks)
close(made, want, "fit")
every = np.asarray(hvd.allgather(np.array([history.history["loss"][-1]])))
assert np.ptp(every) == 0, every  # averaged
for options in ({"op": hvd.Sum}, {"gradient_predivide_factor": 2.0}, {"compression": hvd.Compression.fp16}):
    fit(model(hvd.DistributedOptimizer(adam(), **options)), *data(rank))

# Ranks that begin differently.
made = model(hvd.DistributedOptimizer(adam()), seed=1 + rank)
fit(made, *data(rank), callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
every = np.asarray(hvd.allgather(np.concatenate([np.ravel(w) for w in made.get_weights()])[None]))
assert np.allclose(every, every[0]), "ranks ended with different weights"

# Saved and loaded: as the class that was wrapped, with its state, and wrapped again.
with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/model.{'keras' if KERAS_3 else 'h5'}"
    made.save(path)
    plain = keras.models.load_model(path)
    assert type(plain.optimizer) is type(adam()), type(plain.optimizer)
    again = hvd.load_model(path)
    assert isinstance(again.optimizer, keras.optimizers.Adam)
    assert type(again.optimizer) is not type(adam())
    assert int(again.optimizer.iterations.numpy()) == STEPS
    fit(again, *data(rank))
    every = np.asarray(hvd.allgather(np.concatenate([np.ravel(w) for w in again.get_weights()])[None]))
    assert np.allclose(every, every[0]), "ranks of a loaded model ended with different weights"
assert hvd.DistributedOptimizer(adam()).get_config()["learning_rate"] == adam().get_config()["learning_rate"]

# A layer of each rank's own.
if hasattr(hvd, "PartialDistributedOptimizer"):
    made = model(adam())
    made.compile(hvd.PartialDistributedOptimizer(adam(), local_layers=[made.layers[1]]), "mse")
    fit(made, *data(rank))
    every = np.asarray(hvd.allgather(np.ravel(made.get_weights()[0])[None]))
    assert np.allclose(every, every[0]), "a shared layer differs"
    every = np.asarray(hvd.allgather(np.ravel(made.get_weights()[2])[None]))
    assert size == 1 or not np.allclose(every, every[0]), "a local layer is the same"

# Mixed precision: gradients of one rank alone that are not finite let all ranks skip the step.
mixed = keras.mixed_precision
for wrap in (
    lambda: hvd.DistributedOptimizer(adam()),
    lambda: mixed.LossScaleOptimizer(hvd.DistributedOptimizer(adam())),
    lambda: hvd.DistributedOptimizer(mixed.LossScaleOptimizer(adam())),
    lambda: hvd.DistributedOptimizer(mixed.LossScaleOptimizer(adam()), op=hvd.Sum),
):
    mixed.set_global_policy("mixed_float16")
    made = model(wrap())
    mixed.set_global_policy("float32")
    scaled = made.optimizer
    assert isinstance(scaled, mixed.LossScaleOptimizer), type(scaled)
    x, y = data(rank)
    skipped = STEPS // 2
    if rank == size - 1:
        x[skipped * ROWS] = np.inf
    steps = []
    before = made.get_weights()
    for step in range(STEPS):
        part = slice(step * ROWS, (step + 1) * ROWS)
        fit(made, x[part], y[part], callbacks=[hvd.callbacks.LearningRateScheduleCallback(0.125, 1.0)])
        assert np.isclose(value(scaled.learning_rate), 0.125)
        after = made.get_weights()
        steps.append(any((a != b).any() for a, b in zip(after, before)))
        before = after
    scale = value(scaled.dynamic_scale if KERAS_3 else scaled.loss_scale)
    now = np.concatenate([np.ravel(w) for w in after] + [scale[None], steps])
    every = np.asarray(hvd.allgather(now[None]))
    assert np.isfinite(every).all() and (every == every[0]).all(), "ranks differ by a step that was skipped"
    assert not steps[skipped] and steps.count(True) > 1, steps

# Learning rates.
rates = []


class Watch(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        rates.append(float(value(self.model.optimizer.learning_rate)))


warmup = hvd.callbacks.LearningRateWarmupCallback(0.4, warmup_epochs=2, verbose=1, steps_per_epoch=STEPS)
history = fit(model(hvd.DistributedOptimizer(adam())), *data(rank), epochs=2, callbacks=[warmup, Watch()])
assert np.isclose(rates[-1], 0.4) and rates == sorted(rates), rates
assert np.isclose(rates[0], 0.4 / size * ((size - 1) / (2 * STEPS) + 1)), rates
assert np.isclose(history.history["lr"][-1], 0.4)
rates.clear()
schedule = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.5**epoch)
fit(model(hvd.DistributedOptimizer(adam())), *data(rank), epochs=2, callbacks=[schedule, Watch()])
assert np.allclose(rates, [0.1] * STEPS + [0.05] * STEPS), rates
hvd.callbacks.LearningRateScheduleCallback(0.1, 0.9, start_epoch=1)

# The best model.
with tempfile.TemporaryDirectory() as folder:
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    best.filepath = f"{folder}/best.{'keras' if KERAS_3 else 'h5'}"
    fit(model(hvd.DistributedOptimizer(adam())), *data(rank), callbacks=[best])
    assert os.path.exists(best.filepath)

# Values.
assert np.isclose(hvd.allreduce(float(rank)), (size - 1) / 2)
assert np.isclose(hvd.allreduce(np.array([1.0]), op=hvd.Sum)[0], size)
assert np.asarray(hvd.allgather([rank])).tolist() == list(range(size))
assert hvd.broadcast(rank, 0) == 0
assert hasattr(hvd.broadcast(1.0, 0), "numpy") == (BACKEND == "tensorflow"), "Horovod returns eager tensors"
mine = hvd.reducescatter(np.arange(2.0 * size), op=hvd.Sum)
assert np.allclose(mine, size * np.arange(2.0) + 2 * rank * size)

# A state, its callbacks, and the wrapper of training.
made = model(hvd.DistributedOptimizer(adam()), seed=1 + rank)
state = hvd.elastic.KerasState(made, epoch=0, batch=0)
commits = []
state.register_reset_callbacks([lambda: None])
save = state.save
state.save = lambda: (save(), commits.append(state.batch))


@hvd.elastic.run
def train(state):
    before = [np.array(w) for w in state.model.get_weights()]
    fit(state.model, *data(rank), epochs=2 - state.epoch, callbacks=[
        hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
    ])  # fmt: skip
    return before


before = train(state)
every = np.asarray(hvd.allgather(np.concatenate([np.ravel(w) for w in before])[None]))
assert np.allclose(every, every[0]), "the state was not shared"
assert state.epoch == 2 and state.batch == 0 and len(commits) >= 2 * (STEPS // 2), (state.epoch, commits)
after = [np.array(w) for w in made.get_weights()]
state.save()
made.set_weights([w * 0 for w in after])
state.restore()
close(made, after, "restore")

hvd.shutdown()
print(f"rank {rank} of {size}: ok, {keras.__name__} on {BACKEND}")
