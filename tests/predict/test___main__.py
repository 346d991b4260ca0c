"""`python -m refgf.predict` hands over to refgf.plan, which the core never imports."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_it_runs_the_planner():
    command = [sys.executable, "-m", "refgf.predict", "plan", "--model", "x", "--machine", "y"]
    ended = subprocess.run([*command, "--ranks", "2"], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "plan --machine: got 'y'; wanted mgwfbp-10gbe" in ended.stderr


def test_importing_the_predictor_does_not():
    code = "import refgf.predict.__main__, sys; assert 'refgf.plan' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
