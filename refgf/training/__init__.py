"""Where the two sides meet: images, one data-parallel step, the optimiser, and what is built on them."""
