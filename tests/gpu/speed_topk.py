"""MSTopK on a GPU against torch.topk, 0.1 and 1 % of 62 million float32 numbers.

    python tests/gpu/speed_topk.py [results.json]

Both sides take the largest magnitudes of the same numbers, |x| included: MSTopK nearly those,
torch.topk exactly, unsorted. Sides take turns, and a call ends when the GPU has finished it.
"""

import statistics
import sys

import numpy as np

from refgf import device
from refgf.papers.mstopk.topk import keep_count, mstopk
from tests.gpu.measure import TURNS, alternate, judge, save

N = 62_000_000  # AlexNet's gradients
PERCENT = (0.1, 1)


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    save(measure(), arguments[0] if arguments else None)


def measure(n: int = N, where: str = "cuda", turns: int = TURNS) -> list[dict]:
    """A row for each density. where: PyTorch's device."""
    import torch

    xp, host = device.module("gpu"), np.random.default_rng(0).standard_normal(n, np.float32)
    ours, theirs, rows = xp.asarray(host), torch.as_tensor(host).to(where), []
    for percent in PERCENT:
        k = keep_count(n, percent)
        require_choice(host, device.to_host(mstopk(ours, k)), k)

        def select(k: int = k) -> None:
            mstopk(ours, k)
            device.synchronize(ours)

        def torch_select(k: int = k) -> None:
            torch.topk(theirs.abs(), k, sorted=False)
            if where == "cuda":
                torch.cuda.synchronize()

        seconds = alternate({"MSTopK": select, "torch.topk": torch_select}, turns)
        row = judge.compared(f"MSTopK over torch.topk, {percent} % of {n}", *seconds.values())
        rows.append(row)
        for side, times_s in seconds.items():
            print(f"{percent} % of {n}: {side} {1e3 * statistics.median(times_s):.2f} ms")
        judge.tell(row["name"], row)
    return rows


def require_choice(x: np.ndarray, chosen: np.ndarray, k: int) -> None:
    """The k chosen are different ones, and have nearly the largest magnitudes."""
    magnitude = np.abs(x)
    share = magnitude[chosen].sum() / np.partition(magnitude, x.size - k)[x.size - k :].sum()
    if np.unique(chosen).size != k or not 0.99 <= share <= 1.0001:
        raise ValueError(
            f"mstopk: got {np.unique(chosen).size} of {x.size} elements with {share:.4f} of the "
            f"largest magnitudes' sum; wanted {k} with at least 0.99; next: pytest tests/gpu"
        )


if __name__ == "__main__":
    main()
