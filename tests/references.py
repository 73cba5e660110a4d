"""Slow truths: loops, and every tie order one by one. Fast code is compared with these and shares nothing with them."""

from itertools import chain, permutations, product
from math import log2


def distance(code, other):
    return sum(1 for a, b in zip(code, other, strict=True) if a != b)


def shared_labels(labels, others):
    """How many labels two items share; a label is a class name or a row of 0/1."""
    if isinstance(labels, (list, tuple)):
        return sum(1 for a, b in zip(labels, others, strict=True) if a == 1 and b == 1)
    return 1 if labels == others else 0


def level_counts(query, items):
    counts = [0] * (len(query) + 1)
    for item in items:
        counts[distance(query, item)] += 1
    return counts


def tie_orders(distances, values):
    """Every ranking of ``values`` by ``distances``: all orders inside every tie."""
    groups = [[v for d, v in zip(distances, values, strict=True) if d == level] for level in sorted(set(distances))]
    for order in product(*(permutations(group) for group in groups)):
        yield list(chain.from_iterable(order))


def over_ties(distances, gains, metric):
    """Mean of ``metric(ranked gains)`` over all tie orders, every order equally likely."""
    values = [metric(ranked) for ranked in tie_orders(distances, gains)]
    return sum(values) / len(values)


def under_policy(distances, gains, ties, metric):
    """``metric(ranked gains)`` under a named tie policy."""
    if ties == "expected":
        return over_ties(distances, gains, metric)
    inside = {"stable": lambda gain: 0, "best": lambda gain: -gain, "worst": lambda gain: gain}[ties]
    pairs = sorted(zip(distances, gains, strict=True), key=lambda pair: (pair[0], inside(pair[1])))
    return metric([gain for _, gain in pairs])


def average_precision(ranked, cut=None, divisor="all"):
    """Plain average precision of one ranking; None if it has no relevant item to divide by."""
    shown = ranked if cut is None else ranked[:cut]
    hits, total = 0, 0.0
    for position, gain in enumerate(shown, start=1):
        if gain > 0:
            hits += 1
            total += hits / position
    relevant = sum(1 for gain in ranked if gain > 0)
    if divisor == "retrieved":
        return total / hits if hits else 0.0
    if divisor == "possible":
        relevant = min(relevant, len(ranked) if cut is None else cut)
    return total / relevant if relevant else None


def precision(ranked, cut):
    shown = ranked[:cut]
    return sum(1 for gain in shown if gain > 0) / len(shown) if shown else 0.0


def recall(ranked, cut):
    return sum(1 for gain in ranked[:cut] if gain > 0) / sum(1 for gain in ranked if gain > 0)


def dcg(ranked, cut):
    return sum(gain / log2(position + 1) for position, gain in enumerate(ranked[:cut], start=1))


def ndcg(ranked, cut):
    return dcg(ranked, cut) / dcg(sorted(ranked, reverse=True), cut)


def leave_one_out_map(codes, labels):
    """Tie-aware mAP of every row against all others, over all tie orders."""
    values = []
    for i, (code, label) in enumerate(zip(codes, labels, strict=True)):
        others = [j for j in range(len(codes)) if j != i]
        gains = [shared_labels(label, labels[j]) for j in others]
        if any(gain > 0 for gain in gains):
            distances = [distance(code, codes[j]) for j in others]
            values.append(over_ties(distances, gains, average_precision))
    return sum(values) / len(values) if values else None
