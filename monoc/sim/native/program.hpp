// A decoded kernel: ops, constants, entry state. Immutable once finished.
#pragma once

#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "op.hpp"

namespace monoc::sim {

// Operand kinds of the Python parser (monoc.sim.asm.operands.OperandKind), by value.
enum class OperandKind : int { vgpr = 0, sgpr = 1, agpr = 2, integer = 3, floating = 4, off = 5, special = 6, label = 7, hex = 8 };

struct Operand {
  OperandKind kind = OperandKind::off;
  int64_t value = 0;  // register, integer, bits of a double, or branch target for labels
  int count = 1;
  int mods = 0;
  std::string name;
};

struct Insn {
  std::string mnemonic, text;
  std::vector<Operand> operands;
  std::vector<std::pair<std::string, int64_t>> modifiers;
  uint32_t line = 0, file = 0, loc = 0;

  int64_t modifier(const char* name, int64_t missing = 0) const {
    for (const auto& [key, value] : modifiers)
      if (key == name) return value;
    return missing;
  }
  bool has(const char* name) const {
    for (const auto& [key, value] : modifiers)
      if (key == name) return true;
    return false;
  }
};

// An instruction that cannot be executed. `unknown`: the mnemonic itself is not known.
struct DecodeError : std::runtime_error {
  DecodeError(const std::string& message, bool unknown_ = false) : std::runtime_error(message), unknown(unknown_) {}
  bool unknown;
};

class Program {
 public:
  std::string name;
  Entry entry;
  std::vector<Op> ops;  // one more than instructions: running past the end is reported
  std::vector<OpText> texts;
  std::vector<Lanes> consts;
  bool default_mode = true;  // false: some path may change MODE or it starts with denormals flushed

  // Appends a constant of `dwords` values, each the same in all lanes; returns its first index.
  uint32_t constant(const std::vector<uint32_t>& dwords);
  const alu::AluMods* keep(const alu::AluMods& mods);
  Extra* new_extra();
  void finish();  // marks poll loops, adds the sentinel

 private:
  std::map<std::vector<uint32_t>, uint32_t> known_;
  std::deque<alu::AluMods> mods_;
  std::deque<Extra> extras_;
};

// Decodes one instruction, or throws DecodeError. Each family returns false if the mnemonic is not its own.
void decode(Program& program, const Insn& insn, Op& op);
bool decode_scalar(Program& program, const Insn& insn, Op& op);
bool decode_memory(Program& program, const Insn& insn, Op& op);
bool decode_lds(Program& program, const Insn& insn, Op& op);
bool decode_vector(Program& program, const Insn& insn, Op& op);
// Throws DecodeError for a modifier the instruction's family does not have, or an offset its encoding has no room for.
void check_modifiers(const Insn& insn);
const std::vector<std::string>& memory_mnemonics();
const std::vector<std::string>& lds_mnemonics();
std::vector<std::string> known_mnemonics();

// Operand helpers shared by the families.
const Operand& operand(const Insn& insn, size_t index);
void expect_operands(const Insn& insn, size_t count);
uint16_t vector_register(const Program& program, const Operand& operand, int dwords, const char* role);
uint16_t scalar_register(const Operand& operand, int dwords, const char* role);
Src scalar_source(const Operand& operand, int dwords);
Handler require_handler(const std::string& name);

}  // namespace monoc::sim
