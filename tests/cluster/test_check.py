"""If no cluster can run, the message names the reason, the setting, and --link."""

import pytest

from refgf.cluster import check


@pytest.mark.parametrize("system", ["Darwin", "Windows", "FreeBSD"])
def test_other_systems_are_refused(system):
    with pytest.raises(check.CannotRun, match=f"got {system}; wanted Linux.*--link 1gbit,50us"):
        check.require_linux(system)


def test_missing_tools_are_named_with_their_packages(tmp_path):
    install = "sudo apt-get install hostname iproute2 mount util-linux"
    with pytest.raises(check.CannotRun, match=f"missing: .*nsenter.*{install}"):
        check.require_tools(str(tmp_path))
    for tool in check.TOOLS:
        (tmp_path / tool).touch(mode=0o755)
    check.require_tools(str(tmp_path))
    (tmp_path / "tc").unlink()
    with pytest.raises(check.CannotRun, match="missing: tc; next: sudo apt-get install iproute2"):
        check.require_tools(str(tmp_path))


def fake(tmp_path, fails_at: str, message: str) -> tuple[str]:
    """A fake `unshare ... sh -c script`: the stages before `fails_at` pass; it prints a message."""
    stages = list(check.STAGES)
    passed = stages[: stages.index(fails_at)] if fails_at else stages
    lines = ["#!/bin/sh", *(f"echo {stage}" for stage in passed), f"echo '{message}' >&2", ""]
    script = tmp_path / f"unshare-{fails_at}"
    script.write_text("\n".join(lines))
    script.chmod(0o755)
    return (str(script),)


@pytest.mark.parametrize("stage", check.STAGES)
def test_the_stage_that_fails_is_named_with_its_message(tmp_path, stage):
    outcome = check.try_stages(fake(tmp_path, stage, "no such thing"), latency=True)
    assert outcome == (stage, "no such thing")


def test_netem_is_needed_only_for_latency(tmp_path):
    assert check.try_stages(fake(tmp_path, "netem", "unknown"), latency=False)[0] == ""
    assert check.try_stages(fake(tmp_path, "", ""), latency=True)[0] == ""


REASONS = {
    "cables": "modprobe -a veth bridge",
    "tbf": "modprobe sch_tbf",
    "netem": "leave --latency out",
}


@pytest.mark.parametrize("stage", REASONS)
def test_a_missing_kernel_module_is_named(stage):
    explanation = check.explain(stage, "a message")
    assert REASONS[stage] in explanation and "(a message)" in explanation


@pytest.mark.parametrize("name", check.FORBIDS)
def test_the_setting_that_forbids_is_named(tmp_path, name):
    status = tmp_path / "status"
    status.write_text("Seccomp:\t0\n")
    setting = tmp_path / name
    setting.parent.mkdir()
    forbidding, fix = check.FORBIDS[name]
    setting.write_text(f"{forbidding}\n")
    reason = check.find_forbidding_setting(tmp_path, status)
    assert name.replace("/", ".") in reason and fix in reason
    setting.write_text("5\n")
    assert "no known setting forbids them" in check.find_forbidding_setting(tmp_path, status)


def test_a_container_is_recognised(tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nSeccomp:\t2\n")
    assert "--privileged" in check.find_forbidding_setting(tmp_path, status)


def test_a_failed_trial_is_an_error(tmp_path, monkeypatch):
    outcome = "namespaces", "Operation not permitted"
    monkeypatch.setattr(check, "try_stages", lambda prefix, latency: outcome)
    monkeypatch.setattr(check, "require_linux", lambda system: None)
    monkeypatch.setattr(check, "require_tools", lambda path: None)
    with pytest.raises(check.CannotRun, match=r"can be made here \(Operation not per.*--link"):
        check.unshare_command()
