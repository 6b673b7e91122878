// Decoding of VALU instructions: operands by the op's kinds, constants materialised, DPP and SDWA controls.
#include <bit>
#include <cmath>
#include <cstring>

#include "program.hpp"

namespace monoc::sim {
namespace {

using alu::Kind;

// Round-to-nearest-even of the inline constants' few values; all are exact in f16 and bf16 but 1/(2 pi).
uint32_t half_bits(double d) {
  if (d == 0) return std::signbit(d) ? 0x8000 : 0;
  int exponent;
  double mantissa = std::frexp(std::fabs(d), &exponent);  // [0.5, 1)
  uint32_t value = uint32_t(std::nearbyint(mantissa * 2048)) - 1024 + uint32_t(exponent + 14) * 1024;
  return value | (d < 0 ? 0x8000 : 0);
}
uint32_t bf16_bits(double d) {
  uint32_t x = std::bit_cast<uint32_t>(float(d));
  return (x + 0x7fff + (x >> 16 & 1)) >> 16;
}

bool is_inline(int64_t value) { return value >= -16 && value <= 64; }

std::vector<uint32_t> constant_dwords(const Operand& o, Kind kind, int dwords, Kind result, bool wide_matrix) {
  bool floating = o.kind == OperandKind::floating;
  double d = floating ? std::bit_cast<double>(o.value) : 0;
  uint32_t single = floating ? std::bit_cast<uint32_t>(float(d)) : uint32_t(o.value);
  auto pair = [](uint64_t v) { return std::vector<uint32_t>{uint32_t(v), uint32_t(v >> 32)}; };
  switch (kind) {
    case Kind::f16:
    case Kind::pk_f16:
      return {floating ? half_bits(d) : single};
    case Kind::bf16:
    case Kind::pk_bf16:
      return {floating ? bf16_bits(d) : single};
    case Kind::b16:
    case Kind::i16:
    case Kind::u16:
      return {floating ? half_bits(d) : single};
    case Kind::pk_f32:
    case Kind::pk_b32:
      return {single, single};
    case Kind::f64:
      if (floating) return pair(uint64_t(o.value));
      // A hex literal of a double operand is its high half.
      return o.kind == OperandKind::hex && !is_inline(o.value) ? pair(uint64_t(uint32_t(o.value)) << 32) : pair(uint64_t(o.value));
    case Kind::b64:
    case Kind::i64:
    case Kind::u64:
      if (floating) return pair(uint64_t(o.value));
      return o.kind == OperandKind::hex ? pair(uint32_t(o.value)) : pair(uint64_t(o.value));
    case Kind::mat: {
      std::vector<uint32_t> all;
      if (wide_matrix) {
        for (int i = 0; i < dwords; i += 2) all.insert(all.end(), {uint32_t(uint64_t(o.value)), uint32_t(uint64_t(o.value) >> 32)});
        return all;
      }
      (void)result;
      return std::vector<uint32_t>(size_t(dwords), single);
    }
    default:
      return {single};
  }
}

Src vector_source(Program& program, const Operand& o, const alu::AluOp& a, int index, int dwords, bool exact) {
  Src src;
  src.mods = uint8_t(o.mods);
  src.dwords = uint8_t(dwords);
  switch (o.kind) {
    case OperandKind::vgpr:
    case OperandKind::agpr:
      src.kind = Src::vgpr;
      src.index = vector_register(program, o, exact ? dwords : 0, "source");
      src.dwords = uint8_t(o.count);
      return src;
    case OperandKind::sgpr:
      src.kind = Src::sgpr;
      src.index = scalar_register(o, dwords, "source");
      if (dwords > 2) throw DecodeError("a source this wide cannot be scalar");
      return src;
    case OperandKind::integer:
    case OperandKind::hex:
    case OperandKind::floating: {
      bool f64 = std::string_view(a.mnemonic).find("f64") != std::string_view::npos;
      std::vector<uint32_t> values = constant_dwords(o, a.src[index], dwords, a.dst, f64);
      values.resize(size_t(dwords), values.empty() ? 0 : values.back());
      src.kind = Src::constant;
      src.index = program.constant(values);
      return src;
    }
    case OperandKind::special: {
      Src scalar = scalar_source(o, dwords);
      if (scalar.kind == Src::constant) {
        src.kind = Src::constant;
        src.index = program.constant(std::vector<uint32_t>(size_t(dwords), 0));
        return src;
      }
      scalar.mods = src.mods;
      return scalar;
    }
    default:
      throw DecodeError("source " + o.name + " is no register or constant");
  }
}

constexpr const char* kDppControls[] = {"quad_perm", "row_shl", "row_shr", "row_ror", "row_mirror", "row_half_mirror",
                                        "row_newbcast", "row_share", "row_bcast", "wave_shl", "wave_rol", "wave_shr", "wave_ror"};

// Source lane per destination lane of a DPP control, -1 outside the row (CDNA3 ISA, "DPP").
void dpp_control(const Insn& insn, Extra& extra) {
  int controls = 0;
  auto within = [&](const char* name, int64_t low, int64_t high) {
    int64_t given = insn.modifier(name, low);
    if (given < low || given > high)
      throw DecodeError("DPP " + std::string(name) + " must be " + std::to_string(low) + " to " + std::to_string(high));
  };
  for (const char* name : kDppControls) controls += insn.has(name);
  if (controls > 1) throw DecodeError("has more than one DPP control");
  for (const char* name : {"row_shl", "row_shr", "row_ror"}) within(name, 1, 15);
  for (const char* name : {"row_newbcast", "row_share", "row_mask", "bank_mask"}) within(name, 0, 15);
  for (const char* name : {"wave_shl", "wave_rol", "wave_shr", "wave_ror"}) within(name, 1, 1);
  if (insn.has("row_bcast") && insn.modifier("row_bcast") != 15 && insn.modifier("row_bcast") != 31)
    throw DecodeError("DPP row_bcast must be 15 or 31");
  auto set = [&](auto from) {
    for (int lane = 0; lane < 64; ++lane) extra.lane[lane] = from(lane);
  };
  auto in_row = [](int lane, int from) { return from >= 0 && from < 64 && from / 16 == lane / 16 ? from : -1; };
  auto value = [&](const char* name) { return int(insn.modifier(name)); };
  if (insn.has("quad_perm")) {
    int perm = value("quad_perm");
    set([&](int lane) { return (lane & ~3) | (perm >> (2 * (lane & 3)) & 3); });
  } else if (insn.has("row_shl")) {
    set([&](int lane) { return in_row(lane, lane + value("row_shl")); });
  } else if (insn.has("row_shr")) {
    set([&](int lane) { return lane - value("row_shr") < 0 ? -1 : in_row(lane, lane - value("row_shr")); });
  } else if (insn.has("row_ror")) {
    set([&](int lane) { return (lane & 48) | ((lane - value("row_ror")) & 15); });
  } else if (insn.has("row_mirror")) {
    set([](int lane) { return (lane & 48) | (15 - (lane & 15)); });
  } else if (insn.has("row_half_mirror")) {
    set([](int lane) { return (lane & 56) | (7 - (lane & 7)); });
  } else if (insn.has("row_newbcast") || insn.has("row_share")) {
    int from = insn.has("row_newbcast") ? value("row_newbcast") : value("row_share");
    set([&](int lane) { return (lane & 48) | from; });
  } else if (insn.has("row_bcast")) {
    // 15: the last lane of a row to the next row; 31: lane 31 to rows 2 and 3.
    int which = value("row_bcast");
    set([&](int lane) { return which == 15 ? (lane < 16 ? -1 : (lane & 48) - 1) : (lane < 32 ? -1 : 31); });
  } else if (insn.has("wave_shl")) {
    set([](int lane) { return lane == 63 ? -1 : lane + 1; });
  } else if (insn.has("wave_rol")) {
    set([](int lane) { return (lane + 1) & 63; });
  } else if (insn.has("wave_shr")) {
    set([](int lane) { return lane - 1; });
  } else if (insn.has("wave_ror")) {
    set([](int lane) { return (lane - 1) & 63; });
  } else {
    throw DecodeError("DPP control is missing or not modelled");
  }
  int rows = int(insn.modifier("row_mask", 15)), banks = int(insn.modifier("bank_mask", 15));
  extra.dpp_write = 0;
  for (int lane = 0; lane < 64; ++lane)
    extra.dpp_write |= uint64_t((rows >> (lane / 16) & 1) && (banks >> (lane % 16 / 4) & 1)) << lane;
  extra.bound_zero = insn.has("bound_ctrl");  // `bound_ctrl:0` and `bound_ctrl:1` both mean the bit is set
  extra.dpp = true;
}

bool has_dpp(const Insn& insn) {
  for (const char* name : kDppControls)
    if (insn.has(name)) return true;
  return false;
}

bool ends_with(const std::string& text, const char* suffix) {
  size_t n = std::strlen(suffix);
  return text.size() >= n && text.compare(text.size() - n, n, suffix) == 0;
}

std::string base_name(std::string m) {
  for (const char* suffix : {"_e64_dpp", "_e32", "_e64", "_dpp", "_sdwa"})
    if (ends_with(m, suffix)) return m.substr(0, m.size() - std::strlen(suffix));
  return m;
}

// Instructions that move between lanes and scalars, and plain register moves.
bool lane_instruction(Program& program, const Insn& insn, const std::string& m, Op& op) {
  if (m == "v_readfirstlane_b32" || m == "v_readlane_b32") {
    bool lane = m == "v_readlane_b32";
    expect_operands(insn, lane ? 3 : 2);
    op.dst = scalar_register(operand(insn, 0), 1, "destination");
    op.dst_dwords = 1;
    op.src[0].kind = Src::vgpr;
    op.src[0].index = vector_register(program, operand(insn, 1), 1, "source");
    if (lane) op.src[1] = scalar_source(operand(insn, 2), 1);
    op.nsrc = lane ? 2 : 1;
  } else if (m == "v_writelane_b32") {
    expect_operands(insn, 3);
    op.dst = vector_register(program, operand(insn, 0), 1, "destination");
    op.dst_dwords = 1;
    op.src[0] = scalar_source(operand(insn, 1), 1);
    op.src[1] = scalar_source(operand(insn, 2), 1);
    op.nsrc = 2;
  } else if (m == "v_swap_b32") {
    expect_operands(insn, 2);
    op.dst = vector_register(program, operand(insn, 0), 1, "destination");
    op.dst_dwords = 1;
    op.src[0].kind = Src::vgpr;
    op.src[0].index = vector_register(program, operand(insn, 1), 1, "source");
    op.nsrc = 1;
    op.imm2 = kLaneSwap;
  } else {
    return false;
  }
  op.cls = OpClass::lane;
  op.fn = require_handler(m);
  return true;
}

bool overlaps(const Op& op) {
  for (int i = 0; i < op.nsrc; ++i) {
    if (op.src[i].kind != Src::vgpr || op.dst == kNoReg) continue;
    uint32_t a = op.dst, b = op.src[i].index;
    if (a != b && a < b + op.src[i].dwords && b < a + op.dst_dwords) return true;
    if (a == b && op.dst_dwords != op.src[i].dwords) return true;
  }
  return false;
}

void choose_handler(const Program& program, const alu::AluOp& a, Op& op, bool general) {
  auto numbered = [](const char* name, int n) { return require_handler(name + std::to_string(n)); };
  if (a.flags & alu::kMfma) {
    op.fn = numbered("valu_mfma", op.nsrc);
    return;
  }
  bool mask_in = op.mask_src != kNoReg, mask_out = a.flags & alu::kMaskDst;
  general = general || !program.default_mode || (a.flags & (alu::kSwap | alu::kWritesExec | alu::kCross)) || op.nsrc > 3 ||
            op.nsrc == 0 || overlaps(op) || op.dst_dwords > 2;
  for (int i = 0; i < op.nsrc; ++i) general = general || op.src[i].dwords > 2;
  bool vector = op.dst != kNoReg;
  if (!general && vector && !mask_out && !mask_in) op.fn = numbered("valu", op.nsrc);
  else if (!general && vector && mask_in && !mask_out && !(a.flags & alu::kReadsDst)) op.fn = numbered("valu_select", op.nsrc);
  else if (!general && !vector && mask_out && !mask_in && op.nsrc == 2) op.fn = require_handler("valu_compare");
  else op.fn = require_handler("valu_general"), op.flags |= kGeneral;
}

}  // namespace

bool decode_vector(Program& program, const Insn& insn, Op& op) {
  if (insn.mnemonic.rfind("v_", 0) != 0) return false;
  std::string m = base_name(insn.mnemonic);
  if (lane_instruction(program, insn, m, op)) return true;
  if (m == "v_accvgpr_read_b32" || m == "v_accvgpr_write_b32" || m == "v_accvgpr_mov_b32") m = "v_mov_b32";
  const alu::AluOp* a = alu::find_alu(m);
  if (!a) return false;
  op.alu = a;
  op.alu_fn = a->fn;
  op.cls = a->flags & alu::kMfma ? OpClass::mfma : a->flags & alu::kTrans ? OpClass::trans : OpClass::valu;
  alu::AluMods mods;
  bool floats = !(a->flags & (alu::kPacked | alu::kMfma));
  bool general = false;
  mods.op_sel = uint8_t(insn.modifier("op_sel") & 0xff);
  if (insn.has("op_sel")) {
    // One entry more than sources is the destination's: bit 3.
    int entries = int(insn.modifier("op_sel") >> 16);
    if (entries == a->nsrc + 1 && entries < 4) {
      uint8_t low = uint8_t((1 << a->nsrc) - 1);
      mods.op_sel = uint8_t((mods.op_sel & low) | (mods.op_sel >> a->nsrc & 1) << 3);
    }
  }
  mods.op_sel_hi = a->flags & alu::kOpSelHiZero ? 0 : 7;
  if (insn.has("op_sel_hi")) mods.op_sel_hi = uint8_t(insn.modifier("op_sel_hi") & 0xff);
  mods.neg_lo = uint8_t(insn.modifier("neg_lo") & 0xff);
  mods.neg_hi = uint8_t(insn.modifier("neg_hi") & 0xff);
  mods.cbsz = uint8_t(insn.modifier("cbsz"));
  mods.abid = uint8_t(insn.modifier("abid"));
  mods.blgp = uint8_t(insn.modifier("blgp"));
  mods.bitop3 = uint8_t(insn.modifier("bitop3"));
  size_t next = 0;
  if (a->flags & alu::kSwap) {
    expect_operands(insn, 2);
    op.dst = vector_register(program, operand(insn, 0), 1, "first register");
    op.dst2 = vector_register(program, operand(insn, 1), 1, "second register");
    op.dst_dwords = 1;
  } else if (a->dst != Kind::none) {
    op.dst = vector_register(program, operand(insn, next++), a->dst_dwords, "destination");
    op.dst_dwords = a->dst_dwords;
  }
  if (a->flags & alu::kMaskDst) op.mask_dst = scalar_register(operand(insn, next++), 2, "mask destination");
  op.nsrc = a->nsrc;
  for (int i = 0; i < a->nsrc; ++i) {
    const Operand& o = operand(insn, next++);
    int dwords = a->src_dwords[i];
    bool matrix = a->flags & alu::kMfma && a->src[i] == Kind::mat;
    if (matrix) dwords = alu::mfma_src_dwords(*a, mods, i);
    if (matrix && i == 2) dwords = a->dst_dwords;
    op.src[i] = vector_source(program, o, *a, i, dwords, true);
    if (o.mods && !floats) {
      // -x and |x| of packed and mixed forms are their neg_lo and neg_hi bits.
      if (o.mods & kNeg) mods.neg_lo |= uint8_t(1 << i);
      if (o.mods & kAbs) mods.neg_hi |= uint8_t(1 << i);
      op.src[i].mods = 0;
    }
    if (op.src[i].mods) general = true;
  }
  if (a->flags & alu::kMaskSrc) op.mask_src = scalar_register(operand(insn, next++), 2, "mask source");
  if (a->flags & alu::kMaskSrcVcc) op.mask_src = kVcc;
  if (next != insn.operands.size() && !(a->flags & alu::kSwap)) expect_operands(insn, next);
  mods.clamp = insn.has("clamp");
  mods.omod = uint8_t(insn.modifier("mul") == 2 ? 1 : insn.modifier("mul") == 4 ? 2 : insn.modifier("div") == 2 ? 3 : 0);
  bool float_dst = a->dst == Kind::f32 || a->dst == Kind::f16 || a->dst == Kind::f64;
  if (floats && float_dst && (mods.clamp || mods.omod)) {
    op.clamp = mods.clamp;
    op.omod = mods.omod;
    general = true;
  }
  if (has_dpp(insn) || insn.has("row_mask") || insn.has("bank_mask")) {
    if (a->flags & (alu::kCross | alu::kMfma)) throw DecodeError("has no DPP form");
    Extra* extra = program.new_extra();
    dpp_control(insn, *extra);
    op.extra = extra;
    general = true;
  }
  if (insn.has("dst_sel") || insn.has("src0_sel") || insn.has("src1_sel")) {
    Extra* extra = program.new_extra();
    extra->sdwa = true;
    extra->dst_sel = uint8_t(insn.modifier("dst_sel", 6));
    extra->dst_unused = uint8_t(insn.modifier("dst_unused", 0));
    extra->src_sel[0] = uint8_t(insn.modifier("src0_sel", 6));
    extra->src_sel[1] = uint8_t(insn.modifier("src1_sel", 6));
    op.extra = extra;
    general = true;
  }
  op.mods = program.keep(mods);
  choose_handler(program, *a, op, general);
  bool mov = m == "v_mov_b32" && program.default_mode;
  if (mov && !general) op.fn = require_handler("v_mov");
  if (mov && op.extra && op.extra->dpp && !op.src[0].mods && op.src[0].kind == Src::vgpr) op.fn = require_handler("mov_dpp");
  return true;
}

}  // namespace monoc::sim
