"""lessons/notebook.ipynb runs, and its first cells are the lessons' own ideas."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="next: pip install -e '.[notebook]'")
nbclient = pytest.importorskip("nbclient")

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "lessons" / "notebook.ipynb"
LESSONS = ["01_ring_allreduce.py", "03_lazy_allreduce.py"]


def idea(lesson: str) -> str:
    """The source of a lesson's idea: between its title and the next one."""
    _, _, rest = (ROOT / "lessons" / lesson).read_text().partition("# ---- the idea")
    return rest.partition("\n")[2].partition("# ---- ")[0].strip()


def test_the_ideas_are_those_of_the_lessons():
    cells = [cell.source for cell in nbformat.read(NOTEBOOK, as_version=4).cells]
    for lesson in LESSONS:
        assert any(idea(lesson) in cell for cell in cells), f"{lesson}: copy its idea again"


def test_the_notebook_is_saved_without_output():
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert cell.cell_type == "markdown" or (not cell.outputs and cell.execution_count is None)


def test_the_notebook_runs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}}
    )
    client.execute()
    text = "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", [])
    )
    assert "same bits: True" in text and "Deadlock" in text and "claims hold" in text
    pictures = [
        o for c in notebook.cells for o in c.get("outputs", []) if "image/png" in o.get("data", {})
    ]
    assert len(pictures) == 2
