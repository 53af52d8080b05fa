// What it costs to make floats narrow and wide again, beside a copy of them: GB/s of float32.
#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "proto/encoding.h"

namespace paramd::bench {
namespace {

// A piece of a center that stays in the first-level cache, and a center of 40 MB.
constexpr int64_t kPieceFloats = 4096;
constexpr int64_t kModelFloats = 10'000'000;

std::vector<float> Gaussian(size_t n) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> floats(n);
  for (float& f : floats) f = normal(random);
  return floats;
}

void SetBytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * static_cast<int64_t>(sizeof(float)));
}

void NarrowFloats(benchmark::State& state, v1::Encoding encoding) {
  const std::vector<float> floats = Gaussian(static_cast<size_t>(state.range(0)));
  std::vector<char> narrow(floats.size() * FloatBytes(encoding));
  for (auto _ : state) {
    Narrow(encoding, floats.data(), floats.size(), narrow.data());
    benchmark::ClobberMemory();
  }
  SetBytes(state);
}
BENCHMARK_CAPTURE(NarrowFloats, f32, v1::FLOAT32)->Arg(kPieceFloats)->Arg(kModelFloats);
BENCHMARK_CAPTURE(NarrowFloats, f16, v1::FLOAT16)->Arg(kPieceFloats)->Arg(kModelFloats);
BENCHMARK_CAPTURE(NarrowFloats, bf16, v1::BFLOAT16)->Arg(kPieceFloats)->Arg(kModelFloats);

void WidenFloats(benchmark::State& state, v1::Encoding encoding) {
  std::vector<float> floats = Gaussian(static_cast<size_t>(state.range(0)));
  std::vector<char> narrow(floats.size() * FloatBytes(encoding));
  Narrow(encoding, floats.data(), floats.size(), narrow.data());
  for (auto _ : state) {
    Widen(encoding, narrow.data(), floats.size(), floats.data());
    benchmark::ClobberMemory();
  }
  SetBytes(state);
}
BENCHMARK_CAPTURE(WidenFloats, f32, v1::FLOAT32)->Arg(kPieceFloats)->Arg(kModelFloats);
BENCHMARK_CAPTURE(WidenFloats, f16, v1::FLOAT16)->Arg(kPieceFloats)->Arg(kModelFloats);
BENCHMARK_CAPTURE(WidenFloats, bf16, v1::BFLOAT16)->Arg(kPieceFloats)->Arg(kModelFloats);

// Eigen's own, a float at a time: what an old processor does for f16.
template <typename Narrowed>
void EigenNarrow(benchmark::State& state) {
  const std::vector<float> floats = Gaussian(static_cast<size_t>(state.range(0)));
  std::vector<Narrowed> narrow(floats.size());
  for (auto _ : state) {
    for (size_t i = 0; i < floats.size(); ++i) narrow[i] = Narrowed(floats[i]);
    benchmark::ClobberMemory();
  }
  SetBytes(state);
}
BENCHMARK_TEMPLATE(EigenNarrow, Eigen::half)->Arg(kPieceFloats);
BENCHMARK_TEMPLATE(EigenNarrow, Eigen::bfloat16)->Arg(kPieceFloats);

template <typename Narrowed>
void EigenWiden(benchmark::State& state) {
  std::vector<float> floats = Gaussian(static_cast<size_t>(state.range(0)));
  std::vector<Narrowed> narrow(floats.begin(), floats.end());
  for (auto _ : state) {
    for (size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(narrow[i]);
    benchmark::ClobberMemory();
  }
  SetBytes(state);
}
BENCHMARK_TEMPLATE(EigenWiden, Eigen::half)->Arg(kPieceFloats);
BENCHMARK_TEMPLATE(EigenWiden, Eigen::bfloat16)->Arg(kPieceFloats);

// The search for what f16 can't hold.
void FindOverflow(benchmark::State& state) {
  const std::vector<float> floats = Gaussian(static_cast<size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(FirstOverflow(v1::FLOAT16, floats.data(), floats.size()));
  SetBytes(state);
}
BENCHMARK(FindOverflow)->Arg(kPieceFloats)->Arg(kModelFloats);

}  // namespace
}  // namespace paramd::bench

BENCHMARK_MAIN();
