// Shadow of the hand-off regions a manifest declares (monoc/sim/handoff.py says what each check means).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "op.hpp"

namespace monoc::sim {

struct Wave;

struct RegionDeclaration {
  enum Kind : int { tag = 0, flag = 1, plain = 2 };
  std::string name;
  uint64_t base = 0, bytes = 0;
  int kind = tag;
  bool system = false;
  int rank = 0;
  std::vector<int> writers, readers;  // CTAs; empty: all
  std::vector<int> writer_ranks;      // empty: the region's rank, or all for system scope
  int reads = 1;
  int flag_region = -1;  // index of the flag region, plain only
  uint64_t unit_bytes = 0;
};

// What happened to a region in all launches so far.
struct RegionTraffic {
  uint64_t words_written = 0;  // words or pairs stored
  uint64_t words_handed = 0;   // words or pairs first read by a CTA that did not write them
};

class Handoff {
 public:
  explicit Handoff(std::vector<RegionDeclaration> declarations);

  // A launch boundary publishes what was written before it.
  void begin_launch();

  // Called before the lanes' stores reach memory, and after their loads did; so a reader that saw a flag's new value finds
  // the flag's count no older than that value. Reports through `report` and stops the wave.
  void access(Wave& w, const Op& op, const uint64_t* addresses, uint64_t lanes, bool store);

  std::vector<RegionTraffic> traffic() const;

 private:
  // A dword of plain data, or a pair.
  struct Word {
    uint32_t writer = 0;      // 1 + CTA key, 0: not written yet
    uint32_t launch = 0;      // of the last store
    uint32_t announce = 0;    // plain: the flag's count that publishes it
    uint32_t count = 0;       // flag: stores so far
    uint16_t readers = 0;     // distinct CTAs that read it since the last store (exact up to `reads`)
    bool handed = false;
  };
  struct Region {
    RegionDeclaration d;
    std::vector<Word> words;
    std::vector<std::vector<uint32_t>> read_by;  // CTA keys, up to `reads` of a word; only when reads > 1
    std::map<uint32_t, std::vector<uint32_t>> seen;  // flag regions: CTA key -> count of each pair when last loaded
    RegionTraffic traffic;
  };
  struct Pending {
    int region = 0;
    uint64_t pair = 0;
    uint32_t drains = 0;
  };

  int find(uint64_t address) const;
  void touch(Wave& w, const Op& op, Region& region, int index, uint64_t address, uint32_t bytes, int lane, bool store);
  bool roles(Wave& w, const Op& op, const Region& region, uint64_t address, uint32_t bytes, int lane, bool store);
  void on_store(Wave& w, const Op& op, Region& region, int index, uint64_t word, uint64_t address, int lane);
  void on_load(Wave& w, const Op& op, Region& region, uint64_t word, uint64_t address, int lane);

  std::vector<Region> regions_;
  std::vector<std::pair<uint64_t, int>> order_;  // base, index; by base
  std::map<std::pair<uint32_t, int>, std::vector<Pending>> pending_;  // (CTA key, wave): stores not known to be drained
  uint32_t launch_ = 0;
  mutable std::mutex mutex_;
};

}  // namespace monoc::sim
