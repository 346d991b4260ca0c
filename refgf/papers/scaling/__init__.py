"""Scaling predicted: workloads, machines and the papers' headline numbers."""
