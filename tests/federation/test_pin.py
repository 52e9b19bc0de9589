"""A silo runs fedcollab's own code for a coordinator, and other apps only if its administrator says so."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.cli.build import build_fab_from_disk

from fedcollab.errors import InputError
from fedcollab.flower.coordinator.folder import APP
from fedcollab.flower.protocol import CLIENT_APP
from fedcollab.flower.silo import pin
from fedcollab.flower.silo.config import CONFIG

# Flower's own way of building an app
pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-coalitions"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "pyproject.toml").write_text(APP)
    return tmp_path / "app"


def test_the_app_without_code_passes(own: Path) -> None:
    assert pin.check_app(build_fab_from_disk(own))
    assert pin.check_app(build_fab_from_disk(own), "any")  # needs no process of its own


def test_code_and_other_components_are_refused(own: Path) -> None:
    (own / "extra.py").write_text("print('on the silo')\n")
    with pytest.raises(InputError, match=r"it holds extra\.py"):
        pin.check_app(build_fab_from_disk(own))
    (own / "extra.py").unlink()
    (own / "pyproject.toml").write_text(APP.replace(CLIENT_APP, "os:system"))
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
    assert not pin.check_app(content, [digest])
    assert not pin.check_app(content, "any")
    config = tmp_path / "silo.toml"
    monkeypatch.setenv(CONFIG, str(config))
    for table, expected in (("", ()), (f'[app]\nallow = ["{digest}"]', (digest,)), ('[app]\nallow = "any"', "any")):
        config.write_text(f'name = "a"\ndata = "a.csv"\n{table}\n')
        assert pin.allowed_apps() == expected
    for table in ('allow = ["short"]', 'allow = "some"', "allows = []", "allow = 3"):
        config.write_text(f'name = "a"\ndata = "a.csv"\n[app]\n{table}\n')
        with pytest.raises(InputError, match=r"silo\.toml`: `app"):
            pin.allowed_apps()
