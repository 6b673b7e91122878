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

struct Cta;
struct Wave;

struct RegionDeclaration {
  enum Kind : int { tag = 0, flag = 1, plain = 2, word = 3 };
  std::string name;
  uint64_t base = 0, bytes = 0;
  int kind = tag;
  bool system = false;
  int rank = 0;
  std::vector<int> writers, readers;  // CTAs; empty: all
  std::vector<int> writer_ranks;      // empty: the region's rank, or all for system scope
  int reads = 1;
  int flag_region = -1;  // index of the flag region, plain only; -1: ordered, by whatever flags come between
  uint64_t unit_bytes = 0;
};

// What happened to a region in all launches so far.
struct RegionTraffic {
  uint64_t words_written = 0;  // words or pairs stored
  uint64_t words_handed = 0;   // words or pairs first read by a CTA that did not write them
};

class Handoff {
 public:
  // `late`: another CTA's store of a pair shows to a wave from its second look at the pair on, as if it were slow; to some
  // quarters of the wave at the first, as if a load of 16 lanes at a time met the store half way.
  Handoff(std::vector<RegionDeclaration> declarations, bool late);

  // A launch boundary publishes what was written before it.
  void begin_launch();

  // Called before the lanes' stores reach memory, and after their loads did; so a reader that saw a flag's new value finds
  // the flag's count no older than that value. Reports through `report` and stops the wave.
  void access(Wave& w, const Op& op, const uint64_t* addresses, uint64_t lanes, bool store);

  // Late stores: puts what was there before them in place of what the lanes loaded into `words`.
  void delay(const Wave& w, const Op& op, const uint64_t* addresses, uint64_t lanes, Lanes* words);
  bool late() const { return late_; }

  // All waves of the CTA are at a barrier: each goes on with what any of them knows.
  void meet(Cta& cta);

  std::vector<RegionTraffic> traffic() const;

 private:
  // Vector clock: of each CTA of the rank, how many of its releases (stores to flags) are known to have happened.
  using Clock = std::vector<uint32_t>;
  // What an ordered region's words and its readers are held by. Stores since a CTA's last release are not published.
  struct CtaState {
    uint32_t releases = 0;
    bool learned = false;      // a wave has seen a flag since the last barrier
    std::vector<Clock> waves;  // what each wave knows
  };
  // A dword of plain data, or a pair. Layers have hundreds of millions of them: what only some kinds need is kept apart.
  struct Word {
    uint32_t writer = 0;        // 1 + CTA key, 0: not written yet
    uint32_t readers : 16 = 0;  // distinct CTAs that read it since the last store (exact up to `reads`)
    uint32_t launch : 15 = 0;   // of the last store
    uint32_t handed : 1 = 0;
  };
  // Of a word of an ordered region.
  struct OrderedWord {
    uint32_t time = 0;         // the writer's releases at the last store
    uint32_t order = 0;        // how many stores to the region came before it
    uint32_t reader = 0;       // 1 + key of the CTA that read it last, in launch `read_launch`
    uint32_t read_launch = 0;
  };
  // Loads through the caches: when each die first loaded a line in this launch.
  struct Line {
    uint32_t launch[8] = {};
    uint32_t order[8] = {};
  };
  struct Region {
    RegionDeclaration d;
    std::vector<Word> words;
    std::vector<uint32_t> numbers;     // flags: stores so far; plain data that names its flags: the flag's that publishes it
    std::vector<uint64_t> before;      // late stores: what the last one overwrote
    std::vector<OrderedWord> ordered;
    std::vector<std::vector<uint32_t>> read_by;  // CTA keys, up to `reads` of a word; only when reads > 1
    std::map<uint32_t, std::vector<uint32_t>> seen;  // flag regions: CTA key -> count of each pair when last loaded
    RegionTraffic traffic;
    std::vector<Clock> clocks;     // flag regions: what the last release of each pair publishes
    std::vector<uint32_t> stored;  // and the launch it was in
    std::vector<Line> lines;       // ordered regions
    uint32_t stores = 0;
    std::map<std::pair<uint32_t, int>, std::vector<bool>> looked;  // late stores: (CTA key, wave) -> pairs it has loaded
  };
  struct Pending {
    int region = 0;
    uint64_t pair = 0;
    uint32_t drains = 0;
    bool met = false;  // it was not drained when the CTA met last
  };

  int find(uint64_t address) const;
  void touch(Wave& w, const Op& op, Region& region, int index, uint64_t address, uint32_t bytes, int lane, bool store);
  bool roles(Wave& w, const Op& op, const Region& region, uint64_t address, uint32_t bytes, int lane, bool store);
  void on_store(Wave& w, const Op& op, Region& region, int index, uint64_t word, uint64_t address, int lane);
  void on_load(Wave& w, const Op& op, Region& region, uint64_t word, uint64_t address, int lane);
  void on_ordered_store(Wave& w, const Op& op, Region& region, int index, uint64_t word, uint64_t address, int lane);
  void on_ordered_load(Wave& w, const Op& op, Region& region, uint64_t word, uint64_t address, int lane);
  void release(Wave& w, const Op& op, Region& region, uint64_t word, uint64_t address, int lane);
  void acquire(Wave& w, const Op& op, Region& region, uint64_t word, int lane);
  CtaState& state(const Wave& w);
  // Whether the last store of pair `word` does not show to the wave's lane yet.
  bool hidden(const Wave& w, const Op& op, const Region& region, uint64_t word, int lane) const;

  std::vector<Region> regions_;
  std::vector<std::pair<uint64_t, int>> order_;  // base, index; by base
  std::map<std::pair<uint32_t, int>, std::vector<Pending>> pending_;  // (CTA key, wave): stores not known to be drained
  std::map<uint32_t, CtaState> ctas_;  // by CTA key, of this launch
  bool ordered_ = false;               // some region is
  bool late_ = false;
  uint32_t launch_ = 0;
  mutable std::mutex mutex_;
};

}  // namespace monoc::sim
