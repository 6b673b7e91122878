// Host memory that takes room only where it is touched: zero at first, and again once dropped.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace monoc::sim {

class HostSpace {
 public:
  enum class Pages { small, huge };  // small: touched in few places

  HostSpace() = default;
  ~HostSpace() { release(); }
  HostSpace(const HostSpace&) = delete;
  HostSpace& operator=(const HostSpace&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

  // At least `bytes`; what was there is lost when it grows.
  void reserve(size_t bytes, Pages pages) {
    if (bytes <= size_) return;
    release();
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("cannot allocate the state of all resident CTAs");
    madvise(memory, bytes, pages == Pages::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    data_ = static_cast<uint8_t*>(memory);
    size_ = bytes;
  }

  // Gives the pages that lie whole within [first, end) back.
  void drop(size_t first, size_t end) {
    size_t page = size_t(sysconf(_SC_PAGE_SIZE));
    first = (first + page - 1) / page * page;
    end = end == size_ ? end : end / page * page;
    if (first < end) madvise(data_ + first, end - first, MADV_DONTNEED);
  }

 private:
  void release() {
    if (data_) munmap(data_, size_);
    data_ = nullptr;
    size_ = 0;
  }

  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace monoc::sim
