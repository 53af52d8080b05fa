#include "server/state_keeper.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/text.h"

namespace paramd {
namespace {

// After one that failed, if the next would not come sooner.
constexpr absl::Duration kRetry = absl::Seconds(5);
// Between two looks at what is due.
constexpr absl::Duration kLook = absl::Milliseconds(100);

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
  try {
    image.image = Center::AllocateImage(spec.floats, file.state_vectors(), file.has_sum());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(file.file().path(), ": there is no memory for this model"));
  }
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

absl::Status StateKeeper::LoadCheckpoint(const StoredCheckpoint& checkpoint, const StoredModel& stored, bool members) {
  const auto file = ModelFile::Open(checkpoint.path);
  if (!file.ok()) return file.status();
  auto record = file->ReadRecord();
  if (!record.ok()) return record.status();
  if (record->has_member_of() && !members) return absl::OkStatus();
  v1::ModelSpec spec;
  if (record->id() != stored.id || !spec.ParseFromString(record->spec())) {
    return Contradiction(*file, "its record is another model's");
  }
  auto checked = CheckSpec(spec, models_->max_model_bytes());
  if (!checked.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint.path, ": this daemon can't host the model: ", checked.status().message()));
  }
  auto image = ReadImage(*file, *checked, *std::move(record));
  if (!image.ok()) return image.status();
  Tracked tracked{.saved = {.position = image->record.position(),
                            .initialized = image->record.initialized(),
                            .version = image->record.version()},
                  .any = true,
                  .saved_before = image->record.position(),
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
  const std::string name = checked->spec.name();
  if (auto status = models_->Adopt(*std::move(checked), *std::move(image)); !status.ok()) return status;
  const auto model = models_->Find(name);
  if (!model.ok()) return model.status();
  tracked.saved.changes = (*model)->save_point().changes;
  MutexLock lock(&mutex_);
  tracked_[stored.id] = std::move(tracked);
  return absl::OkStatus();
}

absl::Status StateKeeper::OpenLog() {
  std::map<uint64_t, std::shared_ptr<Model>> models;
  LogOptions options{.say = [this](const std::string& what) {
    Say(true, absl::StrCat("event=log message=\"", Printable(what), "\""));
  }};
  for (const auto& model : models_->List()) {
    options.after = std::max(options.after, model->save_point().position);
    models.emplace(model->id(), model);
  }
  auto log = Log::Open(folder_->log_folder(), std::move(options), [&](const LogRecord& read) -> absl::Status {
    state::Record record;
    if (!record.ParseFromArray(read.head.data(), static_cast<int>(read.head.size()))) {
      return absl::DataLossError("the record can't be read; was it written by a newer paramd?");
    }
    // Those of a model that was deleted are of no use.
    const auto model = models.find(record.model());
    if (model == models.end() || read.position <= model->second->save_point().position) return absl::OkStatus();
    return model->second->Replay(record, read);
  });
  if (!log.ok()) return log.status();
  log_ = *std::move(log);
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
  std::vector<Waiter> durable;
  {
    MutexLock lock(&mutex_);
    const auto found = tracked_.find(id);
    if (found == tracked_.end()) {
      if (!status.ok()) tracked_[id].record_lost = true;
      return;
    }
    Tracked& tracked = found->second;
    if (!status.ok()) {
      // A checkpoint has what the log lacks.
      tracked.record_lost = true;
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
    const uint64_t saved = tracked.any ? std::min(tracked.saved_before, tracked.saved.position) : 0;
    if (last > saved) needed = std::min(needed, saved + 1);
  }
  log_->DropBefore(needed);
}

// ---------------------------------------------------------------------------------------------------------------------
// Saving

void StateKeeper::AwaitDurable(const std::shared_ptr<Model>& model, Done done) {
  Waiter waiter{.need = model->save_point(), .done = std::move(done)};
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (finishing_) {
      status = ShuttingDown();
    } else if (Tracked& tracked = tracked_[model->id()]; !Covers(tracked, waiter)) {
      // A record that is on its way needs no checkpoint.
      const bool recorded = tracked.any && tracked.saved.initialized >= waiter.need.initialized && !tracked.record_lost;
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
         (tracked.saved.position >= position || (!tracked.record_lost && log_->state().last >= position));
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

void StateKeeper::SaveDue() {
  if (options_.durability == Durability::kNone) return;
  const absl::Time now = clock_->Now();
  for (const auto& model : models_->List()) {
    const SavePoint at = model->save_point();
    {
      MutexLock lock(&mutex_);
      Tracked& tracked = tracked_[model->id()];
      if (tracked.any && tracked.saved.changes == at.changes) continue;
      const bool many = options_.every_versions > 0 && tracked.problem.ok() &&
                        static_cast<uint64_t>(at.version - tracked.saved.version) >= options_.every_versions;
      if (now < tracked.next_attempt && !many) continue;
    }
    Save(model);
  }
}

void StateKeeper::Save(const std::shared_ptr<Model>& model) {
  std::vector<Waiter> waiting;
  bool lost = false;
  uint64_t attempt = 0;
  {
    MutexLock lock(&mutex_);
    Tracked& tracked = tracked_[model->id()];
    tracked.queued = false;
    lost = std::exchange(tracked.record_lost, false);
    attempt = ++tracked.begun;
  }
  SavePoint at;
  const absl::Status status = Write(model, &at);
  bool told = false;
  {
    MutexLock lock(&mutex_);
    Tracked& tracked = tracked_[model->id()];
    const absl::Time now = clock_->Now();
    told = tracked.problem.message() == status.message();
    tracked.problem = status;
    tracked.next_attempt = now + (status.ok() ? options_.every : std::min(options_.every, kRetry));
    if (!status.ok() && lost) tracked.record_lost = true;
    if (status.ok()) {
      tracked.succeeded = attempt;
      tracked.saved_before = tracked.any ? tracked.saved.position : at.position;
      tracked.any = true;
      tracked.saved = at;
      tracked.saved_at = now;
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
    Say(true, absl::StrCat("event=checkpoint_failed model=\"", Printable(model->name()), "\" error=\"",
                           Printable(status.message()), "\""));
  } else if (status.ok() && !told) {
    Say(false, absl::StrCat("event=checkpoint_resumed model=\"", Printable(model->name()), "\""));
  }
  const absl::Status answer =
      status.ok() ? status
                  : absl::Status(status.code(), absl::StrCat("model '", model->name(),
                                                             "' could not be written to the disk: ", status.message()));
  for (const Waiter& waiter : waiting) waiter.done(answer);
  if (status.ok()) DropRecords();
}

absl::Status StateKeeper::Write(const std::shared_ptr<Model>& model, SavePoint* at) {
  struct Taken {
    Mutex mutex;
    CondVar changed;
    std::optional<absl::StatusOr<ModelImage>> image ABSL_GUARDED_BY(mutex);
  };
  const auto taken = std::make_shared<Taken>();
  model->TakeImage([taken](absl::StatusOr<ModelImage> image) {
    MutexLock lock(&taken->mutex);
    taken->image = std::move(image);
    taken->changed.SignalAll();
  });
  std::optional<absl::StatusOr<ModelImage>> image;
  {
    MutexLock lock(&taken->mutex);
    while (!taken->image.has_value()) taken->changed.Wait(&taken->mutex);
    image = std::exchange(taken->image, std::nullopt);
  }
  if (!image->ok()) return image->status();
  ModelImage& whole = **image;
  models_->Save(*model, &whole.record);
  const absl::Time begun = clock_->Now();
  ModelFileContent content{.spec = model->checked_spec().spec, .record = &whole.record};
  if (whole.image.has_value()) {
    content.version = whole.image->version;
    content.rounds = whole.image->rounds;
    content.center = PiecesOf(whole.image->blocks);
    for (const auto& vector : whole.image->state) content.state.push_back(PiecesOf(vector));
    content.sum = PiecesOf(whole.image->sum);
  }
  if (auto status = folder_->Write(model->name(), content, options_.keep); !status.ok()) return status;
  *at = whole.at;
  Say(false, absl::StrCat("event=checkpoint model=\"", Printable(model->name()), "\" version=", content.version,
                          " seconds=", absl::ToDoubleSeconds(clock_->Now() - begun)));
  return absl::OkStatus();
}

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

}  // namespace paramd
