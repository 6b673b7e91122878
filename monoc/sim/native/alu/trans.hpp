// exp2, log2, sine and cosine in f64, from additions and multiplications only: the same bits on every CPU and build. Errors are
// below 2^-49 relative, so the f32 result is the correctly rounded one but for a handful of inputs in 2^32.
#pragma once

#include "float_ops.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

// Nearest integer, |x| < 2^51.
inline f64 nearest(f64 x) { return (x + 0x1.8p52) - 0x1.8p52; }

inline f64 horner(f64, f64 sum) { return sum; }
template <class... C>
f64 horner(f64 x, f64 sum, f64 next, C... rest) {
  return horner(x, sum * x + next, rest...);
}

// Taylor series of e^(f ln 2), |f| <= 1/2: the 14th term is below 2^-57.
inline f64 exp2_f64(f64 x) {
  const f64 bounded = x > 1100.0 ? 1100.0 : x < -1100.0 ? -1100.0 : x;
  const f64 whole = nearest(bounded);
  const f64 y = (bounded - whole) * 0x1.62e42fefa39efp-1;
  const f64 p = horner(y, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                       1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0);
  // Half the exponent twice: 2^whole alone may leave the normal range.
  const i64 n = static_cast<i64>(bits<u64>(whole + 0x1.8p52) & 0xfffu) << 52 >> 52;
  const i64 half = n / 2;
  return p * bits<f64>(static_cast<u64>(half + 1023) << 52) * bits<f64>(static_cast<u64>(n - half + 1023) << 52);
}

// log2 of a positive normal number: 2 atanh(t) / ln 2 with t = (m - 1) / (m + 1), |t| < 0.172.
inline f64 log2_f64(f64 x) {
  const u64 shifted = bits<u64>(x) - 0x3fe6a09e667f3bcdull;  // sqrt(1/2)
  const i64 exponent = static_cast<i64>(shifted) >> 52;
  const f64 m = bits<f64>(bits<u64>(x) - (static_cast<u64>(exponent) << 52));
  const f64 t = (m - 1.0) / (m + 1.0);
  const f64 z = t * t;
  const f64 p = horner(z, 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1.0);
  const f64 e = bits<f64>(0x4338000000000000ull + static_cast<u64>(exponent)) - 0x1.8p52;  // exponent as f64
  return e + t * p * 0x1.71547652b82fep+1;
}

// sin(2 pi f) and cos(2 pi f), |f| <= 1/8.
inline f64 sin_turn(f64 f) {
  const f64 y = f * 0x1.921fb54442d18p+2;
  const f64 z = y * y;
  return y * horner(z, 1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040,
                    1.0 / 120, -1.0 / 6, 1.0);
}
inline f64 cos_turn(f64 f) {
  const f64 y = f * 0x1.921fb54442d18p+2;
  const f64 z = y * y;
  return horner(z, -1.0 / 6402373705728000, 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320,
                -1.0 / 720, 1.0 / 24, -0.5, 1.0);
}

// sin(2 pi (x + turns / 4)) of a finite x.
inline f64 sin_quarter(f64 x, int turns) {
  const f64 r = x - nearest(x);
  const f64 quarter = nearest(r * 4.0);
  const f64 f = r - quarter * 0.25;
  const u32 q = static_cast<u32>(bits<u64>(quarter + 0x1.8p52) + static_cast<u32>(turns)) & 3u;
  const f64 s = sin_turn(f), c = cos_turn(f);
  const f64 v = q & 1u ? c : s;
  return q & 2u ? -v : v;
}

}  // namespace
}  // namespace monoc::sim::alu::MONOC_ALU_NS
