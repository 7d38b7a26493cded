"""Every worker has all variables, and gradients are summed over the workers: MultiWorkerMirroredStrategy in a training
loop of one's own. The cluster comes from TF_CONFIG; start it once for each worker.
"""

import argparse
import json
import os

import numpy as np
import tensorflow as tf


def read_flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logdir", required=True, help="for TensorBoard; each worker writes to a folder below")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps_per_epoch", type=int, default=20)
    parser.add_argument("--batch_size", type=int, default=32, help="of each worker")
    parser.add_argument("--hidden", type=int, default=64, help="units, each of 42 parameters")
    return parser.parse_args()


def make_dataset(context, batch_size):
    """This worker's share of 4,000 points of ten classes."""
    random = np.random.default_rng(0)
    centers = random.normal(size=(10, 32))
    labels = random.integers(10, size=4000)
    features = (centers[labels] + random.normal(size=(4000, 32))).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((features, labels.astype(np.int32)))
    dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
    return dataset.shuffle(4000, seed=1).repeat().batch(batch_size)


class Classifier(tf.Module):
    def __init__(self, hidden):
        super().__init__()
        random = tf.random.Generator.from_seed(1)
        self.hidden = tf.Variable(random.normal([32, hidden], stddev=0.2), name="hidden")
        self.logits = tf.Variable(random.normal([hidden, 10], stddev=0.2), name="logits")

    def __call__(self, features):
        return tf.nn.relu(features @ self.hidden) @ self.logits


def main():
    flags = read_flags()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    writer = tf.summary.create_file_writer(f"{flags.logdir}/{task['type']}-{task['index']}")
    global_batch_size = flags.batch_size * strategy.num_replicas_in_sync

    with strategy.scope():
        model = Classifier(flags.hidden)
        optimizer = tf.keras.optimizers.SGD(learning_rate=0.05)
        optimizer.build(model.trainable_variables)
    dataset = strategy.distribute_datasets_from_function(lambda context: make_dataset(context, flags.batch_size))

    def replica_step(features, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(features))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch_size)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def train_step(iterator):
        losses = strategy.run(replica_step, args=next(iterator))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    step = 0
    iterator = iter(dataset)
    for epoch in range(flags.epochs):
        for _ in range(flags.steps_per_epoch):
            loss = train_step(iterator)
            step += 1
            with writer.as_default():
                tf.summary.scalar("loss", loss, step=step)
        writer.flush()
        print(f"epoch {epoch} is done", flush=True)
    writer.close()


if __name__ == "__main__":
    main()
