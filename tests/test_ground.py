"""The ground: seeds, artefacts, the run directory, and the words of the answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcollab
from fedcollab import files, seeds
from fedcollab.errors import InputError, choose, number
from fedcollab.report.words import range_of_names
from fedcollab.runs.run import Run


def test_public_names_are_few_and_there() -> None:
    assert len(fedcollab.__all__) <= 22
    for name in fedcollab.__all__:
        assert getattr(fedcollab, name) is not None
    with pytest.raises(AttributeError, match="No fedcollab attribute nothing"):
        fedcollab.nothing  # noqa: B018


def test_the_solver_path_does_not_import_torch() -> None:
    program = (
        "import sys, fedcollab; fedcollab.solve([[0, .1], [.1, 0]], [5, 5]);"
        "print([name for name in ('torch', 'pandas', 'sklearn', 'scipy', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@given(st.integers(0, 2**31), st.lists(st.one_of(st.integers(0, 99), st.text(max_size=4)), max_size=4))
def test_seeds_depend_on_every_part(seed: int, path: list[int | str]) -> None:
    assert seeds.derive(seed, *path) == seeds.derive(seed, *path)
    assert 0 <= seeds.derive(seed, *path) < 2**63
    assert seeds.derive(seed, *path) != seeds.derive(seed + 1, *path)
    assert seeds.derive(seed, *path) != seeds.derive(seed, *path, 0)
    assert seeds.derive(seed, *path, 1) != seeds.derive(seed, *path, "1")


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
        lambda s: st.lists(s) | st.dictionaries(st.text(), s),
    )
)
def test_artefacts_are_json(value: object) -> None:
    assert json.loads(files.dumps(value)) == value


def test_arrays_and_missing_numbers_in_artefacts() -> None:
    assert json.loads(files.dumps({"a": np.array([[1.5, np.nan]]), "b": np.int64(3)})) == {
        "a": [[1.5, None]],
        "b": 3,
    }


def test_what_a_killed_writer_left_is_swept_away(tmp_path: Path) -> None:
    """A writer killed between its temporary file and the rename; one that still writes keeps its own."""
    fcntl = pytest.importorskip("fcntl")
    stop = "import os, signal, sys; from fedcollab import files\n"
    stop += "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    stop += "files.write_json(sys.argv[1], 'thing', {})"
    for name in ("a.json", "b.json"):
        died = subprocess.run([sys.executable, "-c", stop, str(tmp_path / name)], check=False)
        assert died.returncode == -signal.SIGKILL
    (left_a,), (left_b,) = tmp_path.glob(".a.json.*"), tmp_path.glob(".b.json.*")
    living, stranger = tmp_path / f".a.json.living{files.UNFINISHED}", tmp_path / ".a.json.swp"
    stranger.touch()
    with living.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        files.write_json(tmp_path / "a.json", "thing", {"x": 1})
        assert living.exists()
    assert stranger.exists()
    assert not left_a.exists()
    assert left_b.exists()
    files.sweep(tmp_path / "b.json")
    assert not left_b.exists()


def test_files_are_written_where_there_are_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def none(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", none)
    for _ in range(2):
        files.write_json(tmp_path / "a.json", "thing", {"x": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_run_killed_at_its_first_file_can_be_started_again(tmp_path: Path) -> None:
    (tmp_path / f".run.json.abc{files.UNFINISHED}").touch()
    Run.start(tmp_path, {"C": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_an_artefact_is_whole_or_absent(tmp_path: Path) -> None:
    files.write_json(tmp_path / "a.json", "thing", {"x": 1})
    with pytest.raises(TypeError):
        files.write_json(tmp_path / "a.json", "thing", {"x": object()})
    assert files.read_json(tmp_path / "a.json", "thing")["x"] == 1
    assert os.listdir(tmp_path) == ["a.json"]


def test_targets_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for target, line in (
        (tmp_path, "is a folder; expected a file"),
        (tmp_path / "file" / "below", "is not a folder that you may write to"),
        (Path("/dev/null"), "is a device; expected a file"),
    ):
        with pytest.raises(InputError, match=line):
            files.write_json(target, "thing", {})
    assert (tmp_path / "file").read_text() == "kept"
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "does not exist; expected a thing file"),
        ("{", "is not JSON (line 1"),
        ("[]", "is not a fedcollab file"),
        ('{"fedcollab": "other"}', "is a other file; expected a thing file"),
        ('{"fedcollab": "thing", "format": 99}', "has format 99; this version reads format 1"),
    ],
)
def test_wrong_files_are_recognised(tmp_path: Path, content: str | None, line: str) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError) as caught:
        files.read_json(path, "thing")
    assert line in str(caught.value)


def test_a_run_goes_on_or_refuses(tmp_path: Path) -> None:
    settings = {"C": "auto", "seed": 3, "sizes": (1, 2)}
    run = Run.start(tmp_path / "r", settings)
    files.write_json(run.file("distances.json"), "distances", {})
    again = Run.start(tmp_path / "r", settings)
    assert again.has("distances.json")
    assert again.config()["settings"]["seed"] == 3
    with pytest.raises(InputError, match=r"other settings \(seed\)"):
        Run.start(tmp_path / "r", {**settings, "seed": 4})
    fresh = Run.start(tmp_path / "r", {**settings, "seed": 4}, fresh=True)
    assert not fresh.has("distances.json")


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for fresh in (False, True):
        with pytest.raises(InputError, match="is not empty and holds no run"):
            Run.start(tmp_path, {}, fresh=fresh)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    with pytest.raises(InputError, match="is a file"):
        Run.start(tmp_path / "thesis.txt", {})


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "many", None, True])
def test_numbers_are_checked(value: object) -> None:
    with pytest.raises(InputError, match=r"`C` .* must be a finite number above 0"):
        number("C", value, above=0)


def test_choices_are_listed() -> None:
    with pytest.raises(InputError, match=r"`algorithm` \(='avg'\) must be one of: ditto, fedavg"):
        choose("algorithm", "avg", {"fedavg": 1, "ditto": 2})


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "a"),
        (["c1", "c2"], "c1, c2"),
        (["c8", "c9", "c10", "d"], "c8 … c10, d"),
        (["c1", "c3", "c5"], "c1, c3, c5"),
    ],
)
def test_names_in_a_line(names: list[str], text: str) -> None:
    assert range_of_names(names) == text
