// Compares: v_cmp_* and v_cmpx_* of every type, and the class tests.
#include "formats.hpp"
#include "tables.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

template <class T>
T number(T x) {
  return x;
}
f32 number(f16 x) { return value_of(x); }

template <class T>
bool lt(T a, T b) { return number(a) < number(b); }
template <class T>
bool le(T a, T b) { return number(a) <= number(b); }
template <class T>
bool eq(T a, T b) { return number(a) == number(b); }
template <class T>
bool lg(T a, T b) { return lt(a, b) | lt(b, a); }
template <class T>
bool unordered(T a, T b) { return (number(a) != number(a)) | (number(b) != number(b)); }

// Class mask, bit 0 up: signalling NaN, quiet NaN, -inf, -normal, -denormal, -0, +0, +denormal, +normal, +inf.
template <class U, int mantissa>
bool is_class(U x, u32 mask) {
  constexpr U sign_bit = static_cast<U>(U{1} << (8 * sizeof(U) - 1));
  constexpr U inf = static_cast<U>(sign_bit - (U{1} << mantissa));
  const U m = static_cast<U>(x & static_cast<U>(sign_bit - 1));
  const bool negative = (x & sign_bit) != 0;
  const bool quiet = (x >> (mantissa - 1) & 1) != 0;
  const bool nan = m > inf, infinite = m == inf, zero = m == 0, denormal = m < (U{1} << mantissa);
  const u32 positive_bit = infinite ? 9u : zero ? 6u : denormal ? 7u : 8u;
  const u32 bit = nan ? (quiet ? 1u : 0u) : negative ? 11u - positive_bit : positive_bit;
  return (mask >> bit & 1u) != 0;
}

#define MONOC_FLOAT_COMPARES(prefix, type, T, flags)                                                              \
  compare<[](T, T) -> bool { return false; }>(prefix "f_" type, flags),                                           \
      compare<[](T a, T b) -> bool { return lt(a, b); }>(prefix "lt_" type, flags),                               \
      compare<[](T a, T b) -> bool { return eq(a, b); }>(prefix "eq_" type, flags),                               \
      compare<[](T a, T b) -> bool { return le(a, b); }>(prefix "le_" type, flags),                               \
      compare<[](T a, T b) -> bool { return lt(b, a); }>(prefix "gt_" type, flags),                               \
      compare<[](T a, T b) -> bool { return lg(a, b); }>(prefix "lg_" type, flags),                               \
      compare<[](T a, T b) -> bool { return le(b, a); }>(prefix "ge_" type, flags),                               \
      compare<[](T a, T b) -> bool { return !unordered(a, b); }>(prefix "o_" type, flags),                        \
      compare<[](T a, T b) -> bool { return unordered(a, b); }>(prefix "u_" type, flags),                         \
      compare<[](T a, T b) -> bool { return !le(b, a); }>(prefix "nge_" type, flags),                             \
      compare<[](T a, T b) -> bool { return !lg(a, b); }>(prefix "nlg_" type, flags),                             \
      compare<[](T a, T b) -> bool { return !lt(b, a); }>(prefix "ngt_" type, flags),                             \
      compare<[](T a, T b) -> bool { return !le(a, b); }>(prefix "nle_" type, flags),                             \
      compare<[](T a, T b) -> bool { return !eq(a, b); }>(prefix "neq_" type, flags),                             \
      compare<[](T a, T b) -> bool { return !lt(a, b); }>(prefix "nlt_" type, flags),                             \
      compare<[](T, T) -> bool { return true; }>(prefix "tru_" type, flags)

#define MONOC_INT_COMPARES(prefix, type, T, flags)                                                                \
  compare<[](T, T) -> bool { return false; }>(prefix "f_" type, flags),                                           \
      compare<[](T a, T b) -> bool { return a < b; }>(prefix "lt_" type, flags),                                  \
      compare<[](T a, T b) -> bool { return a == b; }>(prefix "eq_" type, flags),                                 \
      compare<[](T a, T b) -> bool { return a <= b; }>(prefix "le_" type, flags),                                 \
      compare<[](T a, T b) -> bool { return b < a; }>(prefix "gt_" type, flags),                                  \
      compare<[](T a, T b) -> bool { return a != b; }>(prefix "ne_" type, flags),                                 \
      compare<[](T a, T b) -> bool { return b <= a; }>(prefix "ge_" type, flags),                                 \
      compare<[](T, T) -> bool { return true; }>(prefix "t_" type, flags)

#define MONOC_COMPARES(prefix, flags)                                                                             \
  MONOC_FLOAT_COMPARES(prefix, "f32", f32, flags), MONOC_FLOAT_COMPARES(prefix, "f64", f64, flags),               \
      MONOC_FLOAT_COMPARES(prefix, "f16", f16, flags), MONOC_INT_COMPARES(prefix, "i32", i32, flags),             \
      MONOC_INT_COMPARES(prefix, "u32", u32, flags), MONOC_INT_COMPARES(prefix, "i64", i64, flags),               \
      MONOC_INT_COMPARES(prefix, "u64", u64, flags), MONOC_INT_COMPARES(prefix, "i16", i16, flags),               \
      MONOC_INT_COMPARES(prefix, "u16", u16, flags),                                                              \
      compare<[](f32 x, u32 mask) -> bool { return is_class<u32, 23>(bits<u32>(x), mask); }>(prefix "class_f32", flags), \
      compare<[](f64 x, u32 mask) -> bool { return is_class<u64, 52>(bits<u64>(x), mask); }>(prefix "class_f64", flags), \
      compare<[](f16 x, u32 mask) -> bool { return is_class<u16, 10>(x.v, mask); }>(prefix "class_f16", flags)

constexpr AluOp kTable[] = {MONOC_COMPARES("v_cmp_", 0), MONOC_COMPARES("v_cmpx_", kWritesExec)};

}  // namespace

std::span<const AluOp> table_compare() { return kTable; }

}  // namespace monoc::sim::alu::MONOC_ALU_NS
