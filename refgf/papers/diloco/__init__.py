"""DiLoCo (Douillard et al. 2023): inner steps alone, an outer step together."""
