"""What each technique must produce: the answers, written a second time and shorter.

Every function here states one numbered sentence of ../SPEC.md, and its docstring begins with that number. They work on
"one array per rank", a list of p arrays, in plain NumPy, straight from the definition, and import nothing else of the
project. They are slow. Import from this package: `from refgf.oracle.definitions import ring_allreduce`.

    numbers.py   P1-P3  what a number becomes on the wire        momentum.py  M1-M5   momentum SGD, LARS
    ring.py      R, D   allreduce by ring, and in rank order     csc.py       C1-C7   sparse chunks, the pieces
    sums.py      S      any order of summation                   csc_step.py  C8-C14  sparse chunks, a whole step
    large_batch.py  M6-M9   accumulation, LARS in parallel and under float16
    lazy.py      L      lazy allreduce, merging                  network.py   N       layers, by plain loops
    scaling.py   P4-P8  loss scaling, master weights             alexnet.py   N10-11  the network of the numbers
    daso.py      A      nodes that meet late             rounding.py  N12-13  how far rounding may move it
    resnet50.py  N14-15 blocks with a shortcut
    hierarchy.py H      tree, doubling, nodes                    topk.py      T      fine-grained sparsity
    cache.py     K      shards, cache levels
"""

# ruff: noqa: F401  the names are imported to be imported from here

import re

from refgf.oracle.definitions.alexnet import alexnet_step, split_layers
from refgf.oracle.definitions.cache import cache_levels, fits, node_batches, node_shards
from refgf.oracle.definitions.csc import (
    FORMS,
    carried,
    choose,
    chunk_bounds,
    conserved,
    importance,
    keep,
    nothing_kept,
    percent_of_step,
)
from refgf.oracle.definitions.csc_step import (
    CSCSettings,
    chosen_rates,
    csc_payload_bytes,
    csc_run,
    csc_start,
    csc_step,
    local_gradient,
    sent_elements,
    skipped,
    update,
)
from refgf.oracle.definitions.daso import (
    DASOSettings,
    daso_averaged,
    daso_groups,
    daso_merge,
    daso_next_phase,
    daso_phases,
    daso_run,
    daso_sender,
    daso_spread,
    daso_start,
    daso_step,
    daso_sum,
    daso_traffic,
    daso_wait,
    node_gradients,
)
from refgf.oracle.definitions.hierarchy import (
    doubling_allreduce,
    exchanged,
    hybrid_allreduce,
    log_phases_allreduce,
    node_slices,
    schedule_traffic,
    three_phase_allreduce,
    tree_allreduce,
    two_level_allreduce,
)
from refgf.oracle.definitions.large_batch import accumulated, lars_partial_squares, polynomial_rate, scaled_lars_run
from refgf.oracle.definitions.lazy import (
    bytes_per_gradient,
    lazy_allreduce,
    lazy_calls,
    lazy_rest,
    merged_allreduce,
    merged_calls,
    one_by_one,
)
from refgf.oracle.definitions.momentum import decayed_gradient, lars_ratio, lars_step, momentum_step, warmup_rate
from refgf.oracle.definitions.network import (
    batch_norm,
    batch_norm_backward,
    central_differences,
    conv,
    conv_backward,
    dropout,
    fully_connected,
    local_response_norm,
    max_pool,
    max_pool_backward,
    relu,
    softmax_cross_entropy,
)
from refgf.oracle.definitions.numbers import bfloat16_bits, bfloat16_values, on_wire, underflow_share
from refgf.oracle.definitions.resnet50 import (
    bottleneck,
    bottleneck_backward,
    convolved,
    convolved_backward,
    residual_layers,
    resnet50_step,
)
from refgf.oracle.definitions.ring import (
    agree,
    direct_allreduce,
    direct_fold,
    direct_in_pieces,
    direct_traffic,
    ring_allreduce,
    ring_states,
    ring_traffic,
    rounded_fold,
    same_bits,
    slice_bounds,
)
from refgf.oracle.definitions.rounding import alexnet_rounding, momentum_rounding
from refgf.oracle.definitions.scaling import all_finite, next_scale, scaled_allreduce, scaled_run, working_copy
from refgf.oracle.definitions.sums import exact_sum, summation_bound
from refgf.oracle.definitions.topk import chosen_and_kept, hitopk_run, keep_count, mstopk, top_k, topk_run, topk_traffic

__all__ = [name for name in dir() if callable(globals()[name]) and not name.startswith("_")]


def statements():
    """{number: function} of everything defined here, read from the docstrings ("R2: ...")."""
    found = {}
    for name in __all__:
        match = re.match(r"([A-Z]\d+): ", globals()[name].__doc__ or "")
        if match:
            found[match[1]] = globals()[name]
    return found
