"""Plain TensorFlow, all-reduce in a ring: MNIST with E1's CNN or softmax regression, SGD.

Nothing of Headway is in here. Start it once for each worker. What makes it fast besides what single.py does: the input
is local (a distributed iterator would ask all workers in every step whether they have data), and the whole step is one
tf.function with one all-reduce of all gradients.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

BEGAN = time.time()
# TensorFlow switches oneDNN on by itself only for some processors; E1's CNN is almost twice as fast with it.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

v1 = tf.compat.v1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the official train-*-ubyte.gz")
    parser.add_argument("--model", choices=["mnist_cnn", "softmax"], default="mnist_cnn")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=10, help="first steps that the rate leaves out")
    parser.add_argument("--inter-op", type=int, default=1)
    parser.add_argument("--index", type=int, default=0)
    parser.add_argument("--workers", required=True, help="host:port of each worker, with commas")
    return parser.parse_args()


def read(folder: Path) -> tuple[Any, Any]:
    """60,000 images as uint8 and their labels, from the idx files (headers of 16 and 8 bytes)."""
    images = gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes())
    features = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28, 1)
    return features, np.frombuffer(labels, np.uint8, offset=8).astype(np.int32)


def batches(features: Any, labels: Any, size: int, index: int, count: int) -> Any:
    """This worker's share, shuffled anew in each epoch; whole vectors of indices flow through the pipeline."""

    def order(epoch: Any) -> Any:
        seeds = tf.stack([tf.constant(1, tf.int64), epoch])
        every = tf.range(features.shape[0], dtype=tf.int64)
        return tf.random.experimental.stateless_shuffle(every, seeds)[index::count]

    def gather(chosen: Any) -> Any:
        return tf.cast(tf.gather(features, chosen), tf.float32) * (1 / 255), tf.gather(labels, chosen)

    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    epochs = tf.data.Dataset.range(2**62).map(order).prefetch(1)
    return epochs.rebatch(size).map(gather).prefetch(4).with_options(options)


SHAPES: dict[str, list[tuple[int, ...]]] = {
    "softmax": [(784, 10), (10,)],
    "mnist_cnn": [(5, 5, 1, 32), (32,), (5, 5, 32, 64), (64,), (3136, 1024), (1024,), (1024, 10), (10,)],
}


def logits(x: Any, variables: list[Any]) -> Any:
    if len(variables) == 2:
        return tf.nn.bias_add(tf.matmul(tf.reshape(x, [-1, 784]), variables[0]), variables[1])
    for kernel, bias in (variables[0:2], variables[2:4]):
        x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), bias)), 2, 2, "VALID")
    x = tf.nn.relu(tf.nn.bias_add(tf.matmul(tf.reshape(x, [-1, 3136]), variables[4]), variables[5]))
    return tf.nn.bias_add(tf.matmul(tf.nn.dropout(x, 0.4), variables[6]), variables[7])


def report(steps: int, warmup: int, began: float, ends: list[float], loss: float) -> None:
    """One line of JSON: what the harness compares. `ends` has the wall time at which each step ended."""
    seconds = np.diff([began, *ends])
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = {
        "steps": steps,
        "loss": loss,
        "median_step_seconds": float(np.median(seconds[warmup:])),
        "steps_per_s": (steps - warmup) / (ends[-1] - ends[warmup - 1] if warmup else ends[-1] - began),
        "first_step_seconds": ends[0] - BEGAN,
        "peak_rss": int(status.partition("VmHWM:")[2].split()[0]) * 1024,
        "training_began": began,
        "ends": ends,
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    asked = arguments()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(asked.inter_op)
    addresses = asked.workers.split(",")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": addresses}), task_type="worker", task_id=asked.index, rpc_layer="grpc"
    )
    ring = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver, ring)
    images, targets = read(asked.data)
    source = iter(batches(tf.constant(images), tf.constant(targets), asked.batch, asked.index, len(addresses)))
    glorot, zeros = v1.glorot_uniform_initializer(seed=1), v1.zeros_initializer()
    with strategy.scope():
        variables = [tf.Variable((glorot if shape[1:] else zeros)(shape)) for shape in SHAPES[asked.model]]
    optimizer = v1.train.GradientDescentOptimizer(0.01)

    def replica(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits(x, variables))
            loss = tf.reduce_mean(losses) / len(addresses)  # gradients are summed over the workers
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> Any:
        return strategy.run(replica, args=next(source))

    ends: list[float] = []
    began, clock, last = time.time(), time.time, 0.0
    for _ in range(asked.steps):
        last = step().numpy()
        ends.append(clock())
    report(asked.steps, asked.warmup, began, ends, float(last) * len(addresses))
    os._exit(0)


if __name__ == "__main__":
    main()
