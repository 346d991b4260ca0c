"""Trees, recursive doubling, and allreduces over nodes (H)."""

from refgf.oracle.judge.functions.before import node_traffic
from refgf.oracle.judge.functions.sums import allreduce

FUNCTIONS = {
    "tree_allreduce": allreduce("tree_allreduce", "wire"),
    "doubling_allreduce": allreduce("doubling_allreduce", "wire"),
    "three_phase_allreduce": allreduce("three_phase_allreduce", "nodes", "wire"),
    "two_level_allreduce": allreduce("two_level_allreduce", "nodes", "wire"),
    "log_phases_allreduce": allreduce("log_phases_allreduce", "nodes", "wire"),
    "hybrid_allreduce": allreduce("hybrid_allreduce", "nodes", "threshold", "wire"),
    "schedule_traffic": node_traffic("schedule_traffic", "algorithm", "n", "nodes"),
}
