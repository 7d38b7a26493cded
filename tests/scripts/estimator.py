"""tf.estimator.train_and_evaluate, for the last TensorFlow that has it (2.15). The cluster comes from TF_CONFIG: chief,
workers, parameter servers, evaluator; start it once for each task. A parameter server never ends.
"""

import argparse

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def read_flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--max_steps", type=int, default=600, help="of all tasks together")
    parser.add_argument("--batch_size", type=int, default=256)
    return parser.parse_args()


def make_dataset(num_examples, seed):
    """Points of ten classes."""
    centers = np.random.default_rng(0).normal(size=(10, 64))
    random = np.random.default_rng(seed)
    labels = random.integers(10, size=num_examples)
    features = (centers[labels] + 2 * random.normal(size=(num_examples, 64))).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices(({"x": features}, labels.astype(np.int32)))


def model_fn(features, labels, mode):
    x = features["x"]
    for layer, (inputs, outputs) in enumerate([(64, 512), (512, 512), (512, 10)]):
        with v1.variable_scope(f"layer_{layer}"):
            weights = v1.get_variable("weights", [inputs, outputs], initializer=v1.glorot_uniform_initializer())
            bias = v1.get_variable("bias", [outputs], initializer=v1.zeros_initializer())
            x = tf.matmul(x, weights) + bias
            x = tf.nn.relu(x) if outputs > 10 else x
    classes = tf.argmax(x, axis=1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"classes": classes})
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x))
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = {"accuracy": v1.metrics.accuracy(labels, classes)}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    train_op = v1.train.AdagradOptimizer(0.02).minimize(loss, global_step=v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    flags = read_flags()
    v1.logging.set_verbosity(v1.logging.INFO)
    config = tf.estimator.RunConfig(save_checkpoints_steps=100, save_summary_steps=20, log_step_count_steps=20)
    estimator = tf.estimator.Estimator(model_fn, flags.model_dir, config)
    train_spec = tf.estimator.TrainSpec(
        lambda: make_dataset(20_000, seed=1).shuffle(20_000).repeat().batch(flags.batch_size),
        max_steps=flags.max_steps,
    )
    eval_spec = tf.estimator.EvalSpec(
        lambda: make_dataset(2_000, seed=2).batch(500), steps=None, start_delay_secs=0, throttle_secs=1
    )
    tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)


if __name__ == "__main__":
    main()
