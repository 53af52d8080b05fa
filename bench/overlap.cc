#include "bench/overlap.h"

#include <time.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "algorithms/registry.h"
#include "bench/paramd_peer.h"
#include "bench/statistics.h"
#include "client/train.h"
#include "client/worker.h"

namespace paramd::bench {
namespace {

constexpr int kWindows = 40;
// Windows at the beginning that do not count; nor does the last one, whose exchange nothing can overlap.
constexpr int kWarmUp = 8;
constexpr const char* kTransports[] = {"grpc-tcp", "shm"};

double ThreadCpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Computes for a while and learns nothing.
class Spinner : public Trainable {
 public:
  Spinner(size_t floats, absl::Duration window) : parameters_(floats), window_s_(absl::ToDoubleSeconds(window)) {}

  absl::Span<float> parameters() override { return absl::MakeSpan(parameters_); }
  absl::StatusOr<std::vector<double>> TrainOnBatch(const Batch&) override {
    // Of this thread's own processor time: where cores are short, training takes longer, as real training does.
    const double start = ThreadCpuSeconds();
    while (ThreadCpuSeconds() - start < window_s_) {
    }
    return std::vector<double>{1};
  }
  double learning_rate() const override { return 1; }
  void set_learning_rate(double) override {}

 private:
  std::vector<float> parameters_;
  const double window_s_;
};

class EmptyBatches : public BatchSource {
 public:
  absl::StatusOr<bool> Next(Batch* batch) override {
    batch->rows = 1;
    return next_++ < kWindows;
  }
  absl::Status Rewind(int64_t) override { return absl::OkStatus(); }

 private:
  int next_ = 0;
};

// Windows/s of one worker process that trains.
absl::StatusOr<double> Train(const Programs& programs, const PeerAddress& address, size_t bytes, absl::Duration window,
                             Training training) {
  auto child = Child::Start(
      {programs.self, "--role=train", absl::StrCat("--role_bytes=", bytes), absl::StrCat("--role_kind=", address.kind),
       absl::StrCat("--role_address=", address.address), absl::StrCat("--role_window=", absl::FormatDuration(window)),
       absl::StrCat("--role_training=", static_cast<int>(training)), absl::StrCat("--algorithm=", programs.algorithm),
       absl::StrCat("--tune_workers=", programs.tune_workers)});
  if (!child.ok()) return child.status();
  auto line = (*child)->ReadLine();
  if (!line.ok()) return line.status();
  double rate = 0;
  if (!absl::SimpleAtod(*line, &rate)) return absl::InternalError(absl::StrCat("a worker says '", *line, "'"));
  return rate;
}

absl::StatusOr<OverlapRow> Measure(const Programs& programs, const std::string& transport, size_t bytes,
                                   absl::Duration window, int rounds) {
  auto server = StartServer(FindTransport(transport), programs, bytes);
  if (!server.ok()) return server.status();
  std::map<Training, std::vector<double>> rates;
  for (int r = 0; r < rounds; ++r) {
    for (const Training training : {Training::kAlone, Training::kWaiting, Training::kOverlapped}) {
      auto rate = Train(programs, server->address, bytes, window, training);
      if (!rate.ok()) return rate.status();
      rates[training].push_back(*rate);
    }
  }
  OverlapRow row;
  row.alone = Median(rates[Training::kAlone]);
  row.waiting = Median(rates[Training::kWaiting]);
  row.overlapped = Median(rates[Training::kOverlapped]);
  const double exchange_s = 1 / row.waiting - 1 / row.alone;
  row.exchange_ms = 1e3 * exchange_s;
  row.hidden = (1 / row.waiting - 1 / row.overlapped) / exchange_s;
  row.hidden_at_best = std::min(1.0, 1 / row.alone / exchange_s);
  return row;
}

}  // namespace

std::vector<OverlapRow> RunOverlap(const Programs& programs, size_t bytes, absl::Duration window, int rounds) {
  std::vector<OverlapRow> rows;
  for (const char* transport : kTransports) {
    auto measured = Measure(programs, transport, bytes, window, rounds);
    OverlapRow row = measured.ok() ? *measured : OverlapRow{.unavailable = std::string(measured.status().message())};
    row.bytes = bytes;
    row.window = window;
    row.transport = transport;
    rows.push_back(std::move(row));
  }
  return rows;
}

absl::Status ServeTraining(const std::string& kind, const std::string& address, const std::string& algorithm,
                           size_t bytes, absl::Duration window, Training training) {
  Spinner model(bytes / sizeof(float), window);
  EmptyBatches batches;
  std::vector<absl::Time> ends;
  const TrainOptions options = {.communication_window = 1,
                                .overlap = training == Training::kOverlapped,
                                .exchange_timeout = absl::Minutes(2),
                                .on_window = [&ends](const std::vector<StepResult>&) {
                                  ends.push_back(absl::Now());
                                  return absl::OkStatus();
                                }};
  absl::Status status;
  if (training == Training::kAlone) {
    const Algorithm& single = **FindAlgorithm("single");
    const Hyperparameters hyperparameters = *CompleteHyperparameters(single, {});
    TrainLoop loop(&model, &batches, nullptr, single.make_worker(hyperparameters), hyperparameters, options);
    status = loop.Run().status();
  } else {
    auto worker = MakeWorkerOptions(kind, address, algorithm, "trainer", model.parameters().size());
    if (!worker.ok()) return worker.status();
    status = RunWorker(*worker, options, &model, &batches).status();
  }
  if (!status.ok()) return status;
  std::cout << (kWindows - 2 - kWarmUp) / absl::ToDoubleSeconds(ends[kWindows - 2] - ends[kWarmUp]) << std::endl;
  return absl::OkStatus();
}

}  // namespace paramd::bench
