"""What a client computes from its rows for trees: sums of trees, gradients, histograms, outcomes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.data.rare import alike_columns
from fedcollab.training.blur import SHARE
from fedcollab.training.descend import Setting
from fedcollab.training.hooks import State
from fedcollab.training.losses import CROSS_ENTROPY, LOSSES, SQUARED
from fedcollab.training.outcomes import Outcome, of_outputs
from fedcollab.training.trees.cuts import Cuts
from fedcollab.training.trees.forest import Forest, Growing, growing_of
from fedcollab.training.trees.groups import Groups, group_rows
from fedcollab.training.trees.growth import open_nodes
from fedcollab.training.trees.histograms import Bins, Table, bin_rows, halves, nodes_at, sum_bins, table_of
from fedcollab.training.trees.objectives import at_start, objective_of, own_base
from fedcollab.training.trees.places import Places, splits_above
from fedcollab.wire.silo import Silo

Floats = NDArray[np.float64]

#: trainings in step whose sums are remembered for a client
MOST_KEPT = 32


@dataclass(frozen=True, eq=False)
class Summed:
    """What the first trees of a training add up to for each row, so that only further trees need be added."""

    forest: Forest
    rounds: int
    sums: Floats
    places: Places
    own: dict[tuple[bytes, float], Floats] = field(default_factory=dict)
    margins: dict[bytes, Margins] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows to train on (the first `count`), and rows that are held out.

    Parameters
    ----------
    x : array of float32
        All features, one row a sample.
    y : array of int64, or of float32
        All class indices, or the numeric target.
    count : int
        How many rows are trained on.
    spread : float
        The variance of a numeric target (see `training.scores`).
    groups : Groups or None
        The groups whose values the rows to train on have; None where they have their own.
    """

    x: NDArray[np.float32]
    y: NDArray[Any]
    count: int
    spread: float = 1.0
    groups: Groups | None = None
    _bins: dict[bytes, Bins] = field(default_factory=dict)
    _tables: dict[bytes, Table] = field(default_factory=dict)
    _sums: dict[str, Summed] = field(default_factory=dict)

    def bins(self, cuts: Cuts) -> Bins:
        """Return the bins of the rows to train on; those of the last thresholds are remembered."""
        if cuts.key not in self._bins:
            self._bins.clear()
            self._bins[cuts.key] = bin_rows(self.x[: self.count], cuts)
        return self._bins[cuts.key]

    def table(self, cuts: Cuts) -> Table:
        """Return which rows to train on are in which bin, [bins, n]; that of the last thresholds is remembered."""
        if cuts.key not in self._tables:
            self._tables.clear()
            self._tables[cuts.key] = table_of(self._rows_bins(cuts), int(cuts.offsets[-1]))
        return self._tables[cuts.key]

    def _rows_bins(self, cuts: Cuts) -> NDArray[np.int32]:
        """Return the bins of the rows to train on, [n, features]."""
        return np.ascontiguousarray(bin_rows(self.x[: self.count], cuts).T, dtype=np.int32)

    def sums(self, forest: Forest, rounds: int, training: str) -> Floats:
        """Return what the trees of the first rounds add up to for each row, [n, trees].

        Parameters
        ----------
        forest : Forest
            The trees.
        rounds : int
            How many rounds count.
        training : str
            Under which name the sums are remembered.
        """
        known = self._sums.pop(training, None)
        if known is not None and known.rounds <= rounds and _begins(forest, known.forest):
            if rounds == known.rounds:
                self._sums[training] = known
                return known.sums
            one_more = rounds == known.rounds + 1
            more = known.places.leaves(forest, known.rounds) if one_more else forest.sums(self.x, known.rounds, rounds)
            sums = known.sums + more
        else:
            sums = forest.sums(self.x, 0, rounds)
        while len(self._sums) >= MOST_KEPT:
            self._sums.pop(next(iter(self._sums)))
        first = (forest.feature[:rounds], forest.threshold[:rounds], forest.value[:rounds])
        kept = Forest(first[0].copy(), first[1].copy(), first[2].copy(), forest.base_score)
        self._sums[training] = Summed(kept, rounds, sums, Places(self.x))
        return sums

    def kept(self, training: str) -> Summed:
        """Return what is remembered of a training beside the sums that `sums` returned last."""
        return self._sums[training]

    def own_base(self, sums: Floats, start: Floats, how: Growing, training: str) -> Floats:
        """Return the client's own base score beside trees (see `objectives.own_base`), remembered beside their sums.

        Parameters
        ----------
        sums : array
            What the trees add up to, as `sums` has just returned it.
        start : array
            The coalition's base score.
        how : Growing
            How trees are grown.
        training : str
            As in `sums`.
        """
        known, key = self.kept(training).own, (start.tobytes(), how.reg_lambda)
        if key not in known:
            known[key] = self._fitted_base(sums, start, how)
        return known[key]

    def _fitted_base(self, sums: Floats, start: Floats, how: Growing) -> Floats:
        """Return the base score that fits the rows to train on best; arguments as in `own_base`."""
        rows = slice(self.count)
        return own_base(objective_of(how.shape.classes), sums[rows], self.y[rows], start, how.reg_lambda)


def _begins(forest: Forest, known: Forest) -> bool:
    """Return whether a forest begins with the trees of another."""
    return all(
        np.array_equal(getattr(forest, part)[: len(getattr(known, part))], getattr(known, part))
        for part in ("feature", "threshold", "value")
    )


_known: WeakKeyDictionary[Any, dict[tuple[int, str], Rows]] = WeakKeyDictionary()


def rows_of(owner: Any, least: int = 1, lot: str = "") -> Rows:
    """Return the rows of a client (`Arrays`), or of one of its folds (`Part`), made once.

    Parameters
    ----------
    owner : Arrays or Part
        Features, and class indices or a numeric target; a part has rows that are held out too.
    least : int
        With more than 1, rows have the values of groups of so many rows to train on, and the targets of these are not
        far from all others (`data.rare`).
    lot : str
        As in `groups.group_rows`.
    """
    known = _known.setdefault(owner, {})
    if (least, lot) not in known:
        x, y = (torch.as_tensor(part).cpu().numpy() for part in (owner.x, owner.y))
        x, count = np.ascontiguousarray(x.reshape(len(x), -1)), len(y)
        groups = group_rows(x, least, lot) if least > 1 else None
        if groups is not None:
            x, y = groups.table, y if y.dtype.kind == "i" else alike_columns(y.astype(np.float64), least)
        if hasattr(owner, "x_held"):
            held, y_held = (part.cpu().numpy() for part in (owner.x_held, owner.y_held))
            held = held.reshape(len(held), *x.shape[1:])
            x = np.concatenate([x, held if groups is None else groups.alike(held)])
            y = np.concatenate([y, y_held])
        known[least, lot] = Rows(np.ascontiguousarray(x), y, count, getattr(owner, "spread", 1.0), groups)
    return known[least, lot]


def rows_to_show(owner: Any, silo: Silo, fold: int = 0) -> Rows:
    """Return the rows of a client, or of one of its folds, as its limits let a server see sums of them.

    Parameters
    ----------
    owner : Arrays or Part
        As in `rows_of`.
    silo : Silo
        The client.
    fold : int
        Which fold it is.
    """
    least = silo.limits.min_samples
    return rows_of(owner, least, f"{silo.secret} {fold}" if least > 1 and silo.limits.round_measures else "")


@dataclass(frozen=True, eq=False)
class Margins:
    """The margins of all rows under the trees of the first rounds, with the coalition's or an own base score.

    Parameters
    ----------
    rows : Rows
        The rows.
    values : array
        The margins, [n, trees].
    classes : int
        The number of classes.
    places : Places
        Where the rows are in the next round's trees.
    """

    rows: Rows
    values: Floats
    classes: int
    places: Places
    _level: dict[bytes, Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Rows, forest: Forest, rounds: int, how: Growing, *, training: str, own: bool) -> Margins:
        """Return margins of a client's rows.

        Parameters
        ----------
        rows : Rows
            The rows.
        forest : Forest
            The trees.
        rounds : int
            How many rounds of them count.
        how : Growing
            How trees are grown.
        training : str
            As in `Rows.sums`.
        own : bool
            Whether the client has a base score of its own.
        """
        sums, base = rows.sums(forest, rounds, training), forest.base
        if own:
            base = rows.own_base(sums, base, how, training)
        summed = rows.kept(training)
        if base.tobytes() not in summed.margins:
            summed.margins[base.tobytes()] = cls(rows, sums + base, how.shape.classes, summed.places)
        return summed.margins[base.tobytes()]

    @cached_property
    def gradients(self) -> Floats:
        """Gradients and hessians of the rows to train on, [n, trees, 2]."""
        count = self.rows.count
        return np.stack(objective_of(self.classes).gradients(self.values[:count], self.rows.y[:count]), axis=2)

    def level_sums(self, forest: Forest, position: int, level: int, cuts: Cuts) -> Floats:
        """Return the exact sums of each open node and bin, [nodes, 2, bins].

        Of the two halves of a node only that of fewer rows is summed: the other is what is left of the node. The last
        level's sums are remembered.

        Parameters
        ----------
        forest, position, level
            As in `growth.open_nodes`.
        cuts : Cuts
            The thresholds.
        """
        key = splits_above(forest, position, level) + cuts.key
        if key in self._level:
            return self._level[key]
        table, trees = self.rows.table(cuts), forest.feature.shape[1]
        if level:
            above = self.level_sums(forest, position, level - 1, cuts)
            parents = [tree * 2 ** (level - 1) + node - (2 ** (level - 1) - 1)
                       for tree, node in open_nodes(forest, position, level - 1)]  # fmt: skip
            split = forest.feature[position, :, 2 ** (level - 1) - 1 : 2**level - 1].reshape(-1)[parents] > 0
            if not split.any():
                return above[:0]
            half = self.places.at(forest, position, level)[: self.rows.count] + np.arange(trees) * 2**level
            found = halves(table, self.gradients, half, np.array(parents, dtype=np.intp)[split], above[split])
        else:
            found = (table @ self.gradients.reshape(self.rows.count, -1)).T.reshape(trees, 2, -1)
        self._level.clear()
        self._level[key] = found = np.ascontiguousarray(found)
        return found

    @property
    def losses(self) -> Floats:
        """The loss of each row to train on."""
        return self.outcome(held=False).loss

    def outcome(self, *, held: bool) -> Outcome:
        """Return what the model does with the rows that are held out, or with those that are trained on."""
        part = slice(self.rows.count, None) if held else slice(self.rows.count)
        scores, loss = self.values[part], LOSSES[SQUARED if self.classes == 1 else CROSS_ENTROPY]
        if self.classes == 2:
            scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
        return of_outputs(loss, torch.from_numpy(scores), torch.from_numpy(self.rows.y[part]), self.rows.spread)


def histograms(
    margins: Margins, forest: Forest, position: int, level: int, cuts: Cuts, *, cells: str = "", lot: str = ""
) -> Floats:
    """Return sums of gradients and hessians of each open node and bin, [nodes, bins, 2].

    Parameters
    ----------
    margins : Margins
        The margins before this round; their rows may be in groups, which are then joined where they have few rows.
    forest, position, level
        As in `growth.open_nodes`.
    cuts : Cuts
        The thresholds.
    cells : str
        What it is drawn from how many more rows a joined group must have (see `join_cells`); empty for none.
    lot : str
        What the error of each sum is drawn from: half of its standard error, as in `blur`, that of how many rows there
        are included. Rows with small gradients count as before any tree: else a server that makes all gradients but one
        vanish would see that one. Empty for none.
    """
    groups, width = margins.rows.groups, int(cuts.offsets[-1])
    if groups is None and not lot:
        return np.moveaxis(margins.level_sums(forest, position, level, cuts), 1, 2)
    gradient, hessian = np.moveaxis(margins.gradients, 2, 0)
    known = margins.rows.bins(cuts) if groups is None else groups.places
    bin_of = None if groups is None else groups.bins(cuts)
    least_gradient, least_hessian = at_start(margins.classes)
    if margins.classes == 1:
        least_gradient = float(np.std(margins.rows.y[: margins.rows.count], dtype=np.float64))  # whatever its scale is
    nodes = open_nodes(forest, position, level)
    found = []
    for tree in range(gradient.shape[1]):
        mine = [node + 1 - 2**level for each, node in nodes if each == tree]
        if not mine:
            continue
        node, bins = nodes_at(forest, position, tree, level, known, groups or cuts, cells)
        bins = bins if bin_of is None else bin_of[bins]
        if len(mine) < 2**level:
            place = np.full(2**level + 1, -1)  # the last is for rows that have come to a leaf
            place[mine] = np.arange(len(mine))
            node = place[node]
        g, h = np.ascontiguousarray(gradient[:, tree]), np.ascontiguousarray(hessian[:, tree])
        if not lot:
            found.append(sum_bins(bins, node, [g, h], len(mine), width))
            continue
        squares = [np.maximum(g * g, least_gradient**2), np.maximum(h * h, least_hessian**2)]
        sums = sum_bins(bins, node, [g, h, *squares], len(mine), width)
        draw = seeds.generator(0, "histograms", lot, tree)
        blurred = sums[..., :2] + _errors(sums[..., 2:], cuts, draw)
        blurred[..., 1] = _at_least_0(blurred[..., 1], cuts)
        found.append(blurred)
    return np.concatenate(found) if found else np.zeros((0, width, 2))


def _errors(squares: Floats, cuts: Cuts, draw: np.random.Generator) -> Floats:
    """Return errors of sums: half of the standard error in each bin, and the same in all of a node by every feature.

    Features have the same rows in other bins: with errors of their own their totals would average them away.

    Parameters
    ----------
    squares : array
        Sums of squares, [nodes, bins, 2].
    cuts : Cuts
        The thresholds.
    draw : numpy.random.Generator
        The silo's own.
    """
    starts, widths = cuts.offsets[:-1], np.diff(cuts.offsets)
    found = SHARE * np.sqrt(squares) * draw.standard_normal(squares.shape)
    whole = np.add.reduceat(squares, starts, axis=1)[:, :1]
    total = SHARE * np.sqrt(whole) * draw.standard_normal(whole.shape)
    left = total - np.add.reduceat(found, starts, axis=1)
    shares = squares / np.where(whole > 0, whole, 1.0)
    errors: Floats = found + np.repeat(left, widths, axis=1) * shares
    return errors


def _at_least_0(sums: Floats, cuts: Cuts) -> Floats:
    """Return sums of hessians, [nodes, bins], without those that an error made negative; each feature's total stays."""
    totals = np.maximum(sums[:, : cuts.offsets[1]].sum(axis=1), 0)[:, None]
    kept = np.maximum(sums, 0)
    found: Floats = kept * np.repeat(
        totals / np.maximum(np.add.reduceat(kept, cuts.offsets[:-1], axis=1), 1e-300), np.diff(cuts.offsets), axis=1
    )
    return found


def with_own_base(sent: State, silo: Silo, setting: Setting) -> State | None:
    """Return what a client was sent with its own base score in the trees; None where the model has no trees.

    Parameters
    ----------
    sent : dict of Tensor
        What the client was sent.
    silo : Silo
        The client.
    setting : Setting
        The training's setting.
    """
    how = growing_of(setting.model)
    if how is None:
        return None
    w = sent["w"].cpu().numpy().copy()
    forest, rows = Forest.of(w, how.shape), rows_to_show(silo.arrays, silo)
    sums = rows.sums(forest, forest.rounds, "train")
    forest.with_base(rows.own_base(sums, forest.base, how, "train"))
    return {**sent, "w": torch.from_numpy(w).to(sent["w"].device)}
