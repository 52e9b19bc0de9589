"""Damaged artefacts, full disks, folders that may not be written to, clocks that jump, two processes in one folder."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

from fedcollab import files
from fedcollab.cli import cli
from fedcollab.cli.sources import locate
from fedcollab.coalitions import CPath
from fedcollab.data import ClientData
from fedcollab.distances import Distances
from fedcollab.errors import FedcollabWarning, InputError
from fedcollab.report import write
from fedcollab.runs import Run
from fedcollab.runs.pipeline import FedCollab
from fedcollab.training import TrainingResult, checkpoint, train
from fedcollab.wire import Wire

SMALL: dict[str, Any] = {"model_options": {"widths": [4]}, "lr": 0.1, "stopping": "none", "rounds": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with all stages."""
    rng = np.random.default_rng(0)
    made = []
    for name in "abcd":
        y = np.arange(40) % 2
        x = rng.normal(0, 1, (40, 3)) + np.outer(2 * y - 1, [1.0, 0, 0])
        made.append(ClientData(name, x[:24], y[:24] if name < "c" else 1 - y[:24], x[24:], y[24:]))
    path = tmp_path_factory.mktemp("runs") / "run"
    fitted = FedCollab(distance="few-round", C=5.0, run_dir=path).fit(made)
    results = {way: fitted.train(way=way, **SMALL) for way in ("local", "coalitions")}
    fitted.compare(results)
    return path


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Path:
    """A copy of that folder, to be damaged."""
    return Path(shutil.copytree(folder, tmp_path / "run"))


def _open_all(path: Path) -> None:
    run = Run.open(path)
    run.config(), run.schema(), run.distances(), run.collaboration(), run.results(), CPath.load(path)


@pytest.mark.parametrize(
    "name",
    ["distances.json", "collaboration.json", "path.json", "schema.json", "run.json", "training/local/training.json",
     "training/local/training.safetensors", "training/local/training.jsonl", "training/coalitions/training.json"],
)  # fmt: skip
def test_no_changed_byte_goes_unnoticed(run: Path, name: str) -> None:
    """One digit of a file becomes another, at 25 places: each time it is named, and nothing is answered from it."""
    _open_all(run)
    path, rng = run / name, np.random.default_rng(1)
    whole = path.read_bytes()
    places = [at for at, byte in enumerate(whole) if name.endswith(".safetensors") or chr(byte).isdigit()]
    for at in rng.choice(places, min(25, len(places)), replace=False).tolist():
        other = (whole[at] + 1) % 256 if name.endswith(".safetensors") else ord("0") + (whole[at] - ord("0") + 1) % 10
        path.write_bytes(whole[:at] + bytes([other]) + whole[at + 1 :])
        with pytest.raises(InputError, match=path.name.replace(".", r"\.")):
            _open_all(run)


def test_zeroed_weights_are_refused_by_every_command(run: Path) -> None:
    path = run / "training" / "coalitions" / "training.safetensors"
    save_file({name: np.zeros_like(value) for name, value in load_file(path).items()}, path)
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    for arguments in (["report"], ["leave", "--client", "a"], ["check", "--clients", "."]):
        done = _command(arguments[0], str(run), *arguments[1:])
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "training.safetensors` is damaged, or is not of this training" in done.stderr
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before
    with pytest.raises(InputError, match=r"training\.safetensors"):
        TrainingResult.load(run)


def test_zeroed_weights_are_refused_by_a_run_that_goes_on(tmp_path: Path) -> None:
    """The same command again, which would take what is there as done."""
    (tmp_path / "clients").mkdir()
    for number, name in enumerate("abc"):
        rng = np.random.default_rng(number)
        y = np.arange(40) % 2
        table = pd.DataFrame(rng.normal(0, 1, (40, 2)) + np.outer(2 * y - 1, [1.0, 0]), columns=["u", "v"])
        table.assign(y=y).round(3).to_csv(tmp_path / "clients" / f"{name}.csv", index=False)
    run = tmp_path / "run"
    asked = ["run", "--clients", str(tmp_path / "clients"), "--label", "y", "--out", str(run), "--model", "logistic",
             "--rounds", "2", "--C", "5", "--quiet"]  # fmt: skip
    cli.main(asked, standalone_mode=False)
    path = run / "training" / "local" / "training.safetensors"
    save_file({name: np.zeros_like(value) for name, value in load_file(path).items()}, path)
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    others = (["report", str(run)], ["leave", str(run), "--client", "a"], ["check", str(run)])
    for arguments in (asked, *others):
        with pytest.raises(InputError, match=r"local/training\.safetensors` is damaged, or is not of this training"):
            cli.main(arguments, standalone_mode=False)
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


def test_a_matrix_that_contradicts_raw_is_refused(run: Path) -> None:
    content = json.loads((run / "distances.json").read_text())
    del content["content_sha256"]
    content["matrix"][0][1] = content["matrix"][1][0] = 0.123
    (run / "distances.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="`matrix` contradicts `raw`"):
        Distances.load(run)
    content.pop("raw")
    (run / "distances.json").write_text(json.dumps(content))
    assert Distances.load(run).raw[0, 1] == 0.123


@pytest.mark.parametrize(
    "plan",
    [
        {"aside": {"../outside.json": "taken.json"}, "files": []},
        {"aside": {"run.json": "../outside.json"}, "files": []},
        {"aside": {}, "files": ["../../../outside.json"]},
        {"aside": {"/etc/hostname": "taken"}, "files": []},
        {"aside": {"run.json": "a\x00b"}, "files": []},
        {"aside": [], "files": 5},
        {"aside": {"history": "history/x/y"}, "files": []},
    ],
)
def test_a_change_that_reaches_out_of_its_folder_is_not_completed(run: Path, plan: dict[str, Any]) -> None:
    """A folder from anyone can hold a change that was interrupted: opening it moves nothing outside."""
    outside = run.parent / "outside.json"
    outside.write_text("mine")
    files.write_json(run / "history" / ".next" / "ready.json", "change", plan)
    before = {file: file.read_bytes() for file in run.parent.rglob("*") if file.is_file()}
    with pytest.raises(InputError, match=r"ready\.json` is not a complete change file|cannot be completed"):
        Run.open(run)
    assert {file: file.read_bytes() for file in run.parent.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("absences.jsonl", b'\xff\xfe\n{"time": 5}\n{"time": "t", "action": "a", "round": 1, "client": "b", '
                           b'"kind": "of no kind", "why": ""}\n[]\n' + b"[" * 5000),
        ("run.json", b'{"fedcollab": "run", "format": 1, "clients": true}'),
        ("run.json", b'{"fedcollab": "run", "format": 1, "clients": {"a": {"label_counts": {"0": "many"}}}}'),
        ("run.json", b'{"fedcollab": "run", "format": 1, "settings": [5]}'),
        ("sources.json", b'{"fedcollab": "sources", "format": 1, "folder": 5.5}'),
        ("sources.json", b'{"fedcollab": "sources", "format": 1, "clients": {"a": ["b"]}}'),
    ],
)  # fmt: skip
def test_broken_files_beside_the_artefacts(run: Path, name: str, content: bytes) -> None:
    """Lines of absences that are none are left out; the others are refused with their name."""
    (run / name).write_bytes(content)
    if name == "absences.jsonl":
        assert write(run).is_file()
        return
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        locate(Run.open(run), None) if name == "sources.json" else write(run)


def test_files_of_earlier_versions_open(run: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Without checksums: everything is read as before."""
    for path in run.rglob("*.json"):
        content = json.loads(path.read_text())
        content.pop("content_sha256", None)
        content.pop("checksums", None)
        if path.name != "schema.json" and "made" in content and "distances.json" in content["made"]["inputs"]:
            content["made"]["inputs"]["distances.json"] = None
        if path.name != "schema.json":
            path.write_text(json.dumps(content))
    _open_all(run)
    assert write(run).is_file()
    assert not [str(warning.message) for warning in recwarn if issubclass(warning.category, FedcollabWarning)]


def test_a_damaged_checkpoint_is_not_gone_on_from(
    clients: list[ClientData], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights in it are zeroed: training starts over with a warning, and ends as if undisturbed."""
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    groups = [["a", "b", "c"], ["d", "e", "f"]]
    calm = train(Wire(clients), groups, **SMALL)

    def stop(number: int, rows: Any) -> None:
        if number == 2:
            raise KeyboardInterrupt

    from fedcollab.training import Callback

    class Stop(Callback):
        def on_round(self, number: int, rows: Any) -> None:
            stop(number, rows)

    with pytest.raises(KeyboardInterrupt):
        train(Wire(clients), groups, run_dir=tmp_path, callbacks=[Stop()], **SMALL)
    path = tmp_path / checkpoint.FILE
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    path.write_bytes(whole[:header] + bytes(64) + whole[header + 64 :])
    with pytest.warns(FedcollabWarning, match="cannot be used"):
        again = train(Wire(clients), groups, run_dir=tmp_path, **SMALL)
    np.testing.assert_array_equal(again.models["last"], calm.models["last"])


PROGRAM = [sys.executable, "-c", "from fedcollab.cli import main; main()"]


def _command(*arguments: str, limit: int | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    def small_disk() -> None:
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=small_disk if limit is not None else None,
        **options,
    )


def test_a_full_disk_loses_nothing(run: Path) -> None:
    """A file cannot grow beyond 10,000 bytes (the system says so): one line, and the run is as it was before."""
    before = {file.relative_to(run): file.read_bytes() for file in run.rglob("*") if file.is_file()}
    done = _command("report", str(run), limit=10_000)
    assert done.returncode == 2
    assert "report.html` cannot be written: File too large; what it held before is kept" in done.stderr
    assert done.stderr.count("\n") == 1
    assert {file.relative_to(run): file.read_bytes() for file in run.rglob("*") if file.is_file()} == before
    done = _command("leave", str(run), "--client", "a", limit=1000)
    assert done.returncode == 2
    assert done.stderr.count("cannot be written: File too large") == 1
    _open_all(run)
    assert {file.relative_to(run): file.read_bytes() for file in run.rglob("*") if file.is_file()} == before
    assert _command("leave", str(run), "--client", "a").returncode == 0
    assert len(Run.open(run).distances().names) == 3


SMALL_DISK = """
import hashlib, json, os, pathlib, shutil, subprocess, sys
import pandas, torch  # once, not in every command
from fedcollab.cli import main

disk, source = pathlib.Path(sys.argv[1]), sys.argv[2]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=True)
run = shutil.copytree(source, disk / "run")

def content():
    files = [path for path in run.rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

def command(*arguments):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writing, 2)
        sys.argv = ["fedcollab", *arguments]
        main()
    os.close(writing)
    with os.fdopen(reading) as text:
        lines = text.read()
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), lines]

before, answers = content(), []
with open(disk / "fill", "wb", buffering=0) as fill:
    try:
        while True:
            fill.write(bytes(4096))
    except OSError:
        pass
for arguments in (["report", str(run)], ["leave", str(run), "--client", "a"]):
    answers.append([*command(*arguments, "--quiet"), content() == before])
(disk / "fill").unlink()
subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
answers.append([*command(*arguments, "--quiet"), content() == before])
subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
answers.append([*command(*arguments, "--quiet"), content() != before])
print(json.dumps(answers))
"""


def test_a_small_disk_that_is_full_and_then_read_only(run: Path, tmp_path: Path) -> None:
    """A real file system of 3 MB: full, then mounted read-only; one line each, nothing lost; then it goes on."""
    (tmp_path / "disk").mkdir()
    own = ["unshare", "--mount"]  # the mount is seen by this process alone, and ends with it
    if shutil.which("unshare") is None or subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    done = subprocess.run(
        [*own, sys.executable, "-c", SMALL_DISK, str(tmp_path / "disk"), str(run)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "mount" in done.stderr and "permission denied" in done.stderr:
        pytest.skip("mounting is not allowed here")
    assert done.returncode == 0, done.stderr
    *refused, last = json.loads(done.stdout.splitlines()[-1])
    for (code, text, same), why in zip(refused, ["No space left", "No space left", "may write to"], strict=True):
        assert (code, text.count("\n"), same) == (2, 1, True), text
        assert why in text
    assert (last[0], last[2]) == (0, True), last


def test_a_folder_that_may_not_be_written_to(tmp_path: Path) -> None:
    """As an ordinary user: root may write everywhere."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    program = (
        "import os, sys; from fedcollab import files\n"
        "from fedcollab.errors import InputError\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: files.write_bytes(sys.argv[1], b'x')\n"
        "except InputError as error: print(error); sys.exit(2)\n"
    )
    for parent in (tmp_path, *tmp_path.parents[:2]) if os.geteuid() == 0 else ():
        parent.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", program, str(closed / "run" / "a.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "is not a folder that you may write to" in done.stdout


def test_a_clock_that_jumps_back(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dates are for people: what comes first is decided by numbers."""
    for year, client in ((2031, "a"), (1999, "b")):
        monkeypatch.setattr(files, "now", lambda precision="seconds", year=year: f"{year}-01-01T00:00:00+00:00")
        from fedcollab.runs.membership import keep_leaving, leave, open_state

        store, state = open_state(run)
        keep_leaving(store, state, leave(state, client))
    entries = json.loads((run / "history" / "index.json").read_text())["collaborations"]
    assert [entry["cause"] for entry in entries] == ["run", "leave a", "leave b"]
    assert [entry["number"] for entry in entries] == [0, 1, 2]
    opened = Run.open(run)
    assert opened.distances().names == opened.collaboration().names == ("c", "d")
    assert set(opened.results()) == {"local", "coalitions"}


def test_two_processes_in_one_folder(run: Path) -> None:
    """The second is refused in one line, and changes nothing; whoever only looks is let in."""
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys; from fedcollab import files\n"
         "with files.claim(sys.argv[1]): print('held', flush=True); sys.stdin.read()", str(run)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    try:
        done = _command("leave", str(run), "--client", "a")
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "is in use: another process is working in it; nothing was changed" in done.stderr
        with pytest.raises(InputError, match="is in use"):
            Run.start(run, {}, fresh=True)
        with pytest.raises(InputError, match="is in use"), Run(run).working():
            pass
        _open_all(run)
        assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before
    finally:
        holder.kill()
        holder.wait()
        for pipe in (holder.stdin, holder.stdout):
            assert pipe is not None
            pipe.close()
    deadline = time.monotonic() + 60
    while True:
        try:
            with Run(run).working(), Run(run).working():  # the claim of a killed process is gone, and may be repeated
                break
        except InputError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_file_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power cut would show: content first, then the name, then the folder that holds the name."""
    steps: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        found = os.fstat(descriptor)
        steps.append("folder" if stat.S_ISDIR(found.st_mode) else f"{found.st_size} bytes")
        sync(descriptor)

    def renamed(old: str, new: str) -> None:
        steps.append("name")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    files.write_bytes(tmp_path / "a.json", b"content")
    assert steps == ["7 bytes", "name", "folder"]
