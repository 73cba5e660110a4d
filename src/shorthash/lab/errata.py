"""What is wrong, missing or ambiguous in the paper "Reinforcing Short-Length Hashing", and what we do about it."""

from __future__ import annotations

from dataclasses import dataclass

from shorthash.lab.tables import Column, Table

__all__ = ["ERRATA", "Erratum", "errata_table"]


@dataclass(frozen=True)
class Erratum:
    """One remark.

    Attributes
    ----------
    where : equation or section, as the paper numbers them
    printed : what stands there
    decision : what is meant, or what we do
    kind : "error" (cannot be as printed), "gap" (is not said) or "contradiction" (is said in two ways)
    """

    where: str
    printed: str
    decision: str
    kind: str


ERRATA: tuple[Erratum, ...] = (
    Erratum(
        "2.1, labels",
        "Labels are -1 or +1; the authors' code has 0 and 1.",
        "0 and 1; both are accepted as input and mean the same.",
        "contradiction",
    ),
    Erratum(
        "2.1, norm",
        "The norm of a matrix is called its l2-norm.",
        "Every norm of the paper is a Frobenius norm.",
        "error",
    ),
    Erratum(
        "eq. 1",
        "Anchors are random; the width of the kernel, centring and a constant column are not mentioned.",
        "Width: mean distance of a row to its nearest anchor; features centred by the training mean; no "
        "constant column, as in the authors' code.",
        "gap",
    ),
    Erratum(
        "eq. 5",
        "Codes should satisfy H H' = n I, the relaxed codes B B' = I.",
        "With I the entries of B are smaller than those of H by the root of n. Kept; constraint='nI' gives B "
        "the scale of H.",
        "contradiction",
    ),
    Erratum(
        "eq. 8",
        "The values of the similarity S are never given.",
        "+1 for a shared label, -1 otherwise, as in the authors' code.",
        "gap",
    ),
    Erratum(
        "eq. 10, 11",
        "Equations 8 and 9 are equivalent if R R' is the n x n identity.",
        "Impossible for fewer than n columns. True is: nothing changes if the range of S lies in the range of"
        " R, which holds here.",
        "error",
    ),
    Erratum(
        "eq. 12",
        "S R is compared with X, and R R' is the d x d identity.",
        "The shapes clash; meant are X transposed and R' R = I.",
        "error",
    ),
    Erratum(
        "eq. 12, solution",
        "An SVD of S X' is said to solve the problem.",
        "It maximises tr(R' S X), which is another problem, as the norm of S R is not constant. Kept.",
        "error",
    ),
    Erratum(
        "eq. 13",
        "mu and lambda weigh the regression of B on the features; a text below lists no lambda.",
        "As printed; lambda is a parameter like the others.",
        "gap",
    ),
    Erratum(
        "eq. 16 (W)",
        "The inverse stands on the factor B Y' + alpha H Y', which is not square.",
        "The inverse belongs to alpha Y Y' + I, which stands on the right.",
        "error",
    ),
    Erratum(
        "eq. 18 (B)",
        "The text says that the equation can be rewritten as itself.",
        "Equation 17 is rewritten as 18.",
        "error",
    ),
    Erratum(
        "eq. 18 (B)",
        "The norm of B' H R is expanded without a transpose and set equal to L n.",
        "It equals the norm of H R: constant in B, which is all the step needs, but not L n.",
        "error",
    ),
    Erratum(
        "eq. 18, 25",
        "A matrix V appears that is never defined.",
        "V is X.",
        "error",
    ),
    Erratum(
        "eq. 20 (B)",
        "The SVD has an n x n factor of which L columns are used.",
        "A thin factorisation; nothing of size n x n is made.",
        "gap",
    ),
    Erratum(
        "eq. 21-23 (H)",
        "The weight alpha of the first term is lost between equation 13 and equation 21.",
        "alpha stays. The authors' code loses it too; with the published weights no code changes.",
        "error",
    ),
    Erratum(
        "eq. 22 (H)",
        "The norm of B' H R is set equal to L n.",
        "It depends on H if R has fewer than n columns; the missing term, majorised, makes the step a descent.",
        "error",
    ),
    Erratum(
        "eq. 24, 25 (P)",
        "The weight mu is lost: the ridge is lambda.",
        "The ridge is lambda / mu.",
        "error",
    ),
    Erratum(
        "2.2, out of sample",
        "P of the objective regresses B on the features; the section on boosting regresses the final codes.",
        "The final codes, as in the authors' code.",
        "contradiction",
    ),
    Erratum(
        "2.2, clustering",
        "The affinity of the spectral clustering is not given.",
        "Absolute correlation of bits, rows of the eigenvectors not normalised, as in the authors' code.",
        "gap",
    ),
    Erratum(
        "2.3",
        "Start, number of iterations and stopping rule are missing.",
        "Random class codewords, at most 6 iterations, stop when codes and objective stand still.",
        "gap",
    ),
    Erratum(
        "3.1, weights",
        "alpha = 3, gamma = 1e-5; the authors' code has 7 and 1e-4, no mu, another order of steps.",
        "The paper's values by default; preset 'authors-code' for the others.",
        "contradiction",
    ),
    Erratum(
        "3.1 and 3.3, runs",
        "Ten runs in one place, five in the other.",
        "Five seeds for Table 1, ten for Table 2; standard deviations are shown.",
        "contradiction",
    ),
    Erratum(
        "3.1, splits",
        "Sizes of training set, queries and database, and whether they overlap, are not given.",
        "Stated with every result here; see the protocols.",
        "gap",
    ),
    Erratum(
        "3.2, mAP",
        "Average precision is taken 'for the top retrieved samples' without saying how many.",
        "The whole ranking.",
        "gap",
    ),
    Erratum(
        "3.2, ties",
        "How equal distances are ordered is not mentioned, though most distances are equal at these lengths.",
        "The exact mean over all orders; worst and best order are recorded too.",
        "gap",
    ),
    Erratum(
        "3.2, mAP@H<=2",
        "Empty balls and the divisor are not defined; the printed values fit none of the usual conventions throughout.",
        "Divided by the relevant items inside the ball; an empty ball counts 0.",
        "gap",
    ),
    Erratum(
        "3.2, precision",
        "The 'precision score' of Figure 1 is not defined.",
        "Precision among the first 5 000, as in the authors' code; among the first 100 for CALTECH-101; and "
        "inside radius 2.",
        "gap",
    ),
    Erratum(
        "3.3, short length",
        "Short means at most 10 bits; the tables go to 14.",
        "The tables.",
        "contradiction",
    ),
    Erratum(
        "3.3, gains over SSLH",
        "The mAP gains 'over SSLH' do not fit the SSLH row.",
        "They are gains over the best other method of every column; see the sentences above.",
        "error",
    ),
    Erratum(
        "3.3, gains over SSLH",
        "The gain in mAP@H<=2 over SSLH on CALTECH-101 fits neither reading.",
        "Trust the table.",
        "error",
    ),
    Erratum(
        "3.3, legend of Table 2",
        "MB is said to be the original boosting and OB the proposed one.",
        "The other way round: row G+MB equals row RSLH of Table 1.",
        "error",
    ),
    Erratum(
        "Table 2",
        "S against G and OB against MB are read as differences of method.",
        "S and G give the same codes from the same start; the rest is within the spread over seeds.",
        "error",
    ),
    Erratum(
        "Figure 2 (d)",
        "The objective is said to become small and stable as iterations go on.",
        "With one label per sample the codewords never leave their start, and nearly all of the fall is in the "
        "first iteration; with several labels (VOC2012) the objective really falls over iterations.",
        "gap",
    ),
)


def errata_table() -> Table:
    """All remarks, one row each."""
    titles = ("where", "kind", "in print", "here")
    rows = tuple((each.where, each.kind, each.printed, each.decision) for each in ERRATA)
    return Table(tuple(Column(title, text=True) for title in titles), rows)
