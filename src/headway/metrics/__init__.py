"""What figures mean when they are put together: estimates with intervals, speed-ups, cost, and whether figures agree
with each other. Each is defined in docs/metrics.md. Nothing here knows of sweeps: it takes plain values."""
