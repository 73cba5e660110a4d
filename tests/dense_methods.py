"""Supervised methods with every matrix in full, term by term and loop by loop. Slow and obvious.

Each ``dense_*`` runs one alternation and returns what it learned and the objective after every single step.
"""

import numpy as np
from scipy.linalg import solve_sylvester

from shorthash._labels import group_labels
from shorthash.data.rows import Rows
from shorthash.learners.samples import Samples


def samples_of(X, y):
    """What a solver sees of some rows."""
    return Samples.of(Rows(X, "test"), group_labels(y, owner="test"))


def indicator(y):
    """Labels as a 0/1 matrix."""
    y = np.asarray(y)
    return y.astype(float) if y.ndim == 2 else (y[:, None] == np.unique(y)).astype(float)


def signs(A):
    """-1 and +1, with +1 at 0."""
    return np.where(A >= 0, 1.0, -1.0)


def square(A):
    return float((A**2).sum())


def ridge(X, T, penalty):
    return np.linalg.inv(X.T @ X + penalty * np.eye(X.shape[1])) @ X.T @ T


def without_constant_bits(P, H):
    """A projection as learners keep it: 0 for bits that all samples share."""
    return np.array([np.zeros(len(p)) if len(set(bit)) == 1 else p for p, bit in zip(P.T, H.T, strict=True)]).T


def quadratic(h, A, q):
    """h A h' - 2 h q' of one code."""
    return h @ A @ h - 2 * h @ q


def flip_by_flip(H, Q, A_of_row, max_sweeps):
    """DCC by trying both values of every single bit, ties to +1."""
    H = H.astype(float).copy()
    for _ in range(max_sweeps):
        before = H.copy()
        for bit in range(H.shape[1]):
            for i in range(len(H)):
                plus, minus = H[i].copy(), H[i].copy()
                plus[bit], minus[bit] = 1.0, -1.0
                better = quadratic(minus, A_of_row(i), Q[i]) < quadratic(plus, A_of_row(i), Q[i]) - 1e-12
                H[i, bit] = -1.0 if better else 1.0
        if np.array_equal(H, before):
            break
    return H


def dense_sdh(X, Y, H, lam, nu, rho, n_iter, max_sweeps=10):
    W, P = ridge(H, Y, lam), ridge(X, H, rho)
    steps = []

    def record():
        steps.append(square(Y - H @ W) + lam * square(W) + nu * (square(H - X @ P) + rho * square(P)))

    record()
    for _ in range(n_iter):
        Q = Y @ W.T + nu * X @ P
        H = flip_by_flip(H, Q, lambda i: W @ W.T, max_sweeps)  # noqa: B023
        record()
        W = ridge(H, Y, lam)
        record()
        P = ridge(X, H, rho)
        record()
    return H, P, steps


def dense_sdhmlr(X, Y, H, alpha, nu, lam, rho, n_iter, max_sweeps=10):
    P = ridge(X, H, rho)
    steps = []

    def record():
        labels = square(Y - H @ W) + alpha * square(H - Y @ W.T) + lam * square(W)
        steps.append(labels + nu * (square(H - X @ P) + rho * square(P)))

    for _ in range(n_iter):
        left = H.T @ H + lam * np.eye(H.shape[1])
        W = solve_sylvester(left, alpha * Y.T @ Y, (1 + alpha) * H.T @ Y)
        record()
        H = flip_by_flip(H, (1 + alpha) * Y @ W.T + nu * X @ P, lambda i: W @ W.T, max_sweeps)  # noqa: B023
        record()
        P = ridge(X, H, rho)
        record()
    return H, P, steps


def dense_sslh(X, Y, H, lam, nu, gamma, theta, delta, mode, n_iter):
    """The n x n matrix D of weights in full; in mode "code" with the ten equal sweeps that the authors' code does."""
    n, L = H.shape
    D = np.eye(n)
    W = np.linalg.solve(H.T @ D @ H + lam * np.eye(L), H.T @ D @ Y)
    P = ridge(X, H, lam)
    U = P.copy()
    rounds = []

    def objective():
        residual = ((Y - H @ W) ** 2).sum(axis=1)
        loss = (delta**2 * (1 - np.exp(-residual / delta**2))).sum()
        return (
            loss
            + nu * (square(H - X @ P) + lam * square(P))
            + gamma * (square(X - H @ U.T) + lam * square(U))
            + theta * square(H @ np.ones(L))
            + lam * square(W)
        )

    for _ in range(n_iter):
        if mode == "code":
            M = D @ Y @ W.T + nu * X @ P
            for _ in range(10):
                H = np.zeros((n, L))
                for m in range(L):
                    rest = [j for j in range(L) if j != m]
                    scores = M[:, m] - D @ H[:, rest] @ W[rest] @ W[m]
                    scores = scores - gamma * H[:, rest] @ U[rest] @ U[m] - theta * H[:, rest] @ np.ones(L - 1)
                    H[:, m] = signs(scores)
        else:
            M = D @ Y @ W.T + nu * X @ P + gamma * X @ U
            H = np.zeros((n, L))
            for m in range(L):  # the first pass sees only the bits before it
                A = lambda i: D[i, i] * W @ W.T + gamma * U.T @ U + theta * np.ones((L, L))  # noqa: B023, E731
                H[:, m] = [1.0 if M[i, m] - H[i] @ A(i)[:, m] >= 0 else -1.0 for i in range(n)]
            H = flip_by_flip(H, M, A, 10)
        steps = [objective()]
        W = np.linalg.solve(H.T @ D @ H + lam * np.eye(L), H.T @ D @ Y)
        steps.append(objective())
        P = ridge(X, H, lam)
        steps.append(objective())
        U = X.T @ H @ np.linalg.inv(H.T @ H + lam * np.eye(L))
        steps.append(objective())
        D = np.diag(np.exp(-((Y - H @ W) ** 2).sum(axis=1) / delta**2))
        rounds.append(steps)
    return H, P, rounds


def shared_labels(Y):
    """S with 1 for a shared label and 0 for none, by two loops."""
    return np.array([[float((a * b).sum() > 0) for b in Y] for a in Y])


def dense_fssh(X, Y, G, W, mu, theta, n_iter):
    S = shared_labels(Y)
    steps = []

    def record():
        steps.append(square(S - X @ W @ (Y @ G).T) + mu * square(H - Y @ G) + theta * square(H - X @ W))

    for _ in range(n_iter):
        H = signs(mu * Y @ G + theta * X @ W)
        record()
        left, right = np.linalg.pinv(Y.T @ Y), np.linalg.inv(mu * np.eye(H.shape[1]) + W.T @ X.T @ X @ W)
        G = left @ (mu * Y.T @ H + Y.T @ S.T @ X @ W) @ right
        record()
        left, right = np.linalg.inv(X.T @ X), np.linalg.inv(theta * np.eye(H.shape[1]) + G.T @ Y.T @ Y @ G)
        W = left @ (theta * X.T @ H + X.T @ S @ Y @ G) @ right
        record()
    return H, G, W, steps


def dense_scdh(X, Y, H, alpha, beta, lam, n_iter):
    n, L = H.shape
    lengths = np.array([np.sqrt((row**2).sum()) for row in Y])
    S = np.array([[2 * (Y[i] @ Y[j]) / (lengths[i] * lengths[j]) - 1 for j in range(n)] for i in range(n)])
    J = np.eye(n) - np.ones((n, n)) / n
    P = ridge(X, H, beta / lam)
    steps = []

    def record():
        pairs = square(L * S - Z @ H.T)
        steps.append(pairs + lam * square(H - X @ P) + alpha * square(H - Z) + beta * square(P))

    for _ in range(n_iter):
        U, _, Vt = np.linalg.svd(J @ (L * S @ H + alpha * H), full_matrices=False)
        Z = np.sqrt(n) * U @ Vt
        record()
        H = signs(L * S @ Z + lam * X @ P + alpha * Z)
        record()
        P = ridge(X, H, beta / lam)
        record()
    return H, P, steps


def dense_affinity(X, anchors, k):
    """A = Z M Z' of POSH, by loops."""
    n, m = len(X), len(anchors)
    Z = np.zeros((n, m))
    squares = np.array([[((x - a) ** 2).sum() for a in anchors] for x in X])
    order = np.argsort(squares, axis=1, kind="stable")[:, :k]
    width = np.mean([np.sqrt(squares[i, order[i, -1]]) for i in range(n)])
    for i in range(n):
        for j in order[i]:
            Z[i, j] = np.exp(-squares[i, j] / width**2)
        Z[i] /= Z[i].sum()
    return Z @ np.diag([1 / s if s > 0 else 0.0 for s in Z.sum(axis=0)]) @ Z.T


def dense_posh(X, Y, A, H, gamma, eta, lam, n_iter):
    n, d = X.shape
    eps = np.finfo(float).eps
    D = np.eye(d)
    steps = []

    def record():
        sparsity = sum(np.sqrt((row**2).sum() + eps) for row in P)
        smooth = np.trace(P.T @ X.T @ (np.eye(n) - A) @ X @ P)
        steps.append(square(H - Y @ R) + lam * square(R) + gamma * square(H - X @ P) + eta * smooth + lam * sparsity)

    R = np.zeros((Y.shape[1], H.shape[1]))
    for _ in range(n_iter):
        P = np.linalg.inv(-eta * X.T @ A @ X + (eta + gamma) * X.T @ X + lam * D) @ (gamma * X.T @ H)
        record()
        R = ridge(Y, H, lam)
        record()
        H = signs(Y @ R + gamma * X @ P)
        record()
        D = np.diag([0.5 / np.sqrt((row**2).sum() + eps) for row in P])
    return H, steps


def dense_label_codes(X, Y, F, label_step, nu, rho, n_iter):
    """FSDH and NSH: ``label_step(H)`` returns F for every sample and its penalty."""
    P = np.zeros((X.shape[1], F.shape[1]))
    steps = []
    penalty = None
    for _ in range(n_iter):
        H = signs(F + nu * X @ P)
        if penalty is not None:
            steps.append(square(H - F) + penalty + nu * (square(H - X @ P) + rho * square(P)))
        F, penalty = label_step(H)
        steps.append(square(H - F) + penalty + nu * (square(H - X @ P) + rho * square(P)))
        P = ridge(X, H, rho)
        steps.append(square(H - F) + penalty + nu * (square(H - X @ P) + rho * square(P)))
    return H, P, steps
