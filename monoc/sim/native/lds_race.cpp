#include "lds_race.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "program.hpp"
#include "state.hpp"

namespace monoc::sim {
namespace {

struct Range {
  uint32_t first = ~0u, end = 0;
  bool empty() const { return first >= end; }
};

// The first byte set in both within [first, end), or `end`.
uint32_t common(const uint8_t* a, const uint8_t* b, uint32_t first, uint32_t end) {
  uint32_t at = first / 64 * 8;
  for (; at < (end + 7) / 8; at += 8) {
    uint64_t x, y;
    std::memcpy(&x, a + at, 8);
    std::memcpy(&y, b + at, 8);
    if (x & y) return 8 * at + uint32_t(__builtin_ctzll(x & y));
  }
  return end;
}

// "line 12 (ds_read_b32 v2, v9)"; where several instructions of the wave may be it, the first ones.
std::string named(const Wave& w, LdsMarks::Kind kind, uint32_t byte, const Op** first) {
  std::string text;
  int found = 0;
  for (const LdsMarks::Touched& t : w.marks->touched) {
    if (t.kind != kind || byte < t.first || byte >= t.end) continue;
    if (found == 0) *first = t.op;
    const OpText& op = w.program->texts[t.op->index];
    if (found < 3) text += (found ? " or line " : "line ") + std::to_string(op.line) + " (" + op.text + ")";
    ++found;
  }
  return found > 3 ? text + " or others" : text;
}

void report_race(Wave& writer, LdsMarks::Kind kind, Wave& other, LdsMarks::Kind other_kind, uint32_t byte) {
  constexpr const char* kVerbs[] = {"reads", "writes", "writes", "changes"};
  const Op *op = writer.ops, *unused = nullptr;
  std::string mine = named(writer, kind, byte, &op), theirs = named(other, other_kind, byte, &unused);
  std::string message = "LDS byte " + std::to_string(byte) + ": wave " + std::to_string(writer.id) + " " + kVerbs[kind] + " it at " + mine +
                        ", wave " + std::to_string(other.id) + " " + kVerbs[other_kind] + " it at " + theirs + ", no barrier between";
  report(writer, *op, "lds_race", message.c_str());
}

// Whether two waves' accesses are a race, `kind` one that writes. Pairs of two that write are asked for once.
bool clash(int kind, int other) {
  if (other == LdsMarks::read) return true;
  if (kind == LdsMarks::write) return other == LdsMarks::write || other == LdsMarks::atomic;
  return kind == LdsMarks::rewrite && other == LdsMarks::atomic;
}

// True when it found one.
bool find_race(Cta& cta, const Range (*ranges)[LdsMarks::kinds]) {
  for (int i = 0; i < cta.waves; ++i)
    for (int kind : {int(LdsMarks::write), int(LdsMarks::rewrite), int(LdsMarks::atomic)}) {
      const Range& mine = ranges[i][kind];
      if (mine.empty()) continue;
      for (int j = 0; j < cta.waves; ++j)
        for (int other = 0; other < LdsMarks::kinds; ++other) {
          if (j == i || !clash(kind, other) || (kind == other && j < i)) continue;
          uint32_t first = std::max(mine.first, ranges[j][other].first), end = std::min(mine.end, ranges[j][other].end);
          if (first >= end) continue;
          uint32_t byte = common(cta.wave[i].marks->bits[kind], cta.wave[j].marks->bits[other], first, end);
          if (byte >= end) continue;
          report_race(cta.wave[i], LdsMarks::Kind(kind), cta.wave[j], LdsMarks::Kind(other), byte);
          return true;
        }
    }
  return false;
}

}  // namespace

void meet_lds(Cta& cta) {
  if (!cta.wave[0].marks) return;
  Range ranges[kMaxWaves][LdsMarks::kinds];
  bool writes = false;
  for (int i = 0; i < cta.waves; ++i)
    for (const LdsMarks::Touched& t : cta.wave[i].marks->touched) {
      Range& r = ranges[i][t.kind];
      r.first = std::min(r.first, t.first);
      r.end = std::max(r.end, t.end);
      writes = writes || t.kind != LdsMarks::read;
    }
  if (writes && find_race(cta, ranges)) return;
  for (int i = 0; i < cta.waves; ++i) {
    LdsMarks& marks = *cta.wave[i].marks;
    for (int kind = 0; kind < LdsMarks::kinds; ++kind) {
      const Range& r = ranges[i][kind];
      if (!r.empty()) std::memset(marks.bits[kind] + r.first / 8, 0, (r.end + 7) / 8 - r.first / 8);
    }
    marks.touched.clear();
  }
}

}  // namespace monoc::sim
