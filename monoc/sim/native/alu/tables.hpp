// The op tables each instruction set build exports: one per source file.
#pragma once

#include <span>

#include "alu.hpp"

#define MONOC_ALU_DECLARE(build)                                                                     \
  namespace monoc::sim::alu::build {                                                                 \
  std::span<const AluOp> table_int();                                                                \
  std::span<const AluOp> table_int16();                                                              \
  std::span<const AluOp> table_compare();                                                            \
  std::span<const AluOp> table_f32();                                                                \
  std::span<const AluOp> table_f64();                                                                \
  std::span<const AluOp> table_f16();                                                                \
  std::span<const AluOp> table_packed();                                                             \
  std::span<const AluOp> table_dot();                                                                \
  std::span<const AluOp> table_trans();                                                              \
  std::span<const AluOp> table_cvt();                                                                \
  std::span<const AluOp> table_cvt_scale();                                                          \
  std::span<const AluOp> table_move();                                                               \
  std::span<const AluOp> table_mfma();                                                               \
  std::span<const AluOp> table_mfma_scaled();                                                        \
  void load_mods(Kind kind, Lanes* dst, const Lanes* src, bool abs, bool neg);                       \
  void store_mods(Kind kind, Lanes* dst, uint8_t omod, bool clamp, uint32_t mode);                   \
  void flush(Kind kind, Lanes* value);                                                               \
  }

#ifdef MONOC_ALU_NS
MONOC_ALU_DECLARE(MONOC_ALU_NS)
#endif
