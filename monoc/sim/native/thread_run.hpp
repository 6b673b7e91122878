// One host thread's share of a launch: visits its CTAs in turn until all have ended, or nothing can go on.
#pragma once

#include <string>
#include <vector>

#include "machine.hpp"

namespace monoc::sim {

class ThreadRun {
 public:
  ThreadRun(Machine& machine, ThreadContext& tc, std::vector<Cta*> ctas, const std::vector<RankLaunch>& launches);
  void run();  // errors end up in Machine::fail
  uint64_t executed() const { return tc_.executed; }
  const std::string& hang() const { return hang_; }
  void collect_waiting(std::vector<Waiting>& out) const;

 private:
  void loop();
  bool visit(Cta& cta, bool mixed);
  void run_wave(Wave& w, uint64_t slice);
  // Goes on with the waves at a barrier if all are; the end of the last wave counts as one.
  void release_barrier(Cta& cta);
  uint64_t draw();
  uint64_t draw_slice(uint64_t longest);
  bool all_cycle(uint64_t changes);

  Machine& machine_;
  ThreadContext& tc_;
  std::vector<Cta*> ctas_;
  std::vector<uint16_t> caches_;              // buffer caches of all launches, one after the other
  std::vector<std::pair<const Program*, size_t>> cache_of_;
  const std::vector<RankLaunch>& launches_;
  std::string hang_;
  uint64_t random_;  // state of the draws of mixed schedules
};

}  // namespace monoc::sim
