#include "bench/targets.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace paramd::bench {
namespace {

constexpr size_t kSmall = 4'000;
constexpr size_t kMedium = 4'000'000;
constexpr size_t kLarge = 40'000'000;
constexpr size_t kLargest = 200'000'000;

struct Value {
  std::optional<double> number;
  std::string unavailable;  // why there is no number, if so
};

Value Ratio(const Value& a, const Value& b) {
  if (!a.number.has_value()) return a;
  if (!b.number.has_value()) return b;
  return {.number = *a.number / *b.number};
}

// Of the first row that satisfies `matches`.
template <typename Row, typename Matches, typename Number>
Value Get(const std::vector<Row>& rows, const Matches& matches, Number Row::*member) {
  const auto found = std::find_if(rows.begin(), rows.end(), matches);
  if (found == rows.end()) return {.unavailable = "this run leaves it out"};
  if (!found->unavailable.empty()) return {.unavailable = found->unavailable};
  const std::optional<double> number = (*found).*member;
  return {.number = number, .unavailable = number.has_value() ? "" : "what it needs was not measured"};
}

std::string Megabytes(size_t bytes) { return absl::StrCat(bytes / 1'000'000, " MB"); }

class Checker {
 public:
  explicit Checker(const Results& results) : results_(results) {}

  void CheckGrpc();
  void CheckSharedMemory();
  void CheckSeveralWorkers();
  void CheckFleet();
  void CheckMnist();
  void CheckIdle();
  void CheckLink();
  void CheckTraining();

  std::vector<Target> Take() { return std::move(targets_); }

 private:
  // Of floats as f32.
  Value Cell(Operation operation, size_t bytes, int workers, const std::string& transport,
             std::optional<double> Row::*member) const {
    const auto matches = [&](const Row& row) {
      return row.operation == operation && row.bytes == bytes && row.workers == workers && row.transport == transport &&
             row.wire == "f32";
    };
    return Get(results_.rows, matches, member);
  }

  Value Fleet(int workers, double FleetRow::*member) const {
    const auto matches = [workers](const FleetRow& row) {
      return row.workers == workers && row.transport == "grpc-tcp";
    };
    return Get(results_.fleet, matches, member);
  }

  void AtLeast(double bound, const std::string& what, const Value& value) {
    const bool met = value.number.has_value() && *value.number >= bound;
    targets_.push_back({what, absl::StrCat("≥ ", bound), value.number, met, value.unavailable});
  }
  void AtMost(double bound, const std::string& what, const Value& value) {
    const bool met = value.number.has_value() && *value.number <= bound;
    targets_.push_back({what, absl::StrCat("≤ ", bound), value.number, met, value.unavailable});
  }

  const Results& results_;
  std::vector<Target> targets_;
};

void Checker::CheckGrpc() {
  for (const size_t bytes : {kMedium, kLarge, kLargest}) {
    for (const Operation operation : kOperations) {
      const double bound = bytes == kMedium                  ? 0.7
                           : operation == Operation::kPull   ? 0.85
                           : operation == Operation::kCommit ? 0.75
                                                             : 0.8;
      AtLeast(bound, absl::StrCat(Name(operation), " ", Megabytes(bytes), ", grpc-tcp over raw-tcp"),
              Cell(operation, bytes, 1, "grpc-tcp", &Row::ratio));
    }
  }
  for (const Operation operation : kOperations) {
    AtLeast(6, absl::StrCat(Name(operation), " 40 MB, grpc-tcp over unary-grpc"),
            Ratio(Cell(operation, kLarge, 1, "grpc-tcp", &Row::gb_per_s),
                  Cell(operation, kLarge, 1, "unary-grpc", &Row::gb_per_s)));
  }
  AtLeast(0.6, "exchange 40 MB, grpc-tls over raw-tls", Cell(Operation::kExchange, kLarge, 1, "grpc-tls", &Row::ratio));
  AtMost(2, "exchange 4 kB, p50 of grpc-tcp over raw-tcp",
         Cell(Operation::kExchange, kSmall, 1, "grpc-tcp", &Row::p50_ratio));
  AtMost(3, "exchange 4 kB, p99 of grpc-tcp over raw-tcp",
         Cell(Operation::kExchange, kSmall, 1, "grpc-tcp", &Row::p99_ratio));
}

void Checker::CheckSharedMemory() {
  for (const auto& [transport, bound] : {std::pair("shm", 0.5), std::pair("shm-inplace", 0.8)}) {
    for (const size_t bytes : {kLarge, kLargest}) {
      for (const Operation operation : kOperations) {
        AtLeast(bound, absl::StrCat(Name(operation), " ", Megabytes(bytes), ", ", transport, " over memcpy"),
                Cell(operation, bytes, 1, transport, &Row::ratio));
      }
    }
  }
}

void Checker::CheckSeveralWorkers() {
  for (const Operation operation : kOperations) {
    AtLeast(1.2, absl::StrCat(Name(operation), " 40 MB, grpc-tcp, two workers over one"),
            Ratio(Cell(operation, kLarge, 2, "grpc-tcp", &Row::gb_per_s),
                  Cell(operation, kLarge, 1, "grpc-tcp", &Row::gb_per_s)));
  }
  for (const auto& [workers, bound] : {std::pair(2, 3.3), std::pair(8, 4.0)}) {
    AtMost(bound, absl::StrCat("peak memory over a model of 200 MB, ", workers, " workers exchanging, grpc-tcp"),
           Cell(Operation::kExchange, kLargest, workers, "grpc-tcp", &Row::peak_over_model));
  }
}

void Checker::CheckFleet() {
  AtLeast(0.5, "64 workers, 4 kB: slowest rate over mean", Fleet(64, &FleetRow::slowest_over_mean));
  AtMost(10, "64 workers, 4 kB: p99 over p50", Ratio(Fleet(64, &FleetRow::p99_us), Fleet(64, &FleetRow::p50_us)));
  AtLeast(1, "exchanges/s of 64 workers over 8, 4 kB",
          Ratio(Fleet(64, &FleetRow::exchanges_per_s), Fleet(8, &FleetRow::exchanges_per_s)));
}

void Checker::CheckMnist() {
  for (const MnistRow& row : results_.mnist) {
    const auto matches = [&](const MnistRow& other) { return other.transport == row.transport; };
    AtMost(0.08, absl::StrCat("MNIST, 4 workers, window 10, ", row.transport, ": share of time in exchanges"),
           Get(results_.mnist, matches, &MnistRow::exchanging));
    AtLeast(0.9, absl::StrCat("MNIST, 4 workers, ", row.transport, ": samples/s over 4 that never exchange"),
            Get(results_.mnist, matches, &MnistRow::over_alone));
  }
}

void Checker::CheckIdle() {
  for (const IdleRow& row : results_.idle) {
    const auto matches = [&](const IdleRow& other) { return other.what == row.what; };
    const std::string who = absl::StrCat(row.workers, " ", row.what, " workers: ");
    AtMost(0.01, absl::StrCat(who, "share of a core"), Get(results_.idle, matches, &IdleRow::cpu_share));
    AtMost(100, absl::StrCat(who, "MB beside the model"), Get(results_.idle, matches, &IdleRow::resident_mb));
  }
}

void Checker::CheckLink() {
  const auto matches = [](const LinkRow& row) { return row.wire == "f16"; };
  AtLeast(1.8, "40 MB over a link of 1 Gbit/s: exchanges/s with f16 over f32",
          Get(results_.link, matches, &LinkRow::over_f32));
}

void Checker::CheckTraining() {
  const auto matches = [](const TrainingRow& row) { return row.optimizer == "sgd"; };
  AtMost(1.25, "training step, time over PyTorch's", Get(results_.training, matches, &TrainingRow::ratio));
}

}  // namespace

std::vector<Target> CheckTargets(const Results& results) {
  Checker checker(results);
  if (!results.rows.empty()) {
    checker.CheckGrpc();
    checker.CheckSharedMemory();
    checker.CheckSeveralWorkers();
  }
  if (!results.fleet.empty()) checker.CheckFleet();
  checker.CheckMnist();
  checker.CheckIdle();
  if (!results.link.empty()) checker.CheckLink();
  if (!results.training.empty()) checker.CheckTraining();
  return checker.Take();
}

}  // namespace paramd::bench
