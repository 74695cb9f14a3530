"""One run of the sampler in a process, from its start to its end, with its profiles."""
