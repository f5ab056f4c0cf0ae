"""The numbers that the paper prints (Loh and Xiang, "Experiments" and the appendix).

Each is mean ± spread over 100 trials; kilobits are the paper's communication column.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

SHIFTS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0)
QUANTIZED_AT = 2.0


class Published(NamedTuple):
    """One cell of a published table: mean and spread of each figure."""

    fdr: tuple[float, float]
    power: tuple[float, float]
    kilobits: tuple[float, float] | None = None


def _shift(
    fdr: tuple[float, ...], fdr_spread: float, power: tuple[float, ...], *power_spread: float
) -> dict[float, Published]:
    rows = zip(SHIFTS, fdr, power, power_spread, strict=True)
    return {shift: Published((f, fdr_spread), (p, s)) for shift, f, p, s in rows}


# Tables "Global FDR: Shift Sweep" and "Statistical Power: Shift Sweep", by regime.
SHIFT: Mapping[str, Mapping[float, Published]] = MappingProxyType(
    {
        "isolated": _shift(
            (0.027, 0.029, 0.028, 0.027, 0.028, 0.031),
            0.01,
            (0.901, 0.894, 0.881, 0.835, 0.763, 0.748),
            *(0.03, 0.03, 0.04, 0.05, 0.06, 0.06),
        ),
        "counts": _shift(
            (0.086, 0.088, 0.091, 0.087, 0.088, 0.090),
            0.02,
            (0.949, 0.945, 0.940, 0.906, 0.862, 0.849),
            *(0.02, 0.02, 0.02, 0.03, 0.03, 0.04),
        ),
        "split": _shift(
            (0.081, 0.084, 0.081, 0.082, 0.078, 0.074),
            0.03,
            (0.966, 0.971, 0.982, 0.991, 0.997, 0.999),
            *(0.03, 0.02, 0.02, 0.01, 0.01, 0.00),
        ),
        # Table "Conservative Model Exchange: Simulated Dataset Shift".
        "conservative": {
            0.0: Published((0.030, 0.01), (0.924, 0.03), (15303, 806)),
            0.5: Published((0.029, 0.01), (0.925, 0.03), (15349, 600)),
            1.0: Published((0.030, 0.02), (0.927, 0.02), (15317, 630)),
            2.0: Published((0.031, 0.01), (0.890, 0.03), (15666, 777)),
            3.0: Published((0.028, 0.01), (0.747, 0.07), (16072, 716)),
            4.0: Published((0.028, 0.01), (0.667, 0.01), (16036, 491)),
        },
    }
)

# Tables "Quantization Sweep (δ = 2.0)" and "Conservative Model Exchange: Quantization Sweep",
# by regime and precision.
QUANTIZATION: Mapping[str, Mapping[str, Published]] = MappingProxyType(
    {
        "isolated": {"": Published((0.029, 0.01), (0.834, 0.06), (0.0, 0.0))},
        "counts": {"": Published((0.090, 0.02), (0.908, 0.03), (0.1, 0.01))},
        "split": {
            "float64": Published((0.082, 0.03), (0.990, 0.01), (1576.9, 37.6)),
            "6": Published((0.080, 0.03), (0.990, 0.01), (199.0, 4.8)),
            "4": Published((0.078, 0.03), (0.991, 0.01), (150.3, 3.5)),
            "2": Published((0.084, 0.03), (0.991, 0.01), (103.3, 2.2)),
            "1": Published((0.087, 0.04), (0.991, 0.01), (79.4, 1.9)),
        },
        "conservative": {
            "float64": Published((0.031, 0.01), (0.890, 0.03), (15666, 777)),
            "6": Published((0.032, 0.01), (0.891, 0.03), (1966, 98)),
            "4": Published((0.031, 0.01), (0.894, 0.03), (1494, 74)),
            "2": Published((0.032, 0.01), (0.880, 0.04), (1021, 51)),
            "1": Published((0.031, 0.01), (0.845, 0.05), (785, 39)),
        },
    }
)
