"""Codes as maps: all codes of a length as a grid of buckets, and codes in the plane by t-SNE.

On the grid, neighbours differ in one bit. In the plane, samples with equal codes are one point to t-SNE, which would
draw them as an arbitrary cloud or on top of each other. So codes are embedded, not samples, and samples are spread
evenly over a disc around their code, with an area proportional to their number; discs never overlap. Up to 6 bits all
codes are embedded, used or not, so that a code has the same position in every figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from shorthash._display import PALETTE, SERIES, axes_in_style
from shorthash._validation import check_same_length, require_extra
from shorthash.codes import as_codes, pack, unpack
from shorthash.errors import InvalidInput
from shorthash.lab.figures import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_MAP_BITS = 12
LABELLED_CELLS = 8  # a grid with at most this many columns has room for words in its cells
SHOWN_SHARE = 0.1  # a class is named in a bucket if it makes up this share of it
GOLDEN = np.pi * (3 - np.sqrt(5))  # the golden angle
ROOM = 0.8  # share of the largest radius without overlap: leaves space for names
SHAPES = "sD^vPX"  # of classes for which a second round of colours is needed
SIDE = 270.0  # points along the side of the drawing
DOTS = (1.2, 3.6)  # diameters in points: dots of a disc touch at most
LISTED = 20  # with more classes there is no legend
NAMED_SIZE = 0.02  # a disc is named if it holds this share of the samples
NAMED_SHARE = 0.3  # a class is named at a disc if it makes up this share of it
WHOLE_BITS = 6  # up to this length all codes are embedded
PERPLEXITY = 4.0  # neighbours that a code of few bits has
EDGES = ((1.0, 0.0), (0.0, 1.0), (0.38, 0.3), (2.2, 0.15), (0.3, 2.0))  # where each bit leads in the drawing of a cube


def draw_bucket_map(codes: ArrayLike, classes: ArrayLike) -> Figure:
    """All codes of a length as a grid whose neighbours differ in one bit, shaded by how many items each holds.

    The edges are neighbours too, as on a torus. A bucket shows the classes of a tenth of its items or more, the most
    frequent first, and its number of items; on a large grid, only its most frequent class.

    Parameters
    ----------
    codes : (n_samples, n_bits) signs, at most 12 bits
    classes : (n_samples,) class of every item

    Examples
    --------
    >>> figure = draw_bucket_map([[1, 1, -1], [1, 1, -1], [-1, 1, 1]], ["ape", "ape", "bee"])
    >>> len(figure.axes)
    1
    """
    signs = as_codes(codes)
    n_bits = signs.shape[1]
    if n_bits > MAX_MAP_BITS:
        raise InvalidInput(f"A bucket map needs codes of at most {MAX_MAP_BITS} bits. Got {n_bits} instead.")
    grid = _gray_grid(n_bits)
    packed = pack(signs).astype(np.int64)
    counts = np.bincount(packed, minlength=1 << n_bits)[grid]
    labels = np.asarray(classes)
    names = {int(code): _main_classes(labels[packed == code], SHOWN_SHARE) for code in np.unique(packed)}
    occupied = int(np.count_nonzero(counts))
    title = f"{n_bits} bits: {occupied} of {1 << n_bits} buckets hold items"
    with drawing("", "", title, height=0.5 + 3.6 * grid.shape[0] / grid.shape[1]) as (figure, axes):
        _draw_cells(axes, grid, counts, names)
    return figure


def draw_code_map(codes: ArrayLike, classes: ArrayLike, *, title: str, seed: int = 0) -> Figure:
    """Samples in the plane, those with equal codes in one disc, coloured by class.

    Parameters
    ----------
    codes : (n_samples, n_bits) signs
    classes : (n_samples,) class of every sample
    title : what is drawn
    seed : of t-SNE and of the order of samples in a disc

    Examples
    --------
    >>> figure = draw_code_map([[1, 1, -1], [1, 1, -1], [-1, 1, 1], [-1, -1, 1]], list("aabb"), title="four rows")
    >>> len(figure.axes)
    1
    """
    with drawing("", "", title, width=5.2, height=4.6) as (figure, axes):
        _draw_discs(axes, as_codes(codes), np.asarray(classes), seed)
    return figure


def plot_code_map(hasher: Any, X: ArrayLike, y: ArrayLike, *, seed: int = 0, ax: Axes | None = None) -> Axes:
    """Draw rows in the plane by their codes: those with equal codes in one disc, coloured by class.

    Discs are placed by t-SNE of the Hamming distances of their codes; up to 6 bits a code has the same place in every
    figure. A disc that holds many rows is named by its code and its main classes.

    Parameters
    ----------
    hasher : a fitted hasher or pipeline
    X : (n_samples, n_features) rows to encode
    y : (n_samples,) class of every row
    seed : of t-SNE and of the order of rows in a disc
    ax : axes to draw on; by default those of a new figure

    Returns
    -------
    Axes
        The axes that were drawn on.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shorthash import RSLH, plot_code_map
    >>> X, y = load_iris(return_X_y=True)
    >>> ax = plot_code_map(RSLH(n_bits=3, random_state=0).fit(X, y), X, y)
    >>> len(ax.collections)
    3
    """
    codes, labels = as_codes(np.asarray(hasher.transform(X))), np.asarray(y)
    check_same_length(len(codes), len(labels), "plot_code_map")
    with axes_in_style(ax, 5.2, 4.6) as axes:
        _draw_discs(axes, codes, labels, seed)
    return axes


def plot_hypercube(codes: ArrayLike, y: ArrayLike | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw all codes of a length as the corners of a cube, joined where they differ in one bit.

    A corner is larger the more rows it has, has the colour of its main class, and is labelled by code and classes.

    Parameters
    ----------
    codes : (n_samples, n_bits) signs of 1 to 5 bits, such as codes or codewords
    y : (n_samples,) class of every row; without it corners have one colour
    ax : axes to draw on; by default those of a new figure

    Returns
    -------
    Axes
        The axes that were drawn on.

    Examples
    --------
    >>> from shorthash import plot_hypercube
    >>> ax = plot_hypercube([[1, 1, -1], [1, 1, -1], [-1, 1, 1]], ["cat", "cat", "dog"])
    >>> [text.get_text().split() for text in ax.texts]
    [['110', 'cat'], ['011', 'dog']]
    """
    signs = as_codes(codes)
    n_bits = signs.shape[1]
    if n_bits > len(EDGES):
        raise InvalidInput(f"plot_hypercube draws codes of at most {len(EDGES)} bits. Got {n_bits} instead.")
    labels = np.full(len(signs), "") if y is None else np.asarray(y)
    check_same_length(len(signs), len(labels), "plot_hypercube")
    every = unpack(np.arange(1 << n_bits, dtype=np.uint8), n_bits)
    corners = (every > 0) @ np.array(EDGES[:n_bits])
    packed = pack(signs).astype(np.intp)
    with axes_in_style(ax, 3.2 + 0.9 * n_bits, 2.6 + 0.4 * n_bits) as axes:
        for bit in range(n_bits):
            starts = np.flatnonzero(every[:, bit] < 0)
            ends = starts | (1 << bit)
            axes.plot(*np.stack([corners[starts], corners[ends]]).T.swapaxes(1, 2), color=PALETTE["grid"], zorder=1)
        axes.scatter(corners[:, 0], corners[:, 1], s=12, color=PALETTE["quiet"], zorder=2, linewidths=0)
        _draw_corners(axes, corners, packed, labels, every)
        axes.set_aspect("equal")
        axes.margins(0.12)
        axes.axis("off")
    return axes


def _draw_corners(
    axes: Axes, corners: NDArray[Any], packed: NDArray[np.intp], labels: NDArray[Any], every: NDArray[np.int8]
) -> None:
    """A disc and a name at every corner in use."""
    names = np.unique(labels)
    counts = np.bincount(packed, minlength=len(corners))
    for code in np.flatnonzero(counts):
        main = _main_classes(labels[packed == code], NAMED_SHARE)
        number = int(np.flatnonzero(names.astype(str) == main[0])[0])
        size = 60 + 440 * counts[code] / counts.max()
        x, y = corners[code]
        axes.scatter(x, y, s=size, color=SERIES[number % len(SERIES)], zorder=3, linewidths=0, alpha=0.9)
        text = "\n".join([_bits(every[code]), ", ".join(main)]).rstrip()
        above = (0, 2 + float(np.sqrt(size / np.pi)))
        axes.annotate(text, (x, y), above, textcoords="offset points", ha="center", fontsize=8, zorder=4)


def _draw_discs(axes: Axes, signs: NDArray[np.int8], labels: NDArray[Any], seed: int) -> None:
    """Samples with equal codes in one disc, coloured by class; a legend if there are few classes."""
    _, first, inverse = np.unique(pack(signs), return_index=True, return_inverse=True)
    counts = np.bincount(inverse)
    centres = place_codes(signs[first], seed)
    points = spread(centres, inverse, counts, seed)
    names = np.unique(labels)
    extent = max(float(np.ptp(points, axis=0).max()), 1e-9)
    diameter = float(np.clip(1.5 * _scale(centres, counts) / extent * SIDE, *DOTS))
    for number, name in enumerate(names):
        axes.scatter(*points[labels == name].T, **_dot(number, diameter), label=str(name))
    for code in np.flatnonzero(counts >= NAMED_SIZE * len(labels)):
        _name_disc(axes, points[inverse == code], labels[inverse == code], signs[first[code]])
    axes.set_aspect("equal")
    axes.margins(0.06)
    axes.axis("off")
    if len(names) <= LISTED:
        axes.figure.legend(loc="outside right center", title="class", markerscale=6 / diameter)


def place_codes(codes: ArrayLike, seed: int = 0) -> NDArray[np.float64]:
    """A position in the plane for every distinct code, by t-SNE of their Hamming distances, (n_codes, 2).

    Parameters
    ----------
    codes : (n_codes, n_bits) signs, all different
    seed : of t-SNE
    """
    signs = as_codes(codes)
    n_bits = signs.shape[1]
    if 2 <= n_bits <= WHOLE_BITS:
        every = np.arange(1 << n_bits, dtype=np.uint8)
        return _embed(unpack(every, n_bits), seed)[pack(signs).astype(np.intp)]
    if len(signs) < 4:  # too few neighbours for t-SNE: place them in a row
        return np.column_stack([np.arange(len(signs), dtype=np.float64), np.zeros(len(signs))])
    return _embed(signs, seed)


def _embed(signs: NDArray[np.int8], seed: int) -> NDArray[np.float64]:
    """Seeded t-SNE of Hamming distances."""
    from sklearn.manifold import TSNE

    real = signs.astype(np.float64)
    tsne = TSNE(
        metric="precomputed",
        init="random",
        learning_rate=20.0,
        perplexity=min(PERPLEXITY, (len(real) - 1) / 3),
        random_state=seed,
    )
    with threadpool_limits(limits=1):  # few points: threads would not help
        return np.asarray(tsne.fit_transform((real.shape[1] - real @ real.T) / 2), dtype=np.float64)


def spread(
    centres: NDArray[np.float64], members: NDArray[np.intp], counts: NDArray[np.intp], seed: int = 0
) -> NDArray[np.float64]:
    """A position for every sample: evenly spread over the disc of its code, discs as large as possible without overlap.

    Parameters
    ----------
    centres : (n_codes, 2) positions of the codes
    members : (n_samples,) code of every sample
    counts : (n_codes,) samples of every code
    seed : of the order in a disc
    """
    scale = _scale(centres, counts)
    rng = np.random.default_rng(seed)
    points = np.empty((len(members), 2))
    for code, (centre, count) in enumerate(zip(centres, counts, strict=True)):
        rank = rng.permutation(count)
        radius, angle = scale * np.sqrt(rank + 0.5), rank * GOLDEN
        points[members == code] = centre + np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    return points


def _scale(centres: NDArray[np.float64], counts: NDArray[np.intp]) -> float:
    """Radius of a disc of one sample, so that no two discs touch and there is some space between them."""
    roots = np.sqrt(counts)
    gaps = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    pairs = np.triu_indices(len(centres), 1)
    return ROOM * float(np.min(gaps[pairs] / (roots[:, None] + roots[None])[pairs])) if len(pairs[0]) else 1.0


def _dot(number: int, diameter: float) -> dict[str, Any]:
    """Colour and shape of a class; the second round of colours has other shapes and is paler."""
    rounds, place = divmod(number, len(SERIES))
    return {
        "color": SERIES[place],
        "marker": SHAPES[place] if rounds else "o",
        "s": diameter**2,
        "linewidths": 0,
        "alpha": 0.9 if rounds % 2 == 0 else 0.55,
    }


def _name_disc(axes: Any, points: NDArray[np.float64], labels: NDArray[Any], code: NDArray[Any]) -> None:
    """The code and its main classes, above the disc."""
    main = _main_classes(labels, NAMED_SHARE)
    top = (float(points[:, 0].mean()), float(points[:, 1].max()))
    look = {"textcoords": "offset points", "ha": "center", "fontsize": 8, "color": PALETTE["ink"]}
    axes.annotate(f"{_bits(code)}: {', '.join(main)}", top, (0, 3), **look)


def _bits(code: NDArray[Any]) -> str:
    """A code of signs in the digits 0 and 1, the first bit first."""
    return "".join("1" if sign > 0 else "0" for sign in code)


def _gray_grid(n_bits: int) -> NDArray[np.int64]:
    """All codes in a grid, (2^floor(n/2), 2^ceil(n/2)): neighbours, also around the edges, differ in one bit."""
    low = (n_bits + 1) // 2
    columns, rows = np.arange(1 << low), np.arange(1 << (n_bits - low))
    gray_columns, gray_rows = columns ^ (columns >> 1), rows ^ (rows >> 1)
    return (gray_rows[:, None] << low) | gray_columns[None, :]


def _main_classes(labels: NDArray[Any], share: float) -> list[str]:
    """The classes that make up this share of some items, or else the most frequent; most frequent first."""
    values, counts = np.unique(labels, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [str(values[i]) for i in order if counts[i] >= share * counts.sum()] or [str(values[order[0]])]


def _draw_cells(axes: Axes, grid: NDArray[np.int64], counts: NDArray[np.int64], names: dict[int, list[str]]) -> None:
    """A grid of lines, and one square per occupied code; fuller is darker."""
    patches = require_extra("matplotlib.patches", "report", "Drawing figures")
    n_rows, n_columns = grid.shape
    lines: dict[str, Any] = {"color": PALETTE["grid"], "linewidth": 0.8, "clip_on": False}
    axes.hlines(np.arange(n_rows + 1), 0, n_columns, **lines)
    axes.vlines(np.arange(n_columns + 1), 0, n_rows, **lines)
    for row, column in np.argwhere(counts).tolist():
        share = counts[row, column] / counts.max()
        fill = {"facecolor": SERIES[0], "alpha": 0.15 + 0.85 * share, "linewidth": 0}
        axes.add_patch(patches.Rectangle((column, row), 1, 1, **fill))
        colour = PALETTE["on-series"] if share > 0.5 else PALETTE["ink"]
        main = names[int(grid[row, column])]
        centred: dict[str, Any] = {"ha": "center", "va": "center", "color": colour}
        if n_columns <= LABELLED_CELLS:
            axes.text(column + 0.5, row + 0.36, " ".join(main), fontsize=10, fontweight="bold", **centred)
            axes.text(column + 0.5, row + 0.74, str(counts[row, column]), fontsize=7.5, **centred)
        else:
            axes.text(column + 0.5, row + 0.5, main[0], fontsize=6, **centred)
    axes.set_xlim(0, n_columns)
    axes.set_ylim(n_rows, 0)
    axes.set_aspect("equal")
    axes.axis("off")
