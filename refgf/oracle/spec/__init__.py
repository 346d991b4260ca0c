"""What each technique must produce: a file or folder a technique, a record a statement.

statement.py says what a record holds. Import definitions from `refgf.oracle.definitions`.
"""

# ruff: noqa: F401  importing a technique makes its records
import refgf.oracle.spec.backward
import refgf.oracle.spec.cache.changes
import refgf.oracle.spec.cache.epoch
import refgf.oracle.spec.cache.levels
import refgf.oracle.spec.cache.shards
import refgf.oracle.spec.costs.nodes
import refgf.oracle.spec.csc.cases
import refgf.oracle.spec.csc.changes
import refgf.oracle.spec.csc.warmup
import refgf.oracle.spec.daso.epoch
import refgf.oracle.spec.daso.heat_cases
import refgf.oracle.spec.daso.phases
import refgf.oracle.spec.daso.traffic
import refgf.oracle.spec.diloco.outer
import refgf.oracle.spec.diloco.run
import refgf.oracle.spec.diloco.traffic
import refgf.oracle.spec.hierarchy.changes
import refgf.oracle.spec.hierarchy.log_phases
import refgf.oracle.spec.hierarchy.traffic
import refgf.oracle.spec.hierarchy.two_levels
import refgf.oracle.spec.lazy.changes
import refgf.oracle.spec.lazy.sums
import refgf.oracle.spec.merge.changes
import refgf.oracle.spec.merge.groups
import refgf.oracle.spec.merge.lesson_09
import refgf.oracle.spec.merge.times
import refgf.oracle.spec.momentum.large_batch
import refgf.oracle.spec.momentum.rates
import refgf.oracle.spec.network.alexnet
import refgf.oracle.spec.network.head
import refgf.oracle.spec.network.layers
import refgf.oracle.spec.network.resnet50
import refgf.oracle.spec.overlap
import refgf.oracle.spec.overlap_changes
import refgf.oracle.spec.plain_sums
import refgf.oracle.spec.powersgd.changes
import refgf.oracle.spec.powersgd.factors
import refgf.oracle.spec.powersgd.lesson_17
import refgf.oracle.spec.powersgd.steps
import refgf.oracle.spec.precision.changes
import refgf.oracle.spec.precision.half_sum
import refgf.oracle.spec.precision.master
import refgf.oracle.spec.ring_changes
import refgf.oracle.spec.roofline
import refgf.oracle.spec.roofline_changes
import refgf.oracle.spec.rounding
import refgf.oracle.spec.speedup
import refgf.oracle.spec.speedup_changes
import refgf.oracle.spec.stack
import refgf.oracle.spec.stack_changes
import refgf.oracle.spec.step_time
import refgf.oracle.spec.sums
import refgf.oracle.spec.topk.choice
import refgf.oracle.spec.topk.mstopk
import refgf.oracle.spec.topk.steps
import refgf.oracle.spec.topk.traffic
import refgf.oracle.spec.two_ranks
import refgf.oracle.spec.zero.changes
import refgf.oracle.spec.zero.layers
import refgf.oracle.spec.zero.lesson_16
import refgf.oracle.spec.zero.step
