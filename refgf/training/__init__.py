"""Where the two sides meet: data, one data-parallel step, the optimiser, and the whole stack."""
