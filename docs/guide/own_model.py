"""The network of train.py as a model for Headway: from features to logits, and no word about where anything runs."""

from headway.workloads import layers


def build(features, settings, data, run):
    x = layers.max_pool(run, layers.relu(layers.conv2d(run, "conv1", features, 16, size=5)))
    x = layers.max_pool(run, layers.relu(layers.conv2d(run, "conv2", x, 32, size=5)))
    x = layers.relu(layers.dense(run, "dense", layers.flatten(run, x), 128))
    return layers.dense(run, "logits", x, data.classes)
