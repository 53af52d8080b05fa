#include "client/train.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/c/call.h"
#include "client/c/handles.h"
#include "client/worker.h"

namespace {

using paramd::c::CheckGiven;
using paramd::c::Guard;
using paramd::c::ReadSized;

// Calls call(message, message_size), which returns a paramd_code. `name` is the callback's.
template <typename Call>
absl::Status CallBack(const char* name, const Call& call) {
  std::array<char, 1024> message{};
  const paramd_code code = call(message.data(), message.size());
  if (code == PARAMD_OK) return absl::OkStatus();
  message.back() = '\0';
  const bool known = code > PARAMD_OK && code <= PARAMD_UNAUTHENTICATED;
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      message[0] != '\0' ? absl::string_view(message.data())
                                         : absl::StrCat("the callback ", name, " failed with code ", code));
}

class Trained : public paramd::Trainable {
 public:
  explicit Trained(const paramd_trainable& given)
      : given_(given), metric_names_(given.metric_names, given.metric_names + given.metrics) {}

  absl::Span<float> parameters() override { return absl::MakeSpan(given_.parameters, given_.floats); }

  absl::StatusOr<std::vector<double>> TrainOnBatch(const paramd::Batch& batch) override {
    const paramd_batch view = paramd::c::View(batch, &inputs_);
    std::vector<double> results(1 + given_.metrics);
    auto status = CallBack("train_on_batch", [&](char* message, size_t size) {
      return given_.train_on_batch(given_.context, &view, results.data(), message, size);
    });
    if (!status.ok()) return status;
    return results;
  }

  std::vector<std::string> metric_names() const override { return metric_names_; }
  double learning_rate() const override { return given_.learning_rate(given_.context); }
  void set_learning_rate(double learning_rate) override { given_.set_learning_rate(given_.context, learning_rate); }

 private:
  const paramd_trainable given_;
  const std::vector<std::string> metric_names_;
  std::vector<paramd_input> inputs_;  // of the batch that is trained
};

class Source : public paramd::BatchSource {
 public:
  explicit Source(const paramd_batch_source& given) : given_(given) {}

  absl::StatusOr<bool> Next(paramd::Batch* batch) override {
    paramd_batch view{};
    int more = 1;
    auto status = CallBack(
        "next", [&](char* message, size_t size) { return given_.next(given_.context, &view, &more, message, size); });
    if (!status.ok()) return status;
    if (more == 0) return false;
    if (status = paramd::c::Copy(view, batch); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("the callback next: ", status.message()));
    }
    return true;
  }

  absl::Status Rewind(int64_t epoch) override {
    return CallBack("rewind",
                    [&](char* message, size_t size) { return given_.rewind(given_.context, epoch, message, size); });
  }

  int64_t batches_per_epoch() const override {
    return given_.batches_per_epoch == nullptr ? 0 : given_.batches_per_epoch(given_.context);
  }

  void Cancel() override {
    if (given_.cancel != nullptr) given_.cancel(given_.context);
  }

 private:
  const paramd_batch_source given_;
};

absl::Status CheckTrainable(const paramd_trainable& given) {
  if (given.parameters == nullptr || given.train_on_batch == nullptr || given.learning_rate == nullptr ||
      given.set_learning_rate == nullptr) {
    return absl::InvalidArgumentError(
        "a paramd_trainable needs parameters, train_on_batch, learning_rate and set_learning_rate");
  }
  return paramd::c::CheckNames(given.metric_names, given.metrics);
}

absl::StatusOr<paramd::TrainOptions> ReadOptions(const paramd_train_options* given) {
  paramd::TrainOptions options;
  if (given == nullptr) return options;
  auto read = ReadSized(given, "paramd_train_options");
  if (!read.ok()) return read.status();
  if (read->epochs != 0) options.epochs = read->epochs;
  if (read->max_prefetch != 0) options.max_prefetch = read->max_prefetch;
  options.communication_window = read->communication_window;
  options.learning_rate = read->learning_rate;
  options.overlap = read->overlap != 0;
  if (read->has_target_loss != 0) options.target_loss = read->target_loss;
  if (read->exchange_timeout != 0) {
    auto timeout = paramd::c::Timeout(read->exchange_timeout);
    if (!timeout.ok()) return timeout.status();
    options.exchange_timeout = *timeout;
  }
  return options;
}

absl::Status Train(const paramd_worker_options* options, const paramd_train_options* train_options,
                   const paramd_trainable* trainable, const paramd_batch_source* source,
                   paramd_train_summary* summary) {
  if (auto status = CheckGiven({{options, "options"}}); !status.ok()) return status;
  auto read_options = ReadOptions(train_options);
  if (!read_options.ok()) return read_options.status();
  auto read_trainable = ReadSized(trainable, "paramd_trainable");
  if (!read_trainable.ok()) return read_trainable.status();
  if (auto status = CheckTrainable(*read_trainable); !status.ok()) return status;
  auto read_source = ReadSized(source, "paramd_batch_source");
  if (!read_source.ok()) return read_source.status();
  if (read_source->next == nullptr || read_source->rewind == nullptr) {
    return absl::InvalidArgumentError("a paramd_batch_source needs next and rewind");
  }
  Trained trained(*read_trainable);
  Source read_from(*read_source);
  paramd::Mlp* const mlp = paramd::c::FindMlp(*read_trainable);
  paramd::TrainSummary trained_so_far;
  const auto result = paramd::RunWorker(options->options, *read_options,
                                        mlp != nullptr ? static_cast<paramd::Trainable*>(mlp) : &trained, &read_from,
                                        nullptr, &trained_so_far);
  if (summary != nullptr) {
    *summary = {.steps = trained_so_far.steps,
                .samples = trained_so_far.samples,
                .exchanges = trained_so_far.exchanges,
                .epochs = trained_so_far.epochs,
                .mean_staleness = trained_so_far.mean_staleness,
                .wall_s = absl::ToDoubleSeconds(trained_so_far.wall),
                .exchanging_s = absl::ToDoubleSeconds(trained_so_far.exchanging),
                .last_loss = trained_so_far.last_loss,
                .reached_target_loss = trained_so_far.reached_target_loss ? 1 : 0};
  }
  return result.status();
}

}  // namespace

paramd_code paramd_train(const paramd_worker_options* options, const paramd_train_options* train_options,
                         const paramd_trainable* trainable, const paramd_batch_source* source,
                         paramd_train_summary* summary) {
  return Guard([&] { return Train(options, train_options, trainable, source, summary); });
}
