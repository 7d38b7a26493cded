"""Sweeps: what is tried, in which order, how often, and whether it can be believed."""
