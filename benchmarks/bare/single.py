"""Plain TensorFlow, one process: MNIST with E1's CNN or softmax regression, SGD. Nothing of Headway is in here.

What makes it fast: oneDNN's kernels, batches gathered by index (no element-wise pipeline), the images fed once into the
iterator, prefetching, a callable instead of session.run. `--tuned` leaves the path of TensorFlow's guides: no batch is
prefetched and one thread does all, which is faster where a task has one core and never waits.
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
    parser.add_argument("--tuned", action="store_true", help="no hand-overs between threads; only with --inter-op 1")
    return parser.parse_args()


def read(folder: Path) -> tuple[Any, Any]:
    """60,000 images as uint8 and their labels, from the idx files (headers of 16 and 8 bytes)."""
    images = gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes())
    features = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28, 1)
    return features, np.frombuffer(labels, np.uint8, offset=8).astype(np.int32)


def batches(features: Any, labels: Any, size: int, tuned: bool) -> Any:
    """Shuffled anew in each epoch; whole vectors of indices flow through the pipeline."""

    def order(epoch: Any) -> Any:
        seeds = tf.stack([tf.constant(1, tf.int64), epoch])
        return tf.random.experimental.stateless_shuffle(tf.range(features.shape[0], dtype=tf.int64), seeds)

    def gather(chosen: Any) -> Any:
        return tf.cast(tf.gather(features, chosen), tf.float32) * (1 / 255), tf.gather(labels, chosen)

    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.max_intra_op_parallelism = 1
    epochs = tf.data.Dataset.range(2**62).map(order).prefetch(1)  # an epoch's order, not its batches
    dataset = epochs.rebatch(size).map(gather)
    if not tuned:  # the next batches are made by a thread of their own
        options.threading.private_threadpool_size = 1
        dataset = dataset.prefetch(4)
    return dataset.with_options(options)


def weights(name: str, *shape: int) -> Any:
    """Glorot-uniform weights, or a bias of zeros."""
    initializer = v1.glorot_uniform_initializer() if len(shape) > 1 else v1.zeros_initializer()
    return v1.get_variable(name, shape, initializer=initializer, use_resource=True)


def logits(x: Any, model: str) -> Any:
    if model == "softmax":
        return tf.nn.bias_add(tf.matmul(tf.reshape(x, [-1, 784]), weights("w", 784, 10)), weights("b", 10))
    for name, inputs, filters in (("1", 1, 32), ("2", 32, 64)):
        x = tf.nn.conv2d(x, weights(f"conv{name}", 5, 5, inputs, filters), 1, "SAME")
        x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.bias_add(x, weights(f"bias{name}", filters))), 2, 2, "VALID")
    x = tf.matmul(tf.reshape(x, [-1, 3136]), weights("dense", 3136, 1024))
    x = tf.nn.dropout(tf.nn.relu(tf.nn.bias_add(x, weights("bias3", 1024))), 0.4)
    return tf.nn.bias_add(tf.matmul(x, weights("logits", 1024, 10)), weights("bias4", 10))


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
    v1.disable_eager_execution()
    images, targets = read(asked.data)
    features, labels = v1.placeholder(images.dtype, images.shape), v1.placeholder(targets.dtype, targets.shape)
    iterator = v1.data.make_initializable_iterator(batches(features, labels, asked.batch, asked.tuned))
    x, y = iterator.get_next()
    outputs = logits(x, asked.model)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=outputs))
    train = v1.train.GradientDescentOptimizer(0.01).minimize(loss)

    config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=asked.inter_op)
    if asked.tuned:  # this executor has no queue of operations
        config.experimental.executor_type = "SINGLE_THREADED_EXECUTOR"
    session = v1.Session(config=config)
    session.run(v1.global_variables_initializer())
    session.run(iterator.initializer, {features: images, labels: targets})
    step = session.make_callable([loss, train])
    ends: list[float] = []
    began, clock, last = time.time(), time.time, 0.0
    for _ in range(asked.steps):
        last, _ = step()
        ends.append(clock())
    report(asked.steps, asked.warmup, began, ends, float(last))
    os._exit(0)  # nothing is left to be torn down in order


if __name__ == "__main__":
    main()
