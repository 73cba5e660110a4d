"""What Hypothesis draws: codes, labels and whole retrieval problems, small enough for every tie order."""

import numpy as np
from hypothesis import strategies as st


@st.composite
def sign_codes(draw, n, n_bits, pool=4):
    """``n`` codes of ``n_bits`` bits from a small pool, so that ties and empty levels both happen."""
    word = st.integers(0, 2**n_bits - 1)
    near = st.lists(word, min_size=1, max_size=pool).flatmap(st.sampled_from)
    words = draw(st.lists(near, min_size=n, max_size=n))
    return np.array([[1 if (w >> j) & 1 else -1 for j in range(n_bits)] for w in words], dtype=np.int8).reshape(
        n, n_bits
    )


@st.composite
def label_sets(draw, n, multi):
    """``n`` class labels, or ``n`` rows of 0/1 (some of them without any label)."""
    if multi:
        rows = st.lists(st.integers(0, 1), min_size=3, max_size=3)
        return np.array(draw(st.lists(rows, min_size=n, max_size=n))).reshape(n, 3)
    return np.array(draw(st.lists(st.sampled_from("abc"), min_size=n, max_size=n)))


@st.composite
def problems(draw, max_items=6):
    """Query codes, query labels, database codes, database labels; any length from 1 to 64."""
    n_bits = draw(st.sampled_from([1, 2, 3, 4, 7, 8, 16, 20, 21, 33, 63, 64]))
    multi = draw(st.booleans())
    n_queries, n_items = draw(st.integers(1, 3)), draw(st.integers(1, max_items))
    codes = draw(sign_codes(n_queries + n_items, n_bits))
    labels = draw(label_sets(n_queries + n_items, multi))
    return codes[:n_queries], labels[:n_queries], codes[n_queries:], labels[n_queries:]


def as_lists(labels):
    """Labels as the references want them."""
    return [tuple(row) for row in labels.tolist()] if labels.ndim == 2 else labels.tolist()
