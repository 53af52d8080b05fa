// What every registered algorithm must keep, whatever it computes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "algorithms/registry.h"
#include "tests/algorithms/halves.h"

namespace paramd::testing {
namespace {

constexpr size_t kLength = 4096 + 37;

// All registered algorithms, the example plugin's too.
std::vector<const Algorithm*> Algorithms() {
  static const absl::Status loaded = LoadPlugin("examples/custom_algorithm/libcustom_algorithm.so");
  REQUIRE(loaded == absl::OkStatus());
  const std::vector<const Algorithm*> algorithms = ListAlgorithms();
  REQUIRE(algorithms.size() >= 11);
  return algorithms;
}

Vector RandomVector(unsigned seed, float scale) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  Vector values(kLength);
  for (float& value : values) value = uniform(random);
  return values;
}

bool SameBits(const Vector& a, const Vector& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool AllFinite(const Vector& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

struct Round {
  Vector center = RandomVector(1, 2);
  std::vector<Vector> commits = {RandomVector(2, 1), RandomVector(3, 1)};
  std::vector<Vector> bases = {RandomVector(4, 2), RandomVector(5, 2)};
  std::vector<Vector> state;
};

// Runs `round` in pieces whose lengths repeat `pieces`, and leaves the new center and state in it.
void RunInPieces(ServerHalf* server, const std::vector<size_t>& pieces, Round* round) {
  const auto for_each_piece = [&](const auto& visit) {
    size_t offset = 0;
    for (size_t i = 0; offset < kLength; ++i) {
      const size_t length = std::min(pieces[i % pieces.size()], kLength - offset);
      visit(offset, length);
      offset += length;
    }
  };
  Vector sum(kLength);
  for (size_t c = 0; c < round->commits.size(); ++c) {
    const auto staleness = static_cast<int64_t>(3 * c);
    for_each_piece([&](size_t offset, size_t length) {
      MergePiece piece;
      piece.commit = absl::MakeConstSpan(round->commits[c]).subspan(offset, length);
      piece.center = absl::MakeConstSpan(round->center).subspan(offset, length);
      if (server->needs_base()) piece.base = absl::MakeConstSpan(round->bases[c]).subspan(offset, length);
      piece.sum = absl::MakeSpan(sum).subspan(offset, length);
      server->Merge({.version = 9, .base_version = 9 - staleness, .staleness = staleness}, piece);
    });
  }
  const RoundInfo info{.commits = static_cast<int64_t>(round->commits.size())};
  for_each_piece([&](size_t offset, size_t length) {
    FinishPiece piece;
    piece.center = absl::MakeConstSpan(round->center).subspan(offset, length);
    piece.sum = absl::MakeConstSpan(sum).subspan(offset, length);
    piece.next = absl::MakeSpan(round->center).subspan(offset, length);
    for (Vector& vector : round->state) piece.state.push_back(absl::MakeSpan(vector).subspan(offset, length));
    server->Finish(info, piece);
  });
}

TEST_CASE("Every algorithm names and describes itself and its hyperparameters") {
  const std::set<std::string> consistencies = {"async", "sync"};
  for (const Algorithm* algorithm : Algorithms()) {
    INFO(algorithm->name);
    CHECK_FALSE(algorithm->name.empty());
    CHECK_FALSE(algorithm->description.empty());
    CHECK(algorithm->description.find('\n') == std::string::npos);
    CHECK((consistencies.count(algorithm->default_consistency) > 0 ||
           algorithm->default_consistency.rfind("bounded:", 0) == 0));
    for (const HyperparameterSpec& spec : HyperparameterSpecs(*algorithm)) {
      INFO(spec.name);
      CHECK_FALSE(spec.description.empty());
      CHECK(spec.min <= spec.default_value);
      CHECK(spec.default_value <= spec.max);
    }
  }
}

TEST_CASE("Both halves of every algorithm are made from its defaults") {
  for (const Algorithm* algorithm : Algorithms()) {
    INFO(algorithm->name);
    const Halves halves = MakeHalves(algorithm->name);
    REQUIRE(halves.worker != nullptr);
    CHECK((halves.server == nullptr) == (algorithm->make_server == nullptr));
    // Without a server there is nothing to exchange with, and the other way round.
    CHECK((halves.server == nullptr) == (halves.worker->exchange_point() == ExchangePoint::kNever));
    if (halves.server != nullptr) {
      CHECK(halves.server->state_vectors() >= 0);
      // The answer is θ as it was only for those that commit W and pull each other closer.
      if (halves.server->answers_before_commit()) CHECK(halves.worker->commits_parameters());
    }
  }
}

TEST_CASE("A server half computes the same bits in whatever pieces a round comes") {
  for (const Algorithm* algorithm : Algorithms()) {
    INFO(algorithm->name);
    if (!algorithm->make_server) continue;
    const auto run = [&](const std::vector<size_t>& pieces) {
      const Halves halves = MakeHalves(algorithm->name);
      Round round;
      for (int i = 0; i < halves.server->state_vectors(); ++i) round.state.push_back(RandomVector(10 + i, 1));
      RunInPieces(halves.server.get(), pieces, &round);
      return round;
    };
    const Round whole = run({kLength});
    CHECK_FALSE(SameBits(whole.center, Round().center));
    for (const std::vector<size_t>& pieces : {std::vector<size_t>{1}, {1, 3, 5, 17, 2, 1001}, {4096}}) {
      const Round split = run(pieces);
      CHECK(SameBits(split.center, whole.center));
      REQUIRE(split.state.size() == whole.state.size());
      for (size_t i = 0; i < whole.state.size(); ++i) CHECK(SameBits(split.state[i], whole.state[i]));
    }
  }
}

TEST_CASE("A worker half writes its commit over what it pulled and gets the same bits") {
  const Vector pulled = RandomVector(1, 2);
  const Vector parameters = RandomVector(2, 2);
  for (const Algorithm* algorithm : Algorithms()) {
    INFO(algorithm->name);
    const Halves halves = MakeHalves(algorithm->name);
    if (halves.worker->exchange_point() == ExchangePoint::kNever) continue;
    for (const int64_t minibatches : {1, 3, 7}) {
      const Vector commit = MakeCommit(halves.worker.get(), minibatches, parameters, pulled);
      if (halves.worker->commits_parameters()) CHECK(SameBits(commit, parameters));
    }
  }
}

TEST_CASE("A worker that learned nothing leaves the center bit for bit as it was") {
  const Vector center = RandomVector(1, 2);
  for (const Algorithm* algorithm : Algorithms()) {
    INFO(algorithm->name);
    const Halves halves = MakeHalves(algorithm->name);
    if (halves.server == nullptr) continue;
    const Commit nothing = {.update = MakeCommit(halves.worker.get(), 5, center, center), .staleness = 0, .base = {}};
    CHECK(SameBits(ApplyRound(halves.server.get(), center, {nothing}), center));
    CHECK(SameBits(ApplyRound(halves.server.get(), center, {nothing, nothing, nothing}), center));
    CHECK(SameBits(Absorb(halves.worker.get(), center, center), center));
  }
}

TEST_CASE("Large values stay finite") {
  const Vector center = RandomVector(1, 1e30F);
  const Vector parameters = RandomVector(2, 1e30F);
  const Vector base = RandomVector(3, 1e30F);
  for (const Algorithm* algorithm : Algorithms()) {
    INFO(algorithm->name);
    const Halves halves = MakeHalves(algorithm->name);
    if (halves.server == nullptr) continue;
    const Vector update = MakeCommit(halves.worker.get(), 1, parameters, center);
    CHECK(AllFinite(update));
    const Commit commit = {.update = update, .staleness = 1000000, .base = base};
    CHECK(AllFinite(ApplyRound(halves.server.get(), center, {commit, commit})));
    CHECK(AllFinite(Absorb(halves.worker.get(), center, parameters)));
  }
}

TEST_CASE("Around a step that changes nothing, the first one, the parameters stay as they were") {
  const Vector parameters = RandomVector(1, 2);
  for (const Algorithm* algorithm : Algorithms()) {
    INFO(algorithm->name);
    const Halves halves = MakeHalves(algorithm->name);
    Vector w = parameters;
    halves.worker->BeforeStep({absl::MakeSpan(w)});
    halves.worker->AfterStep({absl::MakeSpan(w)});
    CHECK(SameBits(w, parameters));
  }
}

}  // namespace
}  // namespace paramd::testing
