#include "handoff.hpp"

#include <algorithm>
#include <cstring>

#include "machine.hpp"

namespace monoc::sim {

namespace {

uint32_t key_of(const Wave& w) { return w.cta->rank << 22 | w.cta->linear; }

bool allows(const std::vector<int>& list, int value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

std::string cta_name(uint32_t key) { return "rank " + std::to_string(key >> 22) + " CTA " + std::to_string(key & 0x3fffff); }

constexpr uint64_t kLine = 128;  // bytes of an L2 line (CDNA3, "Memory hierarchy")

bool dwords(const RegionDeclaration& d) { return d.kind == RegionDeclaration::plain || d.kind == RegionDeclaration::word; }
uint64_t word_bytes(const RegionDeclaration& d) { return dwords(d) ? 4 : 8; }
bool ordered(const RegionDeclaration& d) { return d.kind == RegionDeclaration::plain && d.flag_region < 0; }

// "violation|region|text": the Python side takes the first two apart.
void violate(Wave& w, const Op& op, const char* what, const std::string& region, const std::string& text, uint64_t address,
             int lane) {
  std::string message = std::string(what) + "|" + region + "|" + text;
  report(w, op, "handoff", message.c_str(), lane, address);
}

}  // namespace

Handoff::Handoff(std::vector<RegionDeclaration> declarations, bool late) : late_(late) {
  regions_.resize(declarations.size());
  for (size_t i = 0; i < declarations.size(); ++i) {
    Region& r = regions_[i];
    r.d = std::move(declarations[i]);
    size_t words = r.d.bytes / word_bytes(r.d);
    r.words.resize(words);
    bool named = r.d.kind == RegionDeclaration::plain && !ordered(r.d);
    if (named || r.d.kind == RegionDeclaration::flag) r.numbers.resize(words);
    if (late && !dwords(r.d)) r.before.resize(words);
    if (r.d.reads > 1) r.read_by.resize(words);
    if (r.d.kind == RegionDeclaration::flag) r.clocks.resize(words), r.stored.resize(words);
    if (ordered(r.d)) {
      r.ordered.resize(words);
      r.lines.resize((r.d.base % kLine + r.d.bytes + kLine - 1) / kLine);
      ordered_ = true;
    }
    order_.emplace_back(r.d.base, int(i));
  }
  std::sort(order_.begin(), order_.end());
}

void Handoff::begin_launch() {
  std::lock_guard lock(mutex_);
  if (++launch_ >> 15) {  // beyond what a word has room for: as if nothing had been stored in this launch yet
    launch_ = 1;
    for (Region& region : regions_) {
      for (Word& word : region.words) word.launch = 0;
      for (OrderedWord& word : region.ordered) word.read_launch = 0;
      for (Line& line : region.lines) std::fill(std::begin(line.launch), std::end(line.launch), 0);
      std::fill(region.stored.begin(), region.stored.end(), 0);
    }
  }
  pending_.clear();  // a launch ends with its stores drained
  ctas_.clear();
  for (Region& region : regions_) region.looked.clear();
}

int Handoff::find(uint64_t address) const {
  auto after = std::upper_bound(order_.begin(), order_.end(), std::make_pair(address, 1 << 30));
  if (after == order_.begin()) return -1;
  int index = std::prev(after)->second;
  const RegionDeclaration& d = regions_[size_t(index)].d;
  return address < d.base + d.bytes ? index : -1;
}

void Handoff::access(Wave& w, const Op& op, const uint64_t* addresses, uint64_t lanes, bool store) {
  int region = -1;
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  for (; lanes; lanes &= lanes - 1) {
    int lane = __builtin_ctzll(lanes);
    uint64_t address = addresses[lane];
    if (region < 0 || address - regions_[size_t(region)].d.base >= regions_[size_t(region)].d.bytes) region = find(address);
    if (region < 0) continue;
    if (!lock.owns_lock()) lock.lock();
    touch(w, op, regions_[size_t(region)], region, address, op.mem.bytes, lane, store);
    if (w.stop == Stop::fault) return;
  }
}

bool Handoff::roles(Wave& w, const Op& op, const Region& region, uint64_t address, uint32_t bytes, int lane, bool store) {
  const RegionDeclaration& d = region.d;
  int rank = int(w.cta->rank), cta = int(w.cta->linear);
  bool atomic = op.mem.atomic != Atomic::none;
  if (store && (d.writer_ranks.empty() ? !d.system && rank != d.rank : !allows(d.writer_ranks, rank))) {
    violate(w, op, "role", d.name, "rank " + std::to_string(rank) + " may not write this region", address, lane);
    return false;
  }
  if (!store && rank != d.rank) {
    violate(w, op, "role", d.name, "rank " + std::to_string(rank) + " may not read this region", address, lane);
    return false;
  }
  if (!allows(store ? d.writers : d.readers, cta)) {
    std::string verb = store ? "write" : "read";
    violate(w, op, "role", d.name, "CTA " + std::to_string(cta) + " may not " + verb + " this region", address, lane);
    return false;
  }
  if (store && !atomic && !dwords(d) && (address % 8 || bytes % 8)) {
    violate(w, op, "role", d.name, "a pair must be stored by one aligned 8-byte store", address, lane);
    return false;
  }
  // Atomics act at the scope's coherence point by themselves at device scope; SC0 there asks for the old value (LLVM
  // AMDGPUUsage, memory model gfx942: "atomicrmw ... agent" has no SC bit, "system" has SC1).
  uint8_t want = d.system ? 17 : 16;
  if (atomic) want = d.system ? 16 : 0;
  bool needs = store || d.kind != RegionDeclaration::plain;
  if (needs && (op.mem.policy & want) != want) {
    std::string text = std::string(store ? "store" : "load") + " without the scope bits (" + (d.system ? "sc0 sc1" : "sc1") + ")";
    violate(w, op, "scope", d.name, text, address, lane);
    return false;
  }
  return true;
}

void Handoff::touch(Wave& w, const Op& op, Region& region, int index, uint64_t address, uint32_t bytes, int lane, bool store) {
  if (!roles(w, op, region, address, bytes, lane, store)) return;
  uint64_t size = word_bytes(region.d);
  uint64_t first = (address - region.d.base) / size;
  uint64_t last = (std::min(address + bytes, region.d.base + region.d.bytes) - 1 - region.d.base) / size;
  for (uint64_t word = first; word <= last && w.stop != Stop::fault; ++word) {
    if (store) on_store(w, op, region, index, word, address, lane);
    else on_load(w, op, region, word, address, lane);
  }
}

void Handoff::on_store(Wave& w, const Op& op, Region& region, int index, uint64_t word, uint64_t address, int lane) {
  const RegionDeclaration& d = region.d;
  Word& shadow = region.words[word];
  uint32_t key = key_of(w);
  bool atomic = op.mem.atomic != Atomic::none;
  // Parts of a dword (bytes of one word by several lanes or stores of one CTA) are one write.
  bool same_write = op.mem.bytes < 4 && shadow.writer == key + 1 && shadow.launch == launch_ && shadow.readers == 0;
  // A word that guards itself (the epoch) holds what an earlier launch stored: everybody must have read that too.
  bool guarded = shadow.writer != 0 || d.kind == RegionDeclaration::word;
  if (guarded && shadow.readers < d.reads && !atomic && !same_write) {
    std::string text = "overwritten after " + std::to_string(shadow.readers) + " of " + std::to_string(d.reads) +
                       " reads of what " + (shadow.writer ? cta_name(shadow.writer - 1) : "an earlier launch") + " wrote";
    return violate(w, op, "unread", d.name, text, address, lane);
  }
  if (d.kind == RegionDeclaration::flag) {
    for (int i = 0; i < w.cta->waves; ++i) {
      const Wave& other = w.cta->wave[i];
      auto found = pending_.find({key, other.id});
      if (found == pending_.end()) continue;
      for (const Pending& p : found->second) {
        const RegionDeclaration& data = regions_[size_t(p.region)].d;
        if (data.flag_region < 0 || data.flag_region != index || p.pair != word || p.drains != other.drains) continue;
        std::string text = "flag " + std::to_string(word) + " stored while wave " + std::to_string(other.id) +
                           " has undrained stores to " + data.name;
        return violate(w, op, "undrained", data.name, text, address, lane);
      }
    }
    if (ordered_) release(w, op, region, word, address, lane);
    if (w.stop == Stop::fault) return;
  }
  if (ordered(d)) on_ordered_store(w, op, region, index, word, address, lane);
  if (w.stop == Stop::fault) return;
  if (d.kind == RegionDeclaration::plain && !ordered(d)) {
    Region& flags = regions_[size_t(d.flag_region)];
    uint64_t pair = word * 4 / d.unit_bytes % flags.words.size();
    region.numbers[word] = flags.numbers[pair] + 1;
    std::vector<Pending>& mine = pending_[{key, w.id}];
    if (!mine.empty() && mine.back().drains != w.drains) mine.clear();
    bool listed = std::any_of(mine.begin(), mine.end(), [&](const Pending& p) { return p.region == index && p.pair == pair; });
    if (!listed) mine.push_back({index, pair, w.drains});
  }
  if (late_ && !dwords(d)) std::memcpy(&region.before[word], reinterpret_cast<const void*>(d.base + 8 * word), 8);
  if (d.kind == RegionDeclaration::flag) ++region.numbers[word];
  shadow.writer = key + 1;
  shadow.launch = launch_;
  shadow.readers = 0;
  shadow.handed = false;
  if (!region.read_by.empty()) region.read_by[word].clear();
  ++region.traffic.words_written;
}

void Handoff::on_load(Wave& w, const Op& op, Region& region, uint64_t word, uint64_t address, int lane) {
  const RegionDeclaration& d = region.d;
  Word& shadow = region.words[word];
  uint32_t key = key_of(w);
  if (d.kind == RegionDeclaration::flag) {
    std::vector<uint32_t>& seen = region.seen[key];
    if (seen.empty()) seen.resize(region.words.size());
    seen[word] = region.numbers[word];
    if (ordered_) acquire(w, op, region, word, lane);
  }
  if (ordered(d)) on_ordered_load(w, op, region, word, address, lane);
  if (w.stop == Stop::fault) return;
  if (shadow.writer == 0 && d.kind != RegionDeclaration::word) return;
  bool other = shadow.writer != key + 1;
  if (d.kind == RegionDeclaration::plain && !ordered(d) && other && shadow.launch == launch_) {
    Region& flags = regions_[size_t(d.flag_region)];
    uint64_t pair = word * 4 / d.unit_bytes % flags.words.size();
    auto found = flags.seen.find(key);
    uint32_t saw = found == flags.seen.end() ? 0 : found->second[pair];
    if (saw < region.numbers[word]) {
      std::string text = "read before the CTA has seen flag " + std::to_string(pair) + " of " + flags.d.name +
                         " that announces what " + cta_name(shadow.writer - 1) + " wrote";
      return violate(w, op, "unseen", d.name, text, address, lane);
    }
  }
  if (other && !shadow.handed) {
    shadow.handed = true;
    ++region.traffic.words_handed;
  }
  if (shadow.readers >= d.reads) return;
  if (d.reads == 1) {
    shadow.readers = 1;
    return;
  }
  std::vector<uint32_t>& by = region.read_by[word];
  if (std::find(by.begin(), by.end(), key) != by.end()) return;
  by.push_back(key);
  shadow.readers = uint16_t(by.size());
}

bool Handoff::hidden(const Wave& w, const Op& op, const Region& region, uint64_t word, int lane) const {
  const Word& shadow = region.words[word];
  if (shadow.writer == 0 || shadow.launch != launch_ || shadow.writer == key_of(w) + 1) return false;
  auto found = region.looked.find({key_of(w), w.id});
  if (found != region.looked.end() && found->second[word]) return false;
  // Which quarters of the wave see it at once: any but all four, so that lanes that read one pair disagree about it.
  uint32_t mixed = (key_of(w) * 31 + uint32_t(w.id) * 7 + op.index) * 0x9e3779b1u;
  return !((mixed >> 28) % 15 >> (lane >> 4) & 1);
}

void Handoff::delay(const Wave& w, const Op& op, const uint64_t* addresses, uint64_t lanes, Lanes* words) {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<Region*, uint64_t>> seen;  // together: all lanes look at once
  for (; lanes; lanes &= lanes - 1) {
    int lane = __builtin_ctzll(lanes);
    for (uint32_t at = 0; at + 4 <= op.mem.bytes; at += 4) {
      uint64_t address = addresses[lane] + at;
      int index = find(address);
      if (index < 0 || dwords(regions_[size_t(index)].d)) continue;
      Region& region = regions_[size_t(index)];
      uint64_t word = (address - region.d.base) / 8;
      if (hidden(w, op, region, word, lane)) words[at / 4].v[lane] = uint32_t(region.before[word] >> (address % 8 * 8));
      seen.emplace_back(&region, word);
    }
  }
  for (auto [region, word] : seen) {
    std::vector<bool>& looked = region->looked[{key_of(w), w.id}];
    looked.resize(region->words.size());
    looked[word] = true;
  }
}

Handoff::CtaState& Handoff::state(const Wave& w) {
  CtaState& s = ctas_[key_of(w)];
  if (s.waves.empty()) s.waves.resize(size_t(w.cta->waves));
  return s;
}

// A flag's store publishes what its own wave stored before it, and what the CTA's other waves had stored when all met.
void Handoff::release(Wave& w, const Op& op, Region& region, uint64_t word, uint64_t address, int lane) {
  uint32_t key = key_of(w);
  for (int i = 0; i < w.cta->waves; ++i) {
    const Wave& other = w.cta->wave[i];
    auto found = pending_.find({key, other.id});
    if (found == pending_.end()) continue;
    for (const Pending& p : found->second) {
      const RegionDeclaration& data = regions_[size_t(p.region)].d;
      if (!ordered(data) || !(other.id == w.id ? p.drains == w.drains : p.met)) continue;
      std::string text = "flag " + std::to_string(word) + " of " + region.d.name + " stored while wave " +
                         std::to_string(other.id) + " has undrained stores to " + data.name;
      return violate(w, op, "undrained", data.name, text, address, lane);
    }
  }
  CtaState& s = state(w);
  uint32_t own = w.cta->linear;
  Clock& clock = region.clocks[word];
  clock = s.waves[size_t(w.id)];
  if (clock.size() <= own) clock.resize(own + 1);
  clock[own] = ++s.releases;
  region.stored[word] = launch_;
}

void Handoff::acquire(Wave& w, const Op& op, Region& region, uint64_t word, int lane) {
  if (region.stored[word] != launch_) return;
  const Word& shadow = region.words[word];
  if (late_ && hidden(w, op, region, word, lane)) return;
  const Clock& clock = region.clocks[word];
  CtaState& s = state(w);
  Clock& mine = s.waves[size_t(w.id)];
  uint32_t from = (shadow.writer - 1) & 0x3fffff;
  if (from < mine.size() && mine[from] >= clock[from]) return;  // whoever knows of this release knows what it knew
  if (mine.size() < clock.size()) mine.resize(clock.size());
  for (size_t i = 0; i < clock.size(); ++i) mine[i] = std::max(mine[i], clock[i]);
  s.learned = true;
}

void Handoff::meet(Cta& cta) {
  if (!ordered_) return;
  std::lock_guard lock(mutex_);
  uint32_t key = cta.rank << 22 | cta.linear;
  for (int i = 0; i < cta.waves; ++i) {
    auto found = pending_.find({key, cta.wave[i].id});
    if (found == pending_.end()) continue;
    uint32_t drains = cta.wave[i].drains;
    std::erase_if(found->second, [&](const Pending& p) { return p.drains != drains; });
    for (Pending& p : found->second) p.met = true;
  }
  auto found = ctas_.find(key);
  if (found == ctas_.end() || !found->second.learned) return;
  CtaState& s = found->second;
  Clock all;
  for (const Clock& clock : s.waves) {
    if (all.size() < clock.size()) all.resize(clock.size());
    for (size_t i = 0; i < clock.size(); ++i) all[i] = std::max(all[i], clock[i]);
  }
  for (Clock& clock : s.waves) clock = all;
  s.learned = false;
}

void Handoff::on_ordered_store(Wave& w, const Op& op, Region& region, int index, uint64_t word, uint64_t address, int lane) {
  const Word& shadow = region.words[word];
  OrderedWord& known = region.ordered[word];
  uint32_t key = key_of(w);
  if (known.read_launch == launch_ && known.reader != key + 1 && shadow.launch != launch_)
    return violate(w, op, "unseen", region.d.name, cta_name(known.reader - 1) + " has read this word before it is written", address, lane);
  known.time = state(w).releases;
  known.order = ++region.stores;
  std::vector<Pending>& mine = pending_[{key, w.id}];
  std::erase_if(mine, [&](const Pending& p) { return p.drains != w.drains && !p.met; });
  bool listed = std::any_of(mine.begin(), mine.end(), [&](const Pending& p) { return p.region == index && !p.met; });
  if (!listed) mine.push_back({index, ~0ull, w.drains});
}

void Handoff::on_ordered_load(Wave& w, const Op& op, Region& region, uint64_t word, uint64_t address, int lane) {
  const RegionDeclaration& d = region.d;
  const Word& shadow = region.words[word];
  OrderedWord& known = region.ordered[word];
  uint32_t key = key_of(w);
  known.reader = key + 1;
  known.read_launch = launch_;
  bool written = shadow.writer != 0 && shadow.launch == launch_;
  if (written && shadow.writer != key + 1) {
    const Clock& mine = state(w).waves[size_t(w.id)];
    uint32_t from = (shadow.writer - 1) & 0x3fffff;
    if (from >= mine.size() || mine[from] <= known.time) {
      std::string text = "read before wave " + std::to_string(w.id) + " or one it has met has seen a flag that " +
                         cta_name(shadow.writer - 1) + " raised after writing it";
      return violate(w, op, "unseen", d.name, text, address, lane);
    }
  }
  if (op.mem.policy & 16) return;
  Line& line = region.lines[(address - d.base + d.base % kLine) / kLine];
  unsigned die = w.cta->linear & 7;
  if (line.launch[die] != launch_) {
    line.launch[die] = launch_;
    line.order[die] = region.stores;
  } else if (written && known.order > line.order[die] && shadow.writer != key + 1) {
    violate(w, op, "unseen", d.name, "read through the caches of a die that holds its line from before it was written", address, lane);
  }
}

std::vector<RegionTraffic> Handoff::traffic() const {
  std::lock_guard lock(mutex_);
  std::vector<RegionTraffic> all;
  for (const Region& region : regions_) all.push_back(region.traffic);
  return all;
}

void handoff_delay(const Wave& w, const Op& op, const uint64_t* addresses, uint64_t lanes, Lanes* words) {
  if (w.tc->handoff->late()) w.tc->handoff->delay(w, op, addresses, lanes, words);
}

void handoff_access(Wave& w, const Op& op, const uint64_t* addresses, uint64_t lanes, bool store) {
  w.tc->handoff->access(w, op, addresses, lanes, store);
}

}  // namespace monoc::sim
