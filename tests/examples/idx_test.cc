#include "examples/mnist/idx.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/examples/idx_bytes.h"
#include "tests/examples/temporary_folder.h"

namespace paramd::mnist {
namespace {

using Bytes = std::string;

std::string WriteGzipped(const TemporaryFolder& folder, const std::string& name, const Bytes& bytes) {
  const std::string path = folder.Path(name);
  const gzFile file = gzopen(path.c_str(), "wb");
  REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) == static_cast<int>(bytes.size()));
  REQUIRE(gzclose(file) == Z_OK);
  return path;
}

Bytes Images(int count) {
  Bytes bytes = IdxHeader(kIdxImages, {static_cast<uint32_t>(count), 2, 3});
  for (int i = 0; i < count * 6; ++i) bytes += static_cast<char>(i);
  return bytes;
}

Bytes Labels(const std::vector<int>& labels) {
  Bytes bytes = IdxHeader(kIdxLabels, {static_cast<uint32_t>(labels.size())});
  for (const int label : labels) bytes += static_cast<char>(label);
  return bytes;
}

template <typename Result>
void RequireError(const Result& result, absl::StatusCode code, const std::string& text) {
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code() == code);
  CHECK_THAT(std::string(result.status().message()), Catch::Contains(text));
}

TEST_CASE("images and labels are read, plain and gzipped, with and without .gz in the name") {
  const TemporaryFolder folder;
  SECTION("plain") {
    folder.Write("train-images-idx3-ubyte", Images(2));
    folder.Write("train-labels-idx1-ubyte", Labels({7, 9}));
  }
  SECTION("gzipped") {
    WriteGzipped(folder, "train-images-idx3-ubyte.gz", Images(2));
    WriteGzipped(folder, "train-labels-idx1-ubyte.gz", Labels({7, 9}));
  }
  SECTION("gzipped without saying so, and the other way round") {
    WriteGzipped(folder, "train-images-idx3-ubyte", Images(2));
    folder.Write("train-labels-idx1-ubyte.gz", Labels({7, 9}));
  }
  const auto data = ReadImages(folder.Path("."), Part::kTraining);
  INFO(data.status());
  REQUIRE(data.ok());
  CHECK(data->rows == 2);
  CHECK(data->columns == 6);
  CHECK(data->features == std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(data->labels == std::vector<uint8_t>{7, 9});
}

TEST_CASE("an array larger than one read arrives whole") {
  const TemporaryFolder folder;
  Bytes bytes = IdxHeader(kIdxLabels, {9'000'001});
  for (int i = 0; i < 9'000'001; ++i) bytes += static_cast<char>(i % 251);
  const auto array = ReadIdx(folder.Write("large", bytes), 1);
  REQUIRE(array.ok());
  REQUIRE(array->values.size() == 9'000'001);
  CHECK(Bytes(array->values.begin(), array->values.end()) == bytes.substr(8));
}

TEST_CASE("a missing file is named") {
  const TemporaryFolder folder;
  RequireError(ReadIdx(folder.Path("absent"), 1), absl::StatusCode::kNotFound, "absent");
  RequireError(ReadImages(folder.Path("nowhere"), Part::kTest), absl::StatusCode::kNotFound, "nowhere");
  RequireError(ReadImages(folder.Path("."), Part::kTest), absl::StatusCode::kNotFound, "/t10k-labels-idx1-ubyte");
}

TEST_CASE("a folder in a file's place is refused") {
  const TemporaryFolder folder;
  CHECK_FALSE(ReadIdx(folder.Path("."), 1).ok());
}

TEST_CASE("a wrong magic number is refused, and says what is wrong with it") {
  const TemporaryFolder folder;
  const std::string text = "is not an IDX file of unsigned bytes with 1 dimension(s): ";
  RequireError(ReadIdx(folder.Write("text", "hello, world"), 1), absl::StatusCode::kInvalidArgument,
               text + "it begins with 0x68656c6c");
  RequireError(ReadIdx(folder.Write("swapped", Images(1)), 1), absl::StatusCode::kInvalidArgument,
               text + "it has 3; images have 3 and labels 1");
  RequireError(ReadIdx(folder.Write("floats", IdxHeader(0xD01, {1}) + "abcd"), 1), absl::StatusCode::kInvalidArgument,
               text + "its values are of type 0x0d");
}

TEST_CASE("impossible dimensions are refused without a try to allocate them") {
  const TemporaryFolder folder;
  const std::string text = "impossible dimensions";
  RequireError(ReadIdx(folder.Write("zero", IdxHeader(kIdxImages, {1, 0, 3})), 3), absl::StatusCode::kInvalidArgument,
               text);
  RequireError(ReadIdx(folder.Write("huge", IdxHeader(kIdxImages, {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF})), 3),
               absl::StatusCode::kInvalidArgument, text);
  RequireError(ReadIdx(folder.Write("large", IdxHeader(kIdxImages, {0xFFFFFFFF, 4, 1}) + "abc"), 3),
               absl::StatusCode::kDataLoss, "has 3");
}

TEST_CASE("a truncated file is refused wherever it ends") {
  const TemporaryFolder folder;
  const Bytes whole = Images(2);
  for (size_t size = 0; size < whole.size(); ++size) {
    INFO(size << " of " << whole.size() << " bytes");
    RequireError(ReadIdx(folder.Write("images", whole.substr(0, size)), 3), absl::StatusCode::kDataLoss, "truncated");
  }
}

TEST_CASE("a truncated array in a whole gzip file is refused") {
  const TemporaryFolder folder;
  RequireError(ReadIdx(WriteGzipped(folder, "images.gz", Images(2).substr(0, 20)), 3), absl::StatusCode::kDataLoss,
               "truncated");
}

TEST_CASE("a truncated or damaged gzip file is refused") {
  const TemporaryFolder folder;
  Bytes noise = IdxHeader(kIdxLabels, {5000});
  uint32_t state = 1;
  for (int i = 0; i < 5000; ++i) noise += static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  WriteGzipped(folder, "labels.gz", noise);
  Bytes compressed = folder.Read("labels.gz");
  REQUIRE(compressed.size() > 4000);
  SECTION("truncated") { compressed.resize(2000); }
  SECTION("without its check sum") { compressed.resize(compressed.size() - 8); }
  SECTION("damaged") { compressed[compressed.size() - 6] ^= 0x55; }
  RequireError(ReadIdx(folder.Write("bad.gz", compressed), 1), absl::StatusCode::kDataLoss, "bad.gz");
}

TEST_CASE("bytes after the last value are refused") {
  const TemporaryFolder folder;
  const std::string text = "has bytes after";
  RequireError(ReadIdx(folder.Write("labels", Labels({1}) + "x"), 1), absl::StatusCode::kInvalidArgument, text);
  RequireError(ReadIdx(WriteGzipped(folder, "labels.gz", Labels({1}) + "x"), 1), absl::StatusCode::kInvalidArgument,
               text);
}

TEST_CASE("the last layer decides how many classes there are") {
  const int classes = GENERATE(2, 10, 27, 47, 62, 256);
  const TemporaryFolder folder;
  folder.Write("train-images-idx3-ubyte", Images(3));
  folder.Write("train-labels-idx1-ubyte", Labels({0, classes - 1, 1}));
  const auto data = ReadImages(folder.Path("."), Part::kTraining);
  INFO(data.status());
  REQUIRE(data.ok());
  CHECK(CheckLayers({6, classes}, *data).ok());
  CHECK(CheckLayers({6, 4, classes + 3}, *data).ok());
  const absl::Status too_few = CheckLayers({6, 4, classes - 1}, *data);
  CHECK(too_few.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(too_few.message()), Catch::Contains("row 1 has the label " + std::to_string(classes - 1)) &&
                                                 Catch::Contains("--layers=6,4," + std::to_string(classes) + " does"));
  CHECK_THAT(std::string(CheckLayers({784, 300}, *data).message()), Catch::Contains("--layers=6,300 does"));
}

TEST_CASE("files are found by the names that data sets of the format have") {
  const auto [images, labels, part] = GENERATE(table<std::string, std::string, Part>({
      {"train-images.idx3-ubyte", "train-labels.idx1-ubyte", Part::kTraining},
      {"train-images-idx3-ubyte", "train-labels.idx1-ubyte.gz", Part::kTraining},
      {"emnist-letters-train-images-idx3-ubyte.gz", "emnist-letters-train-labels-idx1-ubyte.gz", Part::kTraining},
      {"emnist-letters-test-images-idx3-ubyte", "emnist-letters-test-labels-idx1-ubyte", Part::kTest},
      {"t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte", Part::kTest},
  }));
  const TemporaryFolder folder;
  folder.Write(images, Images(1));
  folder.Write(labels, Labels({3}));
  for (const std::string other : {"contrain-images-idx3-ubyte", "train-images-idx3-ubyte.txt", "train-images",
                                  "latest-labels-idx1-ubyte", "t10k-labels-idx1-byte"}) {
    folder.Write(other, "of something else");
  }
  const auto data = ReadImages(folder.path(), part);
  INFO(data.status());
  REQUIRE(data.ok());
  CHECK(data->labels == std::vector<uint8_t>{3});
}

TEST_CASE("of several data sets in a folder the one without a name is read, else none") {
  const TemporaryFolder folder;
  for (const std::string set : {"emnist-digits-", "emnist-letters-"}) {
    folder.Write(set + "train-images-idx3-ubyte", Images(1));
    folder.Write(set + "train-labels-idx1-ubyte", Labels({3}));
  }
  RequireError(ReadImages(folder.path(), Part::kTraining), absl::StatusCode::kInvalidArgument,
               "emnist-digits-train-labels-idx1-ubyte and emnist-letters-train-labels-idx1-ubyte");
  folder.Write("train-images-idx3-ubyte", Images(1));
  folder.Write("train-labels-idx1-ubyte", Labels({4}));
  const auto data = ReadImages(folder.path(), Part::kTraining);
  REQUIRE(data.ok());
  CHECK(data->labels == std::vector<uint8_t>{4});
}

TEST_CASE("files of different data sets are refused, though as many rows are in them") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& set, const std::string& part, const std::string& what) {
    if (what == "images") folder.Write(set + part + "-images-idx3-ubyte", Images(1));
    if (what == "labels") folder.Write(set + part + "-labels-idx1-ubyte", Labels({3}));
  };
  SECTION("images and labels to train with") {
    write("fashion-", "train", "images");
    write("", "train", "labels");
    RequireError(ReadImages(folder.path(), Part::kTraining), absl::StatusCode::kInvalidArgument,
                 "fashion-train-images-idx3-ubyte and " + folder.path() +
                     "/train-labels-idx1-ubyte are not of the same data set");
  }
  SECTION("images and labels of the test") {
    write("emnist-digits-", "test", "images");
    write("kmnist-", "t10k", "labels");
    RequireError(ReadImages(folder.path(), Part::kTest), absl::StatusCode::kInvalidArgument,
                 "emnist-digits-test-images-idx3-ubyte and " + folder.path() +
                     "/kmnist-t10k-labels-idx1-ubyte are not of the same data set");
  }
  SECTION("to train with and of the test") {
    for (const std::string what : {"images", "labels"}) {
      write("", "train", what);
      write("kmnist-", "t10k", what);
    }
    CHECK(ReadImages(folder.path(), Part::kTraining).ok());
    RequireError(ReadImages(folder.path(), Part::kTest), absl::StatusCode::kInvalidArgument,
                 "/train-labels-idx1-ubyte and " + folder.path() +
                     "/kmnist-t10k-labels-idx1-ubyte are not of the same data set");
  }
}

TEST_CASE("images and labels of different counts are refused") {
  const TemporaryFolder folder;
  folder.Write("train-images-idx3-ubyte", Images(3));
  folder.Write("train-labels-idx1-ubyte", Labels({0, 1}));
  RequireError(ReadImages(folder.Path("."), Part::kTraining), absl::StatusCode::kInvalidArgument, "has 3 images");
}

}  // namespace
}  // namespace paramd::mnist
