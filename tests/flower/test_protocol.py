"""Coordinator and silo of different protocol versions refuse each other, with the same clear line on both sides."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict

from fedcollab.errors import FedcollabWarning, InputError
from fedcollab.flower.coordinator.folder import APP
from fedcollab.flower.envelope import Answer, Envelope
from fedcollab.flower.grid import Exchange, Flower
from fedcollab.flower.protocol import CLIENT_APP, HELLO, PROTOCOL, WORKER_DIED
from fedcollab.flower.silo import client_app, pin

pytestmark = pytest.mark.usefixtures("inside_a_run")
NEWER = PROTOCOL + 1
OLD_SILO = f"the coordinator has protocol version {PROTOCOL}, the silo version 1: upgrade fedcollab at the silo"
NEW_SILO = (
    f"the coordinator has protocol version {PROTOCOL}, the silo version {NEWER}: upgrade fedcollab at the coordinator"
)
OLD_COORDINATOR = (
    f"the coordinator has protocol version 1, the silo version {PROTOCOL}: upgrade fedcollab at the coordinator"
)
NEW_COORDINATOR = (
    f"the coordinator has protocol version {NEWER}, the silo version {PROTOCOL}: upgrade fedcollab at the silo"
)


def unversioned(records: RecordDict) -> RecordDict:
    """The same records as a fedcollab without versions sends them."""
    about = {key: value for key, value in records["about"].items() if key != "protocol"}
    return RecordDict({**records, "about": ConfigRecord(about)})


def ask(records: RecordDict) -> RecordDict:
    """What the ClientApp of this process answers."""
    message = Message(records, dst_node_id=1, message_type="query")
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    return client_app.answer(message, context).content


@pytest.mark.parametrize("action", [HELLO, "describe"])
def test_a_silo_refuses_coordinators_of_other_versions(
    silo: Path, action: str, capfd: pytest.CaptureFixture[str]
) -> None:
    same = Envelope(action, "north", "1", b"")
    for records, line in (
        (unversioned(same.records()), OLD_COORDINATOR),
        (Envelope(action, "north", "1", b"", NEWER).records(), NEW_COORDINATOR),
    ):
        answer = Answer.open(ask(records))
        assert (answer.name, answer.error) == ("north", line)
        assert capfd.readouterr().err == f"fedcollab: {line}\n"
        assert not (silo / "state").exists()  # nothing was done
    assert "version" not in Answer.open(ask(same.records())).error


def test_a_coordinator_refuses_answers_of_other_versions() -> None:
    for records, line in (
        (unversioned(Answer("north", b"reply").records()), OLD_SILO),
        (unversioned(Answer("north", error="whatever").records()), OLD_SILO),
        (Answer("north", b"reply", protocol=NEWER).records(), NEW_SILO),
        (Answer("north", error="whatever", protocol=NEWER).records(), NEW_SILO),
    ):
        answer = Answer.open(records)
        assert (answer.error, answer.content) == (line, b"")


def test_a_version_that_is_no_number_counts_as_none() -> None:
    records = Envelope("train", "north", "1", b"").records()
    records["about"]["protocol"] = "2"
    with pytest.raises(InputError, match="has protocol version 1"):
        Envelope.open(records)


def packed(project: str) -> bytes:
    """A Flower app with nothing but a pyproject.toml."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as app:
        app.writestr("pyproject.toml", project)
    return content.getvalue()


def test_a_silo_refuses_apps_of_other_versions(silo: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Before Flower installs them: a component's name may have changed with the version."""
    pin.check_received_app(packed(APP))
    old = APP.replace(f"protocol = {PROTOCOL}\n", "").replace(CLIENT_APP, "fedcollab.runtime.flower.client:app")
    new = APP.replace(f"protocol = {PROTOCOL}", f"protocol = {NEWER}").replace(CLIENT_APP, "fedcollab.elsewhere:app")
    assert old != APP != new
    for project, line in ((old, OLD_COORDINATOR), (new, NEW_COORDINATOR)):
        with pytest.raises(InputError, match=line):
            pin.check_received_app(packed(project))
        assert capfd.readouterr().err == f"fedcollab: {line}\n"
    wrong = APP.replace(f"protocol = {PROTOCOL}", 'protocol = "two"')
    with pytest.raises(InputError, match="cannot be read"):
        pin.check_app(packed(wrong))
    stranger = old.replace("fedcollab-federation", "another")
    with pytest.raises(InputError, match="other code than fedcollab's"):
        pin.check_app(packed(stranger))


class Link:
    """A grid whose nodes answer at once: each with records, or with one of Flower's errors."""

    def __init__(self, answers: dict[int, RecordDict | Error], names: dict[int, str]) -> None:
        self.answers, self.names = answers, names
        self.sent: dict[str, Message] = {}

    def get_nodes(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(node_id=node, name=self.names.get(node, "")) for node in self.answers]

    def push_messages(self, messages: list[Message]) -> list[str]:
        identifiers = []
        for message in messages:
            identifiers.append(f"{message.metadata.dst_node_id}-{len(self.sent)}")
            message.metadata.__dict__["_message_id"] = identifiers[-1]
            self.sent[identifiers[-1]] = message
        return identifiers

    def pull_messages(self, identifiers: list[str]) -> list[Message]:
        return [Message(self.answers[int(each.split("-")[0])], reply_to=self.sent[each]) for each in identifiers]


def raised(text: str) -> Error:
    """An InputError in a silo's process, as Flower reports it."""
    return Error(code=2, reason=f"<class 'fedcollab.errors.InputError'>:<'{text}'>")


def test_the_coordinator_shows_why_each_silo_was_refused() -> None:
    digest = "9f2c"
    before = (  # what a silo without versions says of an app whose component it does not know
        f"an app with other code than fedcollab's was refused (it runs {CLIENT_APP}); to let it run at this silo: "
        f'[app] allow = ["{digest}"] in silo.toml'
    )
    names = {1: "a", 2: "b", 3: "c", 4: "d", 5: "e"}
    link = Link(
        {
            1: Answer("a", b"here").records(),
            2: Answer("b", error=OLD_COORDINATOR, protocol=NEWER).records(),
            3: unversioned(Answer("c", b"here").records()),
            4: raised(before),
            5: raised(NEW_COORDINATOR),
        },
        names,
    )
    exchange = Exchange(link, deadline=5.0)
    found = exchange.find(["a", "b", "c", "d", "e"], patience=0.0)
    assert found == (["a", "b", "c", "d", "e"], [])
    returned = exchange("train", dict.fromkeys(names.values(), b"go"))
    assert returned.contents == {"a": b"here"}
    assert returned.failed == {"b": NEW_SILO, "c": OLD_SILO, "d": OLD_SILO, "e": NEW_COORDINATOR}
    assert returned.silent == {}


def test_a_silo_whose_worker_died_is_asked_again() -> None:
    """A process that was killed says nothing about the next try; an error of the silo's own does."""
    names = {1: "a", 2: "b", 3: "c"}
    link = Link({1: Answer("a", b"here").records(), 2: raised(WORKER_DIED), 3: raised("no such column")}, names)
    exchange = Exchange(link, deadline=5.0)
    exchange.find(["a", "b", "c"], patience=0.0)
    returned = exchange("train", dict.fromkeys(names.values(), b"go"))
    assert returned.silent == {"b": WORKER_DIED}
    assert returned.failed == {"c": "no such column"}


def test_a_node_of_another_version_without_a_name_is_left_out_and_shown() -> None:
    answers = {1: Answer("a").records(), 2: Answer("b").records(), 3: unversioned(Answer("c").records())}
    link = Link(answers, {})
    with pytest.warns(FedcollabWarning, match=OLD_SILO):
        assert Flower(link, patience=0.0).names == ("a", "b")
    assert len(link.sent) == 3  # each was asked once
    with pytest.raises(InputError, match=f"1 silo.s. are connected; at least 2 are needed; {OLD_SILO}"):
        Flower(Link({1: answers[1], 3: answers[3]}, {}), patience=0.0)
