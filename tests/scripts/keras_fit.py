"""Keras `fit` under MultiWorkerMirroredStrategy, as in the guide to multi-worker training with Keras. The cluster comes
from TF_CONFIG; start it once for each worker.
"""

import numpy as np
import tensorflow as tf


def make_dataset(batch_size):
    random = np.random.default_rng(0)
    images = random.random((640, 28, 28), dtype=np.float32)
    labels = random.integers(10, size=640)
    return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(640).repeat().batch(batch_size)


def build_and_compile():
    model = tf.keras.Sequential(
        [
            tf.keras.Input(shape=(28, 28)),
            tf.keras.layers.Reshape(target_shape=(28, 28, 1)),
            tf.keras.layers.Conv2D(8, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.SGD(learning_rate=0.01),
        metrics=["accuracy"],
    )
    return model


def main():
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    dataset = make_dataset(32 * strategy.num_replicas_in_sync)
    with strategy.scope():
        model = build_and_compile()
    model.fit(dataset, epochs=2, steps_per_epoch=10)


if __name__ == "__main__":
    main()
