"""Parameter servers, each worker at its own pace: between-graph replication of TensorFlow 1, on tf.compat.v1.

Start it once for each server and each worker, each with its own --job_name and --task_index. A server never ends.
"""

import argparse
import itertools

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def read_flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job_name", choices=["ps", "worker"], required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--ps_hosts", required=True, help="host:port of each server, with commas")
    parser.add_argument("--worker_hosts", required=True, help="host:port of each worker, with commas")
    parser.add_argument("--checkpoint_dir")
    parser.add_argument("--train_steps", type=int, default=100, help="of each worker")
    parser.add_argument("--batch_size", type=int, default=64)
    return parser.parse_args()


def batches(batch_size, seed):
    """Ten classes, each a point in a space of 32 dimensions, and noise."""
    centers = np.random.default_rng(0).normal(size=(10, 32))
    random = np.random.default_rng(seed)
    while True:
        labels = random.integers(10, size=batch_size)
        yield centers[labels] + random.normal(size=(batch_size, 32)), labels


def main():
    flags = read_flags()
    v1.disable_eager_execution()
    cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")})
    server = tf.distribute.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    if flags.job_name == "ps":
        server.join()

    device = f"/job:worker/task:{flags.task_index}"
    with v1.device(v1.train.replica_device_setter(worker_device=device, cluster=cluster)):
        features = v1.placeholder(tf.float32, [None, 32])
        labels = v1.placeholder(tf.int32, [None])
        weights_1 = v1.get_variable("weights_1", [32, 64])
        bias_1 = v1.get_variable("bias_1", [64], initializer=v1.zeros_initializer())
        weights_2 = v1.get_variable("weights_2", [64, 10])
        bias_2 = v1.get_variable("bias_2", [10], initializer=v1.zeros_initializer())
        hidden = tf.nn.relu(tf.matmul(features, weights_1) + bias_1)
        logits = tf.matmul(hidden, weights_2) + bias_2
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        global_step = v1.train.get_or_create_global_step()
        train_op = v1.train.GradientDescentOptimizer(0.02).minimize(loss, global_step=global_step)

    config = v1.ConfigProto(device_filters=["/job:ps", device])
    source = batches(flags.batch_size, seed=1 + flags.task_index)
    with v1.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=flags.task_index == 0,
        checkpoint_dir=flags.checkpoint_dir,
        config=config,
    ) as session:
        for x, y in itertools.islice(source, flags.train_steps):
            _, value, step = session.run([train_op, loss, global_step], {features: x, labels: y})
            print(f"step {step} loss {value:.4f}", flush=True)


if __name__ == "__main__":
    main()
