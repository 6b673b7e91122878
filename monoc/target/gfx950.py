"""AMD Instinct MI350 series (CDNA4). Sizes: AMD's CDNA4 ISA document; 256 CUs: MI350X/MI355X data sheets."""

from __future__ import annotations

from monoc.target.model import HandOffCosts, Target

__all__ = ["GFX950"]

GFX950 = Target(
    name="gfx950",
    cus=256,
    lds_bytes=160 * 1024,
    wave=64,
    simds=4,
    registers=512,
    wave_registers=512,
    # The LLC is a few hundred ns away and shared by eight XCDs; 5 TB/s of it is a cautious half of its peak.
    costs=HandOffCosts(
        store=500, load=800, meet=50, grid=400, bytes_per_ns=5000, poll_words=24, retries=1.5, spin=2000
    ),
)
