#include "server/state_keeper.h"

#include <algorithm>
#include <filesystem>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "proto/text.h"
#include "server/model_event.h"
#include "server/past.h"

namespace paramd {
namespace {

// After one that failed, if the next would not come sooner.
constexpr absl::Duration kRetry = absl::Seconds(5);
// Between two looks at what is due.
constexpr absl::Duration kLook = absl::Milliseconds(100);
// Beyond so much of a log, or so many times all models, checkpoints come before their time, so that it gets shorter.
constexpr uint64_t kLogBytes = uint64_t{256} << 20;
constexpr uint64_t kLogModels = 16;

// What a callback brings, on any thread. Thread-safe.
template <typename Value>
class Awaited {
 public:
  void Set(Value value) {
    MutexLock lock(&mutex_);
    value_ = std::move(value);
    changed_.SignalAll();
  }
  // Once.
  Value Take() {
    MutexLock lock(&mutex_);
    while (!value_.has_value()) changed_.Wait(&mutex_);
    return *std::move(value_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<Value> value_ ABSL_GUARDED_BY(mutex_);
};

absl::Status NoMemory() {
  return absl::ResourceExhaustedError("there is no memory for what is to be written or read; give the server more");
}

// What the system says of files means something else of models: NOT_FOUND is one that was deleted.
absl::Status OfDisk(const absl::Status& status) {
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  return absl::InternalError(absl::StrCat(status.message(), absl::IsNotFound(status)
                                                                ? "; was the state folder moved or removed? Bring it "
                                                                  "back, or stop the server"
                                                                : ""));
}

FloatPieces PiecesOf(const std::vector<BlockRef>& blocks) {
  FloatPieces pieces;
  for (const BlockRef& block : blocks) pieces.push_back(block.floats());
  return pieces;
}

std::vector<absl::Span<float>> MutablePieces(std::vector<BlockRef>* blocks) {
  std::vector<absl::Span<float>> pieces;
  for (BlockRef& block : *blocks) pieces.push_back(block.mutable_floats());
  return pieces;
}

absl::Status Contradiction(const ModelFile& file, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(file.file().path(), ": ", what));
}

absl::StatusOr<ModelImage> ReadImage(const ModelFile& file, const CheckedSpec& spec, state::Checkpoint record) {
  ModelImage image{.record = std::move(record)};
  if (!image.record.initialized()) return image;
  if (image.record.initial_checksums_size() != spec.spec.tensors_size() ||
      file.has_sum() != (image.record.folded() > 0) || image.record.folded() < 0) {
    return Contradiction(file, "its record contradicts its tensors");
  }
  image.image = Center::AllocateImage(spec.floats, file.state_vectors(), file.has_sum());
  Image& center = *image.image;
  center.version = image.record.version();
  center.rounds = image.record.rounds();
  center.folded = image.record.folded();
  if (auto status = file.ReadCenter(MutablePieces(&center.blocks)); !status.ok()) return status;
  for (size_t i = 0; i < center.state.size(); ++i) {
    if (auto status = file.ReadState(i, MutablePieces(&center.state[i])); !status.ok()) return status;
  }
  if (file.has_sum()) {
    if (auto status = file.ReadSum(MutablePieces(&center.sum)); !status.ok()) return status;
  }
  return image;
}

}  // namespace

StateKeeper::StateKeeper(StateOptions options, std::unique_ptr<StateFolder> folder)
    : options_(std::move(options)), folder_(std::move(folder)) {}

StateKeeper::~StateKeeper() {
  Finish();
  // What it writes it tells this.
  StopLog();
}

absl::StatusOr<std::unique_ptr<StateKeeper>> StateKeeper::Open(StateOptions options) {
  auto folder = StateFolder::Open(options.dir, RandomId);
  if (!folder.ok()) return folder.status();
  return std::unique_ptr<StateKeeper>(new StateKeeper(std::move(options), *std::move(folder)));
}

void StateKeeper::Say(bool error, const std::string& line) const {
  if (options_.say) options_.say(error, line);
}

// ---------------------------------------------------------------------------------------------------------------------
// Start

absl::Status StateKeeper::Start(Models* models) {
  models_ = models;
  auto stored = ListStoredModels(folder_->path());
  if (!stored.ok()) return stored.status();
  // An ensemble comes before its members.
  for (const bool members : {false, true}) {
    for (const StoredModel& model : *stored) {
      if (auto status = Load(model, members); !status.ok()) return status;
    }
  }
  if (auto status = OpenLog(); !status.ok()) return status;
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

absl::Status StateKeeper::Load(const StoredModel& stored, bool members) {
  if (members) {
    MutexLock lock(&mutex_);
    if (tracked_.count(stored.id) > 0) return absl::OkStatus();
  }
  absl::Status newest;
  for (const StoredCheckpoint& checkpoint : stored.checkpoints) {
    const absl::Status loaded = LoadCheckpoint(checkpoint, stored, members);
    if (loaded.ok()) {
      if (!newest.ok()) {
        MutexLock lock(&mutex_);
        if (const auto tracked = tracked_.find(stored.id); tracked != tracked_.end()) tracked->second.fell_back = true;
      }
      if (!newest.ok()) {
        Say(true, absl::StrCat("event=checkpoint_fallback file=\"", Printable(checkpoint.path),
                               "\" version=", checkpoint.version));
      }
      return absl::OkStatus();
    }
    // Anything but damage is as true of the one before.
    if (!absl::IsDataLoss(loaded) && !absl::IsInvalidArgument(loaded)) return loaded;
    if (!members) Say(true, absl::StrCat("event=checkpoint_damaged error=\"", Printable(loaded.message()), "\""));
    if (newest.ok()) newest = loaded;
  }
  // It was never told to exist.
  if (newest.ok()) return folder_->RemoveModel(stored.id);
  return absl::DataLossError(absl::StrCat(stored.folder, ": none of its ", stored.checkpoints.size(),
                                          " checkpoints can be read; bring one back from a backup, or move the folder "
                                          "away to start without the model. The newest: ",
                                          newest.message()));
}

absl::StatusOr<StateKeeper::Loaded> StateKeeper::Read(const std::string& path) const {
  try {
    return ReadOrThrow(path);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": there is no memory for this model; give the server more"));
  }
}

absl::StatusOr<StateKeeper::Loaded> StateKeeper::ReadOrThrow(const std::string& path) const {
  const auto file = ModelFile::Open(path);
  if (!file.ok()) return file.status();
  auto record = file->ReadRecord();
  if (!record.ok()) return record.status();
  v1::ModelSpec spec;
  if (!spec.ParseFromString(record->spec())) return Contradiction(*file, "its record has no specification");
  auto checked = CheckSpec(spec, models_->max_model_bytes());
  if (!checked.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": this daemon can't host the model: ", checked.status().message()));
  }
  Reservation room;
  if (record->initialized()) {
    room = models_->budget()->Count(BudgetKind::kImages, checked->floats * sizeof(float) * (1 + file->state_vectors()));
  }
  auto image = ReadImage(*file, *checked, *std::move(record));
  if (!image.ok()) return image.status();
  image->room = std::move(room);
  return Loaded{*std::move(checked), *std::move(image)};
}

absl::Status StateKeeper::LoadCheckpoint(const StoredCheckpoint& checkpoint, const StoredModel& stored, bool members) {
  if (!members) {
    // Those come later.
    const auto file = ModelFile::Open(checkpoint.path);
    const auto record = file.ok() ? file->ReadRecord() : file.status();
    if (!record.ok()) return record.status();
    if (record->has_member_of()) return absl::OkStatus();
  }
  auto loaded = Read(checkpoint.path);
  if (!loaded.ok()) return loaded.status();
  ModelImage& image = loaded->image;
  if (image.record.id() != stored.id) {
    return absl::InvalidArgumentError(absl::StrCat(checkpoint.path, ": its record is another model's"));
  }
  Tracked tracked{.saved = {.position = image.record.position(),
                            .initialized = image.record.initialized(),
                            .version = image.record.version()},
                  .any = true,
                  .saved_before = image.record.position(),
                  .saved_at = clock_->Now() - (absl::Now() - checkpoint.written),
                  .next_attempt = clock_->Now() + options_.every};
  // What replays to this checkpoint's successor must not go while this one may be needed.
  for (const StoredCheckpoint& older : stored.checkpoints) {
    if (older.number >= checkpoint.number) continue;
    const auto before = ModelFile::Open(older.path);
    if (!before.ok()) continue;
    const auto old_record = before->ReadRecord();
    if (!old_record.ok()) continue;
    tracked.saved_before = old_record->position();
    break;
  }
  const std::string name = loaded->spec.spec.name();
  if (auto status = models_->Adopt(std::move(loaded->spec), std::move(image)); !status.ok()) {
    if (!absl::IsAlreadyExists(status)) return status;
    return absl::Status(status.code(), absl::StrCat(stored.folder, ": ", status.message(),
                                                    "; move the folder of one of them away: the names are in them"));
  }
  const auto model = models_->Find(name);
  if (!model.ok()) return model.status();
  tracked.saved.changes = (*model)->save_point().changes;
  MutexLock lock(&mutex_);
  tracked_[stored.id] = std::move(tracked);
  return absl::OkStatus();
}

absl::Status StateKeeper::OpenLog() {
  std::map<uint64_t, std::shared_ptr<Model>> models;
  std::set<uint64_t> behind;  // what the log has of these does not follow from the checkpoint
  LogOptions options{.say = [this](const std::string& what) {
    Say(true, absl::StrCat("event=log message=\"", Printable(what), "\""));
  }};
  for (const auto& model : models_->List()) {
    options.after = std::max(options.after, model->save_point().position);
    models.emplace(model->id(), model);
  }
  std::error_code ignored;
  const bool missing = options.after > 0 && !std::filesystem::exists(folder_->log_folder(), ignored);
  auto log = Log::Open(folder_->log_folder(), std::move(options), [&](const LogRecord& read) -> absl::Status {
    state::Record record;
    if (!record.ParseFromArray(read.head.data(), static_cast<int>(read.head.size()))) {
      return absl::DataLossError("the record can't be read; was it written by a newer paramd?");
    }
    // Those of a model that was deleted are of no use.
    const auto model = models.find(record.model());
    if (model == models.end() || read.position <= model->second->save_point().position) return absl::OkStatus();
    const bool of_members = record.has_joined() || record.has_left();
    if (!of_members && behind.count(record.model()) > 0) {
      model->second->PassOver(read.position);
      return absl::OkStatus();
    }
    const absl::Status replayed = model->second->Replay(record, read);
    if (!absl::IsDataLoss(replayed)) return replayed;
    {
      MutexLock lock(&mutex_);
      if (!tracked_[record.model()].fell_back) return replayed;
    }
    // The damaged checkpoint had what was done without a journal.
    behind.insert(record.model());
    model->second->PassOver(read.position);
    Say(true, absl::StrCat("event=journal_gap model=", LogValue(model->second->name()), " version=",
                           model->second->save_point().version, " error=\"", Printable(replayed.message()), "\""));
    return absl::OkStatus();
  });
  if (!log.ok()) return log.status();
  log_ = *std::move(log);
  if (missing) {
    Say(true, absl::StrCat("event=log_missing folder=\"", Printable(folder_->log_folder()),
                           "\" message=\"what was written to it after the checkpoints is lost\""));
  }
  // What is done from now on follows from a checkpoint of what there is.
  for (const uint64_t id : behind) {
    Save(models.at(id));
    MutexLock lock(&mutex_);
    if (!tracked_[id].problem.ok()) return tracked_[id].problem;
  }
  for (const auto& [id, model] : models) model->ComeBack();
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------------------------------------------------
// Records

uint64_t StateKeeper::Record(const state::Record& record) {
  return log_->Append(record.SerializeAsString(), {},
                      [this, id = record.model()](const absl::Status& status) { Recorded(id, status); });
}

void StateKeeper::StopLog() {
  if (log_ != nullptr) log_->Stop();
}

void StateKeeper::Recorded(uint64_t id, const absl::Status& status) {
  uint64_t lost = 0;
  if (!status.ok()) {
    for (const auto& model : models_->List()) {
      if (model->id() == id) lost = model->save_point().position;
    }
  }
  std::vector<Waiter> durable;
  {
    MutexLock lock(&mutex_);
    // Of one that was deleted nobody waits for anything.
    const auto found = tracked_.find(id);
    if (found == tracked_.end() && status.ok()) return;
    Tracked& tracked = tracked_[id];
    if (!status.ok()) {
      // A checkpoint has what the log lacks.
      tracked.lost_up_to = std::max(tracked.lost_up_to, lost);
      if (const auto model = tracked.model.lock(); model != nullptr && !tracked.waiters.empty()) QueueLocked(model);
      return;
    }
    const auto later = std::stable_partition(tracked.waiters.begin(), tracked.waiters.end(),
                                             [&](const Waiter& waiter) { return !Covers(tracked, waiter); });
    std::move(later, tracked.waiters.end(), std::back_inserter(durable));
    tracked.waiters.erase(later, tracked.waiters.end());
  }
  for (const Waiter& waiter : durable) waiter.done(absl::OkStatus());
}

void StateKeeper::DropRecords() {
  uint64_t needed = log_->state().last + 1;
  for (const auto& model : models_->List()) {
    const uint64_t last = model->save_point().position;
    MutexLock lock(&mutex_);
    const Tracked& tracked = tracked_[model->id()];
    const uint64_t before = options_.keep > 1 ? tracked.saved_before : tracked.saved.position;
    const uint64_t saved = tracked.any ? std::min(before, tracked.saved.position) : 0;
    if (last > saved) needed = std::min(needed, saved + 1);
  }
  log_->DropBefore(needed);
}

// ---------------------------------------------------------------------------------------------------------------------
// Saving

void StateKeeper::AwaitDurable(const std::shared_ptr<Model>& model, Done done) {
  Waiter waiter{.need = model->save_point(), .done = std::move(done)};
  // Nobody is told here of commits that came after it.
  waiter.need.position = waiter.need.recorded;
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (finishing_) {
      status = ShuttingDown();
    } else if (Tracked& tracked = tracked_[model->id()]; !Covers(tracked, waiter)) {
      // A record that is on its way needs no checkpoint.
      const bool recorded = tracked.any && tracked.saved.initialized >= waiter.need.initialized && LogIsWhole(tracked);
      tracked.model = model;
      tracked.waiters.push_back(std::move(waiter));
      if (!recorded) QueueLocked(model);
      return;
    }
  }
  waiter.done(status);
}

bool StateKeeper::Covers(const Tracked& tracked, const Waiter& waiter) const {
  const uint64_t position = waiter.need.position;
  return tracked.succeeded >= waiter.attempt && tracked.any && tracked.saved.initialized >= waiter.need.initialized &&
         (tracked.saved.position >= position || (LogIsWhole(tracked) && log_->state().last >= position));
}

void StateKeeper::QueueLocked(const std::shared_ptr<Model>& model) {
  Tracked& tracked = tracked_[model->id()];
  if (std::exchange(tracked.queued, true)) return;
  tasks_.emplace_back([this, model] { Save(model); });
  changed_.SignalAll();
}

void StateKeeper::Checkpoint(const std::vector<std::shared_ptr<Model>>& models, Done done) {
  if (models.empty()) return done(absl::OkStatus());
  // The last one that is written answers for all.
  struct Pending {
    Mutex mutex;
    size_t left ABSL_GUARDED_BY(mutex);
    absl::Status status ABSL_GUARDED_BY(mutex);
  };
  auto pending = std::make_shared<Pending>();
  {
    MutexLock lock(&pending->mutex);
    pending->left = models.size();
  }
  const Done one = [pending, done = std::move(done)](const absl::Status& status) {
    absl::Status all;
    {
      MutexLock lock(&pending->mutex);
      if (pending->status.ok()) pending->status = status;
      if (--pending->left > 0) return;
      all = pending->status;
    }
    done(all);
  };
  for (const auto& model : models) {
    {
      MutexLock lock(&mutex_);
      if (!finishing_) {
        Tracked& tracked = tracked_[model->id()];
        tracked.waiters.push_back({.attempt = tracked.begun + 1, .done = one});
        QueueLocked(model);
        continue;
      }
    }
    one(ShuttingDown());
  }
}

void StateKeeper::Remove(const Models::Deleted& deleted, Done done) {
  const auto remove = [this, deleted, done] {
    absl::Status status;
    // Else its worker would get another place.
    if (deleted.ensemble != nullptr) Save(deleted.ensemble);
    std::vector<Waiter> waiters;
    for (const uint64_t id : deleted.ids) {
      if (status.ok()) status = folder_->RemoveModel(id);
      MutexLock lock(&mutex_);
      const auto tracked = tracked_.find(id);
      if (tracked == tracked_.end()) continue;
      std::move(tracked->second.waiters.begin(), tracked->second.waiters.end(), std::back_inserter(waiters));
      tracked_.erase(tracked);
    }
    for (const Waiter& waiter : waiters) waiter.done(absl::NotFoundError("the model was deleted"));
    if (!status.ok()) {
      Say(true, absl::StrCat("event=remove_failed error=\"", Printable(status.message()), "\""));
      {
        MutexLock lock(&mutex_);
        unremoved_.insert(unremoved_.end(), deleted.ids.begin(), deleted.ids.end());
      }
      status = OfDisk(status);
      status =
          absl::Status(status.code(), absl::StrCat("the model is gone, but not from the disk, so that it comes back "
                                                   "when the daemon starts again: ",
                                                   status.message()));
    }
    done(status);
  };
  {
    MutexLock lock(&mutex_);
    if (!finishing_) {
      tasks_.emplace_back(remove);
      changed_.SignalAll();
      return;
    }
  }
  done(ShuttingDown());
}

void StateKeeper::Run() {
  while (true) {
    Task task;
    {
      MutexLock lock(&mutex_);
      const absl::Time look = clock_->Now() + std::min(kLook, options_.every);
      while (tasks_.empty() && !finishing_ && clock_->Now() < look) clock_->Wait(&changed_, &mutex_, look);
      if (!tasks_.empty()) {
        task = std::move(tasks_.front());
        tasks_.pop_front();
      } else if (finishing_) {
        return;
      }
    }
    task ? task() : SaveDue();
  }
}

void StateKeeper::RemoveAgain() {
  std::vector<uint64_t> ids;
  {
    MutexLock lock(&mutex_);
    ids.swap(unremoved_);
  }
  for (const uint64_t id : ids) {
    if (folder_->RemoveModel(id).ok()) continue;
    MutexLock lock(&mutex_);
    unremoved_.push_back(id);
  }
}

void StateKeeper::SaveDue() {
  RemoveAgain();
  if (options_.durability == Durability::kNone) return;
  const absl::Time now = clock_->Now();
  const std::vector<std::shared_ptr<Model>> models = models_->List();
  uint64_t model_bytes = 0;
  for (const auto& model : models) model_bytes += model->bytes();
  for (const auto& model : models) {
    const SavePoint at = model->save_point();
    const bool log_is_long = log_->state().bytes > kLogBytes + kLogModels * model_bytes;
    {
      MutexLock lock(&mutex_);
      Tracked& tracked = tracked_[model->id()];
      // A second one of the same lets the log go on without what leads from the one before to the first.
      const bool holds_log = options_.keep > 1 && tracked.saved_before < at.position;
      if (tracked.any && tracked.saved.changes == at.changes && !holds_log) continue;
      const bool many = options_.every_versions > 0 && tracked.problem.ok() &&
                        static_cast<uint64_t>(at.version - tracked.saved.version) >= options_.every_versions;
      const bool shortens = log_is_long && tracked.problem.ok();
      if (now < tracked.next_attempt && !many && !shortens) continue;
    }
    Save(model);
  }
}

void StateKeeper::Save(const std::shared_ptr<Model>& model) {
  std::vector<Waiter> waiting;
  uint64_t attempt = 0;
  {
    MutexLock lock(&mutex_);
    Tracked& tracked = tracked_[model->id()];
    tracked.queued = false;
    attempt = ++tracked.begun;
  }
  SavePoint at;
  absl::Status status;
  try {
    status = Write(model, &at);
  } catch (const std::bad_alloc&) {
    status = NoMemory();
  }
  bool told = false;
  {
    MutexLock lock(&mutex_);
    Tracked& tracked = tracked_[model->id()];
    const absl::Time now = clock_->Now();
    told = tracked.problem.message() == status.message();
    tracked.problem = status;
    tracked.next_attempt = now + (status.ok() ? options_.every : std::min(options_.every, kRetry));
    if (status.ok()) {
      tracked.succeeded = attempt;
      NoteSavedLocked(&tracked, at);
    }
    const auto later = std::stable_partition(tracked.waiters.begin(), tracked.waiters.end(), [&](const Waiter& waiter) {
      return status.ok() ? !Covers(tracked, waiter) : waiter.attempt > attempt;
    });
    std::move(later, tracked.waiters.end(), std::back_inserter(waiting));
    tracked.waiters.erase(later, tracked.waiters.end());
    if (absl::IsNotFound(status)) {
      tracked_.erase(model->id());
    } else if (!tracked.waiters.empty()) {
      QueueLocked(model);
    }
  }
  if (!status.ok() && !absl::IsNotFound(status) && !told) {
    Say(true, absl::StrCat("event=checkpoint_failed model=", LogValue(model->name()), " error=\"",
                           Printable(status.message()), "\""));
  } else if (status.ok() && !told) {
    Say(false, absl::StrCat("event=checkpoint_resumed model=", LogValue(model->name())));
  }
  const absl::Status answer =
      status.ok() ? status
                  : absl::Status(status.code(), absl::StrCat("it was done, but model '", model->name(),
                                                             "' could not be written to the disk, so that it is undone "
                                                             "if the server ends before it can: ",
                                                             status.message()));
  for (const Waiter& waiter : waiting) waiter.done(answer);
  if (status.ok()) DropRecords();
}

void StateKeeper::NoteSavedLocked(Tracked* tracked, const SavePoint& at) {
  tracked->saved_before = tracked->any ? tracked->saved.position : at.position;
  tracked->any = true;
  tracked->saved = at;
  tracked->saved_at = clock_->Now();
}

absl::Status StateKeeper::Write(const std::shared_ptr<Model>& model, SavePoint* at) {
  const auto taken = std::make_shared<Awaited<absl::StatusOr<ModelImage>>>();
  model->TakeImage([taken](absl::StatusOr<ModelImage> image) { taken->Set(std::move(image)); });
  absl::StatusOr<ModelImage> image = taken->Take();
  if (!image.ok()) return image.status();
  models_->Save(*model, &image->record);
  const size_t before = image->record.ByteSizeLong();
  model->SaveHistories(&image->record);
  if (!image->room.empty()) {
    image->room.Resize(image->room.bytes() + image->record.ByteSizeLong() - before);
  }
  *at = image->at;
  return WriteImage(*model, *image);
}

absl::Status StateKeeper::WriteImage(const Model& model, const ModelImage& image) {
  const absl::Time begun = clock_->Now();
  ModelFileContent content{.spec = model.checked_spec().spec, .record = &image.record};
  if (image.image.has_value()) {
    content.version = image.image->version;
    content.rounds = image.image->rounds;
    content.center = PiecesOf(image.image->blocks);
    for (const auto& vector : image.image->state) content.state.push_back(PiecesOf(vector));
    content.sum = PiecesOf(image.image->sum);
  }
  if (auto status = folder_->Write(model.name(), content, options_.keep); !status.ok()) {
    // Where the journal has taken all the room, only this gets it back. The newest one that is good stays.
    if (absl::IsResourceExhausted(status) && options_.durability == Durability::kJournal) {
      folder_->KeepNewest(image.record.id());
    }
    return OfDisk(status);
  }
  Say(false, absl::StrCat("event=checkpoint model=", LogValue(model.name()), " version=", content.version,
                          " seconds=", absl::ToDoubleSeconds(clock_->Now() - begun)));
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------------------------------------------------
// Bringing back

void StateKeeper::Restore(const v1::RestoreModelRequest& request, Done done) {
  {
    MutexLock lock(&mutex_);
    if (!finishing_) {
      tasks_.emplace_back([this, request, done = std::move(done)] {
        absl::Status status;
        try {
          status = RestoreNow(request);
        } catch (const std::bad_alloc&) {
          status = NoMemory();
        }
        done(status);
      });
      changed_.SignalAll();
      return;
    }
  }
  done(ShuttingDown());
}

absl::Status StateKeeper::RestoreNow(const v1::RestoreModelRequest& request) {
  const auto model = models_->Find(request.model());
  if (!model.ok()) return model.status();
  if (request.as().empty()) {
    if (auto status = models_->CheckPull(**model); !status.ok()) return status;
  } else if (models_->Find(request.as()).ok()) {
    return absl::AlreadyExistsError(
        absl::StrCat("there is a model '", request.as(), "' already; give another name, or delete it first"));
  }
  auto loaded = ReadVersion(**model, request);
  if (!loaded.ok()) return loaded.status();
  return request.as().empty() ? RestoreInPlace(*model, std::move(loaded->image))
                              : RestoreAs(*std::move(loaded), request.as());
}

absl::StatusOr<StateKeeper::Loaded> StateKeeper::ReadVersion(const Model& model,
                                                             const v1::RestoreModelRequest& request) const {
  const std::vector<StoredCheckpoint> checkpoints = folder_->Checkpoints(model.id());
  const auto found = std::find_if(checkpoints.begin(), checkpoints.end(), [&](const StoredCheckpoint& checkpoint) {
    return !request.has_version() || checkpoint.version == request.version();
  });
  if (found == checkpoints.end()) {
    std::vector<std::string> versions;
    for (const StoredCheckpoint& checkpoint : checkpoints) versions.push_back(absl::StrCat(checkpoint.version));
    return absl::NotFoundError(absl::StrCat(
        "model '", model.name(), "' has no checkpoint",
        request.has_version() ? absl::StrCat(" of version ", request.version()) : "", "; ",
        versions.empty() ? "make one by `paramctl checkpoint`" : "it has some of " + absl::StrJoin(versions, ", ")));
  }
  auto loaded = Read(found->path);
  if (!loaded.ok()) return loaded.status();
  if (!loaded->image.image.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat(found->path, ": model '", model.name(), "' had no center yet; nothing could be brought back"));
  }
  return loaded;
}

absl::Status StateKeeper::RestoreInPlace(const std::shared_ptr<Model>& model, ModelImage image) {
  if (auto status = model->CheckImage(image); !status.ok()) return status;
  const auto done = std::make_shared<Awaited<absl::Status>>();
  SavePoint at;
  model->GoBack(
      std::move(image),
      [this, model, &at](ModelImage* restored) {
        try {
          models_->Save(*model, &restored->record);
          model->SaveHistories(&restored->record);
          at = restored->at;
          return WriteImage(*model, *restored);
        } catch (const std::bad_alloc&) {
          return NoMemory();
        }
      },
      [done](absl::Status status) { done->Set(std::move(status)); });
  if (auto status = done->Take(); !status.ok()) return status;
  {
    MutexLock lock(&mutex_);
    NoteSavedLocked(&tracked_[model->id()], at);
  }
  DropRecords();
  return absl::OkStatus();
}

absl::Status StateKeeper::RestoreAs(Loaded loaded, const std::string& name) {
  v1::ModelSpec spec = loaded.spec.spec;
  spec.set_name(name);
  auto renamed = CheckSpec(spec, models_->max_model_bytes());
  if (!renamed.ok()) return renamed.status();
  auto past = PastOf(loaded.image.record);
  if (!past.ok()) return past.status();
  state::Checkpoint& record = loaded.image.record;
  past->set_id(RandomId());
  past->set_initialized(true);
  past->set_version(record.version());
  past->set_rounds(record.rounds());
  past->set_problem(record.problem());
  past->set_first_version(record.first_version());
  past->mutable_initial_checksums()->Swap(record.mutable_initial_checksums());
  record = *std::move(past);
  // A round that was under way has nobody to end it.
  loaded.image.image->sum.clear();
  loaded.image.image->folded = 0;
  if (auto status = models_->Adopt(*std::move(renamed), std::move(loaded.image)); !status.ok()) return status;
  const auto model = models_->Find(name);
  if (!model.ok()) return model.status();
  Save(*model);
  absl::Status saved;
  {
    MutexLock lock(&mutex_);
    const auto tracked = tracked_.find((*model)->id());
    if (tracked == tracked_.end()) return absl::NotFoundError(absl::StrCat("model '", name, "' was deleted"));
    saved = tracked->second.problem;
  }
  if (saved.ok()) return saved;
  // It was never told to exist.
  Models::Deleted deleted;
  if (auto status = models_->Delete(name, &deleted); !status.ok()) return status;
  Remove(deleted, [](const absl::Status& /*status*/) {});
  return saved;
}

absl::StatusOr<v1::CheckpointReply> StateKeeper::List(const std::vector<std::shared_ptr<Model>>& models,
                                                      size_t of_each) const {
  auto stored = ListStoredModels(folder_->path());
  if (!stored.ok()) return stored.status();
  std::map<uint64_t, const StoredModel*> by_id;
  for (const StoredModel& model : *stored) by_id.emplace(model.id, &model);
  v1::CheckpointReply reply;
  const absl::Time now = absl::Now();
  for (const auto& model : models) {
    const auto found = by_id.find(model->id());
    if (found == by_id.end()) continue;
    const std::vector<StoredCheckpoint>& checkpoints = found->second->checkpoints;
    for (size_t i = 0; i < std::min(of_each, checkpoints.size()); ++i) {
      v1::CheckpointInfo* const info = reply.add_checkpoints();
      info->set_model(model->name());
      info->set_number(checkpoints[i].number);
      info->set_version(checkpoints[i].version);
      info->set_bytes(checkpoints[i].bytes);
      info->set_age_s(std::max(0.0, absl::ToDoubleSeconds(now - checkpoints[i].written)));
      info->set_file(Repaired(checkpoints[i].path));
    }
  }
  return reply;
}

// ---------------------------------------------------------------------------------------------------------------------

bool StateKeeper::Finish() {
  bool first = false;
  {
    MutexLock lock(&mutex_);
    first = !std::exchange(finishing_, true);
    changed_.SignalAll();
  }
  if (first && thread_.joinable()) {
    thread_.join();
    for (const auto& model : models_->List()) {
      const uint64_t changes = model->save_point().changes;
      const auto saved = [&] {
        MutexLock lock(&mutex_);
        const Tracked& tracked = tracked_[model->id()];
        return tracked.any && tracked.saved.changes >= changes;
      };
      if (saved()) continue;
      Save(model);
      if (saved()) continue;
      MutexLock lock(&mutex_);
      lost_ = true;
    }
  }
  MutexLock lock(&mutex_);
  return !lost_;
}

// ---------------------------------------------------------------------------------------------------------------------

void StateKeeper::Describe(uint64_t id, v1::ModelInfo* info) const {
  MutexLock lock(&mutex_);
  const auto found = tracked_.find(id);
  if (found == tracked_.end()) return;
  const Tracked& tracked = found->second;
  info->set_checkpoint_problem(Repaired(tracked.problem.message()));
  if (!tracked.any) return;
  info->set_has_checkpoint(true);
  info->set_checkpoint_version(tracked.saved.version);
  info->set_checkpoint_age_s(absl::ToDoubleSeconds(clock_->Now() - tracked.saved_at));
}

void StateKeeper::DescribeLog(v1::ServerStatus* status) const {
  const LogState log = log_->state();
  status->set_log_problem(Repaired(log.problem.message()));
  status->set_log_waiting(log.waiting);
  status->set_log_bytes(log.bytes);
}

}  // namespace paramd
