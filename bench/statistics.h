// Order statistics.
#ifndef PARAMD_BENCH_STATISTICS_H_
#define PARAMD_BENCH_STATISTICS_H_

#include <algorithm>
#include <cmath>
#include <vector>

namespace paramd::bench {

// The smallest value that at least the part `q` of all are not above. 0 of none.
inline double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const double rank = std::ceil(q * static_cast<double>(values.size()));
  const auto nth = values.begin() + static_cast<ptrdiff_t>(std::max(rank, 1.0)) - 1;
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

inline double Median(const std::vector<double>& values) { return Quantile(values, 0.5); }

// Of the quotients of those of equal index, as far as there are both.
inline double MedianRatio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) ratios.push_back(a[i] / b[i]);
  return Median(ratios);
}

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_STATISTICS_H_
