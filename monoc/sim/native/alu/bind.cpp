// Python hooks to the ALU functions, for tests and inspection: monoc.sim._core.alu_*.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "alu.hpp"
#include "bind.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace monoc::sim::alu {
namespace {

using Words = nb::ndarray<const uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Masks = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

const AluOp& require(const std::string& mnemonic) {
  const AluOp* op = find_alu(mnemonic);
  if (op == nullptr) throw nb::key_error(("no vector ALU instruction " + mnemonic).c_str());
  return *op;
}

int dst_registers(const AluOp& op) { return op.flags & kSwap ? 2 : op.dst_dwords; }

// Array of `rows` x `cols` words that owns its storage.
template <class T>
nb::ndarray<nb::numpy, T> make_array(std::vector<size_t> shape) {
  size_t count = 1;
  for (size_t n : shape) count *= n;
  T* data = new T[count]();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::ndarray<nb::numpy, T>(data, shape.size(), shape.data(), owner);
}

nb::tuple apply(const std::string& mnemonic, const std::vector<Words>& sources, nb::object old, nb::object masks, int op_sel,
                nb::object op_sel_hi, int neg_lo, int neg_hi, int cbsz, int abid, int blgp, int bitop3, bool clamp, uint32_t mode) {
  const AluOp& op = require(mnemonic);
  AluMods mods;
  mods.op_sel = static_cast<uint8_t>(op_sel);
  mods.op_sel_hi = op_sel_hi.is_none() ? uint8_t(op.flags & kOpSelHiZero ? 0 : 7) : nb::cast<uint8_t>(op_sel_hi);
  mods.neg_lo = static_cast<uint8_t>(neg_lo);
  mods.neg_hi = static_cast<uint8_t>(neg_hi);
  mods.cbsz = static_cast<uint8_t>(cbsz);
  mods.abid = static_cast<uint8_t>(abid);
  mods.blgp = static_cast<uint8_t>(blgp);
  mods.bitop3 = static_cast<uint8_t>(bitop3);
  mods.clamp = clamp;
  if (sources.size() != op.nsrc) {
    throw nb::value_error((mnemonic + " takes " + std::to_string(op.nsrc) + " sources").c_str());
  }
  const size_t lanes = sources[0].shape(1);
  if (lanes == 0 || lanes % 64 != 0) throw nb::value_error("the number of lanes must be a multiple of 64");
  std::vector<std::vector<Lanes>> in(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    const size_t need = static_cast<size_t>(mfma_src_dwords(op, mods, static_cast<int>(i)));
    if (sources[i].shape(0) != need || sources[i].shape(1) != lanes) {
      throw nb::value_error((mnemonic + ": source " + std::to_string(i) + " must have the shape [" + std::to_string(need) + ", " +
                             std::to_string(lanes) + "]").c_str());
    }
    in[i].resize(need);
  }
  const size_t outputs = static_cast<size_t>(dst_registers(op));
  std::vector<Lanes> out(outputs + 1);
  auto result = make_array<uint32_t>({outputs, lanes});
  auto mask_out = make_array<uint64_t>({lanes / 64});
  Words previous;
  if (!old.is_none()) previous = nb::cast<Words>(old);
  if (previous.is_valid() && (previous.shape(0) != outputs || previous.shape(1) != lanes)) {
    throw nb::value_error("old destination: wrong shape");
  }
  Masks mask_in;
  if (!masks.is_none()) mask_in = nb::cast<Masks>(masks);
  if (mask_in.is_valid() && mask_in.shape(0) != lanes / 64) throw nb::value_error("mask: one word per 64 lanes");
  const Lanes* pointers[5] = {};
  for (size_t i = 0; i < in.size(); ++i) pointers[i] = in[i].data();
  for (size_t wave = 0; wave < lanes / 64; ++wave) {
    for (size_t i = 0; i < in.size(); ++i) {
      for (size_t r = 0; r < in[i].size(); ++r) std::memcpy(in[i][r].v, &sources[i](r, wave * 64), sizeof(Lanes));
    }
    for (size_t r = 0; r < outputs; ++r) {
      if (previous.is_valid()) {
        std::memcpy(out[r].v, &previous(r, wave * 64), sizeof(Lanes));
      } else {
        std::memset(out[r].v, 0, sizeof(Lanes));
      }
    }
    AluCtx ctx{&mods};
    ctx.mode = mode;
    if (mask_in.is_valid()) ctx.mask_in = mask_in(wave);
    op.fn(out.data(), pointers, ctx);
    for (size_t r = 0; r < outputs; ++r) std::memcpy(result.data() + r * lanes + wave * 64, out[r].v, sizeof(Lanes));
    mask_out.data()[wave] = ctx.mask_out;
  }
  return nb::make_tuple(result, mask_out);
}

nb::dict describe(const std::string& mnemonic) {
  const AluOp& op = require(mnemonic);
  nb::dict d;
  d["mnemonic"] = op.mnemonic;
  d["dst_dwords"] = dst_registers(op);
  nb::list sources;
  for (int i = 0; i < op.nsrc; ++i) sources.append(op.src_dwords[i]);
  d["src_dwords"] = sources;
  d["flags"] = op.flags;
  d["macs"] = op.mfma_macs;
  return d;
}

std::vector<std::string> mnemonics() {
  std::vector<std::string> names;
  for (const AluOp& op : all_alu()) names.emplace_back(op.mnemonic);
  return names;
}

// Modifier helpers applied to one register pair or register of `kind` ("f16", "f32", "f64").
Kind kind_named(const std::string& name) {
  if (name == "f16") return Kind::f16;
  if (name == "bf16") return Kind::bf16;
  if (name == "f32") return Kind::f32;
  if (name == "f64") return Kind::f64;
  throw nb::value_error("kind must be f16, bf16, f32 or f64");
}

nb::ndarray<nb::numpy, uint32_t> modify(const std::string& kind_name, Words value, bool abs, bool neg, int omod, bool clamp,
                                        bool flush, uint32_t mode) {
  const Kind kind = kind_named(kind_name);
  const size_t rows = static_cast<size_t>(dwords(kind));
  if (value.shape(0) != rows || value.shape(1) != 64) throw nb::value_error("value must have the shape [dwords, 64]");
  std::vector<Lanes> lanes(rows);
  for (size_t r = 0; r < rows; ++r) std::memcpy(lanes[r].v, &value(r, 0), sizeof(Lanes));
  if (flush) flush_denormals(kind, lanes.data());
  if (abs || neg) load_float_mods(kind, lanes.data(), lanes.data(), abs, neg);
  if (omod != 0 || clamp) store_float_mods(kind, lanes.data(), static_cast<uint8_t>(omod), clamp, mode);
  auto result = make_array<uint32_t>({rows, 64});
  for (size_t r = 0; r < rows; ++r) std::memcpy(result.data() + r * 64, lanes[r].v, sizeof(Lanes));
  return result;
}

}  // namespace

void bind_alu(nb::module_& m) {
  m.def("alu_apply", &apply, "mnemonic"_a, "sources"_a, nb::kw_only(), "old"_a = nb::none(), "mask"_a = nb::none(), "op_sel"_a = 0,
        "op_sel_hi"_a = nb::none(), "neg_lo"_a = 0, "neg_hi"_a = 0, "cbsz"_a = 0, "abid"_a = 0, "blgp"_a = 0, "bitop3"_a = 0,
        "clamp"_a = false, "mode"_a = kModeDefault,
        "Run one vector instruction on uint32 registers [dwords, lanes]; returns (destination [dwords, lanes], mask uint64 "
        "[lanes / 64]). `old`: destination before, `mask`: VCC or carry in. Raises KeyError, ValueError.");
  m.def("alu_describe", &describe, "mnemonic"_a, "Operand sizes (dwords), flags and multiply-adds of an instruction.");
  m.def("alu_mnemonics", &mnemonics, "All vector ALU mnemonics, sorted, without encoding suffixes.");
  m.def("alu_modify", &modify, "kind"_a, "value"_a, nb::kw_only(), "abs"_a = false, "neg"_a = false, "omod"_a = 0,
        "clamp"_a = false, "flush"_a = false, "mode"_a = kModeDefault, "Source and result modifiers of float kinds.");
  m.def("alu_isa", &alu_isa, "Build in use: baseline, avx2 or avx512.");
  m.def("alu_use_isa", &use_isa, "name"_a, "Select another build (tests); False if this CPU cannot run it.");
}

}  // namespace monoc::sim::alu
