"""Parameters of learners are checked by the types of their fields."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pytest
from sklearn.base import clone

from shorthash.errors import InvalidInput
from shorthash.learners import BaseHasher


@dataclass(eq=False, repr=False)
class Example(BaseHasher):
    """Every kind of parameter."""

    n_bits: int = 8
    steps: int = 3
    most: int | None = None
    weight: float = 0
    scale: float | None = 1
    rule: Literal["a", "b", None] = None
    flag: bool = False
    random_state: int | np.random.RandomState | None = None

    _positive: ClassVar[tuple[str, ...]] = ("scale",)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("n_bits", 65, r"an int in the range \[1, 64\]"),
        ("n_bits", None, r"an int in the range \[1, 64\]"),
        ("steps", 0, "an int >= 1"),
        ("steps", None, "an int >= 1"),
        ("steps", True, "an int >= 1"),
        ("most", 1.5, "an int >= 1"),
        ("weight", -0.1, "a finite float >= 0"),
        ("weight", np.nan, "a finite float >= 0"),
        ("scale", 0.0, "a finite float > 0"),
        ("rule", "c", "one of 'a', 'b', None"),
    ],
)
def test_a_value_of_another_type_or_range_is_refused(name, value, rule):
    with pytest.raises(InvalidInput, match=f"The '{name}' parameter of Example must be {rule}. Got"):
        Example(**{name: value})._check_params()


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"most": None, "scale": None},
        {"most": 2, "scale": 0.5, "rule": "b"},
        {"random_state": np.random.RandomState(0)},
    ],
)
def test_values_of_the_type_are_accepted(values):
    Example(**values)._check_params()


def test_a_learner_that_is_no_dataclass_has_nothing_to_check():
    class Plain(BaseHasher):
        def __init__(self, steps=-1):
            self.steps = steps

    Plain()._check_params()


def test_a_dataclass_is_an_estimator_like_any_other():
    one = Example(4, weight=2)
    assert clone(one).get_params() == one.get_params()
    assert repr(one) == "Example(n_bits=4, weight=2)"
    assert "n_bits" in one._repr_html_()
    assert one != clone(one)
    assert len({one, one}) == 1
