// What it costs to have each commit on disk before it is answered: a model with a journal, beside a bare append and
// fdatasync of the same bytes, in turns.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "process/tuning.h"
#include "server/model.h"
#include "server/recorder.h"
#include "server/spec.h"
#include "state/log.h"

ABSL_FLAG(std::string, folder, "/tmp", "on the disk that is measured");
ABSL_FLAG(int, rounds, 9, "of each measurement");
ABSL_FLAG(absl::Duration, slice, absl::Milliseconds(500), "of one round");

namespace paramd::bench {
namespace {

constexpr size_t kSegmentBytes = size_t{256} << 20;

// Appends to a file, as plainly as can be.
class BareFile {
 public:
  explicit BareFile(const std::string& path) : path_(path) {}
  ~BareFile() { Close(); }

  bool Append(const std::vector<char>& bytes) {
    if (file_ < 0) file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = write(file_, bytes.data() + at, bytes.size() - at);
      if (n < 0) return false;
      at += static_cast<size_t>(n);
    }
    written_ += bytes.size();
    const bool synced = fdatasync(file_) == 0;
    if (written_ >= kSegmentBytes) Close();
    return synced;
  }

 private:
  void Close() {
    if (file_ >= 0) close(file_);
    file_ = -1;
    written_ = 0;
  }

  const std::string path_;
  int file_ = -1;
  size_t written_ = 0;
};

// Has a model record to a log.
class LogRecorder : public Recorder {
 public:
  explicit LogRecorder(Log* log) : log_(log) {}
  uint64_t Record(const state::Record& record) override {
    return log_->Append(record.SerializeAsString(), {}, nullptr);
  }
  Log* log() const override { return log_; }
  void AwaitDurable(const std::shared_ptr<Model>& /*model*/, std::function<void(const absl::Status&)> done) override {
    done(absl::OkStatus());
  }

 private:
  Log* const log_;
};

// A model whose commits go to a journal.
class Journaled {
 public:
  Journaled(const std::string& folder, size_t floats, int workers) : floats_(floats) {
    log_ = *Log::Open(folder, {.segment_bytes = kSegmentBytes}, [](const LogRecord&) { return absl::OkStatus(); });
    v1::ModelSpec spec;
    spec.set_name("m");
    spec.set_algorithm("downpour");
    v1::Tensor* const tensor = spec.add_tensors();
    tensor->set_name("w");
    tensor->add_shape(static_cast<int64_t>(floats));
    recorder_ = std::make_unique<LogRecorder>(log_.get());
    model_ = std::make_shared<Model>(*CheckSpec(spec, floats * sizeof(float)),
                                     ModelOptions{.recorder = recorder_.get(), .journal = true});
    std::promise<absl::Status> initialized;
    model_->Initialize(Buffer(), Reservation(), [&](const absl::Status& status) { initialized.set_value(status); });
    initialized.get_future().get().IgnoreError();
    for (int i = 0; i < workers; ++i) {
      calls_.push_back({.caller = {.worker = absl::StrCat(i), .incarnation = 1, .nonce = 1}, .floats = floats});
      model_->Join(calls_.back().caller.worker, 0, 1).IgnoreError();
    }
  }
  ~Journaled() { log_->Stop(); }

  // By one thread a worker.
  bool Commit(int worker) {
    ++calls_[worker].sequence;
    const auto answer = std::make_shared<std::promise<bool>>();
    model_->Exchange(calls_[worker], Buffer(), Reservation(),
                     [answer](const ExchangeAnswer& got) { answer->set_value(got.status.ok()); });
    // What is in the log is of no use here, but takes room.
    log_->DropBefore(log_->state().last > 100 ? log_->state().last - 100 : 0);
    return answer->get_future().get();
  }

 private:
  CommitBuffer Buffer() const {
    CommitBuffer buffer(floats_);
    for (size_t begin = 0; begin < floats_; begin += kBlockFloats) {
      const size_t n = std::min(kBlockFloats, floats_ - begin);
      buffer
          .Append(begin, {std::string_view(reinterpret_cast<const char*>(zeros_.data() + begin), n * sizeof(float))},
                  nullptr)
          .IgnoreError();
    }
    return buffer;
  }

  const size_t floats_;
  const std::vector<float> zeros_ = std::vector<float>(floats_, 0.0f);
  std::unique_ptr<Log> log_;
  std::unique_ptr<LogRecorder> recorder_;
  std::shared_ptr<Model> model_;
  std::vector<ExchangeCall> calls_;
};

// How often a second `once` returns true, called by so many threads, each with its number.
double Rate(int threads, const std::function<bool(int)>& once) {
  std::atomic<int64_t> done{0};
  std::atomic<bool> failed{false};
  const absl::Time begun = absl::Now();
  const absl::Time end = begun + absl::GetFlag(FLAGS_slice);
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      while (absl::Now() < end && !failed) once(i) ? void(++done) : void(failed = true);
    });
  }
  for (std::thread& thread : running) thread.join();
  return failed ? 0 : static_cast<double>(done) / absl::ToDoubleSeconds(absl::Now() - begun);
}

double Median(std::vector<double> numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + static_cast<int64_t>(numbers.size() / 2), numbers.end());
  return numbers[numbers.size() / 2];
}

// A row of the table. Whether it reaches `required`.
bool Measure(const std::string& folder, size_t bytes, int workers, double required) {
  const std::vector<char> zeros(bytes, 0);
  BareFile bare(folder + "/bare");
  Journaled journaled(absl::StrCat(folder, "/log", bytes), bytes / sizeof(float), workers);
  std::vector<double> bare_rates;
  std::vector<double> rates;
  std::vector<double> ratios;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    bare_rates.push_back(Rate(1, [&](int) { return bare.Append(zeros); }));
    rates.push_back(Rate(workers, [&](int worker) { return journaled.Commit(worker); }));
    ratios.push_back(rates.back() / bare_rates.back());
  }
  const double ratio = Median(ratios);
  std::cout << absl::StreamFormat("| %d | %d | %.1f | %.1f | %.2f | ≥ %g | %s |\n", bytes, workers, Median(bare_rates),
                                  Median(rates), ratio, required, ratio >= required ? "yes" : "**no**");
  return ratio >= required;
}

int Main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Measures commits with a journal against a bare append and fdatasync.");
  if (absl::ParseCommandLine(argc, argv).size() != 1 || absl::GetFlag(FLAGS_rounds) < 1) return 2;
  std::string folder = absl::GetFlag(FLAGS_folder) + "/journal_bench.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::cerr << "journal_bench: can't make a folder in " << absl::GetFlag(FLAGS_folder) << "\n";
    return 1;
  }
  std::cout << "| bytes | workers | bare appends/s, one at a time | commits/s | ratio | required | met |\n"
            << "|---|---|---|---|---|---|---|\n";
  bool met = true;
  met = Measure(folder, 4'000'000, 1, 0.7) && met;
  met = Measure(folder, 40'000'000, 1, 0.7) && met;
  met = Measure(folder, 4'000, 8, 4) && met;
  std::filesystem::remove_all(folder);
  return met ? 0 : 1;
}

}  // namespace
}  // namespace paramd::bench

int main(int argc, char** argv) {
  paramd::TuneProcess();
  return paramd::bench::Main(argc, argv);
}
