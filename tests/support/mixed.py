"""Tables with numbers, categories and missing values, for agents that agree on a schema."""

import numpy as np
import pyarrow as pa

import conovel as cn

SCHEMA = cn.Schema.from_dict(
    {
        "weight": {"kind": "number", "missing": True, "fill": 0.0, "low": -8, "high": 8},
        "size": {"kind": "category", "missing": True, "levels": ["M", "L"], "rare": ["S"]},
        "city": {"kind": "category", "buckets": 4},
        "on": "boolean",
        "who": "ignore",
    }
)


def mixed_table(rng, n, n_novel=0, shift=3.0):
    """Draw n rows, the last ones novel: heavier, and large."""
    novel = np.arange(n) >= n - n_novel
    weight = rng.normal(size=n) + shift * novel
    usual = rng.choice(["M", "L", "S"], n, p=[0.6, 0.3, 0.1])
    size = np.where(novel & (rng.random(n) < 0.7), "L", usual)
    gone, unknown = rng.random(n) < 0.1, rng.random(n) < 0.1
    return pa.table(
        {
            "weight": pa.array(weight, mask=gone),
            "size": pa.array(size.astype(object), pa.string(), mask=unknown),
            "city": rng.choice(["Ulm", "Bonn", "Kiel", "Jena", "Trier"], n),
            "on": rng.random(n) < 0.5,
            "who": [f"u{i}" for i in rng.integers(0, 10**9, n)],
        }
    )


def mixed_agents(names, seed=0, n_null=400, n_test=100, n_novel=20):
    """Draw known normals and test rows of each agent."""
    rng = np.random.default_rng(seed)
    return {name: (mixed_table(rng, n_null), mixed_table(rng, n_test, n_novel)) for name in names}
