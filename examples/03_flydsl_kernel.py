"""Any FlyDSL kernel runs on the simulator, with the host code that launches it: no GPU, no ROCm.

This one is not monoc's: y = a * x + y, 64 lanes a CTA, four floats a lane.
"""

import flydsl.compiler as flyc
import flydsl.expr as fx
import torch

from monoc.sim import Simulator, SimulatorError
from monoc.sim.host import simulate

LANES = 64
EACH = 4
STREAM = fx.Stream(None)


def floats(address: fx.Int64, lane: fx.Int32) -> fx.Pointer:
    """Where lane ``lane``'s floats are."""
    at = address + fx.Int64(lane * (EACH * 4))
    kind = fx.PointerType.get(fx.Float32.ir_type, fx.AddressSpace.Global, 16)
    return fx.inttoptr(kind, at)


@flyc.kernel(name="axpy", known_block_size=[LANES, 1, 1])
def axpy(a: fx.Float32, x: fx.Int64, y: fx.Int64):
    lane = fx.block_idx.x * LANES + fx.thread_idx.x
    mine = fx.ptr_load(floats(x, lane), result_type=fx.Vector.make_type(EACH, fx.Float32))
    other = fx.ptr_load(floats(y, lane), result_type=fx.Vector.make_type(EACH, fx.Float32))
    fx.ptr_store(mine * a + other, floats(y, lane))


@flyc.jit
def launch(a: fx.Float32, x: fx.Int64, y: fx.Int64, ctas: fx.Int32, stream: fx.Stream = STREAM):
    axpy(a, x, y).launch(grid=(ctas,), block=(LANES,), stream=stream)


def main() -> None:
    with simulate(Simulator("gfx950")) as host:
        x = torch.arange(1024, dtype=torch.float32, device="cuda")
        y = torch.ones(1024, device="cuda")
        launch(2.0, x.data_ptr(), y.data_ptr(), x.numel() // (LANES * EACH))
        assert torch.equal(y, 2 * x + 1)
        print(f"right; {host.reports[0].instructions} wave-instructions")

        # a CTA too many reads past the end of x: refused, with the instruction that did it
        try:
            launch(2.0, x.data_ptr(), y.data_ptr(), x.numel() // (LANES * EACH) + 1)
        except SimulatorError as error:
            print(" ".join(str(error).split())[:160])


if __name__ == "__main__":
    main()
