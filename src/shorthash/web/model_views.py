"""The facts of a collection in words that a user understands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from shorthash.methods import RECIPES
from shorthash.web.views import counted

__all__ = ["model_view"]

GOOD, FAIR, POOR = "good", "fair", "poor"
BALANCE = "How evenly bits are on and off: full means half of the items each, empty that a bit never changes."
INDEPENDENCE = "How little one bit tells about another: full means that no bit repeats another."
PURITY = "Share of items that sit in a bucket where their own class is the most frequent one."
FEATURES = {
    "gist": "GIST: where a picture has edges of which direction and size",
    "efficientnet-lite0": "EfficientNet-Lite0: what a network trained on a million photographs sees",
    "onnx": "a network in a file of your own",
    "callable": "a function of your own",
}


def model_view(facts: Mapping[str, Any], classes: Mapping[int | str, int]) -> dict[str, Any]:
    """Everything the model page shows.

    Parameters
    ----------
    facts : of ``Collection.facts``
    classes : class -> number of items
    """
    recipe = RECIPES.get(str(facts["method"]).lower())
    return {
        "name": facts["name"],
        "method": recipe.full_name if recipe else str(facts["method"]),
        "method_key": str(facts["method"]),
        "reference": f"{recipe.reference}" if recipe else "",
        "features": _features(facts.get("features")),
        "numbers": [
            {"value": f"{facts['n_items']:,}".replace(",", " "), "what": "items"},
            {"value": str(facts["n_bits"]), "what": f"bits per item; {_memory(facts)} for all codes"},
            {"value": str(facts["n_classes"]) if facts["n_classes"] else "no", "what": "classes"},
            *_measured(facts.get("evaluation")),
        ],
        "protocol": _sentence(str((facts.get("evaluation") or {}).get("protocol", ""))),
        "health": [] if facts["codes"] is None else _health(facts["codes"], facts["n_classes"]),
        "classes": _classes(classes),
        "n_features": facts["n_features"],
        "version": str(facts.get("shorthash_version") or ""),
    }


def _features(recipe: Mapping[str, Any] | None) -> str:
    if recipe is None:
        return "none: vectors were given as they are"
    kind = str(recipe.get("kind", ""))
    said = FEATURES.get(kind, kind)
    size = recipe.get("size")
    return f"{said}; pictures are seen at {size} x {size} pixels" if isinstance(size, int) else said


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def _memory(facts: Mapping[str, Any]) -> str:
    octets = facts["n_items"] * facts["n_bits"] / 8
    for unit in ("bytes", "kB", "MB"):
        if octets < 1000:
            return f"{octets:.0f} {unit}"
        octets /= 1000
    return f"{octets:.1f} GB"


def _measured(evaluation: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """The mAP, with what it means."""
    value = (evaluation or {}).get("map")
    if not isinstance(value, int | float) or value != value:
        return [{"value": "?", "what": "mAP was not measured when this model was made"}]
    asked = (evaluation or {}).get("n_queries")
    by = f" of {counted(int(asked), 'held-out query', 'held-out queries')}" if isinstance(asked, int) else ""
    return [
        {"value": f"{value:.3f}", "what": f"mean average precision{by}; 1 means the right class always comes first"}
    ]


def _health(codes: Mapping[str, Any], n_classes: int) -> list[dict[str, Any]]:
    """Every measure with a verdict and a sentence."""
    n, n_bits, used = int(codes["n_samples"]), int(codes["n_bits"]), int(codes["occupied_codes"])
    largest = int(codes["largest_bucket"])
    limit = min(float(n_bits), math.log2(n) if n > 1 else 0.0)
    spread = codes["entropy"] / limit if limit else 1.0
    alike = counted(max(1, round(2 ** codes["entropy"])), "equally full bucket")
    spread_said = f"Items are spread as over {alike} ({codes['entropy']:.1f} of at most {limit:.1f} bits of entropy)."
    fullest = f"the fullest holds {counted(largest, 'item')}, {100 * largest / n:.0f} % of all"
    used_said = f"{counted(used, 'code')} of {_power(n_bits)} hold items; {fullest}."
    rows = [
        ("Balance", 1 - codes["imbalance"], _verdict(codes["imbalance"], 0.2, 0.5), BALANCE),
        ("Independence", 1 - codes["mean_correlation"], _verdict(codes["mean_correlation"], 0.2, 0.5), INDEPENDENCE),
        ("Spread", spread, _verdict(1 - spread, 0.5, 0.8), spread_said),
        ("Codes in use", used / min(1 << n_bits, n), "", used_said),
    ]
    if "purity" in codes:
        rows.append(("Purity", codes["purity"], _verdict(1 - codes["purity"], 0.1, 0.4), PURITY))
    made = [{"name": a, "share": round(100 * min(max(b, 0), 1), 1), "verdict": c, "said": d} for a, b, c, d in rows]
    if n_classes > 1 and codes.get("class_collisions", -1) >= 0:
        made.append(_collisions(int(codes["class_collisions"])))
    return made


def _collisions(pairs: int) -> dict[str, Any]:
    said = "Every class has a bucket of its own that holds most of it."
    if pairs:
        said = f"{counted(pairs, 'pair')} of classes share their fullest bucket, so the code cannot tell them apart."
    return {"name": "Classes apart", "share": None, "verdict": FAIR if pairs else GOOD, "said": said}


def _verdict(off: float, good: float, fair: float) -> str:
    return GOOD if off <= good else FAIR if off <= fair else POOR


def _power(n_bits: int) -> str:
    return counted(1 << n_bits, "code").removesuffix(" codes") if n_bits < 40 else f"2^{n_bits}"


def _classes(classes: Mapping[int | str, int]) -> list[dict[str, Any]]:
    most = max([*classes.values(), 1])
    return [{"name": str(n), "count": count, "width": round(100 * count / most, 1)} for n, count in classes.items()]
