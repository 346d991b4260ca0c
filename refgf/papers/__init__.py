"""One folder a paper. Each imports the core, never another paper."""
