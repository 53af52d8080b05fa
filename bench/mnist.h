// The MNIST example as it is shipped: how much of a worker's time exchanges take, and what they cost in samples/s.
#ifndef PARAMD_BENCH_MNIST_H_
#define PARAMD_BENCH_MNIST_H_

#include <string>
#include <vector>

#include "bench/transport.h"

namespace paramd::bench {

struct MnistRow {
  std::string transport;
  int workers = 0;
  int window = 0;            // minibatches between two exchanges
  double exchanging = 0;     // part of the workers' time; as all below, the median over rounds
  double samples_per_s = 0;  // of all workers together
  double over_alone = 0;     // samples/s over those of as many workers that never exchange
  std::string unavailable;   // why nothing was measured, if so
};

// `worker`: the example's worker program; `data`: the folder with the data set.
std::vector<MnistRow> RunMnist(const Programs& programs, const std::string& worker, const std::string& data, int epochs,
                               int rounds);

}  // namespace paramd::bench

#endif  // PARAMD_BENCH_MNIST_H_
