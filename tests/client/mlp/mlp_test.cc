#include "client/mlp/mlp.h"

#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "client/mlp/optimizer.h"
#include "examples/mnist/shard.h"

namespace paramd {
namespace {

std::unique_ptr<Mlp> MakeMlp(const MlpOptions& options) {
  auto mlp = Mlp::Create(options);
  INFO(mlp.status());
  REQUIRE(mlp.ok());
  return *std::move(mlp);
}

// The batch's mean loss, by the definition, in double; with the penalty of `options.l2`.
double ReferenceLoss(const MlpOptions& options, const std::vector<double>& parameters, const Batch& batch) {
  const std::vector<int64_t>& layers = options.layers;
  const bool squared = options.loss == Loss::kSquared;
  const int64_t labels = batch.rows * (squared ? layers.back() : 1);
  double loss = 0;
  for (int64_t row = 0; row < batch.rows; ++row) {
    std::vector<double> in(batch.features.begin() + row * layers[0], batch.features.begin() + (row + 1) * layers[0]);
    const double* next = parameters.data();
    for (size_t l = 1; l < layers.size(); ++l) {
      const double* kernel = next;
      const double* bias = kernel + layers[l - 1] * layers[l];
      next = bias + layers[l];
      std::vector<double> out(bias, next);
      for (int64_t i = 0; i < layers[l - 1]; ++i) {
        for (int64_t o = 0; o < layers[l]; ++o) out[o] += in[i] * kernel[i * layers[l] + o];
      }
      if (l + 1 < layers.size()) {
        for (double& value : out) value = std::max(value, 0.0);
      }
      in = out;
    }
    double sum = 0;
    if (squared) {
      for (size_t i = 0; i < in.size(); ++i) sum += std::pow(in[i] - batch.labels[row * in.size() + i], 2) / 2;
    } else {
      for (const double logit : in) sum += std::exp(logit);
      sum = std::log(sum) - in[static_cast<size_t>(batch.labels[row])];
    }
    loss += sum * (static_cast<int64_t>(batch.labels.size()) > labels ? batch.labels[labels + row] : 1);
  }
  loss /= static_cast<double>(batch.rows);
  size_t offset = 0;
  for (size_t l = 1; l < layers.size(); ++l) {
    for (int64_t i = 0; i < layers[l - 1] * layers[l]; ++i)
      loss += options.l2 / 2 * std::pow(parameters[offset + i], 2);
    offset += (layers[l - 1] + 1) * layers[l];
  }
  return loss;
}

Batch RandomBatch(int64_t rows, int64_t columns, int64_t classes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> feature(-1, 1);
  Batch batch{.rows = rows};
  for (int64_t i = 0; i < rows * columns; ++i) batch.features.push_back(feature(random));
  for (int64_t i = 0; i < rows; ++i) batch.labels.push_back(static_cast<float>(random() % classes));
  return batch;
}

TEST_CASE("the gradient agrees with central differences of the loss in double") {
  const std::vector<int64_t> layers =
      GENERATE(std::vector<int64_t>{5, 3}, std::vector<int64_t>{6, 7, 4}, std::vector<int64_t>{4, 9, 5, 3});
  const Loss loss = GENERATE(Loss::kSoftmax, Loss::kSquared);
  const bool weighted = GENERATE(false, true);
  const MlpOptions options{.layers = layers, .seed = 11, .loss = loss, .l2 = weighted ? 0.3 : 0};
  auto mlp = MakeMlp(options);
  // Biases other than zero.
  std::mt19937_64 random(3);
  for (float& parameter : mlp->parameters()) parameter += std::uniform_real_distribution<float>(-0.2f, 0.2f)(random);
  Batch batch = RandomBatch(6, layers.front(), layers.back(), 5);
  if (loss == Loss::kSquared) {
    batch.labels.resize(6 * layers.back());
    for (float& label : batch.labels) label = std::uniform_real_distribution<float>(-2, 2)(random);
  }
  if (weighted) batch.labels.insert(batch.labels.end(), {0, 0.5, 1, 1, 3, 0.25});

  std::vector<float> gradient(mlp->parameters().size(), std::numeric_limits<float>::quiet_NaN());
  const auto evaluation = mlp->ComputeGradient(batch, absl::MakeSpan(gradient));
  REQUIRE(evaluation.ok());

  std::vector<double> parameters(mlp->parameters().begin(), mlp->parameters().end());
  const MlpOptions unpenalized{.layers = layers, .loss = loss};
  CHECK(evaluation->loss == Approx(ReferenceLoss(unpenalized, parameters, batch)).epsilon(1e-6));
  constexpr double kStep = 1e-6;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const double at = parameters[i];
    parameters[i] = at + kStep;
    const double above = ReferenceLoss(options, parameters, batch);
    parameters[i] = at - kStep;
    const double below = ReferenceLoss(options, parameters, batch);
    parameters[i] = at;
    INFO("parameter " << i);
    CHECK(gradient[i] == Approx((above - below) / (2 * kStep)).epsilon(1e-5).margin(1e-7));
  }
}

TEST_CASE("loss and accuracy of a network computed by hand") {
  auto mlp = MakeMlp({.layers = {2, 2}});
  const std::vector<float> parameters = {1, 0, 0, 1, 0, 0.5};  // identity, then the bias
  std::copy(parameters.begin(), parameters.end(), mlp->parameters().begin());
  // Logits (2, 0.5) with class 0, right; (1, 1.5) with class 0, wrong.
  const Batch batch{.rows = 2, .features = {2, 0, 1, 1}, .labels = {0, 0}};
  std::vector<float> gradient(6);
  const auto evaluation = mlp->ComputeGradient(batch, absl::MakeSpan(gradient));
  REQUIRE(evaluation.ok());
  CHECK(evaluation->accuracy == 0.5);
  // log(1 + e^-1.5) = 0.2014133, log(1 + e^0.5) = 0.9740770.
  CHECK(evaluation->loss == Approx((0.2014133 + 0.9740770) / 2));
  // Softmax minus one-hot: (-0.1824255, 0.1824255) and (-0.6224593, 0.6224593), each halved.
  CHECK(gradient[0] == Approx((-0.1824255 * 2 - 0.6224593) / 2));
  CHECK(gradient[2] == Approx(-0.6224593 / 2));
  CHECK(gradient[5] == Approx((0.1824255 + 0.6224593) / 2));
}

TEST_CASE("a step's gradient is scaled down to its longest norm, and a shorter one is left alone") {
  const Batch batch = RandomBatch(6, 5, 3, 5);
  const auto step = [&](double norm) {
    auto mlp = MakeMlp({.layers = {5, 3}, .optimizer = {.learning_rate = 1}, .max_gradient_norm = norm});
    const std::vector<float> before(mlp->parameters().begin(), mlp->parameters().end());
    REQUIRE(mlp->TrainOnBatch(batch).ok());
    double squares = 0;
    for (size_t i = 0; i < before.size(); ++i) squares += std::pow(before[i] - mlp->parameters()[i], 2);
    return std::sqrt(squares);
  };
  const double whole = step(0);
  CHECK(step(whole / 4) == Approx(whole / 4).epsilon(1e-4));
  CHECK(step(whole * 2) == whole);
}

TEST_CASE("logits of any size give a finite, right loss") {
  auto mlp = MakeMlp({.layers = {1, 3}});
  std::fill(mlp->parameters().begin(), mlp->parameters().end(), 0.0f);
  mlp->parameters()[0] = 1000;
  mlp->parameters()[1] = -1000;
  std::vector<float> gradient(6);
  const auto wrong = mlp->ComputeGradient({.rows = 1, .features = {1}, .labels = {1}}, absl::MakeSpan(gradient));
  REQUIRE(wrong.ok());
  CHECK(wrong->loss == Approx(2000));
  CHECK(gradient == std::vector<float>{1, -1, 0, 1, -1, 0});
  const auto right = mlp->ComputeGradient({.rows = 1, .features = {1}, .labels = {0}}, absl::MakeSpan(gradient));
  REQUIRE(right.ok());
  CHECK(right->loss == 0);
}

TEST_CASE("a smaller batch after a larger one is computed as by a new network") {
  const MlpOptions options{.layers = {6, 20, 9, 4}, .seed = 3};
  const auto gradient = [](Mlp* mlp, const Batch& batch) {
    std::vector<float> result(mlp->parameters().size());
    REQUIRE(mlp->ComputeGradient(batch, absl::MakeSpan(result)).ok());
    return result;
  };
  const Batch small = RandomBatch(5, 6, 4, 1);
  auto used = MakeMlp(options);
  gradient(used.get(), RandomBatch(33, 6, 4, 2));
  CHECK(gradient(used.get(), small) == gradient(MakeMlp(options).get(), small));
}

TEST_CASE("no layer hides that a parameter is not a number") {
  auto mlp = MakeMlp({.layers = {2, 5, 3}});
  mlp->parameters()[0] = std::numeric_limits<float>::quiet_NaN();
  const auto results = mlp->TrainOnBatch(RandomBatch(4, 2, 3, 1));
  REQUIRE(results.ok());
  CHECK(std::isnan((*results)[0]));
}

TEST_CASE("the network lists its tensors in the order of its parameters") {
  const auto mlp = MakeMlp({.layers = {7, 5, 3}});
  const std::vector<MlpTensor> tensors = mlp->tensors();
  REQUIRE(tensors.size() == 4);
  CHECK(tensors[0].name == "dense0/kernel");
  CHECK(tensors[0].shape == std::vector<int64_t>{7, 5});
  CHECK(tensors[1].name == "dense0/bias");
  CHECK(tensors[1].shape == std::vector<int64_t>{5});
  CHECK(tensors[2].name == "dense1/kernel");
  CHECK(tensors[2].shape == std::vector<int64_t>{5, 3});
  CHECK(tensors[3].name == "dense1/bias");
  CHECK(tensors[3].shape == std::vector<int64_t>{3});
  CHECK(mlp->parameters().size() == 7 * 5 + 5 + 5 * 3 + 3);
  CHECK(mlp->metric_names() == std::vector<std::string>{"accuracy"});
}

TEST_CASE("He initialisation: kernels of variance 2/inputs, biases zero, the same for the same seed") {
  const auto mlp = MakeMlp({.layers = {200, 100, 10}, .seed = 4});
  const absl::Span<const float> parameters = mlp->parameters();
  double sum = 0, squares = 0;
  for (const float weight : parameters.first(20000)) {
    sum += weight;
    squares += weight * weight;
  }
  CHECK(sum / 20000 == Approx(0).margin(0.003));
  CHECK(squares / 20000 == Approx(0.01).epsilon(0.05));
  CHECK(parameters.subspan(20000, 100) == absl::Span<const float>(std::vector<float>(100)));

  const auto values = [](uint64_t seed) {
    const auto other = MakeMlp({.layers = {200, 100, 10}, .seed = seed});
    return std::vector<float>(other->parameters().begin(), other->parameters().end());
  };
  CHECK(values(4) == std::vector<float>(parameters.begin(), parameters.end()));
  CHECK(values(5) != values(4));
}

std::vector<std::vector<float>> Steps(const OptimizerOptions& options,
                                      const std::vector<std::vector<float>>& gradients) {
  auto optimizer = MakeOptimizer(options, static_cast<int64_t>(gradients[0].size()));
  REQUIRE(optimizer.ok());
  std::vector<float> parameters = {1, 2};
  std::vector<std::vector<float>> trace;
  for (const auto& gradient : gradients) {
    (*optimizer)->Step(gradient, absl::MakeSpan(parameters));
    trace.push_back(parameters);
  }
  return trace;
}

void RequireTrace(const std::vector<std::vector<float>>& trace, const std::vector<std::vector<double>>& expected) {
  REQUIRE(trace.size() == expected.size());
  for (size_t i = 0; i < trace.size(); ++i) {
    for (size_t j = 0; j < 2; ++j) {
      INFO("step " << i << ", parameter " << j);
      CHECK(trace[i][j] == Approx(expected[i][j]).epsilon(1e-5));
    }
  }
}

TEST_CASE("SGD on hand-computed numbers") {
  RequireTrace(Steps({.name = "sgd", .learning_rate = 0.5}, {{1, -2}, {0.5, 4}}), {{0.5, 3}, {0.25, 1}});
}

TEST_CASE("Nesterov momentum on hand-computed numbers") {
  // v: (-0.5, 1), then 0.8 v - 0.5 g = (-0.65, -1.2), then (-0.52, -0.96). w moves by 0.8 v - 0.5 g each time.
  RequireTrace(Steps({.name = "momentum", .learning_rate = 0.5, .momentum = 0.8}, {{1, -2}, {0.5, 4}, {0, 0}}),
               {{1 - 0.4 - 0.5, 2 + 0.8 + 1}, {0.1 - 0.52 - 0.25, 3.8 - 0.96 - 2}, {-0.67 - 0.416, 0.84 - 0.768}});
}

TEST_CASE("Adam on hand-computed numbers") {
  // The first step is eta * sign(g). In the second, for parameter 0: m = 0.9*0.1 + 0.1*0.5 = 0.14, v = 0.999*0.001 +
  // 0.001*0.25 = 0.001249; corrected m/0.19 = 0.7368421, v/0.001999 = 0.6248124; step 0.1*0.7368421/0.7904508.
  // For parameter 1: m = 0.9*(-0.2) + 0.1*4 = 0.22, v = 0.999*0.004 + 0.001*16 = 0.019996; corrected 1.1578947 and
  // 10.0030015; step 0.1*1.1578947/3.1627523.
  RequireTrace(Steps({.name = "adam", .learning_rate = 0.1}, {{1, -2}, {0.5, 4}}),
               {{0.9, 2.1}, {0.9 - 0.0932179, 2.1 - 0.0366103}});
}

TEST_CASE("the learning rate can be read and changed") {
  auto mlp = MakeMlp({.layers = {1, 2}, .optimizer = {.learning_rate = 0.25}});
  CHECK(mlp->learning_rate() == 0.25);
  std::fill(mlp->parameters().begin(), mlp->parameters().end(), 0.0f);
  mlp->set_learning_rate(2);
  REQUIRE(mlp->TrainOnBatch({.rows = 1, .features = {1}, .labels = {0}}).ok());
  CHECK(mlp->parameters()[0] == 1);  // −2 · (0.5 − 1)
  CHECK(mlp->parameters()[1] == -1);
}

// Four classes, one a quadrant: not separable by rows of one sign alone.
DataSet Quadrants(int rows) {
  std::mt19937_64 random(17);
  DataSet data{.rows = rows, .columns = 2};
  for (int i = 0; i < rows; ++i) {
    const auto x = static_cast<uint8_t>(random() % 256), y = static_cast<uint8_t>(random() % 256);
    data.features.insert(data.features.end(), {x, y});
    data.labels.push_back(static_cast<uint8_t>((x > 127 ? 1 : 0) ^ (y > 127 ? 3 : 0)));
  }
  return data;
}

TEST_CASE("every optimizer learns a small separable set") {
  const auto [name, learning_rate] =
      GENERATE(table<std::string, double>({{"sgd", 0.5}, {"momentum", 0.1}, {"adam", 0.01}}));
  const DataSet data = Quadrants(512);
  auto mlp = MakeMlp({.layers = {2, 24, 4}, .seed = 2, .optimizer = {.name = name, .learning_rate = learning_rate}});
  auto source = Shard::Create(&data, {.batch_size = 30});
  REQUIRE(source.ok());
  const auto before = mlp->Evaluate(source->get());
  REQUIRE(before.ok());
  CHECK(before->rows == 512);
  CHECK(before->accuracy < 0.7);
  Batch batch;
  for (int epoch = 0; epoch < 150; ++epoch) {
    REQUIRE((*source)->Rewind(epoch).ok());
    while (*(*source)->Next(&batch)) REQUIRE(mlp->TrainOnBatch(batch).ok());
  }
  const auto after = mlp->Evaluate(source->get());
  REQUIRE(after.ok());
  INFO(name << ": loss " << after->loss << ", accuracy " << after->accuracy);
  CHECK(after->accuracy > 0.95);
  CHECK(after->loss < 0.25);
}

TEST_CASE("an evaluation is the mean over rows, in batches of whatever size") {
  const DataSet data = Quadrants(101);
  auto mlp = MakeMlp({.layers = {2, 8, 4}});
  auto whole = Shard::Create(&data, {.batch_size = 101, .shuffle = false});
  auto pieces = Shard::Create(&data, {.batch_size = 7});
  REQUIRE(whole.ok());
  REQUIRE(pieces.ok());
  const auto in_pieces = mlp->Evaluate(pieces->get());
  REQUIRE(in_pieces.ok());
  Batch batch;
  REQUIRE((*whole)->Rewind(0).ok());
  REQUIRE((*whole)->Next(&batch).ok());
  std::vector<float> gradient(mlp->parameters().size());
  const auto at_once = mlp->ComputeGradient(batch, absl::MakeSpan(gradient));
  REQUIRE(at_once.ok());
  CHECK(in_pieces->rows == 101);
  CHECK(in_pieces->loss == Approx(at_once->loss).epsilon(1e-5));
  CHECK(in_pieces->accuracy == Approx(at_once->accuracy));
}

TEST_CASE("predictions are the softmax, for any number of rows") {
  auto mlp = MakeMlp({.layers = {2, 2}});
  const std::vector<float> parameters = {1, 0, 0, 1, 0, 0.5};  // identity, then the bias
  std::copy(parameters.begin(), parameters.end(), mlp->parameters().begin());
  // Logits (2, 0.5) and (1, 1.5): e^1.5 / (1 + e^1.5) = 0.8175745 and 1 / (1 + e^0.5) = 0.3775407 for class 0.
  std::vector<float> features, probabilities(2 * 1001);
  for (int i = 0; i < 1001; ++i) features.insert(features.end(), {i % 2 == 0 ? 2.0f : 1.0f, i % 2 == 0 ? 0.0f : 1.0f});
  REQUIRE(mlp->Predict(features, absl::MakeSpan(probabilities)).ok());
  for (size_t i = 0; i < 1001; ++i) {
    INFO("row " << i);
    CHECK(probabilities[2 * i] == Approx(i % 2 == 0 ? 0.8175745 : 0.3775407));
    CHECK(probabilities[2 * i] + probabilities[2 * i + 1] == Approx(1));
  }
  CHECK(mlp->Predict({}, {}).ok());
  std::vector<float> room(2);
  for (const std::vector<float>& wrong : {std::vector<float>(1), std::vector<float>(3), std::vector<float>(4)}) {
    CHECK(mlp->Predict(wrong, absl::MakeSpan(room)).code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("an ensemble predicts by its members' mean softmax") {
  const DataSet data{.rows = 1, .columns = 1, .features = {0}, .labels = {1}};
  auto source = Shard::Create(&data, {});
  REQUIRE(source.ok());
  const auto member = [](std::vector<float> logits) {
    auto mlp = MakeMlp({.layers = {1, static_cast<int64_t>(logits.size())}});
    std::copy(logits.begin(), logits.end(), mlp->parameters().begin() + static_cast<int64_t>(logits.size()));
    return mlp;
  };
  // Softmax (0.6, 0.4), (0.6, 0.4) and (0.1, 0.9): two of three vote for class 0, the mean (0.4333, 0.5667) for
  // class 1.
  const float weak = std::log(0.6f / 0.4f);
  const auto first = member({weak, 0}), second = member({weak, 0}), third = member({0, std::log(9.0f)});
  const auto evaluation = Mlp::EvaluateEnsemble({first.get(), second.get(), third.get()}, source->get());
  REQUIRE(evaluation.ok());
  CHECK(evaluation->accuracy == 1);
  CHECK(evaluation->loss == Approx(-std::log(1.7 / 3)));

  CHECK_FALSE(Mlp::EvaluateEnsemble({}, source->get()).ok());
  const auto other = member({0, 0, 0});
  CHECK(Mlp::EvaluateEnsemble({first.get(), other.get()}, source->get()).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("no seed is lost to a short minibatch, of an outlier") {
  // 21 minibatches and a row, which says the wrong class as loudly as a byte can.
  DataSet data{.rows = 673, .columns = 16};
  std::mt19937_64 random(7);
  std::vector<int> points(4 * data.columns);
  for (int& point : points) point = static_cast<int>(random() % 128);
  for (int64_t row = 0; row < data.rows; ++row) {
    const bool last = row + 1 == data.rows;
    for (int64_t i = 0; i < data.columns; ++i) {
      const auto value = static_cast<uint8_t>(points[row % 4 * data.columns + i] + random() % 32);
      data.features.push_back(last ? 255 : value);
    }
    data.labels.push_back(static_cast<uint8_t>(row % 4));
  }
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const auto shard = Shard::Create(&data, {.seed = seed});
    REQUIRE(shard.ok());
    auto mlp = MakeMlp({.layers = {16, 128, 64, 32, 4}, .seed = seed, .max_gradient_norm = 1});
    Batch batch;
    for (int epoch = 0; epoch < 10; ++epoch) {
      REQUIRE((*shard)->Rewind(epoch).ok());
      while (*(*shard)->Next(&batch)) REQUIRE(mlp->TrainOnBatch(batch).ok());
    }
    INFO("seed " << seed);
    CHECK(mlp->Evaluate(shard->get())->accuracy >= 0.9);
  }
}

TEST_CASE("a bad batch is refused and changes nothing") {
  auto mlp = MakeMlp({.layers = {2, 3}});
  const std::vector<float> before(mlp->parameters().begin(), mlp->parameters().end());
  const auto refused = [&](const Batch& batch, const std::string& text) {
    const auto result = mlp->TrainOnBatch(batch);
    REQUIRE_FALSE(result.ok());
    CHECK(result.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(result.status().message()), Catch::Contains(text));
  };
  refused({}, "at least one row");
  refused({.rows = 1, .features = {1, 2, 3}, .labels = {0}}, "sizes of the first");
  refused({.rows = 1, .features = {1, 2}, .labels = {}}, "0 labels");
  refused({.rows = 1, .features = {1, 2}, .labels = {3}}, "label 3 is not a class in [0, 3)");
  refused({.rows = 1, .features = {1, 2}, .labels = {-1}}, "label -1");
  refused({.rows = 1, .features = {1, 2}, .labels = {0.5}}, "label 0.5");
  refused({.rows = 1, .features = {1, 2}, .labels = {std::numeric_limits<float>::quiet_NaN()}}, "label nan");
  refused({.rows = 1, .features = {1, 2}, .labels = {0, -0.5}}, "weight -0.5");
  refused({.rows = 1, .features = {1, 2}, .labels = {0, std::numeric_limits<float>::infinity()}}, "weight inf");
  CHECK(std::vector<float>(mlp->parameters().begin(), mlp->parameters().end()) == before);
}

TEST_CASE("a network for numbers takes finite ones alone, and has no accuracy") {
  auto mlp = MakeMlp({.layers = {2, 3}, .loss = Loss::kSquared});
  CHECK(mlp->metric_names().empty());
  CHECK(mlp->TrainOnBatch({.rows = 1, .features = {1, 2}, .labels = {-1, 0.5, 7}})->size() == 1);
  const auto refused =
      mlp->TrainOnBatch({.rows = 1, .features = {1, 2}, .labels = {0, 0, std::numeric_limits<float>::infinity()}});
  CHECK_THAT(std::string(refused.status().message()), Catch::Contains("label inf"));
}

TEST_CASE("options that make no sense are refused") {
  const auto message = [](const MlpOptions& options) {
    const auto mlp = Mlp::Create(options);
    REQUIRE_FALSE(mlp.ok());
    CHECK(mlp.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(mlp.status().message());
  };
  CHECK_THAT(message({.layers = {784}}), Catch::Contains("at least two layers"));
  CHECK_THAT(message({.layers = {784, 0, 10}}), Catch::Contains("layer 1 has 0 units"));
  CHECK_THAT(message({.layers = {784, int64_t{1} << 31}}), Catch::Contains("layer 1"));
  CHECK_THAT(message({.layers = {(int64_t{1} << 31) - 1, (int64_t{1} << 31) - 1}}), Catch::Contains("2^40"));
  CHECK_THAT(message({.layers = {2, 2}, .l2 = -1}), Catch::Contains("l2 is -1"));
  CHECK_THAT(message({.layers = {2, 2}, .max_gradient_norm = std::nan("")}),
             Catch::Contains("max_gradient_norm is nan"));
  CHECK_THAT(message({.layers = {2, 2}, .optimizer = {.name = "lbfgs"}}), Catch::Contains("sgd, momentum and adam"));
  CHECK_THAT(message({.layers = {2, 2}, .optimizer = {.learning_rate = 0}}), Catch::Contains("learning rate 0"));
  CHECK_THAT(message({.layers = {2, 2}, .optimizer = {.name = "momentum", .momentum = 1}}),
             Catch::Contains("momentum 1"));
  CHECK_THAT(message({.layers = {2, 2}, .optimizer = {.name = "momentum", .momentum = 0.99999999}}),
             Catch::Contains("momentum 1"));
}

TEST_CASE("layers are parsed from a list") {
  const auto layers = ParseLayers("784,128,10");
  REQUIRE(layers.ok());
  CHECK(*layers == std::vector<int64_t>{784, 128, 10});
  for (const char* bad : {"", "784,", "784,x,10", "784,-1,10", "784,0", "784;10", "1e3,10"}) {
    INFO(bad);
    CHECK(ParseLayers(bad).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("a network that is too large for the machine's memory is an error, not the end of the process") {
  const auto mlp = Mlp::Create({.layers = {784, 1'000'000'000, 10}});
  CHECK(mlp.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(mlp.status().message()),
             Catch::Contains("795000000010 parameters") && Catch::Contains("use smaller layers"));
}

#ifndef __SANITIZE_ADDRESS__  // which keeps more addresses than the limit
TEST_CASE("a batch that is too large for memory is an error, and a smaller one trains on") {
  const auto mlp = MakeMlp({.layers = {1, 20'000, 2}});
  const Batch small = RandomBatch(2, 1, 2, 1);
  REQUIRE(mlp->TrainOnBatch(small).ok());
  const Batch large = RandomBatch(50'000, 1, 2, 2);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit limit{uint64_t{2} << 30, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  const absl::Status refused = mlp->TrainOnBatch(large).status();
  const absl::Status trained = mlp->TrainOnBatch(small).status();
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()), Catch::Contains("50000 rows"));
  CHECK(trained.ok());
}
#endif

}  // namespace
}  // namespace paramd
