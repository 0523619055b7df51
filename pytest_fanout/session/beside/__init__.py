"""A second pytest run beside the measured one: it collects the same tasks, and runs those that it is asked for."""
