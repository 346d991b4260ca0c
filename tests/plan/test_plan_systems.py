"""Predicted steps of each system: equal to the pieces they are made of; intervals hold."""

import math
import time
from dataclasses import replace

import pytest

from refgf.papers.scaling.systems import System, step
from refgf.plan import buckets, report, systems, thetas
from refgf.plan.fabric import CHOSEN, Fabric, load
from refgf.plan.inputs import read_model
from refgf.plan.question import Question, Unmodelled, ranges, varied
from refgf.plan.step_times import StepTimes
from refgf.plan.systems import CSC_PERCENT, MOST_EXACT, SYSTEMS, fastest, two_level_ring_s
from refgf.plan.uncertainty import curve, planned
from refgf.predict.cost import Line, Link, ring_line
from refgf.predict.timeline import one_call, predict

BETWEEN, INSIDE = Link(30e-6, 8e-10), Link(3e-6, 1e-10)
STEP = StepTimes("small", "this test", ((0.010, 1000), (0.011, 500_000), (0.020, 2_000_000)), 0.002)
FABRIC = Fabric("net", "this test", BETWEEN, INSIDE)


def question(size, per_node=1, **changes):
    return Question(STEP, FABRIC, size, per_node, **changes)


def test_one_rank_has_no_exchange():
    for name, system in SYSTEMS.items():
        assert system.step_s(question(1)) == pytest.approx(STEP.compute_s), name


def test_eager_is_the_predictor_s_eager_step():
    line = ring_line(8, BETWEEN)
    expected = step(STEP.ready, System("eager"), line).step_s + STEP.after_s
    assert SYSTEMS["eager"].step_s(question(8)) == pytest.approx(expected)
    by_hand_s, end_s = 0.0, 0.0
    for ready_s, elements in STEP.ready:
        end_s = max(end_s, ready_s) + line(4 * elements)
        by_hand_s = end_s + STEP.after_s
    assert SYSTEMS["eager"].step_s(question(8)) == pytest.approx(by_hand_s)


def test_top_k_and_daso_by_hand():
    sent_s = 7 * 2 * BETWEEN.message_s(4 * math.ceil(0.01 * STEP.elements))
    assert SYSTEMS["top-k"].step_s(question(8)) == pytest.approx(STEP.compute_s + sent_s)
    assert SYSTEMS["DASO"].step_s(question(8)) == STEP.compute_s  # hidden behind one batch
    slow = FABRIC.scaled(beta=4.0)
    sum_s = 2 * 7 * slow.between.message_s(4 * math.ceil(STEP.elements / 8))
    expected = STEP.compute_s + (sum_s - STEP.compute_s) / 4
    assert SYSTEMS["DASO"].step_s(Question(STEP, slow, 8)) == pytest.approx(expected)


@pytest.mark.parametrize("beta", [1.0, 4.0], ids=["hidden", "longer than a batch"])
def test_daso_s_sum_slows_the_batch_that_hides_it(beta):
    fabric = FABRIC.scaled(beta=beta)
    sum_s = 2 * 7 * fabric.between.message_s(4 * math.ceil(STEP.elements / 8))
    assert (sum_s < STEP.compute_s) is (beta == 1)
    for overlap in (0.0, 0.2, 0.8, 1.0):
        slower_s = (1 - overlap) * sum_s  # backward keeps `overlap` of its speed, and goes on
        expected = STEP.compute_s + max(slower_s, sum_s - STEP.compute_s) / 4
        asked = Question(STEP, fabric, 8, overlap=overlap)
        assert SYSTEMS["DASO"].step_s(asked) == pytest.approx(expected)


def test_top_k_s_time_and_memory_are_of_the_same_exchange():
    """HiTopKComm receives the pairs of a slice from all nodes; k of them share a node's link."""
    asked = question(64, 4)
    received = 8 * math.ceil(math.ceil(0.01 * STEP.elements) / 4) * 15  # of the other nodes
    assert systems.pairs_of_topk(asked) == received * 16 // 15
    least_s = STEP.compute_s + 2 * 15 * BETWEEN.alpha_s + 4 * received * BETWEEN.beta_s_per_byte
    inside_s = 2 * 3 * INSIDE.message_s(4 * math.ceil(STEP.elements / 4))
    assert SYSTEMS["top-k"].step_s(asked) == pytest.approx(least_s + inside_s)


def test_float16_in_two_levels_is_a_candidate():
    """BERT-Large on 10 Gbit/s and 1250 x 8 ranks: by hand about 1.3 s, and `half` takes 1.8 s."""
    fabric = load("mgwfbp-10gbe")
    between, inside = fabric.between, Link(5e-6, 1e-11)
    asked = Question(
        read_model("bert", fabric, 8, 49.0), Fabric("net", "this test", between, inside), 10_000, 8
    )
    nbytes = 2 * asked.step.elements
    by_hand_s = 2 * 1249 * between.alpha_s + 2 * between.beta_s_per_byte * nbytes
    by_hand_s += 2 * 7 / 8 * inside.beta_s_per_byte * nbytes + asked.step.compute_s
    found_s = SYSTEMS["hierarchy16"].step_s(asked)
    assert 0.85 * by_hand_s < found_s <= 1.01 * by_hand_s  # backward hides some of it
    assert found_s < min(SYSTEMS["half"].step_s(asked), SYSTEMS["hierarchy"].step_s(asked))


def test_many_gradients_are_merged_no_worse_than_by_theta():
    """Above MOST_EXACT the greedy rule may end with one call after all of backward."""
    fabric = load("v100-56gbit")
    asked = Question(read_model("resnet152", fabric, 32, 150.0), fabric, 256, 8)
    assert len(asked.step.ready) > MOST_EXACT
    assert SYSTEMS["merged"].step_s(asked) <= SYSTEMS["theta"].step_s(asked)


@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("model", ["alexnet", "resnet50", "small"])
def test_no_groups_of_consecutive_gradients_that_are_tried_beat_merged(model, overlap):
    """Those of theta, of eager and of one call are consecutive, too."""
    fabric = load("mgwfbp-10gbe")
    step = STEP if model == "small" else read_model(model, fabric, None, None)
    for size, per_node in [(4, 1), (64, 8)]:
        asked = Question(step, fabric, size, per_node, overlap)
        seconds = {name: SYSTEMS[name].step_s(asked) for name in ("merged", "theta", "eager")}
        merged_s = seconds.pop("merged") * (1 - 1e-9)
        one_call_s = SYSTEMS["merged"].with_calls(asked, one_call(step.ready))
        assert merged_s <= min(*seconds.values(), one_call_s)


def test_better_groups_are_never_slower():
    for size, per_node in [(2, 1), (16, 4), (256, 8)]:
        seconds = {name: SYSTEMS[name].step_s(question(size, per_node)) for name in SYSTEMS}
        assert seconds["merged"] <= seconds["theta"] <= seconds["eager"]
        assert seconds["half"] <= seconds["theta"]
        if per_node > 1:
            assert seconds["hierarchy"] <= seconds["theta"]
            assert seconds["hierarchy16"] <= min(seconds["hierarchy"], seconds["half"])
        else:
            assert seconds["hierarchy"] is seconds["hierarchy16"] is None


def test_two_levels_on_nodes_of_one_rank_are_a_ring():
    flat = ring_line(8, BETWEEN)(4 * 8000)
    assert two_level_ring_s(8, 1, 8000, 4, INSIDE, BETWEEN) == pytest.approx(flat)


def test_a_measured_allreduce_replaces_the_closed_form():
    fabric = Fabric("net", "this test", BETWEEN, lines={8: Line(1e-3, 5e-9)})
    assert Question(STEP, fabric, 8).flat == Line(1e-3, 5e-9)
    assert Question(STEP, fabric, 16).flat == ring_line(16, BETWEEN)


def test_one_node_uses_the_link_inside():
    assert question(4, 4).flat == ring_line(4, INSIDE)
    assert question(8, 4).flat == ring_line(8, BETWEEN)


SLOW_INSIDE = [  # PCIe nodes: a slower link inside, or one that is slower for long messages
    Link(2 * BETWEEN.alpha_s, 3 * BETWEEN.beta_s_per_byte),
    Link(BETWEEN.alpha_s / 4, 3 * BETWEEN.beta_s_per_byte),
]


@pytest.mark.parametrize("inside", SLOW_INSIDE, ids=["slower", "slower for long messages"])
@pytest.mark.parametrize("allreduce_s", [Question.flat.fget, fastest], ids=["flat", "fastest"])
def test_a_slower_link_inside_a_node_decides_the_ring(inside, allreduce_s):
    """All bytes of a ring cross each of its hops, so it is no faster than on one node alone."""
    links = (BETWEEN, inside)
    for size in (16, 64):
        found_s = allreduce_s(Question(STEP, Fabric("net", "this test", *links), size, 8))
        for nbytes in (0, 1000, 100_000_000):
            ring_s = max(ring_line(size, link)(nbytes) for link in links)
            if allreduce_s is not fastest:
                assert found_s(nbytes) == pytest.approx(ring_s)
            assert found_s(nbytes) >= 1.9 * inside.beta_s_per_byte * nbytes * 7 / 8


@pytest.mark.parametrize("inside", SLOW_INSIDE, ids=["slower", "slower for long messages"])
def test_a_second_node_makes_no_step_shorter(inside):
    fabric = Fabric("net", "this test", BETWEEN, inside)
    for name in ("eager", "theta", "merged", "half", "CSC", "top-k"):
        one, two = (SYSTEMS[name].step_s(Question(STEP, fabric, size, 8)) for size in (8, 16))
        assert two >= one, name
    one, two = (buckets.of_ddp(Question(STEP, fabric, size, 8))["step_s"] for size in (8, 16))
    assert two >= one


def test_many_gradients_on_two_links_are_merged():
    """The greedy rule knows the latency of a call; no line has both links."""
    ready = tuple((1e-4 * i, 50_000) for i in range(MOST_EXACT + 1))
    fabric = Fabric("net", "this test", BETWEEN, SLOW_INSIDE[1])
    asked = Question(StepTimes("many", "this test", ready), fabric, 64, 8)
    assert (
        SYSTEMS["merged"].step_s(asked)
        <= SYSTEMS["theta"].step_s(asked)
        < SYSTEMS["eager"].step_s(asked)
    )


def test_the_interval_holds_a_ring_that_pays_the_mean_hop():
    """NCCL's text and a file of the same links: neither interval leaves the other's step out."""
    mean = Link((3 * INSIDE.alpha_s + BETWEEN.alpha_s) / 4, BETWEEN.beta_s_per_byte)
    measured = replace(FABRIC, ring_hop=mean, lines_per_node=4)
    blocking, pipelined = question(64, 4), Question(STEP, measured, 64, 4)
    plain = Unmodelled(least_overlap=1.0)
    blocking, pipelined = (replace(asked, unmodelled=plain) for asked in (blocking, pipelined))
    found, other = (planned("eager", asked) for asked in (blocking, pipelined))
    assert found.low_s < other.step_s < other.high_s < found.step_s
    assert found.widths["ring"] > 0 and "ring" not in other.widths
    least, most = ranges(blocking)["ring"]
    ends_s = [SYSTEMS["eager"].step_s(varied(blocking, ring=factor)) for factor in (least, most)]
    assert ends_s == pytest.approx([other.step_s, found.step_s])
    (said,) = report.network_notes(blocking)
    assert "slowest hop, 30 us of latency" in said and "mean hop, 9.75 us" in said
    assert "ring, s of latency a step" in report.text(report.answer(blocking))
    for asked in (question(64, 1), question(4, 4)):  # all hops are alike
        assert "ring" not in ranges(asked) and report.network_notes(asked) == []


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_intervals_hold_and_their_widest_input_is_named(name):
    found = planned(name, question(64, 4))
    assert found.low_s < found.step_s < found.high_s
    assert found.widest == max(found.widths, key=found.widths.get)
    for alpha in CHOSEN["alpha"]:
        for beta in CHOSEN["beta"]:
            for pace in (0.97, 1.03):
                asked = Question(STEP.scaled(pace), FABRIC.scaled(alpha, beta), 64, 4)
                asked = replace(asked, groups=SYSTEMS[name].best_calls(question(64, 4)))
                assert found.low_s <= SYSTEMS[name].step_s(asked) * (1 + 1e-12)
                assert SYSTEMS[name].step_s(asked) <= found.high_s * (1 + 1e-12)


def test_an_interval_keeps_the_calls_of_its_step():
    """No other theta is taken where a message costs eight times as much. Eager is one of a tie."""
    ready = tuple((0.001 * i, 100_000) for i in range(1, 41))
    wide = Fabric("net", "this test", Link(10e-6, 1e-10), ranges={"alpha": (0.5, 8.0)})
    asked = Question(StepTimes("even", "this test", ready), wide, 8)
    slow = replace(asked, fabric=wide.scaled(alpha=8.0))
    assert SYSTEMS["theta"].step_s(slow) < 0.9 * SYSTEMS["eager"].step_s(slow)
    eager, *others = (planned(name, asked) for name in ("eager", "theta", "merged", "half"))
    assert others[0].step_s == pytest.approx(eager.step_s) and others[0].high_s < eager.high_s
    for name, row in zip(("theta", "merged", "half"), others):
        kept = replace(asked, groups=SYSTEMS[name].best_calls(asked))
        high_s = SYSTEMS[name].step_s(varied(kept, 1.03, overlap=0.7, alpha=8.0))
        assert row.high_s == pytest.approx(high_s)
        assert high_s >= SYSTEMS[name].step_s(varied(asked, 1.03, alpha=8.0))
    assert others[0].high_s > 1.001 * SYSTEMS["theta"].step_s(varied(asked, 1.03, alpha=8.0))


def test_of_equal_steps_the_theta_whose_interval_is_the_narrowest():
    """Of thetas with equal intervals the smallest, because it is sent earlier."""
    ready = tuple((0.001 * i, 100_000) for i in range(1, 41))
    wide = Fabric("net", "this test", Link(10e-6, 1e-10), ranges={"alpha": (0.5, 8.0)})
    asked = Question(StepTimes("even", "this test", ready), wide, 8)
    swept, slow = SYSTEMS["theta"].sweep(asked), varied(asked, 1.03, alpha=8.0)
    ends_s = SYSTEMS["theta"].sweep(slow)
    ties = [theta for theta in swept if swept[theta] < (1 + 1e-9) * min(swept.values())]
    best = SYSTEMS["theta"].best_theta(asked)
    assert ties[0] == 0 < best and ends_s[best] < 0.95 * ends_s[0]
    assert all(ends_s[theta] > (1 - 1e-3) * ends_s[best] for theta in ties)
    assert all(ends_s[theta] > ends_s[best] for theta in ties if theta < best)


def test_chunks_that_wait_for_more_are_sent_when_backward_ends():
    """CSC chooses chunks of the first tensor only: one call of all waits for the second tensor."""
    step = StepTimes("two", "this test", ((0.1, 1_000_000), (0.5, 1000)))
    asked = Question(step, FABRIC, 8)
    swept = SYSTEMS["CSC"].sweep(asked)
    chosen, (norms,) = thetas.sent(step.ready, 2, CSC_PERCENT)
    assert chosen[-2][0] == 0.1 and chosen[-1] == (0.5, 0)
    one_call_s = 0.5 + asked.flat(sum(nbytes for _, nbytes in chosen)) + asked.flat(norms[1])
    assert swept[max(swept)] == pytest.approx(one_call_s)
    assert swept[0] == pytest.approx(0.5 + asked.flat(norms[1]))
    assert 0 <= SYSTEMS["CSC"].best_theta(asked) < max(swept)


def test_a_theta_that_gains_a_thousandth_is_not_worth_a_wider_interval():
    """ResNet-50 on 256 ranks: the shortest step has calls that a higher latency costs 10 %."""
    fabric = Fabric("net", "this test", Link(5e-6, 4e-11))
    step = read_model("resnet50", load("v100-56gbit"), None, None)
    asked = Question(step, fabric, 256, 8)
    swept, slow = (
        SYSTEMS["theta"].sweep(asked),
        varied(asked, 1.1, overlap=0.7, alpha=1.5, beta=1.15),
    )
    shortest, best = min(swept, key=swept.get), SYSTEMS["theta"].best_theta(asked)
    assert swept[best] <= (1 + thetas.EQUAL) * swept[shortest]
    ends_s = SYSTEMS["theta"].sweep(slow)
    assert ends_s[best] < 0.95 * ends_s[shortest]
    assert planned("theta", asked).high_s == pytest.approx(ends_s[best])
    assert thetas.best({0: 1.0, 8: 1.0005, 16: 1.002}, {0: 3.0, 8: 2.0, 16: 1.0}.get) == 8


def test_efficiency_at_the_asked_size_is_that_of_the_table():
    found = report.answer(question(64, 4))
    for name, row in found["systems"].items():
        assert found["efficiency_percent"][name][64] == pytest.approx(row["efficiency_percent"])
    assert list(found["efficiency_percent"]["eager"])[-1] == 4096


def test_sizes_of_nodes_that_hold_no_power_of_two():
    assert report.sizes(6)[:4] == [1, 6, 12, 24]
    assert all(
        value is None or value <= 100
        for value in curve(lambda size: question(size, 6), [1, 6, 12])["half"].values()
    )


def per_rank(asked):
    return {name: system.bytes_per_rank(asked) for name, system in SYSTEMS.items()}


def test_memory():
    found, n = per_rank(question(4)), STEP.elements
    assert found["theta"] == 12 * n + 4 * math.ceil(n / 4)
    assert found["half"] - found["theta"] == 2 * n
    assert found["top-k"] == 16 * n + 8 * math.ceil(n / 100) * 4
    assert found["top-k"] == per_rank(question(4, 4))["top-k"]  # one node gathers flat, too
    levels, chosen = per_rank(question(64, 4)), math.ceil(math.ceil(n / 100) / 4)
    assert levels["top-k"] == 12 * n + 2 * 4 * math.ceil(n / 4) + 8 * chosen * 16
    assert levels["hierarchy16"] - levels["hierarchy"] == 2 * n
    assert set(per_rank(question(1)).values()) == {12.0 * n}


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"size": 0}, "got 0 ranks, 1 a node; wanted 1 or more"),
        ({"size": 6, "per_node": 4}, "wanted full nodes"),
        ({"size": 4, "overlap": 2.0}, "--overlap 2.0; wanted 0 to 1"),
        ({"size": 4, "allreduce": "star"}, "wanted one of ring, recursive doubling"),
        ({"size": 8, "per_node": 4, "allreduce": "tree"}, "several would share its link"),
    ],
)
def test_questions_without_an_answer(changes, said):
    with pytest.raises(ValueError, match="next: ") as error:
        question(**changes)
    assert said in str(error.value)


def test_models_by_name():
    fabric = load("mgwfbp-10gbe")
    found = read_model("resnet50", fabric, None, None)
    assert (found.batch, found.compute_s) == (64, pytest.approx(64 / 930))
    assert read_model("ResNet-50", fabric, 32, 465.0).compute_s == pytest.approx(64 / 930)
    assert read_model("bert", fabric, 8, 49.0).name == "BERT-Large"
    with pytest.raises(ValueError, match="got no batch and rate .* --batch B --rate R"):
        read_model("bert", fabric, None, None)


def test_all_sizes_of_the_largest_model_in_ten_seconds():
    start_s = time.process_time()  # the bar of `plan`; other jobs do not count
    fabric = load("mgwfbp-10gbe")
    report.answer(Question(read_model("bert", fabric, 8, 49.0), fabric, 64, 4))
    assert time.process_time() - start_s < 10


def test_a_sweep_times_calls_of_equal_size_once():
    """Transformers repeat their layers: of 291 tensors of Llama-2-7B few sizes differ."""
    asked, sizes = [], [100, 200] * 8

    def allreduce_s(question):
        return lambda nbytes: asked.append(nbytes) or 1e-3 + 1e-9 * nbytes

    step = StepTimes("made", "", tuple((0.01 * (i + 1), n) for i, n in enumerate(sizes)))
    question = Question(step, Fabric("made", "", Link(1e-6, 1e-9)), 4)
    system = replace(SYSTEMS["theta"], allreduce_s=allreduce_s)
    swept, tried = system.sweep(question), system.tried(question)
    assert len(asked) == len(set(asked)) < sum(map(len, tried.values()))
    for theta, groups in tried.items():
        alone = predict([(t, 4 * n) for t, n in step.ready], groups, allreduce_s(question))
        assert swept[theta] == alone.step_s
