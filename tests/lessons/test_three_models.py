"""Lesson 08's three models: what they say of a ring, and what is left of them without SimGrid."""

from types import SimpleNamespace

import matplotlib
import pytest

matplotlib.use("Agg")

from kit import claims  # noqa: E402  after the backend is chosen
from kit.claims import FAILS, HOLDS  # noqa: E402
from lab.scaling import models, models_picture  # noqa: E402
from lab.scaling.claims import CLAIMS, SHARP_HEADLINE, gains  # noqa: E402
from refgf.comm import ring  # noqa: E402
from refgf.plan import platforms, replay  # noqa: E402
from refgf.predict.cost import Link  # noqa: E402

NO_SIMGRID = "no smpirun: apt-get install libsimgrid-dev"

SIMULATED = [claim for claim in CLAIMS if "formula is" in claim.text or "the formula" in claim.text]


def run_of(said: list) -> SimpleNamespace:
    """A quick run that collects what it prints."""
    print_ = {name: said.append for name in ("say", "tell", "section")}
    return SimpleNamespace(
        **print_, table=lambda *rows: said.append(rows), quick=lambda *sizes: sizes[0]
    )


def test_without_simgrid_the_closed_form_is_left(monkeypatch):
    monkeypatch.setattr(replay, "installed", lambda: False)
    said = []
    found = models.compare(run_of(said))
    assert any("apt-get install libsimgrid-dev" in str(line) for line in said)
    assert max(map(int, found["closed_s"])) == 4096 and not found["links"]
    verdicts = claims.verdicts(SIMULATED, {"models": found})
    assert {verdict.verdict for verdict in verdicts} == {claims.NOT_MEASURED}
    panels = models_picture.draw(found)["models"].axes
    assert panels[1].get_title().startswith("No SimGrid")
    assert models_picture.draw({}) == {}


def test_round_robin_has_no_neighbours_below_one_switch():
    hosts = [f"n{i}" for i in range(64)]
    placed = models.round_robin(hosts)
    assert sorted(placed) == sorted(hosts)
    switches = [int(host[1:]) // 16 for host in placed]
    assert all(a != b for a, b in zip(switches, switches[1:]))


@pytest.mark.skipif(not replay.installed(), reason=NO_SIMGRID)
@pytest.mark.parametrize("model", models.MODELS.values())
def test_the_steps_of_a_ring_are_alike(model):
    """The first ones, times all over these, take as long as all of them, elements left over too."""
    link, p, n = Link(7.9e-6, 1 / 7e9), 61, 1_000_003
    platform = platforms.build("one-link", p, 1, link, link, True)
    all_s = replay.simulate(ring.allreduce, n, platform, 0.0, model)
    first_s = replay.simulate(models.first_steps, n, platform, 0.0, model)
    assert first_s * 2 * (p - 1) / models.STEPS == pytest.approx(all_s, rel=1e-3)
    assert models.first_steps(5, p, n) == ring.allreduce(5, p, n)[: models.STEPS]


@pytest.mark.skipif(not replay.installed(), reason=NO_SIMGRID)
def test_the_order_of_the_ranks_decides_on_a_fat_tree():
    found = models.compare(run_of([]))
    (p,) = found["tree"][models.IN_ORDER]
    closed_s = found["closed_s"][p]
    assert found["tree"][models.IN_ORDER][p] == pytest.approx(closed_s, rel=0.01)
    assert found["tree"][models.ROUND_ROBIN][p] == pytest.approx(2 * closed_s, rel=0.05)
    assert found["links"][models.CONTENTION]["4"] == pytest.approx(found["closed_s"]["4"], rel=1e-3)


def systems(few: float, many: float) -> dict:
    """Efficiencies that lazy allreduce raises from 10 by these factors on 4 and on 2048 GPUs."""
    ends = {"eager, float32, no overlap": [(10.0, 10.0)] * 2}
    ends["+ overlap"] = [(10.0, 10.0)] * 2
    ends["+ lazy allreduce"] = [(10 * few, 10 * few), (8.0 * many, 12.5 * many)]
    curves = {"systems": ends, "sizes": [4, 2048]}
    return {"far": {"ResNet-50": {"56 Gbit/s InfiniBand": curves}}}


@pytest.mark.parametrize("few, many, verdict", [(1.0, 8.0, HOLDS), (4.0, 8.0, FAILS)])
def test_what_helps_on_few_ranks_is_compared_with_many(few, many, verdict):
    (claim,) = [claim for claim in CLAIMS if "no technique gains on 2048" in claim.text]
    result = systems(few, many)
    assert gains(result, -1)["+ lazy allreduce"] == pytest.approx(many)
    assert claims.decide(claim, result).verdict == verdict


@pytest.mark.parametrize("low, verdict", [(428.0, HOLDS), (250.0, FAILS), (440.0, FAILS)])
def test_a_headline_that_is_inside_a_wide_interval_does_not_hold(low, verdict):
    (claim,) = [claim for claim in CLAIMS if "434.1" in claim.text]
    headline = {"name": SHARP_HEADLINE, "published": 434.1, "low": low, "high": 506.0}
    assert claims.decide(claim, {"headlines": [headline]}).verdict == verdict
