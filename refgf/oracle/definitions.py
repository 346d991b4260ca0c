"""What each technique must produce: the answers, written a second time and shorter.

Every function states one numbered sentence of SPEC.md; its docstring begins with that number.
The functions work on "one array per rank", a list of p arrays, in plain NumPy, straight from the
definition. They import nothing else of the project, and they are slow. Import them from this
module: `from refgf.oracle.definitions import ring_allreduce`. They stand in spec/:

    precision/      P        rounding to the wire type, loss scaling, master weights, 8-bit blocks
    ring.py         R1-R4    allreduce by a ring
    ring_steps.py   R5, R6   its steps and messages
    direct.py       D        allreduce in rank order
    sums.py         S        the exact sum, and a bound for any order of summation
    lazy/           L        lazy allreduce, merged gradients
    momentum/       M        momentum SGD, learning rates, LARS, large batches
    csc/            C        coarse-grained sparse communication
    merge/          G        calls in time, merged gradients (MG-WFBP)
    costs/          E        the time of a collective
    daso/           A        asynchronous sums between nodes, also as the authors' code runs them
    hierarchy/      H        tree, doubling, hierarchies of nodes
    topk/           T        fine-grained sparsity
    cache/          K        shards, cache levels
    powersgd/       W        gradients of low rank, whose factors are summed
    zero/           Z        each rank holds a slice of the optimiser's state, or of all
    network/        N        layers, by plain loops, AlexNet, ResNet-50
    rounding.py     N12-N13  how far rounding may move AlexNet's gradients
"""

from collections.abc import Callable

# ruff: noqa: F401  these names are here to be imported from here
from refgf.oracle.spec.cache.levels import cache_levels, fits
from refgf.oracle.spec.cache.shards import node_batches, node_shards
from refgf.oracle.spec.calls import same_bits
from refgf.oracle.spec.costs.flat import (
    allgather_rounds,
    allgather_s,
    allreduce_line,
    allreduce_rounds,
    direct_s,
    halving_doubling_rounds,
    halving_doubling_s,
    longest_slice,
    recursive_doubling_rounds,
    recursive_doubling_s,
    reduce_scatter_rounds,
    reduce_scatter_s,
    ring_s,
    rounds_s,
    tree_rounds,
    tree_s,
    with_extras,
)
from refgf.oracle.spec.costs.nodes import (
    hitopk_pairs_s,
    hitopk_s,
    log_phases_s,
    three_phase_s,
    topk_s,
    two_level_s,
)
from refgf.oracle.spec.csc.choice import choose, percent_of_step
from refgf.oracle.spec.csc.importance import chunk_bounds, importance
from refgf.oracle.spec.csc.residual import (
    FORMS,
    accumulated_gradient,
    conserved,
    next_residual,
    zero_residual,
)
from refgf.oracle.spec.csc.step import (
    csc_payload_bytes,
    csc_run,
    csc_start,
    csc_step,
    sent_elements,
    skip_step,
)
from refgf.oracle.spec.csc.update import CSCRunSettings, chosen_rates, local_gradient, update
from refgf.oracle.spec.csc.warmup import WarmupPlan, density_at, rate_at, sparse_warmup_run
from refgf.oracle.spec.daso.arithmetic import (
    daso_broadcast,
    daso_merge,
    daso_sum,
    heat_merge,
    node_gradients,
)
from refgf.oracle.spec.daso.batches import daso_averaged, daso_groups, daso_sender, daso_wait
from refgf.oracle.spec.daso.heat import (
    heat_again,
    heat_averaged,
    heat_mean,
    heat_receives,
    heat_roots,
    heat_run,
    heat_step,
)
from refgf.oracle.spec.daso.phases import (
    daso_next_phase,
    daso_phases,
    heat_next_phase,
    heat_phases,
)
from refgf.oracle.spec.daso.run import (
    DASOSettings,
    daso_run,
    daso_start,
    daso_step,
    daso_update,
)
from refgf.oracle.spec.daso.traffic import daso_traffic, heat_traffic
from refgf.oracle.spec.diloco.outer import diloco_outer
from refgf.oracle.spec.diloco.run import DiLoCoSettings, diloco_run, diloco_start, diloco_step
from refgf.oracle.spec.diloco.traffic import diloco_traffic
from refgf.oracle.spec.direct import (
    direct_allreduce,
    direct_fold,
    direct_in_calls,
    direct_traffic,
)
from refgf.oracle.spec.hierarchy.flat import add_partner, doubling_allreduce, tree_allreduce
from refgf.oracle.spec.hierarchy.log_phases import log_phases_allreduce
from refgf.oracle.spec.hierarchy.nodes import node_slices
from refgf.oracle.spec.hierarchy.three_phases import hybrid_allreduce, three_phase_allreduce
from refgf.oracle.spec.hierarchy.traffic import schedule_traffic
from refgf.oracle.spec.hierarchy.two_levels import two_level_allreduce
from refgf.oracle.spec.lazy.calls import bytes_per_gradient, lazy_calls, lazy_rest
from refgf.oracle.spec.lazy.sums import (
    allreduce_calls,
    lazy_allreduce,
    merged_allreduce,
    merged_calls,
)
from refgf.oracle.spec.merge.groups import best_counts, greedy_counts, groupings, joins
from refgf.oracle.spec.merge.times import computed_at, lazy_step, step_times
from refgf.oracle.spec.momentum.large_batch import (
    accumulated,
    lars_partial_squares,
    scaled_lars_run,
)
from refgf.oracle.spec.momentum.lars import LARSSettings, lars_ratio
from refgf.oracle.spec.momentum.lars_step import lars_step
from refgf.oracle.spec.momentum.rates import polynomial_rate, warmup_rate
from refgf.oracle.spec.momentum.sgd import decayed_gradient, momentum_step
from refgf.oracle.spec.network.alexnet import alexnet_step, split_layers
from refgf.oracle.spec.network.gradients import central_differences, gamma
from refgf.oracle.spec.network.head import dropout, fully_connected, softmax_cross_entropy
from refgf.oracle.spec.network.layers import (
    batch_norm,
    batch_norm_backward,
    conv,
    conv_backward,
    local_response_norm,
    max_pool,
    max_pool_backward,
    relu,
)
from refgf.oracle.spec.network.resnet50 import (
    bottleneck,
    bottleneck_backward,
    conv_norm,
    conv_norm_backward,
    residual_layers,
    resnet50_step,
)
from refgf.oracle.spec.powersgd.factors import factor_elements, orthogonal, powersgd_traffic
from refgf.oracle.spec.powersgd.steps import low_rank_sum, powersgd_run
from refgf.oracle.spec.powersgd.votes import majority
from refgf.oracle.spec.precision.blocks import in_blocks
from refgf.oracle.spec.precision.master import scaled_run, working_copy
from refgf.oracle.spec.precision.scale import all_finite, next_scale, scaled_allreduce
from refgf.oracle.spec.precision.wire import (
    bfloat16_bits,
    bfloat16_values,
    on_wire,
    underflow_share,
)
from refgf.oracle.spec.ring import agree, ring_allreduce, rounded_fold, slice_bounds
from refgf.oracle.spec.ring_steps import ring_states, ring_traffic
from refgf.oracle.spec.rounding import alexnet_rounding, momentum_rounding
from refgf.oracle.spec.statement import STATEMENTS
from refgf.oracle.spec.sums import exact_sum, summation_bound
from refgf.oracle.spec.topk.choice import keep_count, top_k
from refgf.oracle.spec.topk.mstopk import mstopk
from refgf.oracle.spec.topk.steps import hitopk_run, sparsify, topk_run
from refgf.oracle.spec.topk.traffic import hitopk_pairs_traffic, topk_traffic
from refgf.oracle.spec.zero.layers import zero3_calls
from refgf.oracle.spec.zero.step import zero_run, zero_slice, zero_step, zero_traffic

__all__ = [name for name in dir() if callable(globals()[name]) and not name.startswith("_")]
__all__.remove("Callable")


def statements() -> dict[str, Callable[..., object]]:
    """{number: function} of all statements."""
    return {number: statement.definition for number, statement in STATEMENTS.items()}
