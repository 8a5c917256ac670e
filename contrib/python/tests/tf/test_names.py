"""Run by every rank of a real job: what no other program here uses of the names for TensorFlow and Keras.

Exits non-zero if one of them does not do what Horovod's does.
"""

import json
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"

import horovod.keras as keras_hvd
import horovod.tensorflow as tf_hvd
import horovod.tensorflow.keras as tf_keras_hvd
import tensorflow as tf


def refused(error, function, *args):
    try:
        function(*args)
    except error:
        return
    raise AssertionError(f"{function} was accepted")


# Before init.
for hvd in (tf_hvd, tf_keras_hvd, keras_hvd):
    assert not hvd.is_initialized()
    refused(ValueError, hvd.size)

# The world, which is one of all three.
keras_hvd.init()
size, rank = int(os.environ["GORUN_SIZE"]), int(os.environ["GORUN_RANK"])
for hvd in (tf_hvd, tf_keras_hvd, keras_hvd):
    hvd.init()  # a second call does nothing
    assert hvd.is_initialized()
    assert (hvd.size(), hvd.rank()) == (size, rank)
    assert (hvd.local_size(), hvd.local_rank()) == (size, rank)
    assert (hvd.cross_size(), hvd.cross_rank()) == (1, 0)
    assert hvd.global_process_set.size() == size and hvd.global_process_set.process_set_id == 0
    assert hvd.Average == 0 and hvd.Sum == 1
    # What it is built of: nothing that Horovod needs.
    assert hvd.gloo_built() and hvd.gloo_enabled()
    assert not hvd.mpi_built() and not hvd.mpi_enabled()
    refused(ValueError, hvd.mpi_threads_supported)
    assert hvd.nccl_built() == 0
    built = hvd.ddl_built, hvd.ccl_built, hvd.cuda_built, hvd.rocm_built, hvd.sycl_built
    assert not any(ask() for ask in built)
    refused(RuntimeError, hvd.broadcast_global_variables, 0)
assert tf_hvd.Adasum == keras_hvd.Adasum == 2
assert tf_hvd.is_homogeneous()


# Helpers that Horovod's own tests use.
refs = tf_hvd.vars_to_refs([tf.Variable(1.0), [tf.Variable(2.0)]])
assert [float(refs[0].deref()), float(tf_hvd.refs_to_vars(refs)[1][0])] == [1.0, 2.0] and hash(refs)
assert tf_hvd.split_list([1, 2, 3], 2) == [[1, 2], [3]] and tf_hvd._executing_eagerly()
calls = []
remembered = tf_hvd.util._cache(lambda x: calls.append(x) or tf.executing_eagerly())
assert remembered(1) and remembered(1)
assert not tf_hvd.util._make_subgraph(lambda: tf.constant(remembered(1)))()
assert calls == [1, 1], "eagerly and in graphs are not apart"
shown = f"ProcessSet(process_set_id=0, ranks={[*range(size)]}, mpi_comm=None)"
assert str(tf_hvd.global_process_set) == shown

# Process sets that come and go.
for hvd in (tf_hvd, tf_keras_hvd):
    if size == 1:
        refused(ValueError, hvd.add_process_set, hvd.ProcessSet([0]))  # the world's
        assert not hvd.remove_process_set(hvd.global_process_set)
        continue
    last = hvd.add_process_set(hvd.ProcessSet([size - 1]))
    if rank != size - 1:
        for error in (tf.errors.InvalidArgumentError, ValueError):
            refused(error, lambda: tf_hvd.allreduce(tf.ones(1), process_set=last))  # noqa: B023
            refused(error, lambda: tf_hvd.allgather(tf.ones(1), process_set=last))  # noqa: B023
    never = hvd.ProcessSet([rank])
    never.process_set_id = 10
    refused(ValueError, tf.function(lambda: tf_hvd.allreduce(tf.ones(1), process_set=never)))  # noqa: B023
    assert last.process_set_id > 0 and last.included() == (rank == size - 1) and last.ranks == [size - 1]
    if last.included():
        assert float(tf_hvd.allreduce(tf.constant(3.0), op=tf_hvd.Sum, process_set=last)) == 3.0
    assert hvd.remove_process_set(last) and not hvd.remove_process_set(last)

# Timelines.
for hvd in (tf_hvd, tf_keras_hvd, keras_hvd):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/timeline.json"
        hvd.start_timeline(path)
        assert float(tf_hvd.allreduce(tf.constant(1.0), op=tf_hvd.Sum, name="shown")) == size
        value = tf.function(lambda: tf_hvd.allreduce(tf.constant(2.0), op=tf_hvd.Sum, name="in a graph"))
        assert float(value()) == 2 * size
        hvd.stop_timeline()
        mine = path if rank == 0 else path.replace(".json", f".rank{rank}.json")
        with open(mine) as file:
            assert isinstance(json.load(file), list)

# What scripts check at their beginning.
tf_hvd.check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", __file__, "mpi_lib")
refused(ImportError, tf_hvd.check_extension, "horovod.no_such_framework")
assert tf_hvd.gpu_available("tensorflow") == bool(tf.config.list_physical_devices("GPU"))
assert [tf_hvd.check_num_rank_power_of_2(n) for n in (1, 2, 3, 4, 6)] == [True, True, False, True, False]
assert tf_hvd.handle_average_backwards_compatibility(None, None) == tf_hvd.Average
assert tf_hvd.handle_average_backwards_compatibility(tf_hvd.Max, None) == tf_hvd.Max

# The sum of two backward passes, which is reduced after the second; eagerly and in a graph.
weight = tf.Variable(0.0)


def reduce(grads, variables):
    return [tf_hvd.allreduce(grad, op=tf_hvd.Sum) for grad in grads]


for compiled in (False, True):
    helper = tf_hvd.LocalGradientAggregationHelper(2, reduce, False, False)

    def step(grad, helper=helper):
        return helper.compute_gradients([grad], [weight])[0]

    step = tf.function(step) if compiled else step
    for _ in range(2):
        assert float(step(tf.constant(1.0 + rank))) == 1.0 + rank  # this rank's own
        assert float(step(tf.constant(2.0))) == 2.0 * size + size * (size + 1) / 2

# A state of plain values, and what elastic.run is made of.
state = tf_hvd.elastic.ObjectState(tf_hvd.broadcast_object, tf_hvd.rank, epoch=rank, list=[rank])


def train(state, more):
    assert (state.epoch, state.list) == (0, [0])  # rank 0's
    state.epoch += more
    state.commit()
    return state.epoch


assert tf_hvd.elastic.run_fn(train, lambda: None)(state, 5) == 5
state.epoch = 7
state.restore()
assert state.epoch == 5

for hvd in (tf_hvd, tf_keras_hvd, keras_hvd):
    hvd.shutdown()
    assert not hvd.is_initialized()
print(f"rank {rank} of {size}: ok")
