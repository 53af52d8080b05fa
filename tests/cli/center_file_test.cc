#include "client/cli/center_file.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

namespace paramd::cli {
namespace {

// A file name of this test's own, removed at the end.
class TemporaryFile {
 public:
  TemporaryFile() {
    std::string path = (std::filesystem::temp_directory_path() / "center_file_test.XXXXXX").string();
    const int descriptor = ::mkstemp(path.data());
    REQUIRE(descriptor >= 0);
    ::close(descriptor);
    path_ = path;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

v1::ModelSpec Model() {
  v1::ModelSpec model;
  model.set_name("mnist");
  model.set_algorithm("adag");
  model.set_consistency("bounded:3");
  v1::Hyperparameter* const rate = model.add_hyperparameters();
  rate->set_name("learning_rate");
  rate->set_value(0.02);
  v1::Tensor* tensor = model.add_tensors();
  tensor->set_name("w");
  tensor->add_shape(2);
  tensor->add_shape(2);
  tensor = model.add_tensors();
  tensor->set_name("b");
  tensor->add_shape(1);
  model.add_tensors()->set_name("a");
  return model;
}

TEST_CASE("A center comes back from its file, in the model's order") {
  const TemporaryFile temporary;
  const std::vector<float> center = {1, 2, 3, 4, 5, 6};
  REQUIRE(WriteModelFile(temporary.path(), {.spec = Model(), .version = 42, .rounds = 21, .center = {center}}).ok());
  const auto file = ModelFile::Open(temporary.path());
  REQUIRE(file.ok());
  REQUIRE(file->whole());
  CHECK(file->version() == 42);
  CHECK(file->rounds() == 21);
  CHECK(file->spec().SerializeAsString() == Model().SerializeAsString());

  const auto tensors = TensorsOf(*file);
  REQUIRE(tensors.ok());
  REQUIRE(tensors->size() == 3);
  CHECK(tensors->Get(0).name() == "w");
  CHECK(tensors->Get(0).shape_size() == 2);
  CHECK(tensors->Get(2).shape_size() == 0);

  CHECK(*ReadCenter(*file, *tensors) == center);
  Tensors reversed;
  for (int i = 2; i >= 0; --i) *reversed.Add() = tensors->Get(i);
  CHECK(*ReadCenter(*file, reversed) == std::vector<float>{6, 5, 1, 2, 3, 4});
}

TEST_CASE("A file whose tensors are not the model's is refused, naming the tensor") {
  const TemporaryFile temporary;
  const std::vector<float> center = {1, 2, 3, 4, 5, 6};
  REQUIRE(WriteModelFile(temporary.path(), {.spec = Model(), .center = {center}}).ok());
  const auto file = ModelFile::Open(temporary.path());
  REQUIRE(file.ok());
  const auto message = [&](const v1::ModelSpec& model) {
    const auto read = ReadCenter(*file, model.tensors());
    CHECK(read.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(read.status().message());
  };

  v1::ModelSpec model = Model();
  model.mutable_tensors(1)->set_name("bias");
  CHECK(message(model) == temporary.path() + ": tensor 'bias': the model has it, the file does not");
  model = Model();
  model.mutable_tensors(0)->set_shape(0, 4);
  model.mutable_tensors(0)->set_shape(1, 1);
  CHECK(message(model) == temporary.path() + ": tensor 'w': its shape is 2x2, the model's is 4x1");
  model = Model();
  model.mutable_tensors()->RemoveLast();
  CHECK(message(model) == temporary.path() + ": tensor 'a': the model has no such tensor");
}

TEST_CASE("A center of another length than its model is not written") {
  const TemporaryFile temporary;
  const std::vector<float> center = {1, 2, 3, 4, 5};
  CHECK(absl::IsInvalidArgument(WriteModelFile(temporary.path(), {.spec = Model(), .center = {center}})));
  CHECK(std::filesystem::file_size(temporary.path()) == 0);
}

TEST_CASE("A file without tensors makes no model") {
  const TemporaryFile temporary;
  REQUIRE(WriteSafetensors(temporary.path(), {}).ok());
  const auto file = ModelFile::Open(temporary.path());
  REQUIRE(file.ok());
  CHECK(TensorsOf(*file).status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace paramd::cli
