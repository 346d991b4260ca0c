"""DiLoCo next to DASO: a sum every H batches, never late. Local SGD is its outer step at rate 1.

Its bytes and accuracy at equal steps, and at equal seconds: synchronous training as far as it is in
the time of this training, by the times of a batch that the lesson has measured.
"""

import numpy as np

import kit
from kit.claims import interval
from kit.trials import mean_and_half
from lab.daso.scene import HALF, SYNCHRONOUS
from refgf.comm.schedule import collective
from refgf.papers.diloco.diloco import DiLoCo
from refgf.papers.jia.hierarchical import two_level_ring

H = 8
DILOCO, LOCAL = f"DiLoCo, H = {H}", f"local SGD, H = {H}"
OUTER = {DILOCO: {}, LOCAL: {"rate": 1.0, "momentum": 0.0}}


class Rare(DiLoCo):
    """Takes an outer step before an evaluation, because between outer steps parameters differ."""

    def evaluate(self, dataset, batch: int = 64):
        self.synchronise()
        return super().evaluate(dataset, batch)


def rare(comm, model, nodes, name: str, exchange: bool = True) -> Rare:
    """A node is a worker. exchange False: an outer step is computed, and nothing is sent."""

    def two_level(comm):
        return collective(comm, two_level_ring(nodes)) if exchange else lambda x: None

    node = next(node for node in nodes if comm.Get_rank() in node)
    return Rare(comm, model, H, node=node, allreduce=two_level, **OUTER[name])


def show(run: kit.Run, nodes, times: dict, drift: dict, accuracy: dict) -> dict:
    """{name: {baseline: difference from it at equal seconds, in points}}, after a table.

    One pair has no interval, so nothing is claimed of it: {}.
    """
    run.section(f"Sums every {H} batches: DiLoCo next to DASO")
    runs, batch = accuracy["runs"], {row["name"]: row["batch"].median_s for row in times["rows"]}
    batch[LOCAL] = batch[DILOCO]  # it sends the same
    found, rows = {}, []
    for name in (SYNCHRONOUS, DILOCO, LOCAL):
        for baseline in (SYNCHRONOUS, HALF) if name != SYNCHRONOUS else ():
            share = batch[name] / batch[baseline]
            found |= {name: found.get(name, {}) | {baseline: at_equal_seconds(runs, name, share)}}
        points = [100 * rows[-1]["accuracy"] for rows in runs[name]]
        apart = [100 * max(distances) for distances in drift.get(name, [])]
        rows.append(
            [
                name,
                "1" if name == SYNCHRONOUS else f"1/{H}",
                f"{np.median(apart):.1f} %" if apart else "-",
                f"{np.mean(points):.1f} %",
                *(in_words(found.get(name, {}).get(each)) for each in (SYNCHRONOUS, HALF)),
            ]
        )
    run.table(["", "bytes", "drift", "accuracy", "synchronous", "overlapped, float16"], rows)
    run.say("bytes: between nodes, of synchronous training's; accuracy: after as many steps")
    run.say("last two: minus what that training reaches in the same seconds; points, 95 % interval")
    return found if len(runs[DILOCO]) > 1 else {}


def at_equal_seconds(runs: dict, name: str, share: float) -> dict:
    """Accuracy minus that of synchronous training after `share` times as many epochs, paired."""
    return interval(
        *mean_and_half(
            [
                100 * (mine[-1]["accuracy"] - accuracy_after(other, share * len(mine)))
                for mine, other in zip(runs[name], runs[SYNCHRONOUS], strict=True)
            ]
        )
    )


def accuracy_after(rows: list[dict], epochs: float) -> float:
    """Between two epochs on the line through both; never outside of the first and last one."""
    return float(np.interp(epochs, range(1, len(rows) + 1), [row["accuracy"] for row in rows]))


def in_words(difference: dict | None) -> str:
    if difference is None:
        return "-"
    half = (difference["high_s"] - difference["low_s"]) / 2
    spread = f" +- {half:.1f}" if np.isfinite(half) else ""
    return f"{difference['median_s']:+.1f}{spread}"
