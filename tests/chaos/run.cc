#include "tests/chaos/run.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/admin.h"
#include "security/authority.h"
#include "security/tokens.h"
#include "tests/chaos/commits.h"
#include "tests/integration/tcp_proxy.h"
#include "tests/support/daemon.h"
#include "tests/support/process.h"

namespace paramd::chaos {
namespace {

constexpr char kWorker[] = "tests/chaos/worker";
// A worker process makes so many commits at most.
constexpr size_t kCommits = 256;
// Shorter than workers and daemons are stopped now and then.
constexpr absl::Duration kLease = absl::Milliseconds(1500);
// What a call may take past its deadline, since the machine is busy with other things.
constexpr absl::Duration kSlack = absl::Seconds(5);
// For what should take far less.
constexpr absl::Duration kLong = absl::Minutes(1);
// Workers take a new token when the daemon knows it, and the old one goes when they have it.
constexpr uint64_t kRenewMs = 2500;
// Of a small disk: more than small commits leave there until nobody needs the journal's file any more.
constexpr char kDiskSize[] = "size=256m";

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
};

int64_t Overlap(const std::vector<Interval>& intervals, int64_t begin, int64_t end) {
  int64_t sum = 0;
  for (const Interval& i : intervals) sum += std::max<int64_t>(0, std::min(i.end, end) - std::max(i.begin, begin));
  return sum;
}

template <typename T>
T Must(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::cerr << result.status() << std::endl;
  std::abort();
}

// How much of a commit an elastic center takes.
constexpr double kAlpha = 1. / 4096;

struct Hosted {
  std::string name;
  std::string algorithm;
  std::string consistency;
  Layout layout;
  size_t next_commit = 0;  // of the next worker process
};

// A worker process, from its start to its end.
struct Life {
  size_t slot = 0;
  std::string diary;
  std::unique_ptr<Process> process;
  bool rivals = false;  // another one may have joined under its name meanwhile
  bool killed = false;
  bool refused = false;  // could not join for want of room on the disk
  std::vector<Interval> stopped;
};

// The place of one worker: its name, and its way to the daemon.
struct Slot {
  size_t model = 0;
  std::string name;
  std::string transport;
  std::string wire;
  std::unique_ptr<TcpProxy> proxy;
  Life* life = nullptr;  // null for a while after a kill
};

class Runner {
 public:
  explicit Runner(const Options& options) : options_(options), random_(options.seed) {
    if (options.small_disk && !MountSmallDisk()) return;
    if (options.tls) MakeCertificates();
    StartDaemon();
    MakeModels();
    for (size_t m = 0; m < models_.size(); ++m) {
      for (const std::string transport : {"grpc", "shm"}) {
        slots_.push_back({.model = m,
                          .name = transport,
                          .transport = transport,
                          .wire = transport == "shm" ? "f32" : std::array{"f32", "f16", "bf16"}[Draw(3)],
                          .proxy = std::make_unique<TcpProxy>(daemon_->address())});
      }
    }
  }

  ~Runner() {
    daemon_.reset();
    lives_.clear();
    if (options_.small_disk) umount2(state_dir_.c_str(), MNT_DETACH);
  }

  Report Run() {
    if (!report_.skipped.empty()) return report_;
    const int64_t begin = NowNanoseconds();
    for (size_t s = 0; s < slots_.size(); ++s) StartWorker(s);
    AwaitCommits();
    int64_t next = NowNanoseconds();
    while (counts_["kills of workers"] + counts_["kills of the daemon"] < options_.kills && report_.wrong.empty()) {
      Wait();
      if (NowNanoseconds() < next) continue;
      Strike();
      next = NowNanoseconds() + Milliseconds(options_.only_daemon ? 200 + Draw(1000) : 50 + Draw(250));
    }
    Calm();
    if (!options_.durability.empty()) {
      // What is in memory only would not be seen to be missing from the disk.
      options_.durability == "journal" ? KillDaemon() : TerminateDaemon();
      while (!due_.empty() || daemon_ == nullptr || terminated_) Wait();
    }
    counts_["seconds"] = (NowNanoseconds() - begin) / 1'000'000'000;
    for (size_t m = 0; m < models_.size(); ++m) Judge(m);
    TellRecovery();
    for (const auto& [what, count] : counts_) absl::StrAppend(&report_.figures, "  ", count, " ", what, "\n");
    return report_;
  }

 private:
  uint64_t Draw(uint64_t below) { return random_() % below; }
  static int64_t Milliseconds(uint64_t n) { return static_cast<int64_t>(n) * 1'000'000; }

  void Wrong(const std::string& what) {
    if (report_.wrong.size() < 20) report_.wrong.push_back(what);
  }

  // -------------------------------------------------------------------------------------------------------------------

  // In a namespace of this thread's, and of the processes that it starts.
  bool MountSmallDisk() {
    std::error_code error;
    std::filesystem::create_directory(state_dir_, error);
    if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        mount("none", state_dir_.c_str(), "tmpfs", 0, kDiskSize) == 0) {
      return true;
    }
    report_.skipped = absl::StrCat("it needs root to mount a small disk: ", std::strerror(errno));
    return false;
  }

  std::string FillerPath() const { return state_dir_ + "/filler"; }

  void FillDisk() {
    if (!options_.small_disk) return;
    ++counts_["times the disk was full"];
    const int file = open(FillerPath().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const std::vector<char> bytes(1 << 20);
    for (size_t piece : {bytes.size(), size_t{4096}}) {
      while (write(file, bytes.data(), piece) > 0) continue;
    }
    close(file);
    At(Draw(1500), [this] { EmptyDisk(); });
  }

  void EmptyDisk() const { unlink(FillerPath().c_str()); }

  // In its place at once, as tools do it.
  static void Replace(const std::string& path, const std::string& text) {
    std::ofstream(path + ".new") << text;
    std::filesystem::rename(path + ".new", path);
  }

  void MakeCertificates() {
    authority_ = Must(Authority::Create("chaos", absl::Hours(24)));
    for (std::string* const path : {&ca_, &certificate_, &key_}) *path = TemporaryPath("pem");
    Replace(ca_, authority_->pem().certificate);
    Certify("server", {"127.0.0.1"}, certificate_, key_);
    if (!options_.credentials) return;
    for (std::string* const path : {&client_.tls_cert, &client_.tls_key, &client_.token_file, &tokens_}) {
      *path = TemporaryPath("client");
    }
    client_.tls_ca = ca_;
    Certify("client", {}, client_.tls_cert, client_.tls_key);
    admin_ = Must(MakeToken("admin", "admin", ""));
    token_ = Must(MakeToken("worker", "worker", "m/*"));
    Replace(tokens_, admin_.line + token_.line);
    Replace(client_.token_file, token_.token);
  }

  void Certify(const std::string& name, const std::vector<std::string>& hosts, const std::string& certificate,
               const std::string& key) const {
    const auto made = Must(authority_->Certify(name, hosts, absl::Hours(24)));
    Replace(certificate, made.certificate);
    Replace(key, made.key);
  }

  // New certificates at once; a new token in the daemon's file, then in the workers', and the old one goes.
  void Renew() {
    if (!options_.credentials || std::exchange(renewing_, true)) return;
    ++counts_["times tokens and certificates were replaced"];
    Certify("server", {"127.0.0.1"}, certificate_, key_);
    Certify("client", {}, client_.tls_cert, client_.tls_key);
    const std::string old = std::exchange(token_, Must(MakeToken("worker", "worker", "m/*"))).line;
    Replace(tokens_, admin_.line + old + token_.line);
    At(kRenewMs, [this] { Replace(client_.token_file, token_.token); });
    At(2 * kRenewMs, [this] {
      Replace(tokens_, admin_.line + token_.line);
      renewing_ = false;
    });
  }

  std::vector<std::string> DaemonFlags() const {
    std::vector<std::string> flags = {absl::StrCat("--lease=", absl::FormatDuration(kLease)), "--grace=1s"};
    if (!options_.durability.empty()) {
      flags.push_back("--state_dir=" + state_dir_);
      if (options_.durability != "checkpoint") flags.push_back("--durability=" + options_.durability);
      flags.push_back("--checkpoint_every=" + options_.checkpoint_every);
    }
    if (options_.tls) {
      flags.push_back("--tls_cert=" + certificate_);
      flags.push_back("--tls_key=" + key_);
    }
    if (options_.credentials) {
      flags.push_back("--tls_client_ca=" + ca_);
      flags.push_back("--token_file=" + tokens_);
    }
    return flags;
  }

  void StartDaemon() {
    if (options_.small_disk) EmptyDisk();
    daemon_ = std::make_unique<Daemon>(DaemonFlags());
    starts_.push_back(NowNanoseconds());
    for (const Slot& slot : slots_) slot.proxy->SetServer(daemon_->address());
  }

  std::unique_ptr<Admin> Connect() const {
    Security security = client_;
    security.tls_ca = options_.tls ? ca_ : "none";
    security.token_file = "none";
    security.token = admin_.token;
    return Must(Admin::Connect(daemon_->address(), kLong, security));
  }

  void MakeModels() {
    const auto admin = Connect();
    const size_t cells = (static_cast<size_t>(options_.kills) + 60) * kCommits;
    std::array kinds = {Kind::kSums, Kind::kMarks, Kind::kElastic};
    std::shuffle(kinds.begin(), kinds.end(), random_);
    for (const std::string consistency : {"async", "bounded:2", "sync"}) {
      // Of one message, or of some.
      const Layout layout{.kind = kinds[models_.size()],
                          .cells = cells,
                          .body = std::array<size_t, 2>{1000, 400'000}[options_.small_disk ? 0 : Draw(2)]};
      v1::ModelSpec spec;
      switch (layout.kind) {
        case Kind::kSums:
          spec.set_algorithm(std::array{"downpour", "adag"}[Draw(2)]);
          break;
        case Kind::kMarks:
          spec.set_algorithm(std::array{"dynsgd", "adaptive_adag"}[Draw(2)]);
          break;
        case Kind::kElastic:
          spec.set_algorithm(std::array{"aeasgd", "eamsgd", "easgd"}[Draw(3)]);
          for (const auto& [name, value] : {std::pair{"rho", 1.}, {"learning_rate", kAlpha}}) {
            v1::Hyperparameter* const h = spec.add_hyperparameters();
            h->set_name(name);
            h->set_value(value);
          }
          break;
      }
      models_.push_back({.name = absl::StrCat("m/", models_.size()),
                         .algorithm = spec.algorithm(),
                         .consistency = consistency,
                         .layout = layout});
      spec.set_name(models_.back().name);
      spec.set_consistency(consistency);
      v1::Tensor* const tensor = spec.add_tensors();
      tensor->set_name("w");
      tensor->add_shape(static_cast<int64_t>(layout.floats()));
      Must(admin->CreateModel(spec));
      if (const auto status = admin->Initialize(spec.name(), std::vector<float>(layout.floats())); !status.ok()) {
        Must<int>(status);
      }
    }
  }

  // -------------------------------------------------------------------------------------------------------------------

  void StartWorker(size_t s) {
    Slot& slot = slots_[s];
    Hosted& model = models_[slot.model];
    if (model.next_commit + kCommits > model.layout.cells)
      return Wrong("there are more worker processes than expected");
    const std::string diary = TemporaryPath("diary");
    std::vector<std::string> flags = {"--server=" + slot.proxy->address(),
                                      "--tls_ca=" + (options_.tls ? ca_ : "none"),
                                      "--tls_cert=" + client_.tls_cert,
                                      "--tls_key=" + client_.tls_key,
                                      "--token_file=" + client_.token_file,
                                      absl::StrCat("--kind=", static_cast<int>(model.layout.kind)),
                                      "--model=" + model.name,
                                      "--worker=" + slot.name,
                                      "--transport=" + slot.transport,
                                      "--wire=" + slot.wire,
                                      "--diary=" + diary,
                                      absl::StrCat("--cells=", model.layout.cells),
                                      absl::StrCat("--first=", model.next_commit),
                                      absl::StrCat("--count=", kCommits),
                                      absl::StrCat("--seed=", Draw(1 << 30))};
    model.next_commit += kCommits;
    // One that was killed before it knew that it had joined may join yet, by a request that is still under way.
    const bool haunted = !lives_.empty() && std::any_of(lives_.begin(), lives_.end(), [&](const auto& life) {
      return life->slot == s && (life->killed || life->refused) && !absl::StrContains(ReadFile(life->diary), " J ");
    });
    lives_.push_back(std::make_unique<Life>(Life{.slot = s,
                                                 .diary = diary,
                                                 .process = std::make_unique<Process>(kWorker, std::move(flags)),
                                                 .rivals = haunted || slot.life != nullptr}));
    if (slot.life != nullptr) slot.life->rivals = true;
    slot.life = lives_.back().get();
    ++counts_["worker processes"];
  }

  // Of each model, so that none can end without.
  void AwaitCommits() {
    const int64_t end = NowNanoseconds() + absl::ToInt64Nanoseconds(kLong);
    const auto committed = [this](size_t m) {
      return std::any_of(lives_.begin(), lives_.end(), [&](const auto& life) {
        return slots_[life->slot].model == m && absl::StrContains(ReadFile(life->diary), " A ");
      });
    };
    for (size_t m = 0; m < models_.size(); ++m) {
      while (!committed(m) && report_.wrong.empty() && NowNanoseconds() < end) Wait();
    }
  }

  // Looks after what has ended by itself, and what is due.
  void Wait() {
    const int64_t before = NowNanoseconds();
    absl::SleepFor(absl::Milliseconds(5));
    const int64_t now = NowNanoseconds();
    // Nobody ran.
    if (now - before > Milliseconds(500)) suspended_.push_back({before, now});
    while (!due_.empty() && due_.begin()->first <= now) {
      const auto action = std::move(due_.begin()->second);
      due_.erase(due_.begin());
      action();
    }
    for (const auto& life : lives_) {
      if (life->process == nullptr || life->process->Running()) continue;
      const int code = *life->process->Wait();
      const bool early = calm_ && code == 128 + SIGTERM;  // it had not come to say what is to be done then
      life->refused =
          options_.small_disk && code == 1 && absl::StrContains(life->process->Err(), "written to the disk");
      if (life->refused) ++counts_["joins refused for want of room on the disk"];
      if (!life->killed && !life->refused && !early && code != 0 && (code != 3 || !life->rivals)) {
        Wrong(absl::StrCat("a worker of ", Name(life->slot), " ended with ", code, ":\n", Tail(life->process->Err())));
      }
      if (code == 3) ++counts_["workers fenced"];
      life->process.reset();
      Slot& slot = slots_[life->slot];
      if (slot.life != life.get()) continue;
      slot.life = nullptr;
      if (!calm_ && !life->killed) return StartWorker(life->slot);
    }
    if (daemon_ == nullptr || daemon_->process().Running()) return;
    const int code = *daemon_->process().Wait();
    // With the journal nothing is lost with a checkpoint that there was no room for.
    if (std::exchange(terminated_, false) && (code == 0 || (options_.small_disk && code == 1))) {
      EndDaemon();
    } else if (report_.wrong.empty()) {
      Wrong(absl::StrCat("the daemon ended with ", *daemon_->process().Wait(), ":\n", Tail(daemon_->process().Err())));
    }
  }

  std::string Name(size_t s) const { return absl::StrCat(Name(models_[slots_[s].model]), ", ", slots_[s].name); }
  static std::string Name(const Hosted& model) { return absl::StrCat(model.algorithm, ", ", model.consistency); }

  static std::string Tail(const std::string& text) {
    return text.substr(text.size() - std::min<size_t>(text.size(), 3000));
  }

  void At(uint64_t milliseconds, std::function<void()> action) {
    due_.emplace(NowNanoseconds() + Milliseconds(milliseconds), std::move(action));
  }

  // -------------------------------------------------------------------------------------------------------------------

  void Strike() {
    const size_t s = Draw(slots_.size());
    const uint64_t kind = options_.only_daemon ? 0 : Draw(100);
    if (kind < 20 && !options_.durability.empty()) {
      KillDaemon();
    } else if (kind < 50) {
      KillWorker(s);
    } else if (kind < 60) {
      StopWorker(s);
    } else if (kind < 65) {
      ++counts_["second processes under one name"];
      StartWorker(s);
    } else if (kind < 70) {
      StopDaemon();
    } else if (kind < 73 && !options_.durability.empty()) {
      TerminateDaemon();
    } else if (kind < 79) {
      Renew();
    } else if (kind < 85) {
      FillDisk();
    } else {
      BreakNetwork(s);
    }
  }

  void KillWorker(size_t s) {
    Life* const life = slots_[s].life;
    if (life == nullptr) return;
    ++counts_["kills of workers"];
    life->killed = true;
    life->process->Signal(SIGKILL);
    const auto restart = [this, s] {
      if (slots_[s].life == nullptr) StartWorker(s);
    };
    life->process->Wait();
    slots_[s].life = nullptr;
    Draw(2) == 0 ? restart() : At(Draw(500), restart);
  }

  void StopWorker(size_t s) {
    Life* const life = slots_[s].life;
    if (life == nullptr) return;
    ++counts_["stops of workers"];
    life->process->Signal(SIGSTOP);
    life->stopped.push_back({NowNanoseconds(), NowNanoseconds() + Milliseconds(60'000)});
    At(Draw(2500), [life, i = life->stopped.size() - 1] {
      life->stopped[i].end = NowNanoseconds();
      if (life->process != nullptr) life->process->Signal(SIGCONT);
    });
  }

  void StopDaemon() {
    if (daemon_ == nullptr) return;
    ++counts_["stops of the daemon"];
    daemon_->process().Signal(SIGSTOP);
    At(Draw(1500), [this] {
      if (daemon_ != nullptr) daemon_->process().Signal(SIGCONT);
    });
  }

  void KillDaemon() {
    if (daemon_ == nullptr) return;
    if (options_.only_daemon && !calm_ && !StopWriting()) return;
    ++counts_["kills of the daemon"];
    terminated_ = false;
    daemon_->process().Signal(SIGKILL);
    daemon_->process().Wait();
    EndDaemon();
    kills_.push_back({NowNanoseconds(), saved_});
  }

  // Stops the daemon in the middle of writing a checkpoint, if it soon does.
  bool StopWriting() {
    for (int i = 0; i < 1000 && daemon_->process().Running(); ++i) {
      daemon_->process().Stop();
      const auto files = std::filesystem::directory_iterator(absl::StrCat("/proc/", daemon_->process().pid(), "/fd"));
      for (const auto& file : files) {
        std::error_code gone;
        // Without a name until it is whole.
        const std::string path = std::filesystem::read_symlink(file, gone);
        if (absl::StartsWith(path, state_dir_ + "/models/") && absl::EndsWith(path, " (deleted)")) {
          ++counts_["kills while a checkpoint was written"];
          return true;
        }
      }
      daemon_->process().Signal(SIGCONT);
      absl::SleepFor(absl::Microseconds(Draw(5000)));
    }
    return false;
  }

  void TerminateDaemon() {
    if (daemon_ == nullptr || terminated_) return;
    ++counts_["terminations of the daemon"];
    terminated_ = true;
    daemon_->process().Signal(SIGTERM);
  }

  // Reads what it has said; it comes back a little later.
  void EndDaemon() {
    std::istringstream log(daemon_->process().Err());
    std::string line;
    while (std::getline(log, line)) {
      if (absl::StrContains(line, "event=checkpoint_") &&
          !(options_.small_disk && (absl::StrContains(line, "_failed ") || absl::StrContains(line, "_resumed ")))) {
        Wrong(line);
      }
      if (!absl::StrContains(line, "event=checkpoint ")) continue;
      ++counts_["checkpoints"];
      for (const Hosted& model : models_) {
        if (!absl::StrContains(line, absl::StrCat("model=\"", model.name, "\""))) continue;
        saved_[model.name] = std::atoll(line.c_str() + line.find("version=") + 8);
      }
    }
    daemon_.reset();
    At(Draw(500), [this] { StartDaemon(); });
  }

  void BreakNetwork(size_t s) {
    TcpProxy* const proxy = slots_[s].proxy.get();
    const uint64_t kind = Draw(5);
    if (kind == 0) {
      ++counts_["connections cut"];
      return proxy->Cut();
    }
    if (kind <= 2) {
      ++counts_["connections cut in the middle of a message"];
      return proxy->CutAfter(Draw(kind == 1 ? 2000 : 3'000'000));
    }
    ++counts_[kind == 3 ? "times replies were held" : "times requests were held"];
    kind == 3 ? proxy->HoldReplies() : proxy->HoldRequests();
    if (Draw(2) == 0) {
      At(Draw(2000), [proxy] { proxy->Release(); });
    } else {
      ++counts_["of these dropped"];
      At(Draw(2000), [proxy] { proxy->Cut(); });
    }
  }

  // No more faults: everybody finishes.
  void Calm() {
    calm_ = true;
    while (!due_.empty()) Wait();
    for (const Slot& slot : slots_) slot.proxy->Release();
    const auto running = [&] {
      return std::any_of(lives_.begin(), lives_.end(), [](const auto& life) { return life->process != nullptr; });
    };
    for (const auto& life : lives_) {
      if (life->process != nullptr) life->process->Signal(SIGTERM);
    }
    const int64_t begin = NowNanoseconds();
    const auto waited = [&] {
      const int64_t now = NowNanoseconds();
      return absl::Nanoseconds(now - begin - Overlap(suspended_, begin, now));
    };
    while (running() && waited() < kLong) Wait();
    for (const auto& life : lives_) {
      if (life->process == nullptr) continue;
      Wrong(absl::StrCat("a worker of ", Name(life->slot), " hangs:\n", Tail(life->process->Err()), "\nIts diary:\n",
                         Tail(ReadFile(life->diary))));
      life->process.reset();
    }
  }

  // -------------------------------------------------------------------------------------------------------------------

  struct Fate {
    enum { kNotSent, kUnknown, kApplied, kNotApplied } known = kNotSent;
    int64_t sent = 0;
    int64_t when = 0;     // it was known
    int64_t version = 0;  // of the center with it, if that was told
  };

  // Holds the center against what all its workers were told.
  void Judge(size_t m) {
    const Hosted& model = models_[m];
    const auto wrong = [&](const auto&... what) { Wrong(absl::StrCat(Name(model), ": ", what...)); };
    std::vector<float> center(model.layout.floats());
    const auto pulled = Connect()->Pull(model.name, absl::MakeSpan(center));
    if (!pulled.ok()) return wrong(pulled.status().ToString());
    if (const std::string what = Check(model.layout, center, pulled->version, false); !what.empty()) wrong(what);
    std::vector<Fate> fates(model.layout.cells);
    for (const auto& life : lives_) {
      if (slots_[life->slot].model == m) ReadDiary(*life, &fates);
    }
    int64_t applied = 0;
    for (size_t i = 0; i < fates.size(); ++i) {
      const bool there = center[i] != 0;
      const Fate& fate = fates[i];
      switch (fate.known) {
        case Fate::kNotSent:
          if (there) wrong("commit ", i, " was never sent, and is in the center");
          break;
        case Fate::kUnknown:
          ++counts_[there ? "commits of unknown fate, applied" : "commits of unknown fate, not applied"];
          break;
        case Fate::kNotApplied:
          ++counts_["commits not applied"];
          if (there) wrong("commit ", i, " is in the center, and its worker was told that it was not applied");
          break;
        case Fate::kApplied:
          ++applied;
          if (!there) JudgeLoss(model, i, fate);
      }
    }
    counts_["commits acknowledged"] += applied;
    if (applied == 0) wrong("nothing was committed");
  }

  // A commit was acknowledged, and is not in the center.
  void JudgeLoss(const Hosted& model, size_t commit, const Fate& fate) {
    const auto wrong = [&](const std::string& why) {
      Wrong(absl::StrCat(Name(model), ": commit ", commit, " was acknowledged, and is not in the center: ", why));
    };
    ++counts_["commits acknowledged and lost"];
    if (options_.durability.empty() || options_.durability == "journal") return wrong("that is never lost");
    const auto kill = std::find_if(kills_.begin(), kills_.end(), [&](const Kill& k) { return k.when >= fate.sent; });
    if (kill == kills_.end()) return wrong("nobody killed the daemon after that");
    if (options_.durability != "checkpoint") return;
    // An answer may have been under way while the daemon was killed: then it is not known which one gave it.
    if (kill->when < fate.when) return;
    const auto saved = kill->saved.find(model.name);
    if (saved != kill->saved.end() && fate.version > 0 && fate.version <= saved->second) {
      wrong(absl::StrCat("it is of version ", fate.version, ", and ", saved->second, " was saved"));
    }
    const int64_t lost = kill->when - fate.when;
    counts_["ms that the longest loss goes back"] =
        std::max(counts_["ms that the longest loss goes back"], lost / 1'000'000);
    absl::Duration every;
    absl::ParseDuration(options_.checkpoint_every, &every);
    if (absl::Nanoseconds(lost - Overlap(suspended_, fate.when, kill->when)) > every + kSlack) {
      wrong(absl::StrCat("the daemon was killed ", lost / 1'000'000, " ms later"));
    }
  }

  void ReadDiary(const Life& life, std::vector<Fate>* fates) {
    std::ifstream file(life.diary);
    std::string line;
    while (std::getline(file, line)) {
      std::istringstream words(line);
      int64_t when = 0, number = 0, version = 0;
      char kind = 0;
      words >> when >> kind >> number;
      const auto note = [&](auto known) {
        Fate& fate = fates->at(static_cast<size_t>(number));
        words >> version;
        fate = {.known = known, .sent = known == Fate::kUnknown ? when : fate.sent, .when = when, .version = version};
        if (known == Fate::kApplied) acknowledged_.push_back(when);
      };
      switch (static_cast<Entry>(kind)) {
        case Entry::kJoined:
          break;
        case Entry::kSending:
          note(Fate::kUnknown);
          break;
        case Entry::kApplied:
          note(Fate::kApplied);
          break;
        case Entry::kNotApplied:
          note(Fate::kNotApplied);
          break;
        case Entry::kCall:
          JudgeCall(life, when, number, &words);
          break;
        case Entry::kWrong:
          Wrong(absl::StrCat(Name(life.slot), ": ", line));
          break;
      }
    }
  }

  void JudgeCall(const Life& life, int64_t end, int64_t begin, std::istream* words) {
    int64_t timeout = 0;
    std::string name, code, message;
    *words >> timeout >> name >> code;
    std::getline(*words, message);
    ++counts_["calls"];
    if (code != "OK") ++counts_[absl::StrCat("calls that ended with ", code)];
    const int64_t asleep = Overlap(life.stopped, begin, end) + Overlap(suspended_, begin, end);
    const int64_t late = end - begin - timeout - asleep;
    counts_["ms that the latest call was late"] =
        std::max(counts_["ms that the latest call was late"], late / 1'000'000);
    if (late > absl::ToInt64Nanoseconds(kSlack)) {
      Wrong(absl::StrCat(Name(life.slot), ": a ", name, " of ", timeout / 1'000'000, " ms took ",
                         (end - begin) / 1'000'000, " ms: ", code, message));
    }
    if (code != "OK" && code != "DEADLINE_EXCEEDED:" && code != "UNAVAILABLE:" && code != "ABORTED:" &&
        !(options_.small_disk && code == "RESOURCE_EXHAUSTED:") &&
        !(models_[slots_[life.slot].model].algorithm == "adaptive_adag" && code == "FAILED_PRECONDITION:")) {
      Wrong(absl::StrCat(Name(life.slot), ": ", name, ": ", code, message));
    }
  }

  // How long after each start of the daemon somebody's commit was acknowledged.
  void TellRecovery() {
    std::sort(acknowledged_.begin(), acknowledged_.end());
    std::vector<int64_t> waits;
    for (size_t i = 1; i < starts_.size(); ++i) {
      const auto first = std::lower_bound(acknowledged_.begin(), acknowledged_.end(), starts_[i]);
      if (first != acknowledged_.end()) waits.push_back((*first - starts_[i]) / 1'000'000);
    }
    if (waits.empty()) return;
    std::sort(waits.begin(), waits.end());
    counts_["ms from the daemon's start to the next acknowledged commit, median"] = waits[waits.size() / 2];
  }

  struct Kill {
    int64_t when = 0;
    std::map<std::string, int64_t> saved;  // by the model's name: version of its newest checkpoint
  };

  const Options options_;
  std::mt19937_64 random_;
  Report report_;
  std::map<std::string, int64_t> counts_;

  std::unique_ptr<Authority> authority_;
  std::string ca_, certificate_, key_, tokens_;  // paths, as are those of client_
  Security client_;                              // the workers'
  NewToken admin_, token_;
  bool renewing_ = false;
  const std::string state_dir_ = TemporaryPath("state");
  std::unique_ptr<Daemon> daemon_;  // null for a while after it has ended
  bool terminated_ = false;
  std::vector<int64_t> starts_;  // of the daemon
  std::vector<Kill> kills_;      // of the daemon
  std::map<std::string, int64_t> saved_;
  double writing_s_ = 0;               // checkpoints
  double alive_s_ = 0;                 // daemons were, but for the last
  std::vector<int64_t> acknowledged_;  // when a commit was
  std::vector<Hosted> models_;
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<Life>> lives_;
  std::multimap<int64_t, std::function<void()>> due_;
  std::vector<Interval> suspended_;  // all of us were
  bool calm_ = false;
};

}  // namespace

Report Run(const Options& options) { return Runner(options).Run(); }

}  // namespace paramd::chaos
