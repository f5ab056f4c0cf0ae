"""The contestants of nonconform: a script of its own, for nonconform needs Python 3.12 or newer.

    python benchmarks/_contest_nonconform.py ROWS.npz ANSWERS.npz SEED forest|knn

ROWS has null_0, test_0, null_1 and so on. At each site the detector is calibrated as nonconform's
guide does, and its `select` decides at level 0.1.
"""

import logging
import sys
import time
import warnings

import numpy as np
from nonconform import ConformalDetector, Split
from pyod.models.knn import KNN
from sklearn.ensemble import IsolationForest

LEVEL = 0.1


def main() -> None:
    """Answer for one detector."""
    source, target, seed, name = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    with np.load(source, allow_pickle=False) as archive:
        rows = {name: archive[name] for name in archive.files}
    start = time.process_time()
    flags, p_values, scores = [], [], []
    for i in range(len(rows) // 2):
        model = IsolationForest(random_state=seed) if name == "forest" else KNN()
        detector = ConformalDetector(detector=model, strategy=Split(n_calib=0.3), seed=seed)
        detector.fit(rows[f"null_{i}"])
        flags.append(np.asarray(detector.select(rows[f"test_{i}"], alpha=LEVEL)))
        p_values.append(np.asarray(detector.compute_p_values(rows[f"test_{i}"])))
        scores.append(np.asarray(detector.score_samples(rows[f"test_{i}"])))
    parts = {"flags": flags, "p_values": p_values, "scores": scores}
    answers = {what: np.concatenate(part) for what, part in parts.items()}
    np.savez(target, seconds=np.array(time.process_time() - start), **answers)


if __name__ == "__main__":
    main()
