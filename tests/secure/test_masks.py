"""Masks cancel in the sum and nowhere else: by hand, for any dropouts, and as the server sees single updates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedcollab.errors import InputError
from fedcollab.secure import keys, member, shamir
from fedcollab.secure.quantise import RANGE, STEP, error_bound, to_integers, to_numbers
from fedcollab.secure.server import Group
from fedcollab.wire.action import Refused

from .conftest import Circle, make_silo, vectors

# Shares.


def test_shares_of_a_line_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """f(x) = 5 + 3 x: members 1, 2, 3 hold 8, 11, 14; members 1 and 3 give 8 * 3/2 - 14 * 1/2 = 5."""
    monkeypatch.setattr(shamir.secrets, "randbelow", lambda most: 3)
    assert shamir.split(5, 3, 2) == [8, 11, 14]
    assert shamir.recover({1: 8, 3: 14}, 2) == 5
    half = pow(2, -1, shamir.PRIME)
    assert shamir.factors([1, 3]) == [3 * half % shamir.PRIME, (-half) % shamir.PRIME]


@given(st.integers(0, shamir.PRIME - 1), st.data())
@settings(max_examples=50)
def test_any_threshold_of_shares_gives_the_secret_and_fewer_are_refused(secret: int, data: st.DataObject) -> None:
    members = data.draw(st.integers(1, 12))
    threshold = data.draw(st.integers(1, members))
    shares = shamir.split(secret, members, threshold)
    chosen = data.draw(st.permutations(range(1, members + 1)))
    assert shamir.recover({x: shares[x - 1] for x in chosen[:threshold]}, threshold) == secret
    with pytest.raises(InputError, match=f"{threshold} are needed"):
        shamir.recover({x: shares[x - 1] for x in chosen[: threshold - 1]}, threshold)


def test_fewer_shares_fit_any_secret() -> None:
    """With t - 1 shares every other secret is as likely: a last share exists that would make it."""
    shares = shamir.split(7, 3, 3)
    for other in (0, 1, 123456789):
        first, second, third = shamir.factors([1, 2, 3])
        forged = (other - shares[0] * first - shares[1] * second) * pow(third, -1, shamir.PRIME) % shamir.PRIME
        assert shamir.recover({1: shares[0], 2: shares[1], 3: forged}, 3) == other


# Numbers.


@given(st.lists(st.floats(-RANGE, RANGE), min_size=1, max_size=20), st.integers(1, 20))
def test_the_sum_of_rounded_shares_is_within_the_stated_error(values: list[float], members: int) -> None:
    x = np.array(values)
    total = np.zeros(len(x), dtype=np.uint32)
    for _ in range(members):
        total += to_integers(x, 1 / members)[0]
    assert np.abs(to_numbers(total) - x).max() <= error_bound(members) + 1e-12


def test_values_at_the_range_do_not_wrap_and_beyond_it_are_cut() -> None:
    integers, cut = to_integers(np.array([RANGE, -RANGE, 1e9, -1e9, RANGE + STEP]), 1.0)
    np.testing.assert_array_equal(to_numbers(integers), [RANGE, -RANGE, RANGE, -RANGE, RANGE])
    assert cut == 3


# Masks.


def test_three_masks_cancel_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of 5 (a, b), 7 (a, c) and 11 (b, c): a adds 5 + 7, b takes 5 and adds 11, c takes 7 + 11."""
    circle = Circle({"a": np.array([1.0]), "b": np.array([2.0]), "c": np.array([3.0])}, dropouts=False)
    for name in "abc":
        member.again(circle.silos[name], circle.message(name))  # they meet
    seeds = {frozenset("ab"): 5, frozenset("ac"): 7, frozenset("bc"): 11}
    pairs = {
        bytes(circle.silos[one].state[member.GROUP]["pairs"]["abc".index(two)]): seeds[frozenset(one + two)]
        for one in "abc"
        for two in "abc"
        if one != two
    }
    assert sorted(pairs.values()) == [5, 7, 11]  # both members of a pair hold the same secret
    monkeypatch.setattr(keys, "round_seed", lambda secret, context: pairs.get(secret, 0))
    monkeypatch.setattr(keys, "stream", lambda seed, length: np.full(length, seed, dtype=np.uint32))
    words = member.check_words(circle.context())
    sent = {name: circle.send(name)["masked"] for name in "abc"}
    third = 2.0**27 / 3
    expected = {"a": round(third) + 12, "b": round(2 * third) + 6, "c": round(3 * third) - 18}
    for name, masked in sent.items():
        assert int(masked[0]) == expected[name]
        np.testing.assert_array_equal(masked[1:], words + np.uint32({"a": 12, "b": 6, "c": 2**32 - 18}[name]))
    circle.group.received({name: {"boxes": np.zeros((3, 1), dtype=np.uint8)} for name in "abc"})
    assert to_numbers(circle.group.add_up(circle.context(), sent, {}))[0] == pytest.approx(2.0, abs=error_bound(3))


@given(st.data())
@settings(max_examples=30)
def test_any_dropouts_within_the_threshold_give_the_sum_of_the_others(data: st.DataObject) -> None:
    """Some send no update, others send one and then reveal nothing; down to the threshold the sum is exact."""
    names = "abcdefgh"[: data.draw(st.integers(3, 8), label="members")]
    threshold = member.least_left(len(names))
    order = data.draw(st.permutations(names))
    gone = data.draw(st.integers(0, len(names) - threshold), label="gone")
    silent = data.draw(st.integers(0, len(names) - threshold - gone), label="silent")
    samples = {name: data.draw(st.integers(1, 50)) for name in names}
    updates = vectors(names, size=6)
    circle = Circle(updates, samples)
    left = sorted(set(names) - set(order[:gone]))
    mean = circle.round(gone=order[:gone], silent=order[gone : gone + silent])
    total = sum(samples[name] for name in left)
    expected = sum(updates[name] * samples[name] for name in left) / total
    assert np.abs(mean - expected).max() <= error_bound(len(left), total / sum(samples.values())) + 1e-12


@pytest.mark.parametrize("members", [3, 4, 5, 8])
def test_below_the_threshold_there_is_no_sum(members: int) -> None:
    names = "abcdefgh"[:members]
    too_many = len(names) - member.least_left(len(names)) + 1
    with pytest.raises(InputError, match=f"members are left; {member.least_left(len(names))} must be"):
        Circle(vectors(names)).round(gone=names[:too_many])
    if too_many > 1:
        with pytest.raises(InputError, match="have revealed shares"):
            Circle(vectors(names)).round(silent=names[:too_many])


def test_many_rounds_with_changing_dropouts() -> None:
    updates = vectors("abcdef")
    circle = Circle(updates)
    for number, gone in enumerate(["", "f", "", "a", "cf"[:1], "b"], start=1):
        left = [name for name in "abcdef" if name not in gone]
        mean = circle.round(number, gone=gone)
        np.testing.assert_allclose(mean, np.mean([updates[name] for name in left], axis=0), atol=1e-7)


def test_everyone_must_answer_where_nothing_is_recovered() -> None:
    circle = Circle(vectors("abcd"), dropouts=False)
    assert not circle.group.recovers
    np.testing.assert_allclose(circle.round(1), np.mean(list(circle.updates.values()), axis=0), atol=1e-7)
    np.testing.assert_allclose(circle.round(2), np.mean(list(circle.updates.values()), axis=0), atol=1e-7)
    with pytest.raises(InputError, match="3 of 4 members are left; 4 must be"):
        circle.round(3, gone="d")


def test_two_members_are_refused_on_both_sides() -> None:
    with pytest.raises(InputError, match=r"the coalition a, b has 2 member\(s\); secure aggregation needs at least 3"):
        Group.of(["a", "b"], dropouts=True)
    with pytest.raises(Refused, match="with two, each learns the other's update"):
        member.join(make_silo("a"), "g", ["a", "b"], 2)
    with pytest.raises(Refused, match="this silo among them"):
        member.join(make_silo("x"), "g", ["a", "b", "c"], 3)
    with pytest.raises(Refused, match=r"`threshold` \(=2\) must be from 3 to 4"):
        member.join(make_silo("a"), "g", ["a", "b", "c", "d"], 2)


# What the server sees.


@pytest.mark.parametrize("dropouts", [True, False])
def test_a_single_masked_update_looks_uniform_and_tells_nothing_of_the_update(dropouts: bool) -> None:
    """Kolmogorov-Smirnov against the uniform distribution, and the correlation with the true update, over 20,000
    numbers; 6 standard errors of the correlation (.042), for keys are drawn anew in every run. The same statistics find
    the update itself at once."""
    size = 20_000
    circle = Circle(vectors("abcd", size=size), dropouts=dropouts)
    for name in "abcd":
        seen = circle.send(name)["masked"][:size] / 2**32
        true = circle.updates[name]
        assert stats.kstest(seen, "uniform").pvalue > 1e-9
        assert abs(np.corrcoef(seen, true)[0, 1]) < 6 / np.sqrt(size)
    bare = to_integers(circle.updates["a"], 0.25)[0] / 2**32
    assert stats.kstest(bare, "uniform").pvalue < 1e-100
    assert abs(np.corrcoef((bare + 0.5) % 1, circle.updates["a"])[0, 1]) > 0.99


def test_sums_over_all_but_one_round_tell_nothing_either() -> None:
    """Of 4 members the server has 3 updates in hand: without the fourth their sum is as uniform as each of them."""
    size = 20_000
    circle = Circle(vectors("abcd", size=size))
    sent = [circle.send(name)["masked"][:size] for name in "abc"]
    seen = np.add.reduce(sent, dtype=np.uint32) / 2**32
    true = sum(circle.updates[name] for name in "abc")
    assert stats.kstest(seen, "uniform").pvalue > 1e-9
    assert abs(np.corrcoef(seen, true)[0, 1]) < 6 / np.sqrt(size)


def test_masks_differ_between_rounds_members_and_groups() -> None:
    circle, other = Circle(vectors("abc"), dropouts=False), Circle(vectors("abc"), dropouts=False)
    first = {name: circle.send(name) for name in "abc"}
    circle.group.received(first)
    second = {name: circle.send(name, 2) for name in "abc"}
    third = {name: other.send(name) for name in "abc"}
    seen = [reply["masked"].tobytes() for replies in (first, second, third) for reply in replies.values()]
    assert len(set(seen)) == 9
