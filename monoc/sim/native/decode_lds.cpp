// Decoding of DS instructions.
#include <map>

#include "program.hpp"

namespace monoc::sim {
namespace {

struct DsForm {
  enum Shape { read, write, read2, write2, atomic, permute, swizzle } shape;
  const char* handler;
  int dwords;  // of one data register group
  int stride = 1;  // read2 / write2: bytes an offset unit stands for
  Atomic kind = Atomic::none;
  bool wide = false, returns = false;
};

const std::map<std::string, DsForm>& forms() {
  static const std::map<std::string, DsForm> all = [] {
    std::map<std::string, DsForm> f;
    auto read = [&](const char* name, const char* handler, int dwords) { f[name] = {DsForm::read, handler, dwords}; };
    auto write = [&](const char* name, const char* handler, int dwords) { f[name] = {DsForm::write, handler, dwords}; };
    read("ds_read_b32", "ds_read_b32", 1);
    read("ds_read_b64", "ds_read_b64", 2);
    read("ds_read_b96", "ds_read_b96", 3);
    read("ds_read_b128", "ds_read_b128", 4);
    for (const char* name : {"ds_read_u8", "ds_read_i8", "ds_read_u16", "ds_read_i16", "ds_read_u8_d16", "ds_read_u8_d16_hi",
                             "ds_read_i8_d16", "ds_read_i8_d16_hi", "ds_read_u16_d16", "ds_read_u16_d16_hi"})
      read(name, name, 1);
    read("ds_read_b64_tr_b16", "ds_read_b64_tr_b16", 2);
    read("ds_read_b64_tr_b8", "ds_read_b64_tr_b8", 2);
    read("ds_read_b64_tr_b4", "ds_read_b64_tr_b4", 2);
    read("ds_read_b96_tr_b6", "ds_read_b96_tr_b6", 3);
    write("ds_write_b8", "ds_write_b8", 1);
    write("ds_write_b16", "ds_write_b16", 1);
    write("ds_write_b8_d16_hi", "ds_write_b8_d16_hi", 1);
    write("ds_write_b16_d16_hi", "ds_write_b16_d16_hi", 1);
    write("ds_write_b32", "ds_write_b32", 1);
    write("ds_write_b64", "ds_write_b64", 2);
    write("ds_write_b96", "ds_write_b96", 3);
    write("ds_write_b128", "ds_write_b128", 4);
    f["ds_read2_b32"] = {DsForm::read2, "ds_read2_b32", 1, 4};
    f["ds_read2_b64"] = {DsForm::read2, "ds_read2_b64", 2, 8};
    f["ds_read2st64_b32"] = {DsForm::read2, "ds_read2_b32", 1, 256};
    f["ds_read2st64_b64"] = {DsForm::read2, "ds_read2_b64", 2, 512};
    f["ds_write2_b32"] = {DsForm::write2, "ds_write2_b32", 1, 4};
    f["ds_write2_b64"] = {DsForm::write2, "ds_write2_b64", 2, 8};
    f["ds_write2st64_b32"] = {DsForm::write2, "ds_write2_b32", 1, 256};
    f["ds_write2st64_b64"] = {DsForm::write2, "ds_write2_b64", 2, 512};
    f["ds_bpermute_b32"] = {DsForm::permute, "ds_bpermute_b32", 1};
    f["ds_permute_b32"] = {DsForm::permute, "ds_permute_b32", 1};
    f["ds_swizzle_b32"] = {DsForm::swizzle, "ds_swizzle_b32", 1};
    auto atomic = [&](const std::string& base, const std::string& type, Atomic kind, bool wide) {
      f["ds_" + base + "_" + type] = {DsForm::atomic, "ds_atomic", wide ? 2 : 1, 1, kind, wide, false};
      f["ds_" + base + "_rtn_" + type] = {DsForm::atomic, "ds_atomic", wide ? 2 : 1, 1, kind, wide, true};
    };
    for (bool wide : {false, true}) {
      std::string u = wide ? "u64" : "u32", i = wide ? "i64" : "i32", b = wide ? "b64" : "b32";
      atomic("add", u, Atomic::add, wide);
      atomic("sub", u, Atomic::sub, wide);
      atomic("rsub", u, Atomic::rsub, wide);
      atomic("inc", u, Atomic::inc, wide);
      atomic("dec", u, Atomic::dec, wide);
      atomic("min", i, Atomic::smin, wide);
      atomic("max", i, Atomic::smax, wide);
      atomic("min", u, Atomic::umin, wide);
      atomic("max", u, Atomic::umax, wide);
      atomic("and", b, Atomic::and_, wide);
      atomic("or", b, Atomic::or_, wide);
      atomic("xor", b, Atomic::xor_, wide);
      atomic("mskor", b, Atomic::mskor, wide);
      atomic("cmpst", b, Atomic::cmpswap, wide);
      f["ds_wrxchg_rtn_" + b] = {DsForm::atomic, "ds_atomic", wide ? 2 : 1, 1, Atomic::swap, wide, true};
    }
    atomic("add", "f32", Atomic::add_f32, false);
    atomic("min", "f32", Atomic::min_f32, false);
    atomic("max", "f32", Atomic::max_f32, false);
    atomic("add", "f64", Atomic::add_f64, true);
    atomic("min", "f64", Atomic::min_f64, true);
    atomic("max", "f64", Atomic::max_f64, true);
    atomic("pk_add", "f16", Atomic::pk_add_f16, false);
    atomic("pk_add", "bf16", Atomic::pk_add_bf16, false);
    return f;
  }();
  return all;
}

// Source lane of ds_swizzle_b32 (CDNA3 ISA, DS_SWIZZLE_B32): quad permutation or and/or/xor within 32 lanes; gfx9 rotates with
// offset[15:13] = 6.
int swizzle_lane(int offset, int lane) {
  if ((offset & 0xff00) == 0x8000) return (lane & ~3) | (offset >> (2 * (lane & 3)) & 3);
  if ((offset & 0xe000) == 0xc000) {
    int by = offset >> 5 & 31, mask = offset & 31;
    int step = (offset >> 10 & 1) ? -by : by;
    return (lane & 32) | (lane & mask) | ((lane + step) & ~mask & 31);
  }
  int and_mask = offset & 31, or_mask = offset >> 5 & 31, xor_mask = offset >> 10 & 31;
  return (lane & 32) | ((((lane & 31) & and_mask) | or_mask) ^ xor_mask);
}

}  // namespace

bool decode_lds(Program& program, const Insn& insn, Op& op) {
  auto found = forms().find(insn.mnemonic);
  if (found == forms().end()) return false;
  const DsForm& form = found->second;
  if (insn.has("gds")) throw DecodeError("global data share is not modelled");
  MemInfo& m = op.mem;
  op.flags |= kMemory;
  op.fn = require_handler(form.handler);
  m.offset = int32_t(insn.modifier("offset"));
  m.dwords = uint8_t(form.dwords);
  m.bytes = uint8_t(4 * form.dwords);
  auto reg = [&](size_t i, int dwords, const char* role) { return vector_register(program, operand(insn, i), dwords, role); };
  switch (form.shape) {
    case DsForm::read:
      expect_operands(insn, 2);
      m.vdata = op.dst = reg(0, form.dwords, "destination");
      op.dst_dwords = uint8_t(form.dwords);
      m.vaddr = reg(1, 1, "address");
      op.cls = OpClass::lds_read;
      return true;
    case DsForm::write:
      expect_operands(insn, 2);
      m.vaddr = reg(0, 1, "address");
      m.vdata = reg(1, form.dwords, "data");
      m.store = true;
      op.cls = OpClass::lds_write;
      return true;
    case DsForm::read2:
    case DsForm::write2:
      op.imm = int32_t(insn.modifier("offset0")) * form.stride;
      op.imm2 = int32_t(insn.modifier("offset1")) * form.stride;
      if (form.shape == DsForm::read2) {
        expect_operands(insn, 2);
        m.vdata = op.dst = reg(0, 2 * form.dwords, "destination");
        op.dst_dwords = uint8_t(2 * form.dwords);
        m.vaddr = reg(1, 1, "address");
        op.cls = OpClass::lds_read;
      } else {
        expect_operands(insn, 3);
        m.vaddr = reg(0, 1, "address");
        m.vdata = reg(1, form.dwords, "data");
        op.src[1].kind = Src::vgpr;
        op.src[1].index = reg(2, form.dwords, "data");
        m.store = true;
        op.cls = OpClass::lds_write;
      }
      return true;
    case DsForm::permute:
      expect_operands(insn, 3);
      op.dst = reg(0, 1, "destination");
      op.dst_dwords = 1;
      m.vaddr = reg(1, 1, "address");
      m.vdata = reg(2, 1, "data");
      if (insn.mnemonic == "ds_permute_b32") op.imm2 = kPermutePush;
      op.cls = OpClass::lds_permute;
      return true;
    case DsForm::swizzle: {
      expect_operands(insn, 2);
      op.dst = reg(0, 1, "destination");
      op.dst_dwords = 1;
      m.vaddr = m.vdata = reg(1, 1, "data");
      Extra* extra = program.new_extra();
      for (int lane = 0; lane < 64; ++lane) extra->lane[lane] = swizzle_lane(m.offset, lane);
      op.extra = extra;
      op.cls = OpClass::lds_permute;
      return true;
    }
    case DsForm::atomic: {
      m.atomic = form.kind;
      m.wide = form.wide;
      m.returns = form.returns;
      m.store = true;
      op.cls = OpClass::lds_atomic;
      bool two = form.kind == Atomic::cmpswap || form.kind == Atomic::mskor;
      size_t i = 0;
      expect_operands(insn, 2 + size_t(two) + size_t(form.returns));
      if (form.returns) op.dst = reg(i++, form.dwords, "destination"), op.dst_dwords = uint8_t(form.dwords);
      m.vaddr = reg(i++, 1, "address");
      m.vdata = reg(i++, form.dwords, "data");
      if (two) op.src[1].kind = Src::vgpr, op.src[1].index = reg(i++, form.dwords, "data");
      return true;
    }
  }
  return false;
}

const std::vector<std::string>& lds_mnemonics() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (auto& [name, form] : forms()) all.push_back(name);
    return all;
  }();
  return names;
}

}  // namespace monoc::sim
