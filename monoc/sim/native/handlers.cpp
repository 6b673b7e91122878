// Handlers by name, for the instruction set the ALU has picked (the widest this CPU has).
#include <string>
#include <unordered_map>

#include "scalar_util.hpp"

#define MONOC_SIM_DECLARE(ISA)                           \
  namespace monoc::sim::ISA {                            \
  std::span<const HandlerEntry> vector_handlers();       \
  std::span<const HandlerEntry> memory_handlers();       \
  std::span<const HandlerEntry> atomic_handlers();       \
  std::span<const HandlerEntry> lds_handlers();          \
  }
MONOC_SIM_DECLARE(baseline)
#ifdef MONOC_SIM_X86
MONOC_SIM_DECLARE(avx2)
MONOC_SIM_DECLARE(avx512)
#endif

namespace monoc::sim {
namespace {

using Table = std::unordered_map<std::string_view, Handler>;

void add(Table& table, std::span<const HandlerEntry> entries) {
  for (const HandlerEntry& entry : entries) table.emplace(entry.name, entry.fn);
}

#define MONOC_SIM_ADD(ISA)             \
  add(table, ISA::vector_handlers());  \
  add(table, ISA::memory_handlers());  \
  add(table, ISA::atomic_handlers());  \
  add(table, ISA::lds_handlers());

Table build(std::string_view isa) {
  Table table;
  add(table, scalar_handlers());
  add(table, control_handlers());
#ifdef MONOC_SIM_X86
  if (isa == "avx512") {
    MONOC_SIM_ADD(avx512)
    return table;
  }
  if (isa == "avx2") {
    MONOC_SIM_ADD(avx2)
    return table;
  }
#endif
  (void)isa;
  MONOC_SIM_ADD(baseline)
  return table;
}

}  // namespace

Handler find_handler(std::string_view name) {
  // alu_isa() is the one choice for both halves of the core; tests change it.
  static const Table tables[] = {build("baseline"), build("avx2"), build("avx512")};
  std::string_view isa = alu::alu_isa();
  const Table& table = tables[isa == "avx512" ? 2 : isa == "avx2" ? 1 : 0];
  auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace monoc::sim
