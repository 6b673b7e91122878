// Handlers by name, for the widest instruction set this CPU has.
#include <cstdlib>
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

Table build() {
  Table table;
  add(table, scalar_handlers());
  add(table, control_handlers());
  std::string_view isa = alu::alu_isa();  // one choice for both halves of the core
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
  static const Table table = build();
  auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace monoc::sim
