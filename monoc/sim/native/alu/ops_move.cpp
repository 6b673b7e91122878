// Moves, selects and exchanges between lanes.
#include "lanes.hpp"
#include "tables.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

void cndmask(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const u32* a = s[0]->v;
  const u32* b = s[1]->v;
  u32* r = d->v;
  const u64 mask = ctx.mask_in;
#if defined(__AVX512F__)
  for (int q = 0; q < 4; ++q) {
    const __m512i x = _mm512_load_si512(a + 16 * q), y = _mm512_load_si512(b + 16 * q);
    _mm512_store_si512(r + 16 * q, _mm512_mask_blend_epi32(static_cast<__mmask16>(mask >> (16 * q)), x, y));
  }
#else
  alignas(64) u32 pick[64];
  unpack_mask(mask, pick);
  MONOC_LANES r[i] = (a[i] & ~pick[i]) | (b[i] & pick[i]);
#endif
}

void swap(Lanes* d, const Lanes* const* s, AluCtx&) {
  const u32 *a = s[0]->v, *b = s[1]->v;
  u32 *x = d[0].v, *y = d[1].v;
  MONOC_LANES {
    const u32 p = a[i], q = b[i];
    x[i] = q;
    y[i] = p;
  }
}

// The upper half of every 2 * half lanes of the first register changes places with the lower half of the second's.
template <int half>
void permlane_swap(Lanes* d, const Lanes* const* s, AluCtx&) {
  const u32 *a = s[0]->v, *b = s[1]->v;
  u32 *x = d[0].v, *y = d[1].v;
  for (int base = 0; base < 64; base += 2 * half) {
    for (int i = base; i < base + half; ++i) {
      const u32 a0 = a[i], a1 = a[i + half], b0 = b[i], b1 = b[i + half];
      x[i] = a0;
      x[i + half] = b0;
      y[i] = a1;
      y[i + half] = b1;
    }
  }
}

constexpr auto move = [](u32 a) -> u32 { return a; };

constexpr AluOp kTable[] = {
    op<move>("v_mov_b32"),
    op<move>("v_accvgpr_read_b32"),
    op<move>("v_accvgpr_write_b32"),
    op<move>("v_accvgpr_mov_b32"),
    op<[](u64 a) -> u64 { return a; }>("v_mov_b64"),
    custom("v_cndmask_b32", cndmask, Kind::b32, {Kind::b32, Kind::b32}, kMaskSrc | kModsF32),
    custom("v_swap_b32", swap, Kind::b32, {Kind::b32, Kind::b32}, kSwap),
    custom("v_permlane16_swap_b32", permlane_swap<16>, Kind::b32, {Kind::b32, Kind::b32}, kSwap | kCross),
    custom("v_permlane32_swap_b32", permlane_swap<32>, Kind::b32, {Kind::b32, Kind::b32}, kSwap | kCross),
};

}  // namespace

std::span<const AluOp> table_move() { return kTable; }

}  // namespace monoc::sim::alu::MONOC_ALU_NS
