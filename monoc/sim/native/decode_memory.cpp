// Decoding of buffer, global, flat and scratch instructions.
#include <map>

#include "program.hpp"

namespace monoc::sim {
namespace {

struct Form {
  Data data;
  uint8_t bytes, dwords;
  const char* handler;
};

const std::map<std::string, Form>& loads() {
  static const std::map<std::string, Form> forms = {
      {"ubyte", {Data::u8, 1, 1, "u8"}}, {"sbyte", {Data::i8, 1, 1, "i8"}}, {"ushort", {Data::u16, 2, 1, "u16"}},
      {"sshort", {Data::i16, 2, 1, "i16"}}, {"ubyte_d16", {Data::u8_d16, 1, 1, "u8_d16"}},
      {"ubyte_d16_hi", {Data::u8_d16_hi, 1, 1, "u8_d16_hi"}}, {"sbyte_d16", {Data::i8_d16, 1, 1, "i8_d16"}},
      {"sbyte_d16_hi", {Data::i8_d16_hi, 1, 1, "i8_d16_hi"}}, {"short_d16", {Data::b16_d16, 2, 1, "b16_d16"}},
      {"short_d16_hi", {Data::b16_d16_hi, 2, 1, "b16_d16_hi"}}, {"dword", {Data::b32, 4, 1, "b32"}},
      {"dwordx2", {Data::b64, 8, 2, "b64"}}, {"dwordx3", {Data::b96, 12, 3, "b96"}}, {"dwordx4", {Data::b128, 16, 4, "b128"}}};
  return forms;
}
const std::map<std::string, Form>& stores() {
  static const std::map<std::string, Form> forms = {
      {"byte", {Data::u8, 1, 1, "u8"}}, {"short", {Data::u16, 2, 1, "u16"}}, {"byte_d16_hi", {Data::u8_d16_hi, 1, 1, "u8_d16_hi"}},
      {"short_d16_hi", {Data::b16_d16_hi, 2, 1, "b16_d16_hi"}}, {"dword", {Data::b32, 4, 1, "b32"}},
      {"dwordx2", {Data::b64, 8, 2, "b64"}}, {"dwordx3", {Data::b96, 12, 3, "b96"}}, {"dwordx4", {Data::b128, 16, 4, "b128"}}};
  return forms;
}
struct AtomicForm {
  Atomic kind;
  bool wide;
};
const std::map<std::string, AtomicForm>& atomics() {
  static const std::map<std::string, AtomicForm> forms = [] {
    std::map<std::string, AtomicForm> all;
    const std::pair<const char*, Atomic> both[] = {
        {"swap", Atomic::swap}, {"cmpswap", Atomic::cmpswap}, {"add", Atomic::add}, {"sub", Atomic::sub}, {"smin", Atomic::smin},
        {"umin", Atomic::umin}, {"smax", Atomic::smax}, {"umax", Atomic::umax}, {"and", Atomic::and_}, {"or", Atomic::or_},
        {"xor", Atomic::xor_}, {"inc", Atomic::inc}, {"dec", Atomic::dec}};
    for (auto [name, kind] : both) {
      all[name] = {kind, false};
      all[std::string(name) + "_x2"] = {kind, true};
    }
    all["add_f32"] = {Atomic::add_f32, false};
    all["pk_add_f16"] = {Atomic::pk_add_f16, false};
    all["pk_add_bf16"] = {Atomic::pk_add_bf16, false};
    all["add_f64"] = {Atomic::add_f64, true};
    all["min_f64"] = {Atomic::min_f64, true};
    all["max_f64"] = {Atomic::max_f64, true};
    return all;
  }();
  return forms;
}

bool is_off(const Operand& o) { return o.kind == OperandKind::off; }

void cache_policy(const Insn& insn, MemInfo& m) {
  bool sc0 = insn.has("sc0") || insn.has("glc"), nt = insn.has("nt") || insn.has("slc"), sc1 = insn.has("sc1");
  m.policy = uint8_t(sc0 * 1 + nt * 2 + sc1 * 16);
  m.returns = sc0;  // of atomics
}

void buffer_operands(Program& program, const Insn& insn, Op& op, bool data) {
  MemInfo& m = op.mem;
  m.mode = AddrMode::buffer;
  size_t i = 0;
  expect_operands(insn, data ? 4 : 3);
  if (data) m.vdata = vector_register(program, operand(insn, i++), 0, "data");
  const Operand& address = operand(insn, i++);
  m.offen = insn.has("offen");
  m.idxen = insn.has("idxen");
  if (m.offen || m.idxen) m.vaddr = vector_register(program, address, m.offen + m.idxen, "address");
  else if (!is_off(address)) throw DecodeError("address register without offen or idxen");
  m.srsrc = scalar_register(operand(insn, i++), 4, "buffer resource");
  op.src[0] = scalar_source(operand(insn, i++), 1);
  op.nsrc = 1;
}

// Operands [vdst,] vaddr[, vdata][, saddr] of global, flat and scratch forms.
void flat_operands(Program& program, const Insn& insn, Op& op, const std::string& space, bool load_data, bool store_data,
                   bool returned) {
  MemInfo& m = op.mem;
  size_t i = 0;
  expect_operands(insn, size_t(load_data) + 1 + size_t(store_data) + size_t(returned) + (space == "flat" ? 0 : 1));
  if (returned) op.dst = vector_register(program, operand(insn, i++), m.wide ? 2 : 1, "destination");
  if (load_data) m.vdata = vector_register(program, operand(insn, i++), 0, "destination");
  const Operand& address = operand(insn, i++);
  if (store_data) m.vdata = vector_register(program, operand(insn, i++), 0, "data");
  if (space == "flat") {
    m.mode = AddrMode::flat;
    m.vaddr = vector_register(program, address, 2, "address");
    return;
  }
  const Operand& base = operand(insn, i++);
  if (space == "scratch") {
    m.mode = AddrMode::scratch;
    if (!is_off(address)) m.vaddr = vector_register(program, address, 1, "address");
    if (!is_off(base)) m.saddr = scalar_register(base, 1, "base");
    return;
  }
  if (is_off(base)) {
    m.mode = AddrMode::global;
    m.vaddr = vector_register(program, address, 2, "address");
  } else {
    m.mode = AddrMode::global_saddr;
    m.saddr = scalar_register(base, 2, "base");
    m.vaddr = is_off(address) ? kNoReg : vector_register(program, address, 1, "offset");
  }
}

void check_data(const Insn& insn, const Form& form, size_t index) {
  if (operand(insn, index).count != form.dwords)
    throw DecodeError("moves " + std::to_string(form.dwords) + " dwords, its data operand has " +
                      std::to_string(operand(insn, index).count));
}

}  // namespace

bool decode_memory(Program& program, const Insn& insn, Op& op) {
  const std::string& name = insn.mnemonic;
  std::string space;
  for (const char* prefix : {"buffer", "global", "flat", "scratch"})
    if (name.rfind(std::string(prefix) + "_", 0) == 0) space = prefix;
  if (space.empty()) return false;
  std::string rest = name.substr(space.size() + 1);
  MemInfo& m = op.mem;
  op.flags |= kMemory;
  m.offset = int32_t(insn.modifier("offset"));
  cache_policy(insn, m);
  std::string prefix = space == "scratch" ? "scratch_" : "";
  if (rest.rfind("load_", 0) == 0) {
    std::string suffix = rest.substr(5);
    m.lds = insn.has("lds");
    if (suffix.rfind("lds_", 0) == 0) m.lds = true, suffix = suffix.substr(4);
    auto form = loads().find(suffix);
    if (form == loads().end()) return false;
    m.data = form->second.data;
    m.bytes = form->second.bytes;
    m.dwords = form->second.dwords;
    if (m.lds) {
      bool keeps_half = m.data >= Data::u8_d16 && m.data <= Data::b16_d16_hi;
      if (keeps_half || m.data == Data::b64 || (space != "buffer" && space != "global"))
        throw DecodeError("has no form that loads to LDS");
    } else {
      check_data(insn, form->second, 0);
    }
    if (space == "buffer") buffer_operands(program, insn, op, !m.lds);
    else flat_operands(program, insn, op, space, !m.lds, false, false);
    op.cls = space == "scratch" ? OpClass::scratch : OpClass::load;
    op.fn = require_handler(prefix + "load_" + form->second.handler);
    return true;
  }
  if (rest.rfind("store_", 0) == 0) {
    auto form = stores().find(rest.substr(6));
    if (form == stores().end()) return false;
    m.data = form->second.data;
    m.bytes = form->second.bytes;
    m.dwords = form->second.dwords;
    m.store = true;
    check_data(insn, form->second, space == "buffer" ? 0 : 1);
    if (space == "buffer") buffer_operands(program, insn, op, true);
    else flat_operands(program, insn, op, space, false, true, false);
    op.cls = space == "scratch" ? OpClass::scratch : OpClass::store;
    op.fn = require_handler(prefix + "store_" + form->second.handler);
    return true;
  }
  if (rest.rfind("atomic_", 0) == 0 && space != "scratch") {
    auto form = atomics().find(rest.substr(7));
    if (form == atomics().end()) return false;
    m.atomic = form->second.kind;
    m.wide = form->second.wide;
    m.bytes = m.wide ? 8 : 4;
    m.dwords = m.wide ? 2 : 1;
    m.store = true;
    Form data{Data::b32, 0, uint8_t(m.atomic == Atomic::cmpswap ? 2 * m.dwords : m.dwords), nullptr};
    check_data(insn, data, space == "buffer" ? 0 : m.returns ? 2 : 1);
    if (space == "buffer") {
      buffer_operands(program, insn, op, true);
      if (m.returns) op.dst = m.vdata;
    } else {
      flat_operands(program, insn, op, space, false, true, m.returns);
    }
    op.dst_dwords = m.returns ? m.dwords : 0;
    op.cls = OpClass::atomic;
    op.fn = require_handler("atomic");
    return true;
  }
  return false;
}

const std::vector<std::string>& memory_mnemonics() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const char* space : {"buffer", "global", "flat", "scratch"}) {
      std::string prefix = std::string(space) + "_";
      for (auto& [suffix, form] : loads()) all.push_back(prefix + "load_" + suffix);
      for (auto& [suffix, form] : stores()) all.push_back(prefix + "store_" + suffix);
      if (std::string(space) != "scratch")
        for (auto& [suffix, form] : atomics()) all.push_back(prefix + "atomic_" + suffix);
    }
    for (const char* suffix : {"ubyte", "sbyte", "ushort", "sshort", "dword", "dwordx3", "dwordx4"})
      all.push_back(std::string("global_load_lds_") + suffix);
    return all;
  }();
  return names;
}

}  // namespace monoc::sim
