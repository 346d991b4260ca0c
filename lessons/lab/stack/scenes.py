"""Lesson 07: the bars on the emulated cluster or on this machine, then the training.

A result holds the bars of earlier runs too ("places"), so that a figure compares networks and
numbers of nodes.
"""

from collections.abc import Iterator

import kit
from kit import flow, images, virtual
from lab.stack import bars, elsewhere, here as this_machine, ladder, learning, oracle
from refgf.engine.residual import FusedResidual
from refgf.exchange.momentum_correction import CSCSettings
from refgf.papers.scaling.systems import CHUNK

WIDTH = 1 / 4  # of the network that computes for real


def measure(run: kit.Run, stacks) -> Iterator[dict]:
    """stacks: (run, theta, csc) -> the lesson's bars."""
    flow.require_folder(run)
    emulated, options = run.regime.like is not None, run.options
    if options.width is None and not emulated:
        options.width = run.quick(1 / 8, WIDTH)
    train, held_out = images.load(run)
    oracle.check(run, train)
    if emulated:
        csc = CSCSettings(bars.DENSITY, chunk=run.quick(256, CHUNK), residual=FusedResidual)
        norms = virtual.real_norms(run, train, 1904)
        here = ladder.measure(run, options.network, stacks(run, options.theta, csc), norms)
    else:
        csc = flow.csc(run, train, bars.DENSITY)
        here = this_machine.measure(run, train, stacks(run, options.theta, csc))
    here |= {
        "network": options.network,
        "like": run.regime.record()["like"],
        "dilation": run.regime.dilation,
        "ranks": run.size,
        "theta": options.theta,
        "place": run.place,
        "latency_free": run.regime.waited is not None and not run.regime.links_are_waited_for,
    }
    bars.show(run, here)
    other = elsewhere.predict(*elsewhere.OTHER[options.network], options.theta)
    if emulated:
        elsewhere.show(run, other)
    earlier = run.earlier()
    title = f"{images.NETWORKS[options.network]}; {run.place}"
    yield {"places": earlier.get("places", {}) | {title: here}, "elsewhere": other}
    trained = earlier.get("learning")
    if options.pairs != 0:
        trained = learning.measure(run, train, held_out, here)
    yield {"learning": trained, "where": "the ranks and links named above"}
