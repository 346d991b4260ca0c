"""Trees, recursive doubling, and allreduces over nodes (H)."""

from refgf.oracle.judge.functions.before import node_traffic, summing

FUNCTIONS = {
    "tree_allreduce": summing("tree_allreduce", "wire"),
    "doubling_allreduce": summing("doubling_allreduce", "wire"),
    "three_phase_allreduce": summing("three_phase_allreduce", "nodes", "wire"),
    "two_level_allreduce": summing("two_level_allreduce", "nodes", "wire"),
    "log_phases_allreduce": summing("log_phases_allreduce", "nodes", "wire"),
    "hybrid_allreduce": summing("hybrid_allreduce", "nodes", "threshold", "wire"),
    "schedule_traffic": node_traffic("schedule_traffic", "algorithm", "n", "nodes"),
}
