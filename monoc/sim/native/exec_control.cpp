// Program flow, waits, hardware registers, clocks, scalar loads.
// Semantics: CDNA3 ISA chapter "Program Flow Control"; LLVM AMDGPUUsage for the kernel's environment.
#include "machine.hpp"
#include "program.hpp"
#include "scalar_util.hpp"

namespace monoc::sim {
namespace {

void nop(Wave&, const Op&) {}

void s_endpgm(Wave& w, const Op& op) {
  w.pc = &op;  // a hang report or a rerun must not run past the end
  w.stop = Stop::end;
}
inline void jump(Wave& w, const Op& op) { w.pc = w.ops + op.imm; }
void s_branch(Wave& w, const Op& op) { jump(w, op); }
void s_cbranch_scc0(Wave& w, const Op& op) {
  if (!w.scc) jump(w, op);
}
void s_cbranch_scc1(Wave& w, const Op& op) {
  if (w.scc) jump(w, op);
}
void s_cbranch_vccz(Wave& w, const Op& op) {
  if (w.read64(kVcc) == 0) jump(w, op);
}
void s_cbranch_vccnz(Wave& w, const Op& op) {
  if (w.read64(kVcc) != 0) jump(w, op);
}
void s_cbranch_execz(Wave& w, const Op& op) {
  if (w.exec() == 0) jump(w, op);
}
void s_cbranch_execnz(Wave& w, const Op& op) {
  if (w.exec() != 0) jump(w, op);
}
void s_barrier(Wave& w, const Op&) { w.stop = Stop::barrier; }
void s_sleep(Wave& w, const Op&) { w.stop = Stop::yield; }

// Memory is immediate: a wait only ends the window in which stores count as in flight for the hand-off checker.
void s_waitcnt(Wave& w, const Op& op) {
  if (op.imm == 0) ++w.drains;
}
void s_trap(Wave& w, const Op& op) { report_number(w, op, "trap", "s_trap %llu", uint32_t(op.imm)); }

// There is no timing model: a wave's clock is its own instruction count, four cycles each.
uint64_t read_clock(Wave& w) { return w.clock_read = w.clock; }
void s_memtime(Wave& w, const Op& op) { w.write64(op.dst, read_clock(w) * 4); }
// The constant 100 MHz counter against a core clock of 2.4 GHz.
void s_memrealtime(Wave& w, const Op& op) { w.write64(op.dst, read_clock(w) * 4 / 24); }

uint32_t hwreg(const Wave& w, int id) {
  switch (id) {
    case 1:  // HW_REG_MODE
      return w.mode;
    case 4:  // HW_REG_HW_ID: wave slot and SIMD, enough to tell waves apart
      return uint32_t(w.id & 15) | uint32_t(w.id & 3) << 4 | (w.cta->linear & 15) << 8;
    case 5:  // HW_REG_GPR_ALLOC
      return 0;
    case 6:  // HW_REG_LDS_ALLOC: size in units of 512 bytes at [20:12]
      return (w.cta->lds_bytes + 511) / 512 << 12;
    case 20:  // HW_REG_XCC_ID: CTAs go to the eight dies in turn
      return w.cta->linear & 7;
    default:
      return 0;
  }
}
void s_getreg_b32(Wave& w, const Op& op) {
  unsigned offset = op.imm >> 6 & 31, size = (op.imm >> 11 & 31) + 1;
  uint64_t value = hwreg(w, op.imm & 63);
  w.sgpr[op.dst] = uint32_t(value >> offset & ((1ull << size) - 1));
}
void set_mode(Wave& w, const Op& op, uint32_t value) {
  if ((op.imm & 63) != 1) return report(w, op, "unsupported", "s_setreg of a register other than MODE");
  unsigned offset = op.imm >> 6 & 31, size = (op.imm >> 11 & 31) + 1;
  uint32_t mask = uint32_t(((1ull << size) - 1) << offset);
  w.mode = (w.mode & ~mask) | (value << offset & mask);
  if (w.mode & alu::kModeRoundMask) report(w, op, "unsupported", "a rounding mode other than to nearest even");
}
void s_setreg_b32(Wave& w, const Op& op) { set_mode(w, op, read32(w, op.src[0])); }
void s_setreg_imm32_b32(Wave& w, const Op& op) { set_mode(w, op, read32(w, op.src[0])); }

// Data addresses are resolved at load; the program counter itself reads as zero (see Program::symbol_address).
void s_getpc_b64(Wave& w, const Op& op) { w.write64(op.dst, 0); }

template <int DWORDS>
void smem(Wave& w, const Op& op, uint64_t address) {
  address &= ~3ull;
  const MemoryMap& map = *w.tc->map;
  uint16_t& cached = w.tc->buffer_cache[op.index];
  int found = cached;
  // Without a sum that could wrap around the address space.
  auto inside = [&](int index) {
    const Buffer& b = map.at(index);
    return address >= b.base && address < b.end() && b.end() - address >= 4 * DWORDS;
  };
  if (found >= map.size() || !inside(found)) {
    found = map.find(address);
    if (found < 0 || !inside(found))
      return report(w, op, "bounds", "scalar load outside every registered buffer", -1, address);
    int owner = map.at(found).rank;
    if (owner >= 0 && owner != int(w.cta->rank))
      return report_number(w, op, "bounds", "access to memory of rank %llu, which is not shared", uint64_t(owner), -1, address);
    cached = uint16_t(found);
  }
  const Buffer& buffer = map.at(found);
  if (w.tc->handoff) [[unlikely]] {
    handoff_access(w, op, &address, 1, false);
    if (w.stop == Stop::fault) return;
  }
  std::memcpy(w.sgpr + op.dst, reinterpret_cast<const void*>(address), 4 * DWORDS);
  w.last_load = &op;
  w.last_address = address;
  w.last_value = w.sgpr[op.dst];
  if (w.tc->observe) observe_bytes(w, buffer, op, false, 4 * DWORDS);
  if (const uint8_t* written = buffer.written.load(std::memory_order_acquire)) {
    const uint8_t* bits = written + ((address - (buffer.base & ~3ull)) >> 2);
    for (int i = 0; i < DWORDS; ++i) {
      bool bad = (bits[i] & 15) != 15;
      if (bad || w.poisoned) ensure_poison(w).s[op.dst + i] = bad ? ~0u : 0;
    }
  } else if (w.poisoned) {
    for (int i = 0; i < DWORDS; ++i) w.poison->s[op.dst + i] = 0;
  }
}
uint64_t smem_offset(const Wave& w, const Op& op) {
  return op.imm + (op.src[1].kind == Src::none ? 0 : uint64_t(read32(w, op.src[1])));
}
template <int DWORDS>
void s_load(Wave& w, const Op& op) {
  smem<DWORDS>(w, op, w.read64(op.src[0].index) + int64_t(smem_offset(w, op)));
}
// Each dword outside num_records reads as zero.
template <int DWORDS>
void s_buffer_load(Wave& w, const Op& op) {
  const uint32_t* resource = w.sgpr + op.src[0].index;
  uint64_t base = resource[0] | uint64_t(resource[1] & 0xffff) << 32;
  uint64_t offset = smem_offset(w, op) & ~3ull, stride = resource[1] >> 16 & 0x3fff;
  uint64_t limit = stride ? stride * resource[2] : resource[2];
  if (resource[2] == 0xffffffffu || offset + 4 * DWORDS <= limit) return smem<DWORDS>(w, op, base + offset);
  for (int i = 0; i < DWORDS; ++i) {
    w.sgpr[op.dst + i] = 0;
    if (offset + 4 * i + 4 <= limit) {
      Op one = op;
      one.dst = uint16_t(op.dst + i);
      smem<1>(w, one, base + offset + 4 * i);
    }
  }
}

#define E(NAME) {#NAME, NAME}
const HandlerEntry kControl[] = {
    E(nop), E(s_endpgm), E(s_branch), E(s_cbranch_scc0), E(s_cbranch_scc1), E(s_cbranch_vccz), E(s_cbranch_vccnz),
    E(s_cbranch_execz), E(s_cbranch_execnz), E(s_barrier), E(s_sleep), E(s_waitcnt), E(s_trap), E(s_memtime),
    E(s_memrealtime), E(s_getreg_b32), E(s_setreg_b32), E(s_setreg_imm32_b32), E(s_getpc_b64),
    {"s_load_dword", s_load<1>}, {"s_load_dwordx2", s_load<2>}, {"s_load_dwordx4", s_load<4>},
    {"s_load_dwordx8", s_load<8>}, {"s_load_dwordx16", s_load<16>}, {"s_buffer_load_dword", s_buffer_load<1>},
    {"s_buffer_load_dwordx2", s_buffer_load<2>}, {"s_buffer_load_dwordx4", s_buffer_load<4>},
    {"s_buffer_load_dwordx8", s_buffer_load<8>}, {"s_buffer_load_dwordx16", s_buffer_load<16>},
};

}  // namespace

std::span<const HandlerEntry> control_handlers() { return kControl; }

}  // namespace monoc::sim
