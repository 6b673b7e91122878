// Reading scalar operands.
#pragma once

#include <span>

#include "state.hpp"

namespace monoc::sim {

inline uint32_t read_special(const Wave& w, const Src& src) {
  switch (src.kind) {
    case Src::scc:
      return w.scc;
    case Src::vccz:
      return w.read64(kVcc) == 0;
    case Src::execz:
      return w.exec() == 0;
    default:
      return 0;
  }
}

inline uint32_t read32(const Wave& w, const Src& src) {
  if (src.kind == Src::sgpr) return w.sgpr[src.index];
  if (src.kind == Src::constant) return static_cast<uint32_t>(src.value);
  return read_special(w, src);
}

inline uint64_t read64(const Wave& w, const Src& src) {
  if (src.kind == Src::sgpr) return w.read64(src.index);
  if (src.kind == Src::constant) return src.value;
  return read_special(w, src);
}

std::span<const HandlerEntry> scalar_handlers();
std::span<const HandlerEntry> control_handlers();

}  // namespace monoc::sim
