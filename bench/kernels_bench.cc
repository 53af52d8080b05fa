// What the server does to every byte of a commit, without a transport. Rates are of the commit's bytes, unless said.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/registry.h"
#include "server/center.h"
#include "server/commit_buffer.h"
#include "server/model.h"
#include "server/spec.h"

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

// Merge and Finish piece by piece as the center does it, of 256 kB, which stay in the second-level cache.
void MergeAndFinish(benchmark::State& state, const std::string& algorithm) {
  constexpr size_t kFloats = 1 << 16;
  const auto half = MakeServerHalf(algorithm);
  std::vector<float> center(kFloats, 1);
  const std::vector<float> base(kFloats, 1);
  const std::vector<float> commit(kFloats, 0.001f);
  alignas(64) float sum[kPieceFloats];
  for (auto _ : state) {
    for (size_t i = 0; i < kFloats; i += kPieceFloats) {
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
  SetBytes(state, kFloats);
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

enum class Commit { kInPlace, kBesideSnapshot, kUnstable };

// A whole commit, as it goes from the socket to the center: a copy stands for the kernel's, the check comes while the
// bytes are warm. Beside a snapshot it goes to other blocks. An unstable commit is only copied, as a worker would do on
// its side, and checked when it is applied. Arguments: bytes of the model, threads that apply.
void ReceiveAndApply(benchmark::State& state, const std::string& algorithm, Commit kind) {
  const auto half = MakeServerHalf(algorithm);
  const size_t floats = static_cast<size_t>(state.range(0)) / sizeof(float);
  Center center(floats, 0, std::make_shared<ApplyPool>(static_cast<int>(state.range(1))));
  const std::vector<float> sent(kBlockFloats, 0.001f);
  std::vector<float> received(floats);
  std::shared_ptr<const Snapshot> snapshot;
  for (auto _ : state) {
    if (kind == Commit::kBesideSnapshot) snapshot = center.TakeSnapshot();
    CommitBuffer buffer(floats);
    for (size_t begin = 0; begin < floats; begin += kBlockFloats) {
      const size_t n = std::min(kBlockFloats, floats - begin);
      float* const to = received.data() + begin;
      std::memcpy(to, sent.data(), n * sizeof(float));
      if (kind == Commit::kUnstable) {
        buffer.AppendUnstable(begin, {to, n}, nullptr).IgnoreError();
      } else {
        buffer.Append(begin, {std::string_view(reinterpret_cast<const char*>(to), n * sizeof(float))}, nullptr)
            .IgnoreError();
      }
    }
    if (!center.Apply(half.get(), {}, &buffer, nullptr)) state.SkipWithError("the commit was not applied");
  }
  SetBytes(state, floats);
}

void SizesAndThreads(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"bytes", "threads"})->Unit(benchmark::kMicrosecond)->UseRealTime();
  for (const int64_t bytes : {4'000'000, 40'000'000, 200'000'000}) {
    for (const int64_t threads : {1, 2}) benchmark->Args({bytes, threads});
  }
}
BENCHMARK_CAPTURE(ReceiveAndApply, downpour_in_place, "downpour", Commit::kInPlace)->Apply(SizesAndThreads);
BENCHMARK_CAPTURE(ReceiveAndApply, downpour_beside_snapshot, "downpour", Commit::kBesideSnapshot)
    ->Apply(SizesAndThreads);
BENCHMARK_CAPTURE(ReceiveAndApply, downpour_unstable, "downpour", Commit::kUnstable)->Apply(SizesAndThreads);
BENCHMARK_CAPTURE(ReceiveAndApply, aeasgd_in_place, "aeasgd", Commit::kInPlace)->Apply(SizesAndThreads);

// A round of `sync`, or a window of `bounded:0`, of so many workers, each with a commit of one float that waits for the
// others'. The rate is of commits: what a commit costs must not grow with those that wait.
void Round(benchmark::State& state, const std::string& consistency) {
  v1::ModelSpec spec;
  spec.set_name("m");
  spec.set_algorithm("downpour");
  spec.set_consistency(consistency);
  v1::Tensor* const tensor = spec.add_tensors();
  tensor->set_name("w");
  tensor->add_shape(1);
  const auto model = std::make_shared<Model>(*CheckSpec(spec, 4), ModelOptions{});
  const float zero = 0;
  const auto commit_of = [](const float& value) {
    CommitBuffer commit(1);
    commit.Append(0, {std::string_view(reinterpret_cast<const char*>(&value), sizeof(value))}, nullptr).IgnoreError();
    return commit;
  };
  model->Initialize(commit_of(zero), Reservation(), [](const absl::Status&) {});
  std::vector<ExchangeCall> calls;
  for (int64_t i = 0; i < state.range(0); ++i) {
    calls.push_back({.caller = {.worker = std::to_string(i), .incarnation = 1, .nonce = 1}, .floats = 1});
    model->Join(calls.back().caller.worker, 0, 1).IgnoreError();
  }
  size_t answered = 0;
  size_t rounds = 0;
  for (auto _ : state) {
    for (ExchangeCall& call : calls) {
      ++call.sequence;
      model->BeginCommit(call, [&](const ExchangeAnswer& begun) {
        if (!begun.status.ok()) return;
        model->Exchange(call, commit_of(zero), Reservation(), [&](const ExchangeAnswer& answer) {
          if (answer.status.ok() && answer.committed) ++answered;
        });
      });
    }
    ++rounds;
  }
  if (answered != rounds * calls.size()) state.SkipWithError("not every commit was answered in its round");
  state.SetItemsProcessed(static_cast<int64_t>(answered));
}
BENCHMARK_CAPTURE(Round, sync, "sync")->ArgName("workers")->Arg(8)->Arg(8000)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Round, bounded, "bounded:0")->ArgName("workers")->Arg(8)->Arg(8000)->Unit(benchmark::kMicrosecond);

// Of a center of 200 MB, taken and dropped.
void TakeSnapshot(benchmark::State& state) {
  Center center(kModelFloats, 0);
  for (auto _ : state) benchmark::DoNotOptimize(center.TakeSnapshot());
}
BENCHMARK(TakeSnapshot)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace paramd::bench

int main(int argc, char** argv) {
  // As the daemon does: page faults of fresh memory would outweigh the rest.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  mallopt(M_ARENA_MAX, 1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
