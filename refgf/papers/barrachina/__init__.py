"""Barrachina et al. 2021: performance model from measured kernels."""
