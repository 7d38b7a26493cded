"""A task whose work is a user's own program. It runs beside the program, never inside: it starts it, passes on what it
prints, hears of its steps, ends it when it must, and ends as it ended.

    launcher, agent <── events, heartbeat ── this process ── starts, SIGTERM ──> the program
                                                  ^                                 │
                                                  └── headway.log(), TensorBoard files, lines of its output
"""
