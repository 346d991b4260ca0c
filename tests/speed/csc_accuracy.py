"""Does sparsity cost accuracy? CSC at 10 % and dense training, paired over 5 folds x 3 seeds.

    mpiexec -n 4 python tests/speed/csc_accuracy.py FOLDER [--data PATH] [--seconds 150]
                                                           [--kinds dense dgc ...]

Too long for `make peers`, so it can be resumed: each training leaves a file in FOLDER, what is
there is not done again, and after --seconds no training is begun. At the end it prints the 95 %
interval of the difference over the complete pairs; its lower end should be above -1 point.
Trainings are those of lesson 06 --full.
"""

import refgf.launch  # noqa: F401  before MPI starts

# isort: split
import argparse
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from mpi4py import MPI

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "lessons")]

import kit  # noqa: E402  the lessons' own training
from kit import flow, images, trials  # noqa: E402

from refgf.exchange.chunk_choice import Density  # noqa: E402
from refgf.exchange.lazy import Theta  # noqa: E402
from refgf.training.data import steps_per_epoch  # noqa: E402

PAIRS = [(seed, fold) for seed in (1, 2, 3) for fold in range(5)]
# must be alike in a folder
SETTINGS = ("data", "image_size", "width", "batch", "rate", "epochs", "density", "warmup")
LIMIT = -1.0  # points


def main() -> int:
    run = kit.Run(MPI.COMM_WORLD, parsed())
    settings = {name: str(getattr(run.options, name)) for name in SETTINGS} | {"ranks": run.size}
    if run.rank == 0:
        read(run.options, settings)  # refuses another run's folder before it writes there
    train_all(run, settings)
    return report(read(run.options, settings), run.options.kinds) if run.rank == 0 else 0


def parsed():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("folder", type=Path, help="where each training leaves its result")
    add("--seconds", type=float, default=1e9, help="begin no training after so many")
    add(
        "--kinds",
        nargs="+",
        default=["dense", "dgc"],
        help="dense, and forms of momentum correction as in lesson 06",
    )
    add("--density", type=float, default=10.0)
    add(
        "--warmup",
        type=float,
        nargs="*",
        metavar="PERCENT",
        help="densities of the first epochs (100 100 50 25)",
    )
    images.arguments(SimpleNamespace(argument=add))
    parser.set_defaults(batch=16, epochs=12, warmup=list(trials.WARMUP))
    return parser.parse_args(
        namespace=argparse.Namespace(link=None, threads=None, quick=False, full=True, chunk=None)
    )


def train_all(run: kit.Run, settings: dict) -> None:
    """Every training that has left no file yet, pair by pair, while there is time."""
    split, start_s = images.load(run), time.monotonic()
    for seed, fold in PAIRS:
        for name in run.options.kinds:
            path = file_of(run.options, name, seed, fold)
            if run.plain.bcast(path.exists() or time.monotonic() - start_s > run.options.seconds):
                continue
            rows = training(run, name, seed, *images.fold(run, *split, fold))
            took = f"{rows[-1]['seconds']:.0f} s of training"
            run.say(f"{name}, seed {seed}, fold {fold}: {trials.in_words([rows])}, {took}")
            if run.rank == 0:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps({"settings": settings, "rows": rows}))


def training(run: kit.Run, name: str, seed: int, train, held_out) -> list[dict]:
    """The epochs of one training. name: "dense", or a form of momentum correction."""
    epochs, csc = run.options.epochs, None
    if name != "dense":
        per_epoch = steps_per_epoch(train.size, run.options.batch * run.size)
        warmup = trials.warmup_of(run, epochs)
        density = Density(run.options.density, warmup, per_epoch, epochs * per_epoch)
        csc = flow.csc(run, train, density, name, run.options.chunk)
    with flow.new(run, train, seed, grouping=Theta(2**17), csc=csc) as stack:
        return flow.learn(run, stack, train, held_out, epochs, seed=seed)


def file_of(options, name: str, seed: int, fold: int) -> Path:
    return options.folder / f"{name}-seed{seed}-fold{fold}.json"


def read(options, settings: dict) -> dict:
    """{(name, pair): epochs} of what is in the folder; another run's trainings are refused."""
    found = {}
    for name in options.kinds:
        for pair in PAIRS:
            path = file_of(options, name, *pair)
            if path.exists():
                saved = json.loads(path.read_text())
                if saved["settings"] != settings:
                    sys.exit(
                        f"{path}: got {saved['settings']}; wanted {settings}; next: another folder"
                    )
                found[name, pair] = saved["rows"]
    return found


def report(found: dict, kinds: list[str]) -> int:
    """1 if the interval of a form misses the bar over all pairs."""
    missed = False
    for name in kinds:
        pairs = [pair for pair in PAIRS if {(name, pair), ("dense", pair)} <= set(found)]
        some, dense = ([found[kind, pair] for pair in pairs] for kind in (name, "dense"))
        print(f"{name:>12}: {trials.in_words(some)}" if pairs else f"{name:>12}: nothing yet")
        if name != "dense" and len(pairs) > 1:
            mean, half = trials.difference(some, dense)
            missed = missed or (mean - half <= LIMIT and len(pairs) == len(PAIRS))
            print(
                f"{'ok  ' if mean - half > LIMIT else 'MISS'} {name} minus dense, {len(pairs)} of "
                f"{len(PAIRS)} pairs: {trials.interval(some, dense)} (wanted above {LIMIT:g})"
            )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
