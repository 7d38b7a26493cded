"""One page of runs and sweeps: `page` gathers plain data, and the other modules render it."""
