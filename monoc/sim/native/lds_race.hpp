// What the waves of a CTA touched in LDS since its last barrier: two of them and one byte, one writing, is a race.
#pragma once

#include <cstdint>
#include <vector>

#include "op.hpp"

namespace monoc::sim {

struct Cta;

// One wave's. `bits` are all clear and `touched` is empty after each barrier.
struct LdsMarks {
  // rewrite: a write of what is there already. Threads without work of their own may do another's again.
  enum Kind : int { read, write, rewrite, atomic, kinds };
  // An instruction and the bytes it lies between: what a finding can name, where the bits say what was touched.
  struct Touched {
    const Op* op = nullptr;
    Kind kind = read;
    uint32_t first = 0, end = 0;
  };
  uint8_t* bits[kinds] = {};  // a bit a byte of LDS, with eight bytes to spare
  std::vector<Touched> touched;
  uint16_t recent[256] = {};  // by the low bits of an op's index: where in `touched` it may be

  void touch(const Op& op, Kind kind, uint32_t first, uint32_t end) {
    uint16_t& slot = recent[op.index & 255];
    if (slot >= touched.size() || touched[slot].op != &op || touched[slot].kind != kind) {
      slot = find(op, kind);
      if (slot == touched.size()) touched.push_back({&op, kind, first, end});
    }
    Touched& t = touched[slot];
    t.first = first < t.first ? first : t.first;
    t.end = end > t.end ? end : t.end;
  }

 private:
  // Where `op` is, or the end. A short list may hold it twice; a long one must not grow with every turn of a loop.
  uint16_t find(const Op& op, Kind kind) const {
    constexpr size_t kShort = 512;
    size_t at = touched.size();
    if (at >= kShort)
      for (at = 0; at < touched.size() && (touched[at].op != &op || touched[at].kind != kind);) ++at;
    return uint16_t(at);
  }
};

// All waves of the CTA are at a barrier or have ended: reports the first race since the last one, and starts anew.
void meet_lds(Cta& cta);

}  // namespace monoc::sim
