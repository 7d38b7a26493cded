"""One coordinator (chief) that gives steps to workers, and variables on parameter servers: ParameterServerStrategy in a
training loop of one's own. The cluster comes from TF_CONFIG; start it once for each task. Workers and servers never
end.
"""

import argparse
import os

import numpy as np
import tensorflow as tf


def read_flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps_per_epoch", type=int, default=20)
    parser.add_argument("--batch_size", type=int, default=32)
    return parser.parse_args()


def serve(resolver):
    """What workers and parameter servers do."""
    config = tf.compat.v1.ConfigProto()
    # With one thread, a server that waits for another one cannot answer it.
    config.inter_op_parallelism_threads = max(4, os.cpu_count() or 1)
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
        config=config,
    )
    server.join()


def make_dataset(batch_size):
    random = np.random.default_rng(0)
    centers = random.normal(size=(10, 32))
    labels = random.integers(10, size=4000)
    features = (centers[labels] + random.normal(size=(4000, 32))).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((features, labels.astype(np.int32)))
    return dataset.shuffle(4000).repeat().batch(batch_size)


def train(resolver, flags):
    """What the chief does."""
    # Both variables are split in two, so that two servers share them.
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    random = np.random.default_rng(1)
    with strategy.scope():
        hidden = tf.Variable(random.normal(scale=0.2, size=(32, 64)).astype(np.float32))
        logits = tf.Variable(random.normal(scale=0.2, size=(64, 10)).astype(np.float32))

    def replica_step(features, labels):
        variables = [*hidden.variables, *logits.variables]
        with tf.GradientTape() as tape:
            outputs = tf.nn.relu(features @ tf.convert_to_tensor(hidden)) @ tf.convert_to_tensor(logits)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
            loss = tf.reduce_mean(losses)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.05 * gradient)
        return loss

    @tf.function
    def train_step(iterator):
        features, labels = next(iterator)
        return strategy.run(replica_step, args=(features, labels))

    iterator = iter(coordinator.create_per_worker_dataset(lambda: make_dataset(flags.batch_size)))
    step = 0
    for _ in range(flags.epochs):
        losses = [coordinator.schedule(train_step, args=(iterator,)) for _ in range(flags.steps_per_epoch)]
        coordinator.join()
        step += flags.steps_per_epoch
        print(f"step {step} loss {np.mean(coordinator.fetch(losses)):.4f}", flush=True)


def main():
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        serve(resolver)
    else:
        train(resolver, read_flags())


if __name__ == "__main__":
    main()
