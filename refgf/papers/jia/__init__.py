"""Jia et al. 2018: hierarchical allreduce, LARS, gradient accumulation."""
