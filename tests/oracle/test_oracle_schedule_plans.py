"""Our own plans of MSCCL++, spoilt or large. Those by hand: tests/approval."""

from dataclasses import replace

from refgf.oracle.__main__ import main
from refgf.oracle.schedules.own import own_plan
from tests.support.schedule_cases import at, back, changed, verdict


def test_wrong_plans_are_named_with_rank_and_step():
    """Another slot, a signal before its put, a sum that is a copy."""
    plan = own_plan("ring", 3, "mscclpp-json", 3)
    put = plan.ranks[1][0]
    slot = replace(put.writes[0], start=3)
    judged = verdict(changed(plan, 1, 0, writes=(slot,)))
    assert judged.kind in ("race", "wrong value")
    early = list(plan.ranks[1])
    early[0], early[2] = replace(early[2], number=0, after=()), replace(early[0], number=2)
    ranks = (plan.ranks[0], tuple(early), plan.ranks[2])
    judged = verdict(back(replace(plan, ranks=ranks)))
    assert judged.kind == "race" and "rank 1, tb 0, step 2 (put)" in str(judged.found)
    index = at(plan, 2, "re")
    own = plan.ranks[2][index]
    judged = verdict(changed(plan, 2, index, op="copy", reads=own.reads[1:]))
    assert judged.kind == "wrong value"
    assert str(judged.found[0]).startswith(f"rank 2, tb 0, step {own.number} (copy)")


def test_more_channels_than_a_thread_block_has_room_for(tmp_path, capsys):
    """18 ranks that write to each other need 17 channels, so refgf writes no such plan."""
    export = ["schedule", "--export", "direct", "--format", "mscclpp-json", "--output", tmp_path]
    assert main([*map(str, export), "--ranks", "18"]) == 2
    assert "rank 0, tb 0: got 17 memory channels; wanted at most 16" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert main([*map(str, export), "--ranks", "17"]) == 0


def test_a_plan_of_more_than_64_ops_is_written_with_a_warning(tmp_path, capsys):
    export = ["--export", "ring", "--ranks", "16", "--format", "mscclpp-json"]
    assert main(["schedule", *export, "--output", str(tmp_path)]) == 0
    assert "executor takes 64 in a thread block" in capsys.readouterr().out
