// What the server does to every byte of a commit, without a transport. Rates are of the commit's bytes, unless said.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/registry.h"
#include "server/center.h"
#include "server/commit_buffer.h"

namespace paramd::bench {
namespace {

constexpr size_t kModelFloats = 50'000'000;  // 200 MB

std::unique_ptr<ServerHalf> MakeServerHalf(const std::string& name) {
  const Algorithm& algorithm = **FindAlgorithm(name);
  return algorithm.make_server(*CompleteHyperparameters(algorithm, {}));
}

// Floats as bytes that begin `shift` bytes after an aligned address.
class Bytes {
 public:
  Bytes(size_t floats, size_t shift) : floats_(floats), memory_(floats + 2), shift_(shift) {
    const std::vector<float> values(floats, 0.001f);
    std::memcpy(at(0), values.data(), floats * sizeof(float));
  }

  // Appends all of it in chunks of a block, as they come from the wire.
  void AppendTo(CommitBuffer* buffer) {
    for (size_t begin = 0; begin < floats_; begin += kBlockFloats) {
      const size_t n = std::min(kBlockFloats, floats_ - begin);
      buffer->Append(begin, {std::string_view(at(begin), n * sizeof(float))}, nullptr).IgnoreError();
    }
  }

 private:
  char* at(size_t index) { return reinterpret_cast<char*>(memory_.data() + index) + shift_; }

  const size_t floats_;
  std::vector<float> memory_;
  const size_t shift_;
};

void SetBytes(benchmark::State& state, size_t floats) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(floats * sizeof(float)));
}

// Merge and Finish over one block, piece by piece as the center does it.
void MergeAndFinish(benchmark::State& state, const std::string& algorithm) {
  const auto half = MakeServerHalf(algorithm);
  std::vector<float> center(kBlockFloats, 1);
  const std::vector<float> base(kBlockFloats, 1);
  const std::vector<float> commit(kBlockFloats, 0.001f);
  alignas(64) float sum[kPieceFloats];
  for (auto _ : state) {
    for (size_t i = 0; i < kBlockFloats; i += kPieceFloats) {
      std::fill_n(sum, kPieceFloats, 0.0f);
      half->Merge({}, {.commit = absl::MakeConstSpan(commit).subspan(i, kPieceFloats),
                       .center = absl::MakeConstSpan(center).subspan(i, kPieceFloats),
                       .base = half->needs_base() ? absl::MakeConstSpan(base).subspan(i, kPieceFloats)
                                                  : absl::Span<const float>(),
                       .sum = absl::MakeSpan(sum)});
      half->Finish({}, {.center = absl::MakeConstSpan(center).subspan(i, kPieceFloats),
                        .sum = absl::MakeConstSpan(sum),
                        .next = absl::MakeSpan(center).subspan(i, kPieceFloats)});
    }
    benchmark::ClobberMemory();
  }
  SetBytes(state, kBlockFloats);
}
BENCHMARK_CAPTURE(MergeAndFinish, downpour, "downpour");
BENCHMARK_CAPTURE(MergeAndFinish, aeasgd, "aeasgd");
BENCHMARK_CAPTURE(MergeAndFinish, adaptive_adag, "adaptive_adag");

void FiniteCheck(benchmark::State& state) {
  const std::vector<float> floats(kBlockFloats, 1);
  for (auto _ : state) benchmark::DoNotOptimize(FirstNonFinite(floats));
  SetBytes(state, floats.size());
}
BENCHMARK(FiniteCheck);

// The argument is how many bytes the commit is off alignment.
void ReadCommit(benchmark::State& state) {
  Bytes bytes(kBlockFloats, static_cast<size_t>(state.range(0)));
  CommitBuffer buffer(kBlockFloats);
  bytes.AppendTo(&buffer);
  for (auto _ : state) {
    CommitBuffer::Reader reader(&buffer, /*release=*/false);
    float sum = 0;
    for (size_t i = 0; i < kBlockFloats; i += kPieceFloats) {
      const absl::Span<const float> piece = reader.Read(kPieceFloats);
      benchmark::DoNotOptimize(piece.data());
      // One float of every cache line: what a copy costs shows, what is done with the floats does not.
      for (size_t j = 0; j < piece.size(); j += 16) sum += piece[j];
    }
    benchmark::DoNotOptimize(sum);
  }
  SetBytes(state, kBlockFloats);
}
BENCHMARK(ReadCommit)->ArgName("misaligned_bytes")->Arg(0)->Arg(1);

// A whole commit of 200 MB: checked as it is received, then applied. With a snapshot held, all of it goes to other
// blocks.
void ReceiveAndApply(benchmark::State& state, const std::string& algorithm, bool snapshot_held) {
  const auto half = MakeServerHalf(algorithm);
  Center center(kModelFloats, 0);
  Bytes bytes(kModelFloats, 0);
  std::shared_ptr<const Snapshot> snapshot;
  for (auto _ : state) {
    if (snapshot_held) snapshot = center.TakeSnapshot();
    CommitBuffer buffer(kModelFloats);
    bytes.AppendTo(&buffer);
    if (!center.Apply(half.get(), {}, &buffer, nullptr)) state.SkipWithError("the commit was not applied");
  }
  SetBytes(state, kModelFloats);
}
BENCHMARK_CAPTURE(ReceiveAndApply, downpour, "downpour", false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(ReceiveAndApply, downpour_beside_snapshot, "downpour", true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(ReceiveAndApply, aeasgd, "aeasgd", false)->Unit(benchmark::kMillisecond);

// Of a center of 200 MB, taken and dropped.
void TakeSnapshot(benchmark::State& state) {
  Center center(kModelFloats, 0);
  for (auto _ : state) benchmark::DoNotOptimize(center.TakeSnapshot());
}
BENCHMARK(TakeSnapshot)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace paramd::bench

BENCHMARK_MAIN();
