"""Scores as an answer: facts, scores by list length, scores by class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shorthash.cli.output import Answer

if TYPE_CHECKING:
    from shorthash._types import Labels
    from shorthash.evaluation.scores import Scores
    from shorthash.lab.tables import Table

__all__ = ["score_answer"]

BY_CLASS = ("map", "map_worst", "map_best", "precision_at_radius", "recall_at_radius")


def score_answer(scores: Scores, query_labels: Labels, *, bounds: bool, by_class: bool) -> Answer:
    """What ``shorthash evaluate`` says."""
    data = scores.to_dict() | {"headline": scores.headline}
    tables = [_by_k(scores)] if scores.rules.k else []
    if by_class:
        classes = {name: scores.by_class(query_labels, name) for name in BY_CLASS}
        data["by_class"] = {str(label): {name: classes[name][label] for name in BY_CLASS} for label in classes["map"]}
        tables.append(_by_class(classes, scores, bounds))
    return Answer(data, _facts(scores, bounds), tuple(tables))


def _facts(scores: Scores, bounds: bool) -> dict[str, str]:
    rules, within = scores.rules, f"@H<={scores.radius:g}"
    facts = {
        "queries": str(scores.n_queries),
        "database": f"{scores.n_database} rows, {scores.n_bits} bits",
        "rules": f"{rules.name}, ties {rules.ties}",
        "mAP": f"{scores.map:.4f}",
    }
    if bounds:
        facts |= {"  worst tie order": f"{scores.map_worst:.4f}", "  best tie order": f"{scores.map_best:.4f}"}
    facts |= {
        f"mAP{within}": f"{scores.map_at_radius:.4f}",
        f"precision{within}": f"{scores.precision_at_radius:.4f}",
        f"recall{within}": f"{scores.recall_at_radius:.4f}",
        "empty balls": f"{100 * scores.empty_balls:.1f} %",
    }
    if rules.name != "shorthash":
        facts[f"headline of {rules.name}"] = f"{scores.headline:.4f} ({rules.family})"
    if scores.n_without_relevant:
        fate = "left out" if rules.without_relevant == "drop" else "scored 0"
        facts["without relevant"] = f"{scores.n_without_relevant} queries, {fate}"
    return facts


def _by_k(scores: Scores) -> Table:
    from shorthash.lab.tables import Column, Table

    titles = ("precision@k", "recall@k", "mAP@k", "nDCG@k")
    kinds = (scores.precision_at_k, scores.recall_at_k, scores.map_at_k, scores.ndcg_at_k)
    rows = tuple((k, *(kind[k] for kind in kinds)) for k in scores.rules.k)
    return Table((Column("k"), *(Column(title, 4) for title in titles)), rows)


def _by_class(classes: dict[str, dict[Any, float]], scores: Scores, bounds: bool) -> Table:
    from shorthash.lab.tables import Column, Table

    within = f"@H<={scores.radius:g}"
    titles = {"map": "mAP", "map_worst": "worst", "map_best": "best"}
    titles |= {"precision_at_radius": f"precision{within}", "recall_at_radius": f"recall{within}"}
    shown = [name for name in BY_CLASS if bounds or name not in ("map_worst", "map_best")]
    rows = tuple((label, *(classes[name][label] for name in shown)) for label in classes["map"])
    return Table((Column("class", text=True), *(Column(titles[name], 4) for name in shown)), rows)
