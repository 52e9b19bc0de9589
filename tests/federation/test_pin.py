"""A silo runs fedcollab's own code for a coordinator, and other apps only if its administrator says so."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.cli.build import build_fab_from_disk

from fedcollab.errors import InputError
from fedcollab.flower import pin
from fedcollab.flower.config import CONFIG
from fedcollab.flower.federation import APP

# Flower's own way of building an app
pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-coalitions"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "pyproject.toml").write_text(APP)
    return tmp_path / "app"


def test_the_app_without_code_passes(own: Path) -> None:
    pin.check_app(build_fab_from_disk(own))


def test_code_and_other_components_are_refused(own: Path) -> None:
    (own / "extra.py").write_text("print('on the silo')\n")
    with pytest.raises(InputError, match=r"it holds extra\.py"):
        pin.check_app(build_fab_from_disk(own))
    (own / "extra.py").unlink()
    (own / "pyproject.toml").write_text(APP.replace(pin.CLIENT, "os:system"))
    with pytest.raises(InputError, match="it runs os:system"):
        pin.check_app(build_fab_from_disk(own))
    for content in (b"", b"PK\x03\x04 no", b"x" * 100):
        with pytest.raises(InputError, match="cannot be read"):
            pin.check_app(content)


def test_what_the_administrator_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = build_fab_from_disk(EXAMPLE)
    digest = hashlib.sha256(content).hexdigest()
    with pytest.raises(InputError, match=rf'\[app\] allow = \["{digest}"\]'):
        pin.check_app(content)
    pin.check_app(content, [digest])
    pin.check_app(content, "any")
    config = tmp_path / "silo.toml"
    monkeypatch.setenv(CONFIG, str(config))
    for table, expected in (("", []), (f'[app]\nallow = ["{digest}"]', [digest]), ('[app]\nallow = "any"', "any")):
        config.write_text(f'name = "a"\ndata = "a.csv"\n{table}\n')
        assert pin.allowed() == expected
    for table in ('allow = ["short"]', 'allow = "some"', "allows = []", "allow = 3"):
        config.write_text(f'name = "a"\ndata = "a.csv"\n[app]\n{table}\n')
        with pytest.raises(InputError, match="SHA-256"):
            pin.allowed()


def test_flowers_program_is_guarded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The name that is replaced is the one that Flower's program calls."""
    from flwr.supernode.runtime import run_clientapp

    installed = []
    monkeypatch.setattr(run_clientapp, "install_from_fab", lambda content, **_: installed.append(content))
    (tmp_path / "silo.toml").write_text('name = "a"\ndata = "a.csv"\n')
    monkeypatch.setenv(CONFIG, str(tmp_path / "silo.toml"))
    pin.stand_guard()
    with pytest.raises(InputError, match="other code than fedcollab's"):
        run_clientapp.install_from_fab(build_fab_from_disk(EXAMPLE), skip_prompt=True)
    assert not installed
    assert "install_from_fab" in run_clientapp.run_clientapp.__code__.co_names
