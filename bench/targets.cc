#include "bench/targets.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace paramd::bench {
namespace {

constexpr size_t kSmall = 4'000;
constexpr size_t kMedium = 4'000'000;
constexpr size_t kLarge = 40'000'000;
constexpr size_t kLargest = 200'000'000;

using Value = std::optional<double>;

Value Ratio(Value a, Value b) { return a.has_value() && b.has_value() && *b != 0 ? Value(*a / *b) : std::nullopt; }

class Checker {
 public:
  Checker(const std::vector<Row>& rows, const std::vector<FleetRow>& fleet) : rows_(rows), fleet_(fleet) {}

  Value Get(Operation operation, size_t bytes, int workers, const char* transport, Value Row::*member) const {
    for (const Row& row : rows_) {
      if (row.operation == operation && row.bytes == bytes && row.workers == workers && row.transport == transport) {
        return row.*member;
      }
    }
    return std::nullopt;
  }

  // Of both transports, in the same cell.
  Value Compare(Operation operation, size_t bytes, int workers, const char* a, const char* b,
                Value Row::*member) const {
    return Ratio(Get(operation, bytes, workers, a, member), Get(operation, bytes, workers, b, member));
  }

  Value GetFleet(int workers, double FleetRow::*member) const {
    for (const FleetRow& row : fleet_) {
      if (row.workers == workers && row.transport == "grpc-tcp") return row.*member;
    }
    return std::nullopt;
  }

  void AtLeast(std::string what, double bound, Value measured) {
    Add(std::move(what), "≥ ", bound, measured, measured >= bound);
  }
  void AtMost(std::string what, double bound, Value measured) {
    Add(std::move(what), "≤ ", bound, measured, measured <= bound);
  }

  std::vector<Target> Take() { return std::move(targets_); }

 private:
  void Add(std::string what, const char* sign, double bound, Value measured, bool met) {
    targets_.push_back({std::move(what), absl::StrCat(sign, bound), measured, measured.has_value() && met});
  }

  const std::vector<Row>& rows_;
  const std::vector<FleetRow>& fleet_;
  std::vector<Target> targets_;
};

}  // namespace

std::vector<Target> CheckTargets(const std::vector<Row>& rows, const std::vector<FleetRow>& fleet,
                                 const std::optional<IdleResult>& idle) {
  Checker checker(rows, fleet);
  for (const size_t bytes : {kMedium, kLarge, kLargest}) {
    for (const Operation operation : kOperations) {
      const double bound = bytes == kMedium                  ? 0.7
                           : operation == Operation::kPull   ? 0.85
                           : operation == Operation::kCommit ? 0.75
                                                             : 0.8;
      checker.AtLeast(absl::StrCat(Name(operation), " ", bytes / 1'000'000, " MB, grpc-tcp over raw-tcp"), bound,
                      checker.Get(operation, bytes, 1, "grpc-tcp", &Row::ratio));
    }
  }
  for (const Operation operation : kOperations) {
    checker.AtLeast(absl::StrCat(Name(operation), " 40 MB, grpc-tcp over unary-grpc"), 6,
                    checker.Compare(operation, kLarge, 1, "grpc-tcp", "unary-grpc", &Row::gb_per_s));
  }
  checker.AtMost("exchange 4 kB, p50 of grpc-tcp over raw-tcp", 2,
                 checker.Compare(Operation::kExchange, kSmall, 1, "grpc-tcp", "raw-tcp", &Row::p50_us));
  checker.AtMost("exchange 4 kB, p99 of grpc-tcp over raw-tcp", 3,
                 checker.Compare(Operation::kExchange, kSmall, 1, "grpc-tcp", "raw-tcp", &Row::p99_us));
  for (const Operation operation : kOperations) {
    checker.AtLeast(absl::StrCat(Name(operation), " 40 MB, grpc-tcp, two workers over one"), 1.2,
                    Ratio(checker.Get(operation, kLarge, 2, "grpc-tcp", &Row::gb_per_s),
                          checker.Get(operation, kLarge, 1, "grpc-tcp", &Row::gb_per_s)));
  }
  for (const Operation operation : {Operation::kPull, Operation::kExchange}) {
    for (const size_t bytes : {kLarge, kLargest}) {
      checker.AtLeast(absl::StrCat(Name(operation), " ", bytes / 1'000'000, " MB, shm over memcpy"), 0.5,
                      checker.Get(operation, bytes, 1, "shm", &Row::ratio));
    }
  }
  checker.AtMost("server peak over model, 200 MB, 2 workers", 3.3,
                 checker.Get(Operation::kExchange, kLargest, 2, "grpc-tcp", &Row::peak_over_model));
  checker.AtMost("server peak over model, 200 MB, 8 workers", 4,
                 checker.Get(Operation::kExchange, kLargest, 8, "grpc-tcp", &Row::peak_over_model));
  checker.AtLeast("64 workers, slowest rate over mean", 0.5, checker.GetFleet(64, &FleetRow::slowest_over_mean));
  checker.AtMost("64 workers, p99 over p50", 10,
                 Ratio(checker.GetFleet(64, &FleetRow::p99_us), checker.GetFleet(64, &FleetRow::p50_us)));
  checker.AtLeast(
      "exchanges/s of 64 workers over 8", 1,
      Ratio(checker.GetFleet(64, &FleetRow::exchanges_per_s), checker.GetFleet(8, &FleetRow::exchanges_per_s)));
  const bool idle_measured = idle.has_value() && idle->unavailable.empty();
  const std::string workers = absl::StrCat(idle.has_value() ? idle->workers : 500, " idle workers");
  checker.AtMost(absl::StrCat(workers, ", % of a core"), 1,
                 idle_measured ? Value(100 * idle->cpu_share) : std::nullopt);
  checker.AtMost(absl::StrCat(workers, ", MB beside the model"), 100,
                 idle_measured
                     ? Value(static_cast<double>(idle->resident_bytes -
                                                 std::min<uint64_t>(idle->resident_bytes, idle->model_bytes)) *
                             1e-6)
                     : std::nullopt);
  return checker.Take();
}

}  // namespace paramd::bench
