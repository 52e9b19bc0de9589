"""A server that lies: about who dropped out, about rounds, keys, models and coalitions. Members refuse, and say why."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from fedcollab.secure import keys, member, shamir
from fedcollab.secure.keys import Certificate
from fedcollab.secure.nested import limit_sums
from fedcollab.secure.quantise import to_numbers
from fedcollab.wire.action import Refused
from fedcollab.wire.limits import Limits
from fedcollab.wire.silo import Agreed

from .conftest import Circle, make_silo, vectors

# Dropouts.


def test_lying_about_dropouts_gives_one_of_the_two_sums_never_both() -> None:
    """All five have sent. The server says that e is gone, gets the sum of a to d, then asks again with e."""
    circle = Circle(vectors("abcde"))
    replies = {name: circle.send(name) for name in "abcde"}
    circle.group.received(replies)
    for name in "abcd":
        circle.reveal(name, "abcd")
        for others in ("abcde", *(four for four in combinations("abcde", 4) if {name, "e"} <= set(four))):
            with pytest.raises(Refused, match="was told that a, b, c, d are left in round 1, and now"):
                circle.reveal(name, others)
    with pytest.raises(Refused, match=r"4 member\(s\) are left; this silo among them"):
        circle.reveal("e", "abcd")
    circle.reveal("e", "abcde")  # e was told nothing else; its shares alone are not enough
    assert circle.group.threshold == 4


def test_the_update_of_one_declared_gone_stays_under_its_own_mask() -> None:
    """The server has e's update and, from a to d, every pair's seed with e: e's own mask is left, and is uniform."""
    size = 20_000
    circle = Circle(vectors("abcde", size=size))
    replies = {name: circle.send(name) for name in "abcde"}
    circle.group.received(replies)
    shares = {name: circle.reveal(name, "abcd") for name in "abcd"}
    seen = replies["e"]["masked"].copy()
    for row, name in enumerate("abcd"):
        given = {"abcde".index(who) + 1: shamir.from_bytes(bytes(table[row, 1])) for who, table in shares.items()}
        seed = shamir.recover(given, circle.group.threshold)
        pair = circle.silos[name].state[member.GROUP]["pairs"][4]
        assert seed == keys.round_seed(bytes(pair), circle.context())  # it really has the masks of the pairs
        member.add_mask(seen, seed, -1 if name > "e" else 1)
    left = seen[:size] / 2**32
    # Keys are drawn anew in every run: six standard deviations are passed by chance once in 500 million runs. Without
    # the mask the correlation is 1.
    assert abs(np.corrcoef(left, circle.updates["e"])[0, 1]) < 6 / np.sqrt(size)
    assert abs(np.corrcoef(to_numbers(seen[:size]), circle.updates["e"])[0, 1]) < 6 / np.sqrt(size)


def test_too_few_left_and_strangers_are_refused() -> None:
    circle = Circle(vectors("abcde"))
    circle.group.received({name: circle.send(name) for name in "abcde"})
    with pytest.raises(Refused, match=r"3 member\(s\) are left; this silo among them, at least 4 must be"):
        circle.reveal("a", "abc")
    message = {"group": circle.group.name, "training": "t", "round": 1, "left": list("abcdx")}
    with pytest.raises(Refused, match="at least 4 must be"):
        member.reveal(circle.silos["a"], {**message, "boxes": circle.group.boxes_for("a", "abcde")})


def test_an_older_round_is_never_revealed() -> None:
    circle = Circle(vectors("abcd"))
    first = {name: circle.send(name) for name in "abcd"}
    circle.group.received(first)
    for name in "abcd":
        circle.send(name, 2)
    with pytest.raises(Refused, match="round 1 is not the one that this silo masked last"):
        circle.reveal("a", "abcd", 1)


def test_nothing_is_revealed_where_everybody_must_answer() -> None:
    circle = Circle(vectors("abcd"), dropouts=False)
    circle.group.received({name: circle.send(name) for name in "abcd"})
    with pytest.raises(Refused, match="masked nothing that could be revealed"):
        circle.reveal("a", "abcd")


# Masks are used once.


def test_the_same_message_gets_the_same_reply_and_another_one_none() -> None:
    circle = Circle(vectors("abc"))
    first = circle.send("a")
    circle.updates["a"] = circle.updates["a"] + 1.0  # whatever the silo would compute now
    again = circle.send("a")
    np.testing.assert_array_equal(first["masked"], again["masked"])
    np.testing.assert_array_equal(first["boxes"], again["boxes"])
    for changed in ({"w": np.full(40, 1e-3, dtype=np.float32)}, {"total": 999}, {"further": np.ones(1, np.float32)}):
        with pytest.raises(Refused, match="round 1 of this training was masked already, with other content"):
            circle.send("a", **changed)


def test_rounds_only_go_on() -> None:
    circle = Circle(vectors("abcd"))
    circle.round(3)
    for number in (1, 2):
        with pytest.raises(Refused, match=f"round {number} of this training was masked already"):
            circle.send("a", number)


# Keys.


def substitute(circle: Circle, victim: str, name: str, **changed: Any) -> Certificate:
    """What a coordinator in the middle hands to the victim: its own key under a partner's name."""
    original = Certificate.from_json(circle.group.certificates[name])
    identity = keys.draw_identity()
    group = {"name": name, "group": original.group, "members": original.members, "threshold": original.threshold}
    forged = keys.certify(identity, **{**group, "key": keys.draw_key(), **changed})
    circle.group.certificates[name] = forged.to_json()
    return forged


def test_a_key_of_the_coordinator_is_refused_by_a_silo_that_was_given_its_partners_keys() -> None:
    circle = Circle(vectors("abc"))
    known = {name: keys.public_of(member._identity(circle.silos[name])) for name in "abc"}
    circle.silos["a"].partners = {name: f"{known[name]} {name}" for name in "bc"}
    circle.silos["c"].partners = {"a": known["a"]}
    circle.send("a")
    with pytest.raises(Refused, match=r"administrator has given no public key of `b` \(partners/b.pub\)"):
        circle.send("c")
    circle = Circle(vectors("abc"))
    circle.silos["a"].partners = {name: known[name] for name in "bc"}  # of the first circle: others than these
    with pytest.raises(Refused, match="the certificate of `b` is signed by another key than that of the silo `b`"):
        circle.send("a")


def test_a_key_that_changed_since_it_was_first_seen_is_refused() -> None:
    circle = Circle(vectors("abc"))
    circle.send("a")
    silo = circle.silos["a"]
    later = Circle(vectors("abc"))
    for name in "bc":  # the same silos as before
        later.silos[name].state[member.IDENTITY] = circle.silos[name].state[member.IDENTITY]
    later.silos["a"] = silo
    for name in "abc":
        later.silos[name].state.pop(member.GROUP)
        later.group.certificates[name] = member.join(later.silos[name], later.group.name, list("abc"), 3)
    honest = dict(later.group.certificates)
    substitute(later, "a", "b")
    with pytest.raises(Refused, match="the certificate of `b` is signed by another key"):
        later.send("a")
    later.group.certificates = honest
    later.send("a")


def test_certificates_must_be_signed_for_this_group_and_these_members() -> None:
    circle = Circle(vectors("abc"))
    text = json.loads(circle.group.certificates["b"])
    swapped = {**text, "key": Certificate.from_json(circle.group.certificates["c"]).key}
    cases = {
        json.dumps(swapped): "`b` has a signature that is not its silo's",
        json.dumps({**text, "threshold": 1}): "signature that is not its silo's",
        "no certificate": "cannot be read",
        json.dumps({**text, "identity": "ssh-ed25519 AAAA"}): "cannot be read",
    }
    for certificate, why in cases.items():
        circle.group.certificates["b"] = certificate
        with pytest.raises(Refused, match=why):
            circle.send("a")
    circle.group.certificates["b"] = json.dumps(text)
    substitute(circle, "a", "b", members=["a", "b", "x"])
    with pytest.raises(Refused, match="is for another group, or for other members"):
        circle.send("a")
    other = Circle(vectors("abc"))
    circle.group.certificates["b"] = other.group.certificates["b"]
    with pytest.raises(Refused, match="is for another group, or for other members"):
        circle.send("a")


def test_a_silo_under_its_own_name_twice_or_replaced_is_refused() -> None:
    circle = Circle(vectors("abc"))
    substitute(circle, "a", "a")
    with pytest.raises(Refused, match="came back under this silo's name is not its own"):
        circle.send("a")
    circle = Circle(vectors("abc"))
    with pytest.raises(Refused, match="certificates of a, b came for a, b, c"):
        circle.send("a", certificates=[circle.group.certificates[name] for name in "aab"])


def test_a_group_cannot_change_its_members_or_threshold() -> None:
    silo = make_silo("a")
    certificate = member.join(silo, "g", list("abcd"), 3)
    assert member.join(silo, "g", list("dcba"), 3) == certificate
    for members, threshold in (("abcx", 3), ("abcd", 4), ("abc", 3)):
        with pytest.raises(Refused, match="was begun with other members, or another threshold"):
            member.join(silo, "g", list(members), threshold)


def test_insisting_silos_meet_known_partners_only() -> None:
    circle = Circle(vectors("abc"), limits=Limits(secure_aggregation=True))
    with pytest.raises(Refused, match="administrator has given no public key of `b`"):
        circle.send("a")


# Models crafted for one member.


def test_a_model_for_one_member_makes_garbage_of_the_sum_and_is_noticed_by_all() -> None:
    size = 5_000
    circle = Circle(vectors("abcd", size=size))
    crafted = np.full(size, 0.5, dtype=np.float32)
    replies = {name: circle.send(name) for name in "abc"} | {"d": circle.send("d", w=crafted)}
    circle.group.received(replies)
    for name, partner in {"a": "d", "b": "d", "c": "d", "d": "a"}.items():
        with pytest.raises(Refused, match=f"`{partner}` was sent something else than this silo in the last round"):
            circle.reveal(name, "abcd")
    total = np.add.reduce([reply["masked"][:size] for reply in replies.values()], dtype=np.uint32)
    mean = sum(circle.updates.values()) / 4
    assert abs(np.corrcoef(to_numbers(total), mean)[0, 1]) < 6 / np.sqrt(size)


def test_where_everybody_must_answer_it_is_noticed_before_the_next_round() -> None:
    circle = Circle(vectors("abcd"), dropouts=False)
    crafted = np.full(40, 0.5, dtype=np.float32)
    replies = {name: circle.send(name) for name in "abc"} | {"d": circle.send("d", w=crafted)}
    circle.group.received(replies)
    masked = {name: reply["masked"] for name, reply in replies.items()}
    with pytest.raises(Exception, match="the masks of the members do not cancel"):
        circle.group.add_up(circle.context(), masked, {})
    with pytest.raises(Refused, match="`d` was sent something else than this silo"):
        circle.send("a", 2)
    with pytest.raises(Refused, match="boxes of the last round are missing"):
        circle.send("a", 2, boxes=np.zeros((0, 28), dtype=np.uint8))
    silo = circle.silos["a"]
    without = {key: value for key, value in circle.message("a", 2).items() if key != "boxes"}
    with pytest.raises(Refused, match="boxes of the last round are missing"):
        member.again(silo, without)


def test_boxes_of_another_round_or_sender_do_not_open() -> None:
    circle = Circle(vectors("abcd"))
    first = {name: circle.send(name) for name in "abcd"}
    second = {name: circle.send(name, 2) for name in "abcd"}
    circle.group.received({**second, "b": first["b"]})
    with pytest.raises(Refused, match="`b` was sent something else"):
        circle.reveal("a", "abcd", 2)
    circle.group.received({**second, "b": second["c"]})
    with pytest.raises(Refused, match="`b` was sent something else"):
        circle.reveal("a", "abcd", 2)


# Coalitions inside each other.


def test_the_same_model_is_added_up_with_one_coalition_only() -> None:
    circle = Circle(vectors("abcde"))
    circle.send("a")
    silo = circle.silos["a"]
    asked = circle.message("a", 2)
    limit_sums(asked, silo, silo.limits)
    with pytest.raises(Refused, match="has added up the same model with a, b, c, d, e: the difference"):
        limit_sums({**asked, "coalition": list("abcd")}, silo, silo.limits)
    stacked = np.stack([np.ones(40, dtype=np.float32), asked["w"]])
    with pytest.raises(Refused, match="has added up the same model"):
        limit_sums({**asked, "coalition": list("abcd"), "w": stacked}, silo, silo.limits)
    other = {**asked, "coalition": list("abcd"), "w": np.full(40, 1e-6, dtype=np.float32)}
    limit_sums(other, silo, silo.limits)  # another model; but a silo that insists
    with pytest.raises(Refused, match="differs by e alone from an earlier one"):
        limit_sums(other, silo, Limits(secure_aggregation=True))
    with pytest.raises(Refused, match="differs by e, x alone from an earlier one"):
        limit_sums({**other, "coalition": list("abcdx")}, silo, Limits(secure_aggregation=True))
    disjoint = {**other, "coalition": list("axyz")}
    with pytest.raises(Refused, match="added up with a, b, c, d, e in the same plan, or without one"):
        limit_sums(disjoint, silo, Limits(secure_aggregation=True))
    silo.agreed = Agreed("the plan of a later study", masked=True)
    limit_sums(disjoint, silo, silo.limits)
    with pytest.raises(Refused, match="differs by e alone"):  # a plan that promises masks is as strict
        limit_sums(other, silo, silo.limits)


@pytest.mark.parametrize("perturbed", [0.0, 1e-6])
def test_three_coalitions_that_add_up_uncover_nobody(perturbed: float) -> None:
    """abc, def and abcdefg of nearly the same model: the third sum less the two others is the update of g."""
    updates, limits = vectors("abcdefg"), Limits(secure_aggregation=True)
    silos = {name: make_silo(name, limits=limits) for name in updates}
    known = {name: keys.public_of(member._identity(silo)) for name, silo in silos.items()}
    for number, members in enumerate(("abc", "def", "abcdefg")):
        circle = Circle({name: updates[name] for name in members}, dropouts=False)
        for name in members:
            silo = silos[name]
            silo.partners = {other: key for other, key in known.items() if other != name}
            silo.state.pop(member.GROUP, None)
            joined = member.join(silo, circle.group.name, circle.group.members, circle.group.threshold)
            circle.silos[name], circle.group.certificates[name] = silo, joined
        refused = []
        for name in members:
            asked = circle.message(name, w=np.full(40, number * perturbed, dtype=np.float32))
            try:
                limit_sums(asked, silos[name], limits)
            except Refused as error:
                refused.append(str(error))
                continue
            circle.send(name, w=asked["w"])
        assert len(refused) == (6 if number == 2 else 0), refused


def test_a_training_begun_anew_does_not_leave_one_out_of_the_same_first_sum() -> None:
    """The first updates of a training are the same each time, errors included: all, then all but e, would give e's."""
    circle = Circle(vectors("abcde"))
    silos = circle.silos
    circle.group.received({name: circle.send(name) for name in "abcde"})
    for name in "abcde":
        circle.reveal(name, "abcde")
    later = Circle(vectors("abcde"))
    for name, silo in silos.items():
        later.group.certificates[name] = member.join(silo, later.group.name, later.group.members, 4)
        later.silos[name] = silo
    later.group.received({name: later.send(name) for name in "abcde"})
    for name in "abcd":
        with pytest.raises(Refused, match="update of this model was added up with a, b, c, d, e before"):
            later.reveal(name, "abcd")
        later.reveal(name, "abcde")


def test_a_plan_names_the_partners_keys() -> None:
    """The coordinator signs for partners whose keys the approved plan has; the silo was given no keys itself."""
    circle = Circle(vectors("abc"))
    known = {name: keys.fingerprint(keys.public_of(member._identity(circle.silos[name]))) for name in "abc"}
    circle.silos["a"].agreed = Agreed("a plan", masked=True, partners=known)
    honest = circle.group.certificates["b"]
    substitute(circle, "a", "b")
    with pytest.raises(Refused, match="`b` is signed by another key than the plan names for it"):
        circle.send("a")
    circle.group.certificates["b"] = honest
    circle.send("a")


def test_more_samples_than_the_total_are_refused() -> None:
    circle = Circle(vectors("abc"))
    with pytest.raises(Refused, match=r"`total` \(=9\) is less than this silo's own 10 samples"):
        circle.send("a", total=9)


def test_a_group_that_the_silo_does_not_know() -> None:
    circle = Circle(vectors("abc"))
    with pytest.raises(Refused, match="no key for this group"):
        circle.send("a", group="other")
    with pytest.raises(Refused, match="not the group that keys were agreed for"):
        circle.send("a", coalition=["a", "b", "x"])
    assert replace(circle.group, members=list("abc")).recovers is False
