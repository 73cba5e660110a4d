"""RSLH with every matrix in full: n x n similarity, n x d reduction, the objective as printed. Slow and obvious."""

import numpy as np


def dense_similarity(Y):
    """S with entries +1 (a shared label) and -1, by two loops."""
    n = len(Y)
    S = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            S[i, j] = 1.0 if np.any((Y[i] == 1) & (Y[j] == 1)) else -1.0
    return S


def dense_reduction(S, X):
    """R of the paper as a partial isometry: the polar factor of S X on its range."""
    U, s, Vt = np.linalg.svd(S @ X, full_matrices=False)
    kept = s > 1e-9 * s[0]
    return U[:, kept] @ Vt[kept]


def dense_objective(Y, X, H, B, W, V, P, R, G, alpha, beta, gamma, mu, lam):
    """J, term by term, as the paper prints it (samples as rows)."""

    def square(A):
        return float((A**2).sum())

    return (
        square(Y - B @ W)
        + alpha * square(H - Y @ V)
        + beta * square(H - B)
        + gamma * square(B @ H.T @ R - G)
        + mu * square(B - X @ P)
        + lam * square(P)
    )


def dense_run(Y, X, C0, W0, w, n_iter):
    """The alternation on full matrices; returns H, W, P and J after every single step."""
    n, L = len(X), C0.shape[1]
    scale = 1.0 if w.constraint == "I" else float(n)
    rows, ids = np.unique(Y, axis=0, return_inverse=True)
    ids = len(rows) - 1 - ids.reshape(-1)
    H = C0[ids].astype(float)
    S = dense_similarity(Y)
    R = np.eye(n) if w.similarity == "S" else dense_reduction(S, X)
    G = S @ R
    B, P, W, V = np.zeros((n, L)), np.zeros((X.shape[1], L)), W0, W0.T
    steps = []

    def record():
        steps.append(dense_objective(Y, X, H, B, W, V, P, R, G, w.alpha, w.beta, w.gamma, w.mu, w.lam))

    for _ in range(n_iter):
        if w.shared_projection:
            W = (B + w.alpha * H).T @ Y @ np.linalg.inv(scale * np.eye(Y.shape[1]) + w.alpha * Y.T @ Y)
            V = W.T
        else:
            W, V = B.T @ Y / scale, np.linalg.pinv(Y) @ H
        record()
        Q = Y @ W.T + w.beta * H + w.gamma * G @ R.T @ H + w.mu * X @ P
        U, _, Vt = np.linalg.svd(Q, full_matrices=False)
        B = np.sqrt(scale) * U @ Vt
        record()
        H = w.alpha * Y @ V + w.beta * B + w.gamma * R @ G.T @ B + w.gamma * scale * (H - R @ R.T @ H)
        H = np.where(H >= 0, 1.0, -1.0)
        record()
        P = np.linalg.solve(X.T @ X + w.lam / w.mu * np.eye(X.shape[1]), X.T @ B)
        record()
    return H, B, W, P, steps
