"""One client's side: its data, and what it keeps between calls. Nothing here is ever sent as it is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedcollab.data.client import ClientData
from fedcollab.data.digest import version_of
from fedcollab.data.rare import alike_in_sums, without_rare
from fedcollab.data.schema import Arrays, Schema
from fedcollab.data.split import with_test
from fedcollab.errors import InputError
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message


@dataclass(frozen=True)
class Agreed:
    """What the approved plan that a message belongs to says; the defaults are those of a message without a plan.

    Parameters
    ----------
    plan : str
        The plan's digest.
    starts : tuple of str
        Digests of the weights from which a training may start, beside those drawn from its seed.
    masked : bool
        Whether updates are masked.
    partners : mapping of str to str
        The partners' names, and the fingerprints of their keys (empty in an insecure federation).
    """

    plan: str = ""
    starts: tuple[str, ...] = ()
    masked: bool = False
    partners: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Silo:
    """One client's data and state: what a client-side action works on.

    Parameters
    ----------
    data : ClientData
        The client's own samples, as it gave them.
    state : mutable mapping
        What the client keeps between calls, by procedure: messages, so that every runtime can store them.
    device : str
        Where its models run.
    limits : Limits
        What its administrator allows.
    key : bytes
        The silo's secret key, if it is a process of its own; else empty. Folds, splits, batches and resamplings are
        drawn with it.
    identity : bytes
        The private key under which the silo was admitted, in OpenSSH's format; empty if it was admitted without one.
    partners : mapping of str to str
        Public keys of other silos that its administrator was given, in OpenSSH's format, by name.
    agreed : Agreed
        What the approved plan of the message says.
    coarseness : float
        How much coarser measures are rounded than at the start of a plan (see `silo.rounding`).
    question : str
        A checksum of the message that is being answered, and of all that its answer depends on.
    """

    data: ClientData
    state: MutableMapping[str, Message] = field(default_factory=dict)
    device: str = "cpu"
    limits: Limits = field(default_factory=Limits)
    key: bytes = b""
    identity: bytes = b""
    partners: Mapping[str, str] = field(default_factory=dict)
    agreed: Agreed = field(default_factory=Agreed)
    coarseness: float = 1.0
    question: str = ""
    _rows: ClientData | None = None
    _arrays: tuple[str, Arrays] | None = None
    _features: tuple[str, NDArray[np.float32]] | None = None
    _categories: tuple[str, NDArray[np.int64]] | None = None

    @property
    def name(self) -> str:
        """Return the client's stable name."""
        return self.data.name

    @property
    def secret(self) -> str:
        """Return a text to seed random draws with that a server cannot repeat.

        It follows from the silo's key; in process, where clients have none, from their samples.
        """
        if self.key:
            return hashlib.blake2b(b"draws", key=self.key[:64], digest_size=16).hexdigest()
        digest = hashlib.blake2b(self.arrays.x.tobytes(), digest_size=16)
        digest.update(self.arrays.y.tobytes())
        return digest.hexdigest()

    @property
    def lot(self) -> str:
        """Return the client's part in the seeds of folds, splits and batches: its name, and its secret if it has a key.

        So a server that knows seed and name cannot tell which samples are where. In process there is no key, and the
        draws are those of (seed, name), the same in every runtime.
        """
        return f"{self.name}\x1f{self.secret}" if self.key else self.name

    @property
    def version(self) -> str:
        """Return a checksum of the client's samples: another one once any of them has changed."""
        return version_of(self.data)

    @property
    def rows(self) -> ClientData:
        """Return the client's samples as they may be described: categories of fewer rows than the limit are missing."""
        if self._rows is None:
            self._rows = without_rare(self.data, self.limits.min_samples)
        return self._rows

    def with_test(self, share: float, seed: int) -> ClientData:
        """Return the client's samples with a test split: its own, or a hold-out that its key draws."""
        return with_test(self.rows, share, seed, self.lot)

    @property
    def schema(self) -> Schema:
        """Return the schema that the federation agreed on.

        Raises
        ------
        InputError
            If the client has not been prepared yet.
        """
        return Schema.from_json(self._schema_text())

    @property
    def arrays(self) -> Arrays:
        """Return the client's samples as the schema prepares them: arrays for training and for testing."""
        text = self._schema_text()
        if self._arrays is None or self._arrays[0] != text:
            self._arrays = (text, Schema.from_json(text).apply(self.rows, self.lot))
        return self._arrays[1]

    @property
    def features(self) -> NDArray[np.float32]:
        """Return the training samples as distances see them, one row a sample: through the schema's encoder, if any."""
        text, x = self._schema_text(), self.arrays.x
        if self._features is None or self._features[0] != text:
            encoding = Schema.from_json(text).encoding
            rows = x.reshape(len(x), -1) if encoding is None else encoding.apply(x, self.device)
            self._features = (text, rows)
        return self._features[1]

    def alike(self, x: NDArray[np.float64], chosen: NDArray[np.int64], least: int) -> NDArray[np.float64]:
        """Return training samples whose products can be summed (see `data.rare.alike_in_sums`).

        Parameters
        ----------
        x : array
            All training samples, one row each: as the schema prepares them, or through its encoder.
        chosen : array of int
            Those that are summed over.
        least : int
            The fewest rows that a column may tell apart.
        """
        if least <= 1:
            return x[chosen]
        blocks = self.schema.blocks if self.schema.encoding is None else []
        return alike_in_sums(x[chosen], blocks, self._codes()[chosen][:, : len(blocks)], least)

    def _codes(self) -> NDArray[np.int64]:
        """Return the category of each training sample in each text column of the schema; -1 for none."""
        text = self._schema_text()
        if self._categories is None or self._categories[0] != text:
            schema = Schema.from_json(text)
            table = with_test(self.rows, schema.test_share, schema.seed, self.lot).x
            found = [np.zeros((len(table), 0), dtype=np.int64)]
            for column in schema.columns or ():
                if column.categories:
                    values = table[column.name]
                    code = np.unique(values.astype(str).to_numpy(dtype=str), return_inverse=True)[1].reshape(-1)
                    found.append(np.where(values.isna().to_numpy(), -1, code)[:, None])
            self._categories = (text, np.concatenate(found, axis=1))
        return self._categories[1]

    def _schema_text(self) -> str:
        if "prepare" not in self.state:
            raise InputError(f"client `{self.name}` has not been prepared; `fedcollab.federation.federate` does that")
        text: str = self.state["prepare"]["schema"]
        return text
