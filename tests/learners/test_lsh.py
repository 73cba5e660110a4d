import numpy as np

from shorthash.learners.lsh import LSH


def test_bits_differ_as_often_as_the_angle_says():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5)) + 20
    hasher = [LSH(64, random_state=s).fit(X) for s in range(40)]  # 2 560 hyperplanes
    H = np.hstack([h.transform(X) for h in hasher]).astype(float)
    C = X - X.mean(axis=0)
    C /= np.linalg.norm(C, axis=1, keepdims=True)
    differing = (1 - H @ H.T / H.shape[1]) / 2
    angles = np.arccos(np.clip(C @ C.T, -1, 1)) / np.pi
    assert np.abs(differing - angles).max() < 0.05


def test_hyperplanes_go_through_the_mean(blobs):
    X, _ = blobs
    hasher = LSH(8, random_state=0).fit(X)
    assert np.allclose(hasher.project(X.mean(axis=0, keepdims=True)), 0, atol=1e-10)
    assert np.array_equal(hasher.transform(X), LSH(8, random_state=0).fit(X + 5).transform(X + 5))
