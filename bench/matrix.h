// The matrix of measurements: operation × bytes × workers × transport × wire.
#ifndef PARAMD_BENCH_MATRIX_H_
#define PARAMD_BENCH_MATRIX_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "bench/peer.h"
#include "bench/transport.h"

namespace paramd::bench {

// One cell of the matrix. What was not measured is absent.
struct Row {
  Operation operation = Operation::kPull;
  size_t bytes = 0;
  int workers = 0;
  std::string transport;
  std::string wire = "f32";
  std::optional<double> gb_per_s;  // of float32 payload, of all workers together; an exchange counts both directions
  std::optional<double> p50_us;
  std::optional<double> p99_us;
  std::optional<double> server_cpu_s_per_gb;
  std::optional<double> peak_over_model;  // peak resident memory of a fresh daemon over the model's bytes
  std::string baseline;                   // a transport; empty: none
  // To the baseline's, each the median over pairs of rounds.
  std::optional<double> ratio;  // of gb_per_s
  std::optional<double> p50_ratio;
  std::optional<double> p99_ratio;
  std::string unavailable;  // why nothing was measured, if so
};

struct MatrixOptions {
  Programs programs;
  std::vector<size_t> sizes;
  std::vector<int> workers;
  int rounds = 0;                             // of each transport, in turns
  absl::Duration slice;                       // of one round
  absl::Duration budget;                      // a transport that took this long does no more rounds, but three
  std::function<void(std::string)> progress;  // told what is being measured
};

// A transport that fails says so in its rows.
std::vector<Row> RunMatrix(const MatrixOptions& options);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_MATRIX_H_
