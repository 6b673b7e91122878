#include "machine.hpp"

namespace monoc::sim {

void handoff_access(Wave&, const Op&, const uint64_t*, uint64_t, bool) {}

}  // namespace monoc::sim
