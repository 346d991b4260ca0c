"""How many trainings lessons 06 and 11 compare, and on which folds and seeds."""

from argparse import Namespace

import pytest

from lab.csc import learning, study
from lab.large_batch import comparison, rate_search

ENOUGH = 8  # for an interval of 95 %: Student's t is 2.4, and 2.0 for any number


class Run:
    """Options and sizes of a run; says nothing."""

    def __init__(self, **options) -> None:
        given = {"pairs": None, "epochs": None, "density": 10.0, "data": None, "full": False}
        self.options = Namespace(**given | options)

    def quick(self, quick, default, full=None):
        return full if self.options.full and full is not None else default

    def section(self, *text) -> None:
        pass

    say = table = section


@pytest.mark.parametrize("full", [False, True])
def test_lesson_11_judges_on_ten_runs_that_did_not_tune(full):
    found = comparison.places(Run(full=full))
    assert len(set(found)) == len(found) >= ENOUGH
    assert rate_search.TUNED_ON[0] not in {fold for fold, _ in found}


def test_lesson_11_searches_rates_in_its_epochs_only(monkeypatch):
    """Longer trainings take the rate that their method has at the same batch."""
    tried, judged = [], []

    def train(run, rules, cell, exponent, fold, seed):
        (tried if fold == rate_search.TUNED_ON[0] else judged).append((cell, exponent))
        return {"accuracy": 90.0, "loss": float(abs(exponent + 1))}

    monkeypatch.setattr(comparison.training, "learn", train)
    monkeypatch.setattr(
        comparison.trials, "deal", dealt := lambda run, jobs, f: [f(*j) for j in jobs]
    )
    monkeypatch.setattr(rate_search, "deal", dealt)
    run = Run(batch=64, rate=0.02)
    found = comparison.compare(run, Namespace(size=1433), lambda rate, *_: rate, None)
    assert {cell[3] for cell, _ in tried} == {5} and {cell[3] for cell, _ in judged} == {5, 20}
    assert {exponent for _, exponent in judged} == {-1}
    assert [row["rate"] for row in found["rows"]] == [0.01] * len(found["rows"])
    epochs = sum(cell[3] for cell, _ in tried + judged)
    assert epochs <= 690, "the default would end after more than four minutes on two cores"


def test_a_folder_of_images_has_other_seeds():
    found = comparison.places(Run(data="folder"))
    assert {fold for fold, _ in found} == {0} and rate_search.TUNED_ON not in found
    assert len(set(found)) == len(found) >= ENOUGH


@pytest.mark.parametrize("asked, count", [(None, 4), (3, 3), (10, 10)])
def test_lesson_06_trains_as_many_of_each_kind_as_asked(asked, count, monkeypatch):
    trained = []

    def learn_all(run, split, jobs):
        trained.extend(jobs)
        return {job: {"loss": job.rate, "accuracy": float(job.seed)} for job in jobs}

    monkeypatch.setattr(study, "learn_all", learn_all)
    found = study.compare(Run(pairs=asked), None)
    assert found["pairs"] == learning.pairs(count) and len(set(found["pairs"])) == count
    rows = [*found["forms"].values(), *found["choice"].values(), *found["why"].values()]
    assert {len(row["runs"]) for row in rows} == {count}
    assert len(set(trained)) == 12 * count  # of 12 kinds
