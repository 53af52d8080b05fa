#include "state/log.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "catch2/catch.hpp"
#include "tests/support/await.h"
#include "tests/support/process.h"

namespace paramd {
namespace {

// Removed at the end.
class Folder {
 public:
  // In memory, where a sync costs nothing.
  Folder() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string log() const { return path_ + "/log"; }
  std::vector<std::string> files() const {
    std::vector<std::string> files;
    for (const auto& file : std::filesystem::directory_iterator(log())) files.push_back(file.path());
    std::sort(files.begin(), files.end());
    return files;
  }

 private:
  std::string path_ = "/dev/shm/paramd_log_XXXXXX";
};

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

struct Record {
  uint64_t position = 0;
  std::string head;
  std::string payload;
  bool operator==(const Record& other) const {
    return position == other.position && head == other.head && payload == other.payload;
  }
};

// What was read, and what was said.
struct Found {
  std::vector<Record> records;
  std::vector<std::string> said;
  absl::Status status;
};

std::unique_ptr<Log> Open(const Folder& folder, Found* found, LogOptions options = {}) {
  options.say = [found](const std::string& what) { found->said.push_back(what); };
  auto log = Log::Open(folder.log(), std::move(options), [found](const LogRecord& record) {
    found->records.push_back({record.position, std::string(record.head), std::string(record.payload)});
    return absl::OkStatus();
  });
  found->status = log.status();
  return log.ok() ? *std::move(log) : nullptr;
}

Found ReadAgain(const Folder& folder) {
  Found found;
  Open(folder, &found);
  return found;
}

LogPayload PayloadOf(std::vector<std::string> pieces) {
  LogPayload payload;
  for (std::string& piece : pieces) {
    auto owner = std::make_shared<const std::string>(std::move(piece));
    payload.pieces.push_back({*owner, owner});
  }
  return payload;
}

// Thread-safe.
class Results {
 public:
  std::function<void(const absl::Status&)> Next() {
    return [this](const absl::Status& status) {
      MutexLock lock(&mutex_);
      results_.push_back(status);
    };
  }
  std::vector<absl::Status> First(size_t count) {
    REQUIRE(paramd::Await([&] {
      MutexLock lock(&mutex_);
      return results_.size() >= count;
    }));
    MutexLock lock(&mutex_);
    return results_;
  }

 private:
  Mutex mutex_;
  std::vector<absl::Status> results_ ABSL_GUARDED_BY(mutex_);
};

// Of this process' files.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(getrlimit(RLIMIT_FSIZE, &old_) == 0);
    rlimit low = old_;
    low.rlim_cur = bytes;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &low) == 0);
  }
  ~FileSizeLimit() {
    Lift();
    signal(SIGXFSZ, handler_);
  }
  void Lift() const { setrlimit(RLIMIT_FSIZE, &old_); }

 private:
  const sighandler_t handler_;
  rlimit old_{};
};

void AppendAndWait(Log* log, const std::string& head, std::vector<std::string> pieces) {
  Results results;
  log->Append(head, PayloadOf(std::move(pieces)), results.Next());
  REQUIRE(results.First(1)[0].ok());
}

// A few records of different shapes; returns them.
std::vector<Record> WriteSome(const Folder& folder, bool close_cleanly = true) {
  std::vector<Record> written;
  Found found;
  auto log = Open(folder, &found, {.segment_bytes = 200});
  REQUIRE(log != nullptr);
  for (int i = 0; i < 6; ++i) {
    const Record record{uint64_t(i) + 1, absl::StrCat("head ", i), std::string(30 * i + i % 3, 'a' + i)};
    AppendAndWait(log.get(), record.head,
                  {record.payload.substr(0, 7), record.payload.substr(std::min<size_t>(7, record.payload.size()))});
    written.push_back(record);
  }
  if (!close_cleanly) {
    // The state of the files when the process is killed now.
    std::filesystem::rename(folder.log(), folder.log() + ".kept");
    log.reset();
    std::filesystem::remove_all(folder.log());
    std::filesystem::rename(folder.log() + ".kept", folder.log());
  }
  return written;
}

TEST_CASE("A log gives back what was appended, in its order, over several segments and openings") {
  const Folder folder;
  std::vector<Record> written = WriteSome(folder);
  CHECK(folder.files().size() >= 2);
  {
    Found found;
    auto log = Open(folder, &found);
    CHECK(found.records == written);
    CHECK(found.said.empty());
    Results results;
    const std::string large(3'000'001, 'x');
    CHECK(log->Append("one", PayloadOf({large, "", "y"}), results.Next()) == 7);
    CHECK(log->Append("", {}, results.Next()) == 8);
    for (const absl::Status& status : results.First(2)) CHECK(status.ok());
    written.push_back({7, "one", large + "y"});
    written.push_back({8, "", ""});
    CHECK(log->state().last == 8);
    CHECK(log->state().waiting == 0);
  }
  const Found found = ReadAgain(folder);
  CHECK(found.status.ok());
  CHECK((found.records == written));
}

TEST_CASE("Reading a log changes nothing") {
  const Folder folder;
  const std::vector<Record> written = WriteSome(folder);
  const std::string last = folder.files().back();
  WriteFile(last, ReadFile(last) + "half of a record");
  const auto bytes = std::filesystem::file_size(last);
  std::vector<std::string> said;
  size_t records = 0;
  const auto state = Log::Read(
      folder.log(),
      [&](const LogRecord&) {
        ++records;
        return absl::OkStatus();
      },
      [&](const std::string& what) { said.push_back(what); });
  REQUIRE(state.ok());
  CHECK(records == written.size());
  CHECK(state->first == 1);
  CHECK(state->last == written.size());
  CHECK(said.size() == 1);
  CHECK(std::filesystem::file_size(last) == bytes);
}

TEST_CASE(
    "Whatever byte of a log is changed, no record is read that was not written, and none that was on disk is left "
    "out") {
  const bool close_cleanly = GENERATE(true, false);
  const Folder folder;
  const std::vector<Record> written = WriteSome(folder, close_cleanly);
  for (const std::string& file : folder.files()) {
    const std::string good = ReadFile(file);
    for (size_t i = 0; i < good.size(); ++i) {
      for (const char flip : {char(0x01), char(0xff)}) {
        std::string bad = good;
        bad[i] = static_cast<char>(bad[i] ^ flip);
        WriteFile(file, bad);
        Found found;
        found.status =
            Log::Read(
                folder.log(),
                [&](const LogRecord& record) {
                  found.records.push_back({record.position, std::string(record.head), std::string(record.payload)});
                  return absl::OkStatus();
                },
                [&](const std::string& what) { found.said.push_back(what); })
                .status();
        INFO(file << " byte " << i << ": " << found.status);
        if (found.status.ok()) {
          // A mark's, or the header of a file without records.
          REQUIRE(found.records == written);
          REQUIRE(found.said.size() == 1);
          REQUIRE(absl::StrContains(found.said[0], file));
        } else {
          REQUIRE(found.status.code() == absl::StatusCode::kDataLoss);
          REQUIRE(absl::StrContains(found.status.message(), absl::StrCat(file, ": damaged at byte ")));
          REQUIRE(found.records.size() <= written.size());
          REQUIRE(std::equal(found.records.begin(), found.records.end(), written.begin()));
        }
      }
    }
    WriteFile(file, good);
  }
}

TEST_CASE("A log that ends anywhere in its last record is cut off there, says so and goes on") {
  const Folder folder;
  std::vector<Record> written;
  {
    Found found;
    auto log = Open(folder, &found);
    for (int i = 0; i < 2; ++i) {
      written.push_back({uint64_t(i) + 1, absl::StrCat("head ", i), std::string(50, 'p')});
      AppendAndWait(log.get(), written.back().head, {written.back().payload});
    }
  }
  const std::string file = folder.files().front();
  const std::string whole = ReadFile(file);
  const size_t record_bytes = 104;
  for (size_t end = 0; end < whole.size(); ++end) {
    std::filesystem::remove_all(folder.log());
    std::filesystem::create_directory(folder.log());
    WriteFile(file, whole.substr(0, end));
    Found found;
    auto log = Open(folder, &found);
    INFO(end << ": " << found.status);
    REQUIRE(log != nullptr);
    REQUIRE(found.records.size() <= end / record_bytes);
    REQUIRE(std::equal(found.records.begin(), found.records.end(), written.begin()));
    REQUIRE(found.said.size() <= 1);
    if (end < 32) REQUIRE(found.said.size() == 1);
    AppendAndWait(log.get(), "new", {});
    log.reset();
    const Found again = ReadAgain(folder);
    REQUIRE(again.status.ok());
    REQUIRE(again.said.empty());
    REQUIRE(again.records.size() == found.records.size() + 1);
    REQUIRE(again.records.back() == Record{found.records.size() + 1, "new", ""});
  }
}

TEST_CASE("A write that was cut short in any order of its pages is no damage") {
  const Folder folder;
  Found found;
  {
    auto log = Open(folder, &found);
    std::promise<void> go_on;
    log->Append("first", {}, [&](const absl::Status&) { go_on.get_future().wait(); });
    // One group, because the log's thread is kept from taking some of them.
    Results results;
    for (int i = 0; i < 20; ++i) {
      log->Append(absl::StrCat("more ", i), PayloadOf({std::string(1000, 'x')}), results.Next());
    }
    go_on.set_value();
    results.First(20);
    std::filesystem::copy(folder.log(), folder.log() + ".kept");
  }
  std::filesystem::remove_all(folder.log());
  std::filesystem::rename(folder.log() + ".kept", folder.log());
  const std::string file = folder.files().front();
  std::string bytes = ReadFile(file);
  // The mark at the end was not on disk; a page in the middle was not, either.
  bytes.resize(bytes.size() - 40);
  const size_t second = bytes.find("more 1");
  std::fill_n(bytes.begin() + second, 64, '\0');
  WriteFile(file, bytes);
  const Found again = ReadAgain(folder);
  INFO(again.status);
  REQUIRE(again.status.ok());
  CHECK(again.records.size() == 2);
  CHECK(again.said.size() == 1);
}

TEST_CASE("A file of a log that is missing in the middle is damage") {
  const Folder folder;
  WriteSome(folder);
  const std::vector<std::string> files = folder.files();
  REQUIRE(files.size() >= 3);
  std::filesystem::remove(files[1]);
  const Found found = ReadAgain(folder);
  CHECK(found.status.code() == absl::StatusCode::kDataLoss);
  CHECK(absl::StrContains(found.status.message(), files[2]));
}

TEST_CASE("An error of who reads a log ends the reading, with the place") {
  const Folder folder;
  WriteSome(folder);
  const auto log = Log::Open(folder.log(), {}, [](const LogRecord& record) {
    return record.position == 2 ? absl::InvalidArgumentError("unknown") : absl::OkStatus();
  });
  CHECK(log.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(log.status().message(), ".log: record 2 at byte "));
}

TEST_CASE("Segments whose records nobody needs are removed, and positions go on") {
  const Folder folder;
  WriteSome(folder);
  {
    Found found;
    auto log = Open(folder, &found);
    log->DropBefore(4);
    REQUIRE(paramd::Await([&] { return log->state().first > 1; }));
    CHECK(log->state().first <= 4);
    log->DropBefore(7);
    REQUIRE(paramd::Await([&] { return log->state().first == 0; }));
    CHECK(folder.files().size() == 1);
  }
  Found found;
  auto log = Open(folder, &found);
  CHECK(found.records.empty());
  Results results;
  CHECK(log->Append("next", {}, results.Next()) == 7);
  results.First(1);
}

TEST_CASE("Positions are never used again although the log is gone") {
  const Folder folder;
  Found found;
  {
    auto log = Open(folder, &found, {.after = 41});
    Results results;
    CHECK(log->Append("a", {}, results.Next()) == 42);
    results.First(1);
  }
  CHECK(ReadAgain(folder).records == std::vector<Record>{{42, "a", ""}});
}

TEST_CASE("What there is no room for fails, and the next record is written once there is") {
  const Folder folder;
  Found found;
  std::vector<std::string> said;
  LogOptions options;
  {
    auto log = Open(folder, &found);
    AppendAndWait(log.get(), "before", {});
    const FileSizeLimit limit(50'000);
    Results results;
    log->Append("too large", PayloadOf({std::string(100'000, 'x')}), results.Next());
    const absl::Status failed = results.First(1)[0];
    log->Append("too large", PayloadOf({std::string(100'000, 'x')}), results.Next());
    results.First(2);
    const absl::Status problem = log->state().problem;
    limit.Lift();
    INFO(failed);
    CHECK(failed.code() == absl::StatusCode::kResourceExhausted);
    CHECK(problem.code() == absl::StatusCode::kResourceExhausted);
    AppendAndWait(log.get(), "after", {});
    CHECK(log->state().problem.ok());
    CHECK(found.said.size() == 2);
  }
  CHECK(ReadAgain(folder).records == std::vector<Record>{{1, "before", ""}, {4, "after", ""}});
}

TEST_CASE("What must be written waits for room, in its order, while what may fail does") {
  const Folder folder;
  Found found;
  {
    auto log = Open(folder, &found, {.retry_interval = absl::Milliseconds(5)});
    AppendAndWait(log.get(), "before", {});
    const FileSizeLimit limit(50'000);
    Results waiting;
    Results failing;
    log->Append("large", PayloadOf({std::string(100'000, 'x')}), waiting.Next(), AppendMode::kUntilWritten);
    log->Append("small", {}, waiting.Next(), AppendMode::kUntilWritten);
    log->Append("may fail", {}, failing.Next());
    CHECK(failing.First(1)[0].code() == absl::StatusCode::kResourceExhausted);
    CHECK(log->state().waiting == 2);
    limit.Lift();
    for (const absl::Status& status : waiting.First(2)) CHECK(status.ok());
  }
  CHECK(ReadAgain(folder).records ==
        std::vector<Record>{{1, "before", ""}, {2, "large", std::string(100'000, 'x')}, {3, "small", ""}});
  // What still waits at the end of the log fails then.
  Results waiting;
  {
    auto log = Open(folder, &found);
    const FileSizeLimit limit(50'000);
    log->Append("large", PayloadOf({std::string(100'000, 'x')}), waiting.Next(), AppendMode::kUntilWritten);
    REQUIRE(Await([&] { return !log->state().problem.ok(); }));
    log.reset();
  }
  CHECK(waiting.First(1)[0].code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("What was said to be on disk is there after a kill -9, and nothing else than what was appended") {
  const Folder folder;
  uint64_t last = 0;
  for (int round = 0; round < 8; ++round) {
    int pipe_ends[2];
    REQUIRE(pipe(pipe_ends) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      auto log = Log::Open(folder.log(), {.segment_bytes = 20'000}, [](const LogRecord&) { return absl::OkStatus(); });
      if (!log.ok()) _exit(1);
      while (true) {
        static uint64_t in_flight;
        static Mutex mutex;
        while (true) {
          MutexLock lock(&mutex);
          if (in_flight < 30) break;
        }
        MutexLock lock(&mutex);
        ++in_flight;
        auto position = std::make_shared<uint64_t>(0);
        *position = (*log)->Append("kill", PayloadOf({std::string(200, 'k')}),
                                   [position, &pipe_ends](const absl::Status& status) {
                                     MutexLock relock(&mutex);
                                     --in_flight;
                                     if (status.ok() && write(pipe_ends[1], position.get(), sizeof(*position)) < 0)
                                       _exit(1);
                                   });
      }
    }
    close(pipe_ends[1]);
    uint64_t acknowledged = 0;
    for (int i = 0; i < 50 + 37 * round; ++i) {
      REQUIRE(read(pipe_ends[0], &acknowledged, sizeof(acknowledged)) == sizeof(acknowledged));
    }
    kill(child, SIGKILL);
    while (read(pipe_ends[0], &acknowledged, sizeof(acknowledged)) == sizeof(acknowledged)) {
    }
    close(pipe_ends[0]);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    const Found found = ReadAgain(folder);
    INFO(found.status);
    REQUIRE(found.status.ok());
    REQUIRE(found.records.size() >= acknowledged);
    REQUIRE(acknowledged > last);
    for (size_t i = 0; i < found.records.size(); ++i) {
      REQUIRE(found.records[i] == Record{i + 1, "kill", std::string(200, 'k')});
    }
    last = acknowledged;
  }
}

}  // namespace
}  // namespace paramd
