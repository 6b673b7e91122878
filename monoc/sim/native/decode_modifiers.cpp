// Which modifiers an instruction may carry: nothing in the text is ignored.
#include <map>
#include <set>

#include "program.hpp"

namespace monoc::sim {
namespace {

struct Family {
  std::set<std::string> modifiers;
  int64_t lowest = 0, highest = 0;  // of `offset`
};

// By prefix. Offset widths: CDNA3 ISA, microcode formats MUBUF, FLAT, DS and SMEM.
const std::map<std::string, Family>& families() {
  static const std::map<std::string, Family> all = {
      {"buffer_", {{"offen", "idxen", "offset", "sc0", "sc1", "nt", "glc", "slc", "lds"}, 0, 4095}},
      {"global_", {{"offset", "sc0", "sc1", "nt", "glc", "slc", "lds"}, -4096, 4095}},
      {"scratch_", {{"offset", "sc0", "sc1", "nt", "glc", "slc", "lds"}, -4096, 4095}},
      {"flat_", {{"offset", "sc0", "sc1", "nt", "glc", "slc", "lds"}, 0, 4095}},
      {"ds_", {{"offset", "offset0", "offset1", "gds"}, 0, 65535}},
      {"s_load_", {{"offset", "glc"}, -(1 << 20), (1 << 20) - 1}},
      {"s_buffer_load_", {{"offset", "glc"}, -(1 << 20), (1 << 20) - 1}},
      {"s_waitcnt", {{"vmcnt", "expcnt", "lgkmcnt", "vscnt"}}},
      {"v_", {{"op_sel", "op_sel_hi", "neg_lo", "neg_hi", "clamp", "mul", "div", "cbsz", "abid", "blgp", "bitop3", "quad_perm",
               "row_shl", "row_shr", "row_ror", "row_mirror", "row_half_mirror", "row_newbcast", "row_share", "row_bcast",
               "wave_shl", "wave_rol", "wave_shr", "wave_ror", "row_mask", "bank_mask", "bound_ctrl", "fi", "dst_sel",
               "dst_unused", "src0_sel", "src1_sel"}}},
  };
  return all;
}

}  // namespace

void check_modifiers(const Insn& insn) {
  if (insn.modifiers.empty()) return;
  const Family* family = nullptr;
  for (const auto& [prefix, candidate] : families())
    if (insn.mnemonic.rfind(prefix, 0) == 0) family = &candidate;
  for (const auto& [name, value] : insn.modifiers) {
    if (!family || !family->modifiers.count(name) || (name == "lds" && insn.mnemonic.find("_load_") == std::string::npos))
      throw DecodeError("does not take " + name + ", or not here");
    if (name == "offset" && (value < family->lowest || value > family->highest))
      throw DecodeError("offset " + std::to_string(value) + " is not within " + std::to_string(family->lowest) + " to " +
                        std::to_string(family->highest));
    if ((name == "offset0" || name == "offset1") && (value < 0 || value > 255))
      throw DecodeError(name + " " + std::to_string(value) + " is not within 0 to 255");
  }
}

}  // namespace monoc::sim
