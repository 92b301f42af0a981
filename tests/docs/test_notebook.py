"""The notebook of the examples runs in a kernel, and what its objects show is static, escaped and bounded."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "step_through.ipynb"

needs_kernel = [
    pytest.mark.skipif(
        not (find_spec("nbclient") and find_spec("ipykernel")),
        reason="needs nbclient and ipykernel: `uv sync --group notebook`; .ci/run installs them and runs this file",
    ),
    pytest.mark.filterwarnings("ignore"),  # of the libraries that run notebooks, which are not ours
]


def run_notebook(folder: Path) -> Any:
    """Return the notebook with the outputs of its cells; raises if a cell does."""
    import nbclient
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    kernel = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "language": "python",
    }
    specs = folder / "kernels" / "python3"
    specs.mkdir(parents=True)
    (specs / "kernel.json").write_text(json.dumps({**kernel, "display_name": "this Python"}))
    client = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3")
    client.create_kernel_manager()
    client.km.kernel_spec_manager.kernel_dirs = [str(folder / "kernels")]
    client.execute(cwd=str(folder))
    return notebook


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_notebook(tmp_path_factory.mktemp("notebook"))


class TestExecuted:
    pytestmark = needs_kernel

    def test_every_object_shows_itself_as_a_table_and_as_a_line(self, executed: Any) -> None:
        shown = {}
        for output in outputs(executed):
            data = output.get("data", {})
            if "text/html" in data:
                shown[data["text/plain"].partition("(")[0]] = data
        assert set(shown) >= {
            *(
                "Task",
                "TaskStepOutput",
                "StepOutputs",
                "RunResult",
                "TaskUsage",
                "TaskPage",
                "ThreadMessages",
            ),
            "TaskEnded",
        }
        for name, data in shown.items():
            assert len(data["text/plain"]) < 400, name
            assert len(data["text/html"]) < 60_000, name
            assert "<script" not in data["text/html"]
        for name in ("TaskStepOutput", "StepOutputs", "RunResult"):
            assert "<table" in shown[name]["text/html"]
            assert "<details" in shown[name]["text/html"]

    def test_nothing_is_printed_as_an_error(self, executed: Any) -> None:
        assert [output for output in outputs(executed) if output.output_type == "error"] == []
        assert [output for output in outputs(executed) if output.get("name") == "stderr"] == []

    def test_help_in_a_notebook_shows_the_signature(self, executed: Any) -> None:
        texts = "".join(output.text for output in outputs(executed) if output.get("name") == "stdout")
        assert "async run_step(task:" in texts
        assert "TaskParked" in texts


def test_the_notebook_is_stored_without_outputs() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 8
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
