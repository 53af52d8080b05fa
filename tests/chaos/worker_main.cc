// A worker that commits again and again, and keeps a diary of it, until it has made all its commits or gets SIGTERM. It
// ends with 0 then; with 3 if the server will not have it any more; with 1 if it could not join.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/worker.h"
#include "flags/command_line.h"
#include "tests/chaos/commits.h"

ABSL_FLAG(std::string, server, "", "where the server is");
ABSL_FLAG(std::string, tls_ca, "", "a file with its authority");
ABSL_FLAG(std::string, tls_cert, "", "the worker's certificate");
ABSL_FLAG(std::string, tls_key, "", "and its key");
ABSL_FLAG(std::string, token_file, "", "the worker's token");
ABSL_FLAG(int, kind, 0, "of what the model's algorithm makes of commits");
ABSL_FLAG(std::string, model, "", "the model's name");
ABSL_FLAG(std::string, worker, "", "the worker's name");
ABSL_FLAG(std::string, transport, "grpc", "grpc or shm");
ABSL_FLAG(std::string, wire, "f32", "f32, f16 or bf16");
ABSL_FLAG(std::string, diary, "", "the diary's path");
ABSL_FLAG(uint64_t, cells, 0, "commits that the model may ever get");
ABSL_FLAG(uint64_t, first, 0, "of its commits");
ABSL_FLAG(uint64_t, count, 0, "of its commits");
ABSL_FLAG(uint64_t, seed, 0, "of what it does");

namespace paramd::chaos {
namespace {

volatile sig_atomic_t finish = 0;

// Each line is in the file once the call has returned, whatever happens to the process then.
class Diary {
 public:
  explicit Diary(const std::string& path) : fd_(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)) {}

  void Write(Entry entry, int64_t number, const std::string& text = "") const {
    std::string line =
        absl::StrCat(NowNanoseconds(), " ", std::string(1, static_cast<char>(entry)), " ", number, " ", text);
    std::replace(line.begin(), line.end(), '\n', ' ');
    line += '\n';
    if (write(fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
  }

 private:
  const int fd_;
};

class Committer {
 public:
  Committer(const Diary& diary, std::unique_ptr<Worker> worker)
      : diary_(diary),
        worker_(std::move(worker)),
        layout_{.kind = static_cast<Kind>(absl::GetFlag(FLAGS_kind)),
                .cells = absl::GetFlag(FLAGS_cells),
                .body = worker_->model().parameters() - absl::GetFlag(FLAGS_cells)},
        random_(absl::GetFlag(FLAGS_seed)),
        own_update_(worker_->commit_buffer().empty() ? layout_.floats() : 0),
        own_center_(worker_->center_buffer().empty() ? layout_.floats() : 0),
        update_(own_update_.empty() ? worker_->commit_buffer() : absl::MakeSpan(own_update_)),
        center_(own_center_.empty() ? worker_->center_buffer() : absl::MakeSpan(own_center_)) {
    std::fill(update_.begin(), update_.end(), 0.f);
  }

  int Run() {
    const uint64_t end = absl::GetFlag(FLAGS_first) + absl::GetFlag(FLAGS_count);
    for (uint64_t next = absl::GetFlag(FLAGS_first); next < end && finish == 0 && !ended_;) {
      absl::SleepFor(absl::Milliseconds(Draw(10)));
      if (unknown_.has_value() || must_pull_ || Draw(8) == 0) {
        Pull();
      } else {
        Commit(next++);
      }
    }
    while (unknown_.has_value() && !ended_) Pull();
    std::cerr << worker_->Leave() << std::endl;
    return ended_ ? 3 : 0;
  }

 private:
  uint64_t Draw(uint64_t below) { return random_() % below; }

  // Calls `exchange` with a timeout and tells how that went.
  template <typename Exchange>
  bool Call(const char* name, const Exchange& exchange) {
    const int64_t timeouts[] = {100, 500, 2000, 5000};
    const absl::Duration timeout = absl::Milliseconds(timeouts[Draw(4)]);
    const int64_t begin = NowNanoseconds();
    const auto exchanged = exchange(timeout);
    const absl::Status& status = exchanged.status();
    version_ = exchanged.ok() ? exchanged->version : 0;
    diary_.Write(Entry::kCall, begin,
                 absl::StrCat(absl::ToInt64Nanoseconds(timeout), " ", name, " ", status.ToString()));
    if (absl::IsFailedPrecondition(status)) must_pull_ = true;
    if (absl::IsAborted(status) || absl::IsNotFound(status)) {
      std::cerr << status << std::endl;
      ended_ = true;
    }
    return status.ok();
  }

  void Pull() {
    const bool pulled = Call("pull", [&](absl::Duration timeout) { return worker_->Pull(center_, timeout); });
    const int64_t version = std::exchange(version_, 0);  // others have committed since
    if (unknown_.has_value()) NoteEnd(*unknown_, pulled);
    if (!pulled) return;
    must_pull_ = false;
    CheckCenter(version);
  }

  void Commit(uint64_t commit) {
    update_[commit] = 1;
    std::fill(update_.begin() + static_cast<ptrdiff_t>(layout_.cells), update_.end(), BodyValue(commit));
    const bool elastic = layout_.kind == Kind::kElastic;
    const bool pull = elastic || Draw(2) == 0;
    diary_.Write(Entry::kSending, static_cast<int64_t>(commit));
    const bool done = Call(pull ? "exchange" : "commit", [&](absl::Duration timeout) {
      return pull ? worker_->Exchange(update_, center_, timeout) : worker_->Commit(update_, timeout);
    });
    const int64_t pulled = std::exchange(version_, elastic ? 0 : version_);  // which is not the commit's then
    NoteEnd(commit, done);
    if (done && unknown_.has_value()) diary_.Write(Entry::kWrong, 0, "a call succeeded, and its commit is unknown");
    update_[commit] = 0;
    if (!done || !pull) return;
    CheckCenter(pulled);
    if (!elastic && worker_->last_commit() == CommitState::kApplied && center_[commit] == 0) {
      diary_.Write(Entry::kWrong, 0,
                   absl::StrCat("commit ", commit, " is not in the center that it was answered with"));
    }
  }

  void NoteEnd(uint64_t commit, bool answered) {
    const auto number = static_cast<int64_t>(commit);
    unknown_.reset();
    switch (worker_->last_commit()) {
      case CommitState::kApplied:
        // Else it may not be on the daemon's disk yet.
        if (answered) return diary_.Write(Entry::kApplied, number, absl::StrCat(version_));
        unknown_ = commit;
        return;
      case CommitState::kNotApplied:
        return diary_.Write(Entry::kNotApplied, number);
      case CommitState::kUnknown:
        unknown_ = commit;
        return;
      case CommitState::kNone:
        return diary_.Write(Entry::kWrong, 0, "there was no commit");
    }
  }

  void CheckCenter(int64_t version) {
    const std::string wrong = Check(layout_, center_, version, worker_->wire() != Wire::kFloat32);
    if (!wrong.empty()) diary_.Write(Entry::kWrong, 0, wrong);
  }

  const Diary& diary_;
  const std::unique_ptr<Worker> worker_;
  const Layout layout_;
  std::mt19937_64 random_;
  std::vector<float> own_update_;
  std::vector<float> own_center_;
  const absl::Span<float> update_;
  const absl::Span<float> center_;
  int64_t version_ = 0;              // of the center after the commit, if that was told
  bool must_pull_ = true;            // nothing yet, or the server no longer knows what was pulled
  bool ended_ = false;               // the server will not have it any more
  std::optional<uint64_t> unknown_;  // a commit whose call did not tell
};

int Main() {
  const Diary diary(absl::GetFlag(FLAGS_diary));
  WorkerOptions options;
  options.server = absl::GetFlag(FLAGS_server);
  options.security = {.tls_ca = absl::GetFlag(FLAGS_tls_ca),
                      .tls_cert = absl::GetFlag(FLAGS_tls_cert),
                      .tls_key = absl::GetFlag(FLAGS_tls_key),
                      .token_file = absl::GetFlag(FLAGS_token_file)};
  options.model = absl::GetFlag(FLAGS_model);
  options.worker = absl::GetFlag(FLAGS_worker);
  options.transport = absl::GetFlag(FLAGS_transport) == "shm" ? Transport::kShm : Transport::kGrpc;
  const std::string wire = absl::GetFlag(FLAGS_wire);
  options.wire = wire == "f16" ? Wire::kFloat16 : wire == "bf16" ? Wire::kBfloat16 : Wire::kFloat32;
  options.on_event = [](absl::string_view event) { std::cerr << NowNanoseconds() << " " << event << std::endl; };
  auto worker = Worker::Join(options);
  if (!worker.ok()) {
    std::cerr << worker.status() << std::endl;
    return absl::IsAborted(worker.status()) ? 3 : 1;
  }
  diary.Write(Entry::kJoined, static_cast<int64_t>((*worker)->incarnation()));
  return Committer(diary, *std::move(worker)).Run();
}

}  // namespace
}  // namespace paramd::chaos

int main(int argc, char** argv) {
  struct sigaction action {};
  action.sa_handler = [](int) { paramd::chaos::finish = 1; };
  sigaction(SIGTERM, &action, nullptr);
  if (const auto status = paramd::ParseFlags(argc, argv); !status.ok()) {
    std::cerr << status << std::endl;
    return 2;
  }
  return paramd::chaos::Main();
}
