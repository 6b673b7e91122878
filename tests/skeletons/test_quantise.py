"""bf16 rows to MXFP8 rows, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from harness import Bench, Placed, from_bits, to_bits
from mxref import mx_region, quantise

from monoc.schedule.model import Form
from monoc.skeletons.quantise import QuantiseParams


@pytest.mark.parametrize("form", [Form.PAIR, Form.FLAG, Form.BARRIER])
@pytest.mark.parametrize(("tokens", "width", "columns"), [(1, 128, 32), (17, 384, 32), (64, 128, 128), (3, 256, 64)])
def test_quantise(tmp_path: Path, tokens: int, width: int, columns: int, form: Form) -> None:
    rng = np.random.default_rng(width)
    rows = rng.standard_normal((tokens, width)).astype(np.float32) * np.exp2(rng.integers(-40, 40, (tokens, 1)))
    rows[0, :32] = 0
    rows = from_bits(to_bits(rows))
    stage = Placed(QuantiseParams("quantise", "rows", "out", "WIDTH", "8", str(columns)))
    words = to_bits(rows).view(np.uint32)
    bench = Bench(
        [stage], {"WIDTH": width}, {"tokens": tokens}, tmp_path, form=form, external={"rows": (words.size, width // 8)}
    )
    got = bench.run([{}], [{"rows": words}]).region("out").reshape(tokens, -1)
    assert np.array_equal(got, mx_region(*quantise(rows)))
