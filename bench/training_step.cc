// Our side of bench/training_bench.py: trains the network of examples/mnist, 784-128-10 with batches of 32, on made-up
// data. Says its name in a line; then for each line "OPTIMIZER STEPS" of stdin does so many steps, and answers with the
// seconds they took.

#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "client/mlp/mlp.h"

namespace paramd::bench {
namespace {

constexpr int64_t kRows = 32;
const std::vector<int64_t> kLayers = {784, 128, 10};

std::vector<Batch> MakeBatches() {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<float> feature(0, 1);
  std::vector<Batch> batches(64);
  for (Batch& batch : batches) {
    batch.rows = kRows;
    for (int64_t i = 0; i < kRows * kLayers.front(); ++i) batch.features.push_back(feature(random));
    for (int64_t i = 0; i < kRows; ++i) batch.labels.push_back(static_cast<float>(random() % kLayers.back()));
  }
  return batches;
}

int Main() {
  const std::vector<Batch> batches = MakeBatches();
  std::map<std::string, std::unique_ptr<Mlp>> networks;
  std::cout << "paramd" << std::endl;
  std::string optimizer;
  int64_t steps = 0;
  while (std::cin >> optimizer >> steps) {
    std::unique_ptr<Mlp>& network = networks[optimizer];
    if (network == nullptr) {
      const double rate = optimizer == "adam" ? 0.001 : 0.01;
      auto created = Mlp::Create({.layers = kLayers, .optimizer = {.name = optimizer, .learning_rate = rate}});
      if (!created.ok()) {
        std::cerr << "training_step: " << created.status() << std::endl;
        return 1;
      }
      network = *std::move(created);
    }
    const auto start = std::chrono::steady_clock::now();
    for (int64_t step = 0; step < steps; ++step) {
      const auto trained = network->TrainOnBatch(batches[step % batches.size()]);
      if (!trained.ok()) {
        std::cerr << "training_step: " << trained.status() << std::endl;
        return 1;
      }
    }
    std::cout << std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace paramd::bench

int main() { return paramd::bench::Main(); }
