"""The TensorFlow engine: what runs inside one task of a run.

    launcher -- environment, stdin --> __main__ --> server.py       a parameter server: holds variables
                                          |-------> loop.py         a training task: steps, and the chief's duties
                                          |            '-> strategies/   single, ps-async: a Trainer each
                                          '-------> evaluator.py    evaluates each new checkpoint
    launcher <-- events/TASK.jsonl, alive/TASK, checkpoints/, model/, exit code --'

Nobody imports this package: launcher and task meet only in the environment, the control messages on stdin, and
the run folder. `assignment.py` is the task's side of that meeting and loads before TensorFlow does.
"""
