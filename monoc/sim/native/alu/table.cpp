// Picks the build for this CPU and finds operations by mnemonic.
#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <vector>

#include "tables.hpp"

MONOC_ALU_DECLARE(baseline)
#ifdef MONOC_ALU_HAS_AVX2
MONOC_ALU_DECLARE(avx2)
MONOC_ALU_DECLARE(avx512)
#endif

namespace monoc::sim::alu {
namespace {

struct Build {
  const char* name;
  bool available;
  std::vector<AluOp> ops;  // sorted by mnemonic
  decltype(&baseline::load_mods) load_mods;
  decltype(&baseline::store_mods) store_mods;
  decltype(&baseline::flush) flush;
};

std::vector<AluOp> sorted(std::initializer_list<std::span<const AluOp>> tables) {
  std::vector<AluOp> all;
  for (auto table : tables) all.insert(all.end(), table.begin(), table.end());
  std::ranges::sort(all, {}, [](const AluOp& op) { return std::string_view(op.mnemonic); });
  return all;
}

#define MONOC_ALU_BUILD(build, supported)                                                                                 \
  Build {                                                                                                                 \
    #build, supported,                                                                                                    \
        sorted({build::table_int(), build::table_int16(), build::table_compare(), build::table_f32(), build::table_f64(), \
                build::table_f16(), build::table_packed(), build::table_dot(), build::table_trans(), build::table_cvt(),  \
                build::table_cvt_scale(), build::table_move(), build::table_mfma(), build::table_mfma_scaled()}),         \
        build::load_mods, build::store_mods, build::flush                                                                 \
  }

// Widest last.
const std::vector<Build>& builds() {
  static const std::vector<Build> all = [] {
    std::vector<Build> list;
    list.push_back(MONOC_ALU_BUILD(baseline, true));
#ifdef MONOC_ALU_HAS_AVX2
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    list.push_back(MONOC_ALU_BUILD(avx2, has_avx2));
    list.push_back(MONOC_ALU_BUILD(avx512, has_avx512));
#endif
    return list;
  }();
  return all;
}

const Build* widest() {
  const Build* best = nullptr;
  for (const Build& build : builds()) {
    if (build.available) best = &build;
  }
  return best;
}

std::atomic<const Build*>& selected() {
  static std::atomic<const Build*> build = widest();
  return build;
}

const Build& current() { return *selected().load(std::memory_order_acquire); }

std::string_view strip_encoding(std::string_view mnemonic) {
  for (std::string_view suffix : {"_e32", "_e64_dpp", "_e64", "_dpp", "_sdwa"}) {
    if (mnemonic.ends_with(suffix)) return mnemonic.substr(0, mnemonic.size() - suffix.size());
  }
  return mnemonic;
}

}  // namespace

const AluOp* find_alu(std::string_view mnemonic) {
  const std::string_view key = strip_encoding(mnemonic);
  const auto& ops = current().ops;
  const auto at = std::ranges::lower_bound(ops, key, {}, [](const AluOp& op) { return std::string_view(op.mnemonic); });
  return at != ops.end() && key == at->mnemonic ? &*at : nullptr;
}

std::span<const AluOp> all_alu() { return current().ops; }

const char* alu_isa() { return current().name; }

bool use_isa(std::string_view name) {
  for (const Build& build : builds()) {
    if (build.available && name == build.name) {
      selected().store(&build, std::memory_order_release);
      return true;
    }
  }
  return false;
}

int mfma_src_dwords(const AluOp& op, const AluMods& mods, int source) {
  const bool by_format = source < 2 && std::string_view(op.mnemonic).find("f8f6f4") != std::string_view::npos;
  if (!by_format) return op.src_dwords[source];
  const int format = source == 0 ? mods.cbsz : mods.blgp;
  return format < 2 ? 8 : format < 4 ? 6 : 4;
}

void load_float_mods(Kind kind, Lanes* dst, const Lanes* src, bool abs, bool neg) { current().load_mods(kind, dst, src, abs, neg); }

void store_float_mods(Kind kind, Lanes* dst, uint8_t omod, bool clamp, uint32_t mode) {
  current().store_mods(kind, dst, omod, clamp, mode);
}

void flush_denormals(Kind kind, Lanes* value) { current().flush(kind, value); }

}  // namespace monoc::sim::alu
