"""Times of a step for several theta, without and with overlap, measured and predicted."""

from dataclasses import dataclass

import kit
from refgf.predict.cost import Line
from refgf.predict.fit import Curve
from refgf.predict.timeline import lazy, predict

KINDS = {"plain": "no overlap", "overlapped": "overlap"}


@dataclass(frozen=True)
class Inputs:
    """What the prediction of one kind of step is made from.

    gradients   [(seconds after the start of the step at which it is ready, bytes)]
    call_s      T(m) of a call
    compute_s   seconds of computing in a step
    kept_share  share of its speed that computing keeps during a call; 0 without overlap
    """

    gradients: list
    call_s: Line | Curve
    compute_s: float
    kept_share: float = 0.0


def sweep(run: kit.Run, thetas, new_exchange, time_one, kinds: dict[str, Inputs]) -> list[dict]:
    """A row for each theta: calls, messages, bytes, and times measured and predicted. Collective.

    new_exchange  (theta, overlap) -> exchange
    time_one      exchange -> (Timing of a step, number of steps)
    kinds         inputs of the predictions, for each of KINDS
    """
    rows = []
    for theta in thetas:
        row = {"theta": theta, "predicted": {}}
        for kind, x in kinds.items():
            exchange = new_exchange(theta, overlap=kind == "overlapped")
            run.comm.reset()
            row[kind], steps = time_one(exchange)
            row |= {"messages": run.comm.messages // steps, "bytes": run.comm.bytes // steps}
            exchange.close()
            groups = lazy(x.gradients, theta)
            step = predict(x.gradients, groups, x.call_s, x.kept_share, x.compute_s)
            row["predicted"][kind] = step.step_s
        assert len(groups) == len(exchange.lazy.calls)
        rows.append(row | {"calls": len(groups)})
    return rows


def report(run: kit.Run, rows: list[dict]) -> dict:
    """Print the rows and the best theta of each kind. -> {"rows": rows, "best": thetas}"""

    def cells(row):
        times = [(row[kind], kit.seconds(row["predicted"][kind])) for kind in KINDS]
        return [kit.threshold(row["theta"]), row["calls"], row["bytes"], *sum(times, ())]

    run.say(
        "calls: allreduce calls in a step, 2(p-1) messages each. bytes: sent by rank 0 in a step."
    )
    header = ["theta", "calls", "bytes", "no overlap", "predicted", "overlap", "predicted"]
    run.table(header, [cells(row) for row in rows])
    best = {}
    for kind, title in KINDS.items():
        pairs = [(row["predicted"][kind], row[kind].median_s) for row in rows]
        run.say(f"{title}: {kit.errors_in_words(pairs)}")
        measured = min(rows, key=lambda row: row[kind].median_s)
        predicted = min(rows, key=lambda row: row["predicted"][kind])
        best[kind] = {"measured": measured["theta"], "predicted": predicted["theta"]}
        ratio = rows[0][kind].median_s / measured[kind].median_s
        first = kit.threshold(rows[0]["theta"])
        names = [kit.threshold(theta) for theta in best[kind].values()]
        run.say(f"    best theta: {names[0]} measured, {names[1]} predicted")
        run.say(f"    {ratio:.2f} times as fast as theta = {first}")
        within = [
            kit.threshold(row["theta"])
            for row in rows
            if row is not measured and row[kind].low_s <= measured[kind].high_s
        ]
        if within:
            run.say(f"    within its noise: {', '.join(within)}")
    return {"rows": rows, "best": best}
