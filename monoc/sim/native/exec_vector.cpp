// Vector instructions: operand fetch, source and result modifiers, DPP, SDWA, EXEC-masked write-back around the pure
// lane functions of alu/. CDNA3 ISA: "Vector ALU Operations", "DPP", "SDWA"; lane access in "VOP3" notes.
#include "isa.hpp"

namespace monoc::sim::MONOC_SIM_ISA {
namespace {

inline const Lanes* fetch(Wave& w, const Src& src, Lanes* room) {
  if (src.kind == Src::vgpr) return w.vgpr + src.index;
  if (src.kind == Src::constant) return w.consts + src.index;
  if (src.kind == Src::sgpr) {
    for (int i = 0; i < src.dwords; ++i) fill(room[i], w.sgpr[src.index + i]);
    return room;
  }
  uint32_t value = src.kind == Src::scc     ? w.scc
                   : src.kind == Src::vccz  ? uint32_t(w.read64(kVcc) == 0)
                   : src.kind == Src::execz ? uint32_t(w.exec() == 0)
                                            : 0;
  fill(room[0], value);
  for (int i = 1; i < src.dwords; ++i) fill(room[i], 0);
  return room;
}

// No modifiers the core has to apply, default MODE, one vector destination.
template <int N>
void valu(Wave& w, const Op& op) {
  Lanes* room = w.tc->scratch;
  const Lanes* src[N];
  for (int i = 0; i < N; ++i) src[i] = fetch(w, op.src[i], room + 2 * i);
  alu::AluCtx ctx{op.mods};
  uint64_t exec = w.exec();
  Lanes* dst = w.vgpr + op.dst;
  if (exec == ~0ull) [[likely]] {
    op.alu_fn(dst, src, ctx);
    return;
  }
  if (exec == 0) return;
  Lanes* result = room + 8;
  for (int i = 0; i < op.dst_dwords; ++i) copy(result[i], dst[i]);
  op.alu_fn(result, src, ctx);
  for (int i = 0; i < op.dst_dwords; ++i) blend(dst[i], result[i], exec);
}

// v_cndmask_b32 and other readers of a mask without other duties.
template <int N>
void valu_select(Wave& w, const Op& op) {
  Lanes* room = w.tc->scratch;
  const Lanes* src[N];
  for (int i = 0; i < N; ++i) src[i] = fetch(w, op.src[i], room + 2 * i);
  alu::AluCtx ctx{op.mods, w.read64(op.mask_src)};
  uint64_t exec = w.exec();
  Lanes* dst = w.vgpr + op.dst;
  if (exec == ~0ull) {
    op.alu_fn(dst, src, ctx);
    return;
  }
  Lanes* result = room + 8;
  op.alu_fn(result, src, ctx);
  for (int i = 0; i < op.dst_dwords; ++i) blend(dst[i], result[i], exec);
}

void valu_compare(Wave& w, const Op& op) {
  Lanes* room = w.tc->scratch;
  const Lanes* src[2] = {fetch(w, op.src[0], room), fetch(w, op.src[1], room + 2)};
  alu::AluCtx ctx{op.mods};
  op.alu_fn(nullptr, src, ctx);
  w.write64(op.mask_dst, ctx.mask_out & w.exec());
}

// MFMA ignores EXEC; operands are registers or constants.
template <int N>
void valu_mfma(Wave& w, const Op& op) {
  Lanes* room = w.tc->scratch;
  const Lanes* src[N];
  for (int i = 0; i < N; ++i) src[i] = fetch(w, op.src[i], room + i);
  alu::AluCtx ctx{op.mods};
  op.alu_fn(w.vgpr + op.dst, src, ctx);
}

void sdwa_select(Lanes& value, uint8_t select, bool sign) {
  if (select == 6) return;
  int shift = select < 4 ? 8 * select : 16 * (select - 4);
  int up = select < 4 ? 24 : 16;
  for (int i = 0; i < 64; ++i) {
    uint32_t v = value.v[i] >> shift << up;
    value.v[i] = sign ? uint32_t(int32_t(v) >> up) : v >> up;
  }
}

void sdwa_store(Lanes& result, const Lanes& old, uint8_t select, uint8_t unused) {
  if (select == 6) return;
  int shift = select < 4 ? 8 * select : 16 * (select - 4);
  uint32_t mask = (select < 4 ? 0xffu : 0xffffu) << shift;
  for (int i = 0; i < 64; ++i) {
    uint32_t v = result.v[i] << shift & mask;
    if (unused == 2) v |= old.v[i] & ~mask;
    if (unused == 1 && int32_t(v << __builtin_clz(mask)) < 0) v |= ~(mask | ((1u << shift) - 1));
    result.v[i] = v;
  }
}

// Everything: modifiers, DPP, SDWA, masks in and out, denormal modes, overlapping registers.
void valu_general(Wave& w, const Op& op) {
  alignas(64) Lanes room[5][8];
  alignas(64) Lanes result[32];
  const alu::AluOp& a = *op.alu;
  const Extra* extra = op.extra;
  const bool floats = !(a.flags & alu::kPacked) && !(a.flags & alu::kMfma);
  uint64_t exec = w.exec(), write = exec;
  const Lanes* src[5] = {};
  for (int i = 0; i < op.nsrc; ++i) {
    const Src& s = op.src[i];
    src[i] = fetch(w, s, room[i]);
    alu::Kind kind = a.flags & alu::kModsF32 ? alu::Kind::f32 : a.src[i];
    bool dpp = extra && extra->dpp && i == 0, sdwa = extra && extra->sdwa && i < 2;
    bool flush = floats && alu::flushes(a.src[i], w.mode);
    if (!dpp && !sdwa && !flush && !(floats && s.mods & (kNeg | kAbs))) continue;
    int dwords = s.dwords;
    if (dpp) {
      for (int d = 0; d < dwords; ++d) {
        Lanes t;
        for (int l = 0; l < 64; ++l) {
          int from = extra->lane[l];
          t.v[l] = from >= 0 && (exec >> from & 1) ? src[i][d].v[from] : 0;
        }
        copy(room[i][d], t);
      }
    } else if (src[i] != room[i]) {
      for (int d = 0; d < dwords; ++d) copy(room[i][d], src[i][d]);
    }
    src[i] = room[i];
    if (sdwa) sdwa_select(room[i][0], extra->src_sel[i], s.mods & kSext);
    if (floats && s.mods & (kNeg | kAbs)) alu::load_float_mods(kind, room[i], room[i], s.mods & kAbs, s.mods & kNeg);
    if (flush) alu::flush_denormals(a.src[i], room[i]);
  }
  if (extra && extra->dpp) {
    write &= extra->dpp_write;
    if (!extra->bound_zero) {
      uint64_t valid = 0;
      for (int l = 0; l < 64; ++l) {
        int from = extra->lane[l];
        valid |= uint64_t(from >= 0 && (exec >> from & 1)) << l;
      }
      write &= valid;
    }
  }
  alu::AluCtx ctx{op.mods, 0, 0, w.mode};
  if (op.mask_src != kNoReg) ctx.mask_in = w.read64(op.mask_src);
  if (a.flags & alu::kSwap) {
    op.alu_fn(result, src, ctx);
    blend(w.vgpr[op.dst], result[0], write);
    blend(w.vgpr[op.dst2], result[1], write);
    return;
  }
  Lanes* dst = op.dst == kNoReg ? nullptr : w.vgpr + op.dst;
  for (int i = 0; i < op.dst_dwords; ++i) copy(result[i], dst[i]);
  op.alu_fn(dst ? result : nullptr, src, ctx);
  if (dst) {
    if (floats) {
      if (alu::flushes(a.dst, w.mode)) alu::flush_denormals(a.dst, result);
      if (op.omod || op.clamp) alu::store_float_mods(a.dst, result, op.omod, op.clamp, w.mode);
    }
    if (extra && extra->sdwa) sdwa_store(result[0], dst[0], extra->dst_sel, extra->dst_unused);
    if (op.flags & kIgnoreExec) write = ~0ull;
    for (int i = 0; i < op.dst_dwords; ++i) blend(dst[i], result[i], write);
  }
  if (a.flags & alu::kMaskDst) {
    uint64_t mask = ctx.mask_out & write;
    if (op.mask_dst != kNoReg) w.write64(op.mask_dst, mask);
    if (a.flags & alu::kWritesExec) w.exec() = mask;
  }
}

// v_mov_b32 with DPP, the usual lane shuffle of reductions: no arithmetic behind it.
void mov_dpp(Wave& w, const Op& op) {
  const Extra& extra = *op.extra;
  uint64_t exec = w.exec(), valid = ~0ull;
  const Lanes& src = w.vgpr[op.src[0].index];
  alignas(64) Lanes t;
  if (exec == ~0ull) {
    valid = extra.dpp_write;
    for (int l = 0; l < 64; ++l) t.v[l] = src.v[extra.lane[l] & 63];
    uint64_t inside = 0;
    for (int l = 0; l < 64; ++l) inside |= uint64_t(extra.lane[l] >= 0) << l;
    if (extra.bound_zero) {
      for (int l = 0; l < 64; ++l) t.v[l] = extra.lane[l] >= 0 ? t.v[l] : 0;
    } else {
      valid &= inside;
    }
  } else {
    valid = 0;
    for (int l = 0; l < 64; ++l) {
      int from = extra.lane[l];
      bool ok = from >= 0 && (exec >> from & 1);
      t.v[l] = ok ? src.v[from] : 0;
      valid |= uint64_t(ok) << l;
    }
    if (extra.bound_zero) valid = ~0ull;
    valid &= exec & extra.dpp_write;
  }
  blend(w.vgpr[op.dst], t, valid);
}

void v_mov(Wave& w, const Op& op) {
  Lanes* room = w.tc->scratch;
  const Lanes* src = fetch(w, op.src[0], room);
  uint64_t exec = w.exec();
  if (exec == ~0ull) copy(w.vgpr[op.dst], *src);
  else blend(w.vgpr[op.dst], *src, exec);
}

void v_swap_b32(Wave& w, const Op& op) {
  alignas(64) Lanes a, b;
  copy(a, w.vgpr[op.dst]);
  copy(b, w.vgpr[op.src[0].index]);
  blend(w.vgpr[op.dst], b, w.exec());
  blend(w.vgpr[op.src[0].index], a, w.exec());
}

void v_readfirstlane_b32(Wave& w, const Op& op) {
  uint64_t exec = w.exec();
  int lane = exec ? __builtin_ctzll(exec) : 0;  // EXEC = 0 reads lane 0
  w.sgpr[op.dst] = w.vgpr[op.src[0].index].v[lane];
}

inline uint32_t scalar(const Wave& w, const Src& src) {
  return src.kind == Src::sgpr ? w.sgpr[src.index] : uint32_t(src.value);
}
void v_readlane_b32(Wave& w, const Op& op) {
  w.sgpr[op.dst] = w.vgpr[op.src[0].index].v[scalar(w, op.src[1]) & 63];
}
void v_writelane_b32(Wave& w, const Op& op) {
  w.vgpr[op.dst].v[scalar(w, op.src[1]) & 63] = scalar(w, op.src[0]);
}

const HandlerEntry kVector[] = {
    {"valu1", valu<1>}, {"valu2", valu<2>}, {"valu3", valu<3>}, {"valu_select1", valu_select<1>},
    {"valu_select2", valu_select<2>}, {"valu_select3", valu_select<3>}, {"valu_compare", valu_compare},
    {"valu_mfma3", valu_mfma<3>}, {"valu_mfma4", valu_mfma<4>}, {"valu_mfma5", valu_mfma<5>},
    {"valu_general", valu_general}, {"mov_dpp", mov_dpp}, {"v_mov", v_mov}, {"v_swap_b32", v_swap_b32},
    {"v_readfirstlane_b32", v_readfirstlane_b32}, {"v_readlane_b32", v_readlane_b32},
    {"v_writelane_b32", v_writelane_b32},
};

}  // namespace

std::span<const HandlerEntry> vector_handlers() { return kVector; }

}  // namespace monoc::sim::MONOC_SIM_ISA
