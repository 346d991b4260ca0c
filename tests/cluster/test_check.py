"""Where there can be no cluster, the message names the reason, the setting, and --link."""

import pytest

from refgf.cluster import check


@pytest.mark.parametrize("system", ["Darwin", "Windows", "FreeBSD"])
def test_other_systems_are_refused(system):
    with pytest.raises(check.CannotRun, match=f"this is {system}.*--link 1gbit,50us"):
        check.require_linux(system)


def test_missing_tools_are_named_with_their_packages(tmp_path):
    with pytest.raises(check.CannotRun, match="missing: .*nsenter.*sudo apt-get install hostname iproute2 mount util-linux"):
        check.require_tools(str(tmp_path))
    for tool in check.TOOLS:
        (tmp_path / tool).touch(mode=0o755)
    check.require_tools(str(tmp_path))
    (tmp_path / "tc").unlink()
    with pytest.raises(check.CannotRun, match="missing: tc; next: sudo apt-get install iproute2"):
        check.require_tools(str(tmp_path))


def fake(tmp_path, fails_at: str, said: str) -> tuple:
    """A stand-in for `unshare ... sh -c script`: the stages before `fails_at` pass, that one complains."""
    stages = list(check.STAGES)
    passed = stages[: stages.index(fails_at)] if fails_at else stages
    script = tmp_path / f"unshare-{fails_at}"
    script.write_text("#!/bin/sh\n" + "".join(f"echo {s}\n" for s in passed) + f"echo '{said}' >&2\n")
    script.chmod(0o755)
    return (str(script),)


@pytest.mark.parametrize("stage", check.STAGES)
def test_the_stage_that_fails_is_named_with_what_was_said(tmp_path, stage):
    assert check.trial(fake(tmp_path, stage, "no such thing"), latency=True) == (stage, "no such thing")


def test_netem_is_needed_only_for_latency(tmp_path):
    assert check.trial(fake(tmp_path, "netem", "unknown"), latency=False)[0] is None
    assert check.trial(fake(tmp_path, "", ""), latency=True)[0] is None


REASONS = {"cables": "modprobe -a veth bridge", "tbf": "modprobe sch_tbf", "netem": "leave --latency out"}


@pytest.mark.parametrize("stage", REASONS)
def test_a_kernel_that_lacks_something_says_what_to_load(stage):
    assert REASONS[stage] in check.explain(stage, "said") and "(said)" in check.explain(stage, "said")


@pytest.mark.parametrize("name", check.FORBIDS)
def test_the_setting_that_forbids_is_named(tmp_path, name):
    status = tmp_path / "status"
    status.write_text("Seccomp:\t0\n")
    setting = tmp_path / name
    setting.parent.mkdir()
    forbidding, mend = check.FORBIDS[name]
    setting.write_text(f"{forbidding}\n")
    told = check.why_forbidden(tmp_path, status)
    assert name.replace("/", ".") in told and mend in told
    setting.write_text("5\n")
    assert "no known setting forbids them" in check.why_forbidden(tmp_path, status)


def test_a_container_is_recognised(tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nSeccomp:\t2\n")
    assert "--privileged" in check.why_forbidden(tmp_path, status)


def test_wrong_variant_a_failed_trial_taken_for_success_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "trial", lambda prefix, latency: ("namespaces", "Operation not permitted"))
    monkeypatch.setattr(check, "require_linux", lambda system: None)
    monkeypatch.setattr(check, "require_tools", lambda path: None)
    with pytest.raises(check.CannotRun, match=r"not to be had here \(Operation not permitted\).*--link"):
        check.unshare_command()
