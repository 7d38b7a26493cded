"""Softmax regression in NumPy with one parameter server of its own, that prints what it did as tf_cnn_benchmarks does.

Start it once for each server and each worker, each with its own --job_name and --task_index. A server never ends. Only
the first server is used.
"""

import argparse
import threading
import time
from multiprocessing.managers import BaseManager

import numpy as np

CLASSES, FEATURES = 10, 784
KEY = b"softmax"


class Parameters:
    """What the server holds. Each connection has a thread of its own there."""

    def __init__(self):
        self._lock = threading.Lock()
        self._weights = np.zeros((FEATURES, CLASSES), np.float32)

    def pull(self):
        with self._lock:
            return self._weights.copy()

    def push(self, gradient, learning_rate):
        with self._lock:
            self._weights -= learning_rate * gradient


class Manager(BaseManager):
    pass


def read_flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job_name", choices=["ps", "worker"], required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--ps_hosts", required=True, help="host:port of each server, with commas")
    parser.add_argument("--worker_hosts", required=True, help="host:port of each worker, with commas")
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--num_warmup_batches", type=int, default=10)
    parser.add_argument("--num_batches", type=int, default=100)
    parser.add_argument("--display_every", type=int, default=10)
    return parser.parse_args()


def address_of(host):
    name, port = host.rsplit(":", 1)
    return name, int(port)


def serve(host):
    parameters = Parameters()
    Manager.register("parameters", callable=lambda: parameters, exposed=("pull", "push"))
    Manager(address_of(host), KEY).get_server().serve_forever()


def connect(host, limit=60.0):
    """To the server, which may be later than we are."""
    Manager.register("parameters")
    manager = Manager(address_of(host), KEY)
    deadline = time.monotonic() + limit
    while True:
        try:
            manager.connect()
            return manager.parameters()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def make_batch(random, centers, size):
    labels = random.integers(CLASSES, size=size)
    noise = random.standard_normal((size, FEATURES), dtype=np.float32)
    return centers[labels] + noise, labels


def loss_and_gradient(weights, features, labels):
    logits = features @ weights
    logits -= logits.max(axis=1, keepdims=True)
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(probabilities[rows, labels] + 1e-12).mean()
    probabilities[rows, labels] -= 1
    return loss, features.T @ probabilities / len(labels)


def speed(batch_size, seconds):
    """Mean, its uncertainty, and how much single steps differ."""
    rates = batch_size / np.array(seconds)
    jitter = 1.4826 * np.median(np.abs(rates - np.median(rates)))
    mean = batch_size / np.mean(seconds)
    return f"images/sec: {mean:.1f} +/- {rates.std() / np.sqrt(len(rates)):.1f} (jitter = {jitter:.1f})"


def train(flags):
    parameters = connect(flags.ps_hosts.split(",")[0])
    centers = 0.1 * np.random.default_rng(0).standard_normal((CLASSES, FEATURES), dtype=np.float32)
    random = np.random.default_rng(1 + flags.task_index)
    seconds = []

    def one_step():
        features, labels = make_batch(random, centers, flags.batch_size)
        loss, gradient = loss_and_gradient(parameters.pull(), features, labels)
        parameters.push(gradient, 0.01)
        return loss

    print("Running warm up", flush=True)
    for _ in range(flags.num_warmup_batches):
        one_step()
    print("Step\tImg/sec\tloss", flush=True)
    began = time.perf_counter()
    for step in range(1, flags.num_batches + 1):
        start = time.perf_counter()
        loss = one_step()
        seconds.append(time.perf_counter() - start)
        if step == 1 or step % flags.display_every == 0:
            print(f"{step}\t{speed(flags.batch_size, seconds)}\t{loss:.3f}", flush=True)
    total = flags.num_batches * flags.batch_size / (time.perf_counter() - began)
    print("-" * 64)
    print(f"total images/sec: {total:.2f}")
    print("-" * 64, flush=True)


def main():
    flags = read_flags()
    if flags.job_name == "ps":
        serve(flags.ps_hosts.split(",")[flags.task_index])
    else:
        train(flags)


if __name__ == "__main__":
    main()
