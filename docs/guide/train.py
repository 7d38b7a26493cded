"""A convolutional network that learns to read digits, on one machine: plain TensorFlow, nothing else.

python train.py FOLDER          the folder holds MNIST's four official files
"""

import gzip
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

BATCH_SIZE, STEPS, LEARNING_RATE = 100, 300, 0.1
WARMUP = 10  # the first steps are slower, and say nothing of the others


def read(folder, split):
    """Images as numbers between 0 and 1, and their labels; the files have headers of 16 and 8 bytes."""
    images = gzip.decompress((folder / f"{split}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / f"{split}-labels-idx1-ubyte.gz").read_bytes())
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28, 1)
    return pixels.astype(np.float32) / 255, np.frombuffer(labels, np.uint8, offset=8).astype(np.int32)


class Network(tf.Module):
    """Two convolutions and two dense layers: 215,370 parameters."""

    def __init__(self):
        super().__init__()
        self.layers = [
            (self.weights(*shape), tf.Variable(tf.zeros(shape[-1])))
            for shape in ((5, 5, 1, 16), (5, 5, 16, 32), (7 * 7 * 32, 128), (128, 10))
        ]

    @staticmethod
    def weights(*shape):
        """Glorot's: large enough that numbers do not vanish on their way through the layers."""
        limit = np.sqrt(6 / (np.prod(shape[:-2]) * (shape[-2] + shape[-1])))
        return tf.Variable(tf.random.uniform(shape, -limit, limit))

    def __call__(self, x):
        for weights, bias in self.layers[:2]:
            x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, weights, 1, "SAME") + bias), 2, 2, "VALID")
        x = tf.reshape(x, [-1, 7 * 7 * 32])
        (weights, bias), (last_weights, last_bias) = self.layers[2:]
        return tf.nn.relu(x @ weights + bias) @ last_weights + last_bias


def main():
    folder = Path(sys.argv[1])
    tf.random.set_seed(1)
    features, labels = read(folder, "train")
    order = np.random.default_rng(1).permutation(len(labels))  # each image is seen at most once in so few steps
    network = Network()

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, network(x)))
        variables = network.trainable_variables
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(LEARNING_RATE * gradient)
        return loss

    for step in range(1, STEPS + 1):
        if step == WARMUP + 1:
            began = time.perf_counter()
        chosen = order[(step - 1) * BATCH_SIZE : step * BATCH_SIZE]
        loss = train_step(features[chosen], labels[chosen])
        if step % 50 == 0:
            print(f"step {step} loss {loss.numpy():.3f}", flush=True)
    print(f"{(STEPS - WARMUP) / (time.perf_counter() - began):.1f} steps/s")

    features, labels = read(folder, "t10k")
    parts = [slice(first, first + 1000) for first in range(0, len(labels), 1000)]
    right = sum(np.sum(network(features[part]).numpy().argmax(axis=1) == labels[part]) for part in parts)
    print(f"accuracy on the test set {right / len(labels):.4f}")


if __name__ == "__main__":
    main()
