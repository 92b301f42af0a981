"""The mutation run itself: its edits are found again, and it tells a caught edit from one that no test notices."""

import ast
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from tests.mutants.edits import ROOT, Mutant, chosen, mutants_of, mutated, mutated_by_id

SOURCE = """
def enough(have: int, need: int) -> bool:
    if not need:
        return True
    return have >= need and need > 0
"""


def edited(kind: str, source: str = SOURCE, text: str | None = None) -> str:
    [mutant] = [m for m in mutants_of("treadle.core.a", source) if m.kind == kind and text in (None, m.text)]
    tree = mutated_by_id(mutant.id, source)
    assert tree is not None
    return ast.unparse(tree)


def test_an_edit_changes_one_place_of_a_function() -> None:
    assert "have > need and need > 0" in edited("compare", text="have >= need")
    assert "have >= need or need > 0" in edited("boolean")
    assert "if need:" in edited("not")
    assert "if False:" in edited("never")
    assert "need > 1" in edited("constant", text="0")


def test_an_edit_is_found_again_after_edits_elsewhere() -> None:
    longer = "import os\n\ndef other(a):\n    return a >= 1\n" + SOURCE
    before = {mutant.id for mutant in mutants_of("treadle.core.a", SOURCE)}
    assert before < {mutant.id for mutant in mutants_of("treadle.core.a", longer)}
    assert mutated_by_id("treadle.core.a:enough compare #0 have < need", longer) is None


def test_a_seed_chooses_the_same_edits_by_the_lines_of_each_room() -> None:
    few, more = chosen(1, 10, ("drivers",)), chosen(1, 20, ("drivers",))
    assert more[:10] == few
    assert len(more) == 20
    assert all(mutated(mutant) for mutant in more)


def test_a_planted_defect_is_caught_and_one_that_changes_nothing_survives(tmp_path: Path) -> None:
    def planted(module: str, function: str, kind: str, text: str) -> Mutant:
        return next(
            mutant
            for mutant in mutants_of(f"treadle.core.{module}")
            if (mutant.function, mutant.kind, mutant.text) == (function, kind, text)
        )

    mutants = {
        "caught": planted("labels", "untrusted_origin", "compare", "label.integrity != 'trusted'"),
        # 80 characters are cut to 80.
        "survived": planted("labels", "Label.__post_init__", "compare", "len(self.origin) > ORIGIN_CHARS"),
        "no test": planted("questions", "expires_at", "never", "headless"),
    }
    earlier, out = tmp_path / "earlier.jsonl", tmp_path / "out.jsonl"
    verdict = {"verdict": "caught", "test": None, "run": 1, "of": 1, "cpu": 0}
    earlier.write_text("".join(json.dumps(asdict(mutant) | verdict) + "\n" for mutant in mutants.values()))
    command = ["-m", "tests.mutants", "--seed", "1", "--again", str(earlier), "--out", str(out)]
    command += ["tests/core/test_labels.py"]
    # A new process: it has to import Treadle in its own way.
    ended = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["id"]: row["verdict"] for row in rows} == {m.id: name for name, m in mutants.items()}
    assert "test_labels.py" in rows[0]["test"]
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert f"no longer caught by None: {mutants['survived'].id}" in ended.stdout
