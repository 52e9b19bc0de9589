"""The two in-process runtimes carry the same things; wire really serialises."""

from __future__ import annotations

from typing import Annotated, TypedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from numpy.typing import NDArray

from fedcollab.data import ClientData
from fedcollab.errors import InputError
from fedcollab.wire import Vectorised, Wire
from fedcollab.wire import action as actions
from fedcollab.wire.fields import BrokenMessage, Sides
from fedcollab.wire.message import Message, pack, payload, unpack
from fedcollab.wire.silo import Silo

plain = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
arrays = nps.arrays(
    st.sampled_from([np.float32, np.float64, np.int64, np.bool_]), nps.array_shapes(min_dims=0, max_dims=3, max_side=4)
)


@given(
    st.dictionaries(st.text(min_size=1).filter(lambda key: key != "__plain__"), st.one_of(plain, arrays), max_size=5)
)
def test_messages_survive_the_wire(message: Message) -> None:
    returned = unpack(pack(message))
    assert list(returned) == list(message)
    for key, value in message.items():
        if isinstance(value, np.ndarray):
            assert returned[key].dtype == value.dtype
            np.testing.assert_array_equal(returned[key], value)
        else:
            assert returned[key] == value


@pytest.mark.parametrize("content", [b"", b"garbage", pack({"a": 1})[:-3], b"\x80\x04\x95pickle"])
def test_a_broken_message_is_refused(content: bytes) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        unpack(content)


def test_objects_cannot_be_sent() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        pack({"code": print})


class CountMessage(TypedDict):
    step: Annotated[NDArray[np.float64], Sides("S")]


class CountReply(TypedDict):
    total: Annotated[NDArray[np.float64], Sides("S")]
    rows: int


def count_up(message: CountMessage, silo: Silo) -> CountReply:
    """An action with state: adds what it is sent to what it keeps."""
    kept = silo.state.get("count", {"total": np.zeros(2)})
    silo.state["count"] = {"total": kept["total"] + message["step"]}
    return {"total": silo.state["count"]["total"], "rows": silo.data.quantity}


@pytest.fixture(autouse=True)
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "ACTIONS", dict(actions.ACTIONS))
    actions.action(
        "count-up",
        purpose="counted",
        release=actions.Release.EXACT,
        step=actions.Step.CHECK,
        limit=None,
        cost=actions.free,
    )(count_up)


@pytest.mark.parametrize("kind", [Wire, Vectorised])
def test_state_stays_with_its_client(kind: type[Wire], clients: list[ClientData]) -> None:
    runtime = kind(clients)
    step = np.array([1.0, 2.0])
    runtime.call_all("count-up", {"step": step})
    replies = runtime.call("count-up", {"b": {"step": step}, "a": {"step": 10 * step}})
    assert list(replies) == ["a", "b"]
    np.testing.assert_array_equal(replies["a"]["total"], [11, 22])
    np.testing.assert_array_equal(replies["b"]["total"], [2, 4])
    assert runtime.cost.rounds == 2
    assert runtime.cost.down["a"] == runtime.cost.up["a"] == 2 * payload({"step": step})
    assert runtime.cost.down["c"] == payload({"step": step})


def test_spy_sees_every_byte(clients: list[ClientData]) -> None:
    seen = []
    runtime = Wire(clients, spy=lambda action, name, sent, returned: seen.append((action, name, len(sent + returned))))
    runtime.call_all("count-up", {"step": np.ones(2)})
    assert [name for _, name, _ in seen] == list(runtime.names)
    assert sum(size for *_, size in seen) == runtime.bytes_on_wire


@pytest.mark.parametrize("kind", [Wire, Vectorised])
def test_bad_federations(kind: type[Wire], clients: list[ClientData]) -> None:
    with pytest.raises(InputError, match="has 1 client"):
        kind(clients[:1])
    with pytest.raises(InputError, match="the name 'a' twice"):
        kind([clients[0], clients[0]])
    with pytest.raises(InputError, match="holds a int; expected ClientData"):
        kind([clients[0], 3])  # type: ignore[list-item]
    with pytest.raises(InputError, match="`action` \\(='no-such'\\) must be one of"):
        kind(clients).call_all("no-such", {})
    with pytest.raises(InputError, match="names 'z'"):
        kind(clients).call("count-up", {"z": {}})


def test_an_action_must_say_what_it_releases_and_costs_and_where_it_belongs() -> None:
    declared = {"step": actions.Step.CHECK, "limit": None, "cost": actions.free}
    for forgotten in declared:
        given = {key: value for key, value in declared.items() if key != forgotten}
        with pytest.raises(TypeError, match=forgotten):
            actions.action("no-class", purpose="forgot", release=actions.Release.NOTHING, **given)
    with pytest.raises(TypeError, match="release"):
        actions.action("no-class", purpose="forgot", **declared)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="declared twice"):
        actions.action("count-up", purpose="again", release=actions.Release.NOTHING, **declared)
    with pytest.raises(ValueError, match="`noise` belongs to"):
        actions.action("silent-noise", purpose="noise", release=actions.Release.NOISED, **declared)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({}, "`step` is missing"),
        ({"step": np.zeros(2), "more": 1}, "`more` is not expected"),
        ({"step": [0.0, 0.0]}, "`step`: expected an array of float64, got list"),
        ({"step": np.zeros(2, dtype=np.float32)}, "`step`: expected an array of float64, got array of float32"),
        ({"step": np.zeros((2, 1))}, r"`step`: has shape \(2, 1\); expected 1 side"),
        ({"step": np.array([0.0, np.inf])}, "`step`: has NaN or infinite values"),
    ],
)
def test_messages_are_checked_by_their_declared_type(message: Message, why: str) -> None:
    with pytest.raises(BrokenMessage, match=why):
        actions.find("count-up").check_message(message)


def test_a_reply_must_fit_its_message() -> None:
    counting = actions.find("count-up")
    counting.check_reply({"step": np.zeros(2)}, {"total": np.zeros(2), "rows": 3})
    with pytest.raises(BrokenMessage, match=r"`total`: has shape \(3,\); expected 2 for 3"):
        counting.check_reply({"step": np.zeros(2)}, {"total": np.zeros(3), "rows": 3})
    with pytest.raises(BrokenMessage, match="`rows`: Expected `int`, got `bool`"):
        counting.check_reply({"step": np.zeros(2)}, {"total": np.zeros(2), "rows": True})
