"""lessons/notebook.ipynb is a lesson by itself: it runs on NumPy, matplotlib and Jupyter."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="next: pip install -e '.[notebook]'")
nbclient = pytest.importorskip("nbclient")

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "lessons" / "notebook.ipynb"
NOT_THERE = "mpi4py", "numba", "threadpoolctl", "safetensors", "scipy"  # for the notebook


def idea(lesson: str) -> str:
    """The source of a lesson's idea: between its title and the next one."""
    _, _, rest = (ROOT / "lessons" / lesson).read_text().partition("# ---- the idea")
    return rest.partition("\n")[2].partition("# ---- ")[0].strip()


def test_the_idea_is_that_of_the_lesson():
    cells = [cell.source for cell in nbformat.read(NOTEBOOK, as_version=4).cells]
    assert idea("01_ring_allreduce.py") in cells, "copy its idea again"
    assert not any("--quick" in cell for cell in cells)


def test_the_notebook_is_saved_without_output():
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert cell.cell_type == "markdown" or (not cell.outputs and cell.execution_count is None)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the notebook with this content of my_ring.py -> (text, kinds of other outputs)."""
    for name in NOT_THERE:
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('no {name} here')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for folder in ("refgf", "lessons/student"):
        (tmp_path / "lessons").mkdir(exist_ok=True)
        (tmp_path / folder).symlink_to(ROOT / folder)

    def execute(answer: str = ""):
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        (writes,) = (cell for cell in notebook.cells if cell.source.startswith("%%writefile"))
        if answer:
            writes.source = f"{writes.source.splitlines()[0]}\n{answer}"
        resources = {"metadata": {"path": str(tmp_path / "lessons")}}
        nbclient.NotebookClient(notebook, timeout=240, resources=resources).execute()
        found = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        kinds = [kind for output in found for kind in output.get("data", {})]
        return "".join(output.get("text", "") for output in found), kinds

    return execute


def test_the_notebook_runs(run):
    text, kinds = run()
    assert "rank 0         1     [1111]     1101      1001" in text  # after step 2
    assert "3 of 19 points" in text and "is not written yet" in text and "Deadlock" in text
    assert kinds.count("image/png") == 1 and kinds.count("text/html") == 1


@pytest.mark.long
def test_the_notebook_with_a_ring_that_is_right(run):
    text, _ = run((ROOT / "lessons" / "teaching" / "answers" / "01.py").read_text())
    assert "19 of 19 points" in text and "is not written yet" not in text
