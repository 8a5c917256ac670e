"""Workers of tf.distribute find each other by TF_CONFIG."""

import tensorflow as tf

task = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.MultiWorkerMirroredStrategy()


@tf.function(autograph=False)  # which would write files
def total() -> tf.Tensor:
    return strategy.run(
        lambda: tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, tf.constant(task.task_id + 1.0)
        )
    )


print(f"tensorflow: rank {task.task_id} of {strategy.num_replicas_in_sync} has {total().numpy():g}")
