#include "examples/mpi/launch.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace paramd {
namespace {

using Strings = std::vector<std::string>;

class Status {
 public:
  Status& Model(const std::string& name, int64_t version = 0, double mean_staleness = 0) {
    model_ = status_.add_models();
    model_->mutable_spec()->set_name(name);
    model_->set_version(version);
    model_->set_commits(static_cast<uint64_t>(version));
    model_->set_mean_staleness(mean_staleness);
    return *this;
  }
  Status& Worker(const std::string& name, uint64_t incarnation, v1::WorkerInfo::State state,
                 const std::string& message = "") {
    v1::WorkerInfo* worker = model_->add_workers();
    worker->set_worker(name);
    worker->set_incarnation(incarnation);
    worker->set_state(state);
    worker->set_message(message);
    return *this;
  }
  operator const v1::ServerStatus&() const { return status_; }

 private:
  v1::ServerStatus status_;
  v1::ModelInfo* model_ = nullptr;
};

TEST_CASE("a launch is over when all its ranks have come and none is live, and says which have not finished") {
  Launch launch("m", 3, false, Status());
  CHECK_FALSE(launch.all_came());
  launch.Update(
      Status().Model("m").Worker("rank-0", 1, v1::WorkerInfo::LEFT).Worker("rank-2", 1, v1::WorkerInfo::LIVE));
  CHECK_FALSE(launch.all_came());
  CHECK(launch.any_live());
  CHECK(launch.finished() == 1);
  CHECK(launch.Problems() ==
        "rank 1 never came; rank 2 has lost its connection: it was killed, or can't reach the daemon");
  launch.Update(Status()
                    .Model("m", 7)
                    .Worker("rank-0", 1, v1::WorkerInfo::LEFT)
                    .Worker("rank-1", 1, v1::WorkerInfo::FAILED, "no\ndata")
                    .Worker("rank-2", 1, v1::WorkerInfo::EXPIRED));
  CHECK(launch.all_came());
  CHECK_FALSE(launch.any_live());
  CHECK(launch.Problems() == "rank 1 failed: no\\ndata; rank 2's lease ran out: it was killed, or hangs");
  CHECK(launch.centers() == Strings{"m"});
  CHECK(launch.updates() == 7);
}

TEST_CASE("workers that are no ranks of the launch, and other models', don't count") {
  Launch launch("m", 1, false, Status());
  launch.Update(Status()
                    .Model("m")
                    .Worker("rank-0", 1, v1::WorkerInfo::LEFT)
                    .Worker("rank-1", 1, v1::WorkerInfo::LIVE)
                    .Worker("guest", 1, v1::WorkerInfo::LIVE)
                    .Model("m/0")
                    .Worker("rank-0", 1, v1::WorkerInfo::LIVE));
  CHECK_FALSE(launch.any_live());
  CHECK(launch.finished() == 1);
  CHECK(launch.Problems().empty());
}

TEST_CASE("an earlier launch's ranks and updates don't count in the next one") {
  const auto earlier = Status()
                           .Model("m", 10, 1.0)
                           .Worker("rank-0", 1, v1::WorkerInfo::LEFT)
                           .Worker("rank-1", 4, v1::WorkerInfo::LEFT)
                           .Worker("rank-2", 1, v1::WorkerInfo::LEFT);
  Launch launch("m", 2, false, earlier);
  launch.Update(earlier);
  CHECK_FALSE(launch.all_came());
  CHECK(launch.finished() == 0);
  launch.Update(Status()
                    .Model("m", 30, 2.0)
                    .Worker("rank-0", 2, v1::WorkerInfo::LEFT)
                    .Worker("rank-1", 5, v1::WorkerInfo::LEFT)
                    .Worker("rank-2", 1, v1::WorkerInfo::LEFT));
  CHECK(launch.all_came());
  CHECK(launch.finished() == 2);
  CHECK(launch.updates() == 20);
  CHECK(launch.mean_staleness() == 2.5);
}

TEST_CASE("ranks that were there before rank 0 of a first launch count, and so do those that still train") {
  SECTION("there has been no rank 0") {
    Launch launch("m", 2, false, Status().Model("m", 3).Worker("rank-1", 1, v1::WorkerInfo::LEFT));
    launch.Update(
        Status().Model("m", 6).Worker("rank-0", 1, v1::WorkerInfo::LEFT).Worker("rank-1", 1, v1::WorkerInfo::LEFT));
    CHECK(launch.finished() == 2);
    CHECK(launch.updates() == 6);
  }
  SECTION("live") {
    Launch launch(
        "m", 2, false,
        Status().Model("m").Worker("rank-0", 1, v1::WorkerInfo::LEFT).Worker("rank-1", 2, v1::WorkerInfo::LIVE));
    launch.Update(
        Status().Model("m").Worker("rank-0", 2, v1::WorkerInfo::LEFT).Worker("rank-1", 2, v1::WorkerInfo::LEFT));
    CHECK(launch.finished() == 2);
  }
}

TEST_CASE(
    "a rank knows whether rank 0 of its launch is still to come, and counts when it tells again that it has ended") {
  const auto Ended = [](uint64_t rank_0, uint64_t rank_1) {
    return Status()
        .Model("m")
        .Worker("rank-0", rank_0, v1::WorkerInfo::LEFT)
        .Worker("rank-1", rank_1, v1::WorkerInfo::LEFT);
  };
  Launch second("m", 2, false, Ended(1, 1));
  second.Update(Ended(1, 2));
  CHECK_FALSE(second.rank_0_came());
  // Which now takes rank 1 for the first launch's.
  Launch of_rank_0("m", 2, false, Ended(1, 2));
  second.Update(Ended(2, 2));
  CHECK(second.rank_0_came());
  of_rank_0.Update(Ended(2, 2));
  CHECK(of_rank_0.Problems() == "rank 1 never came");
  of_rank_0.Update(Ended(2, 3));
  CHECK(of_rank_0.finished() == 2);
  SECTION("in a first launch, which counts all") {
    Launch first("m", 2, false, Status());
    first.Update(Status().Model("m").Worker("rank-1", 1, v1::WorkerInfo::LEFT));
    CHECK(first.rank_0_came());
  }
  SECTION("that has come already") {
    Launch late(
        "m", 2, false,
        Status().Model("m").Worker("rank-0", 2, v1::WorkerInfo::LIVE).Worker("rank-1", 1, v1::WorkerInfo::LEFT));
    late.Update(Ended(2, 2));
    CHECK(late.rank_0_came());
  }
}

TEST_CASE("an ensemble's ranks are those of its members, and the finished ones' centers count") {
  Launch launch("m", 3, true, Status());
  launch.Update(Status()
                    .Model("m")
                    .Model("m/0", 4, 0)
                    .Worker("rank-1", 1, v1::WorkerInfo::LEFT)
                    .Model("m/1", 5, 0)
                    .Worker("rank-0", 1, v1::WorkerInfo::LEFT)
                    .Model("m/2", 6, 0)
                    .Worker("rank-2", 1, v1::WorkerInfo::FAILED, "out of memory")
                    .Model("more/0")
                    .Worker("rank-2", 9, v1::WorkerInfo::LEFT));
  CHECK(launch.all_came());
  CHECK(launch.finished() == 2);
  CHECK(launch.centers() == Strings{"m/1", "m/0"});
  CHECK(launch.updates() == 9);
  CHECK(launch.Problems() == "rank 2 failed: out of memory");
}

}  // namespace
}  // namespace paramd
