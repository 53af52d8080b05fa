#include "state/safetensors.h"

#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

namespace paramd {
namespace {

// A folder of this process' own, gone at the end.
class Folder {
 public:
  Folder() {
    std::string path = (std::filesystem::temp_directory_path() / "safetensors_test.XXXXXX").string();
    REQUIRE(::mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  size_t files() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {})); }

 private:
  std::filesystem::path path_;
};

std::string Bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

void SetBytes(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // cheaper than to cut it off: some file systems flush what is cut off and rewritten
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string FileOf(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

// What Open says of a file with this header and so many bytes of data.
absl::Status OpenHeader(const std::string& header, size_t data_bytes) {
  const Folder folder;
  const std::string path = folder / "f";
  SetBytes(path, FileOf(header, std::string(data_bytes, '\1')));
  auto status = SafetensorsFile::Open(path).status();
  if (!status.ok()) CHECK_THAT(std::string(status.message()), Catch::StartsWith(path + ": "));
  return status;
}

void CheckRefused(const std::string& header, size_t data_bytes, const std::string& cause) {
  INFO(header);
  const auto status = OpenHeader(header, data_bytes);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Catch::Contains(cause));
}

TEST_CASE("What is written is read back bit by bit") {
  const Folder folder;
  const std::string path = folder / "model.safetensors";
  const std::vector<uint32_t> bits = {0x3f800000, 0x7fc00001, 0xffa12345, 0x7f800000, 0x80000000, 0x00000001};
  std::vector<float> matrix(6);
  std::memcpy(matrix.data(), bits.data(), 24);
  const std::vector<float> scalar = {-2.5f};
  REQUIRE(WriteSafetensors(path, {{"w", {2, 3}, matrix}, {"a \"quoted\" näme", {}, scalar}, {"none", {0, 4}, {}}},
                           {{"model", "mnist"}})
              .ok());
  CHECK(folder.files() == 1);

  const auto file = SafetensorsFile::Open(path);
  REQUIRE(file.ok());
  REQUIRE(file->tensors().size() == 3);
  CHECK(file->metadata() == std::map<std::string, std::string>{{"model", "mnist"}});
  const auto& w = file->tensors()[0];
  CHECK(w.name == "w");
  CHECK(w.dtype == "F32");
  CHECK(w.shape == std::vector<int64_t>{2, 3});
  std::vector<float> read(6);
  REQUIRE(file->Read(w, absl::MakeSpan(read)).ok());
  CHECK(std::memcmp(read.data(), bits.data(), 24) == 0);

  const auto& s = file->tensors()[1];
  CHECK(s.name == "a \"quoted\" näme");
  CHECK(s.shape.empty());
  std::vector<float> one(1);
  REQUIRE(file->Read(s, absl::MakeSpan(one)).ok());
  CHECK(one == scalar);
  CHECK(file->tensors()[2].shape == std::vector<int64_t>{0, 4});
}

TEST_CASE("The bytes of a written file are those of the format") {
  const Folder folder;
  const std::vector<float> values = {1, 2};
  REQUIRE(WriteSafetensors(folder / "f", {{"w", {2}, values}}, {{"k", "v"}}).ok());
  // The checksums by zlib, of the data, and of length and header with zeros in the place of the second.
  std::string header = R"({"__metadata__":{"k":"v",)"
                       R"("paramd.checksums":"2e3fa576","paramd.header_checksum":"303a3ac0"},)"
                       R"("w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  while (header.size() % 8 != 0) header += ' ';
  CHECK(Bytes(folder / "f") == FileOf(header, std::string("\0\0\x80\x3f\0\0\0\x40", 8)));
}

TEST_CASE("A header may list its tensors in any order and end in spaces") {
  const Folder folder;
  SetBytes(folder / "f", FileOf(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                                R"("a":{"data_offsets":[0,4],"shape":[1],"dtype":"F32","later":true}}    )",
                                std::string("\0\0\x80\x3f\0\0\0\x40", 8)));
  const auto file = SafetensorsFile::Open(folder / "f");
  REQUIRE(file.ok());
  REQUIRE(file->tensors().size() == 2);
  CHECK(file->tensors()[0].name == "a");
  float value = 0;
  REQUIRE(file->Read(file->tensors()[1], absl::MakeSpan(&value, 1)).ok());
  CHECK(value == 2.0f);
  CHECK(OpenHeader("{}", 0).ok());
}

TEST_CASE("Every other dtype of the format opens, and reading it names tensor and dtype") {
  const Folder folder;
  SetBytes(folder / "f", FileOf(R"({"h":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                                R"("q":{"dtype":"F4","shape":[4],"data_offsets":[4,6]}})",
                                "abcdef"));
  const auto file = SafetensorsFile::Open(folder / "f");
  REQUIRE(file.ok());
  float value = 0;
  const auto status = file->Read(file->tensors()[0], absl::MakeSpan(&value, 1));
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Catch::Contains("'h'") && Catch::Contains("BF16"));
}

TEST_CASE("Reading into another length is refused") {
  const Folder folder;
  const std::vector<float> values = {1, 2};
  REQUIRE(WriteSafetensors(folder / "f", {{"w", {2}, values}}).ok());
  const auto file = SafetensorsFile::Open(folder / "f");
  REQUIRE(file.ok());
  float value = 0;
  CHECK(file->Read(file->tensors()[0], absl::MakeSpan(&value, 1)).code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("A pipe is read as a file is, and no further than its header says") {
  const Folder folder;
  const std::vector<float> values(100'000, 1.5f);
  REQUIRE(WriteSafetensors(folder / "f", {{"w", {100'000}, values}}).ok());
  const std::string bytes = Bytes(folder / "f");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  const auto open = [&](const std::string& content) {
    std::thread writer([&] { std::ofstream(folder / "pipe", std::ios::binary) << content; });
    auto file = SafetensorsFile::Open(folder / "pipe");
    writer.join();
    return file;
  };
  const auto file = open(bytes);
  REQUIRE(file.ok());
  std::vector<float> read(values.size());
  REQUIRE(file->Read(file->tensors()[0], absl::MakeSpan(read)).ok());
  CHECK(read == values);
  CHECK_THAT(std::string(open(bytes.substr(0, bytes.size() - 1)).status().message()), Catch::Contains("cut off"));
  CHECK_THAT(std::string(open(bytes + "x").status().message()), Catch::Contains("at its end belong to no tensor"));
  CHECK_THAT(std::string(open("1234567").status().message()), Catch::Contains("only 7 bytes"));
  // Which has no end.
  CHECK_FALSE(SafetensorsFile::Open("/dev/zero").ok());
}

TEST_CASE("Files that are not there, no files, or too short say so") {
  const Folder folder;
  CHECK(SafetensorsFile::Open(folder / "absent").status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(SafetensorsFile::Open(folder / ".").status().message()), Catch::Contains("it is a directory"));
  SetBytes(folder / "short", "1234567");
  CHECK_THAT(std::string(SafetensorsFile::Open(folder / "short").status().message()), Catch::Contains("only 7 bytes"));
}

TEST_CASE("A header length beyond the file or beyond 100 MB is refused before anything is allocated") {
  const Folder folder;
  std::string bytes = FileOf("{}", "");
  bytes[0] = 3;
  SetBytes(folder / "f", bytes);
  CHECK_THAT(std::string(SafetensorsFile::Open(folder / "f").status().message()), Catch::Contains("cut off"));
  for (const uint64_t length : {uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}}) {
    std::memcpy(bytes.data(), &length, 8);
    SetBytes(folder / "f", bytes);
    const auto status = SafetensorsFile::Open(folder / "f").status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()), Catch::Contains(std::to_string(length)));
  }
}

TEST_CASE("Malformed headers are refused with their cause") {
  CheckRefused("", 0, "does not begin with '{'");
  CheckRefused(" {}", 0, "does not begin with '{'");
  CheckRefused("[]", 0, "does not begin with '{'");
  CheckRefused("{", 0, "JSON");
  CheckRefused("{} x", 0, "JSON");
  CheckRefused(std::string("{}\0", 3), 0, "JSON");
  CheckRefused("{\"\xff\":1}", 0, "JSON");
  CheckRefused(R"({"w":1})", 0, "'w': its entry");
  CheckRefused(R"({"w":{}})", 0, "no dtype");
  CheckRefused(R"({"w":{"dtype":7,"shape":[],"data_offsets":[0,4]}})", 4, "no dtype");
  CheckRefused(R"({"w":{"dtype":"Q9","shape":[],"data_offsets":[0,4]}})", 4, "unknown dtype \"Q9\"");
  CheckRefused(R"({"w":{"dtype":"F32","data_offsets":[0,4]}})", 4, "no shape");
  CheckRefused(R"({"w":{"dtype":"F32","shape":{},"data_offsets":[0,4]}})", 4, "no shape");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "bad size -1");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "bad size 1.0");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[1e999],"data_offsets":[0,4]}})", 4, "a number that is too large");
  CheckRefused(R"({"w":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4, "bad size \"1\"");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]}})", 4, "bad size");
  std::string ones = "1";
  for (int i = 1; i < 64; ++i) ones += ",1";
  CHECK(OpenHeader(R"({"w":{"dtype":"F32","shape":[)" + ones + R"(],"data_offsets":[0,4]}})", 4).ok());
  CheckRefused(R"({"w":{"dtype":"F32","shape":[)" + ones + R"(,4],"data_offsets":[0,4]}})", 4,
               "more than 64 dimensions");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "overflows");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0, "overflows");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[1]}})", 4, "data_offsets");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "data_offsets");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, "data_offsets");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4, "data_offsets");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4.0]}})", 4, "data_offsets");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,99999999999999999999]}})", 4, "data_offsets");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "ends at 0 before it begins");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "4 bytes of data, but F32 of shape 2");
  CheckRefused(R"({"w":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "F4 of shape 3");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7, "only 7 bytes of data");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615]}})", 4,
               "'w'");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "hole of 4 bytes");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 9, "5 bytes at its end");
  CheckRefused(R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[2],)"
               R"("data_offsets":[4,12]}})",
               12, "'w': its data overlaps that of 'v'");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],)"
               R"("data_offsets":[0,4]}})",
               4, "'w' twice");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4, "'shape' twice");
  CheckRefused(R"({"__metadata__":[]})", 0, "__metadata__ is not an object");
  CheckRefused(R"({"__metadata__":{"n":1}})", 0, "'n', which is not a string");
}

TEST_CASE("A number of a header is cut where an error tells it") {
  const std::string number = "1." + std::string(100'000, '0') + "1";
  const auto status = OpenHeader(R"({"w":{"dtype":"F32","shape":[)" + number + R"(],"data_offsets":[0,4]}})", 4);
  CHECK_THAT(std::string(status.message()), Catch::Contains("bad size 1.000"));
  CHECK(status.message().size() < 1000);
}

TEST_CASE("Whatever is nested where nothing is known is passed over") {
  CHECK(OpenHeader(R"({"w":{"dtype":"F32","x":{"dtype":[{}],"y":[[1],"a",null]},"shape":[1],"data_offsets":[0,4]}})", 4)
            .ok());
  CheckRefused(R"({"w":{"dtype":"F32","x":{"shape":[1]},"data_offsets":[0,4]}})", 4, "no shape");
}

TEST_CASE("Deep nesting is an error, not a crash") {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  CheckRefused(R"({"w":{"dtype":"F32","shape":)" + deep + R"(,"data_offsets":[0,4]}})", 4, "bad size [ in its shape");
  CheckRefused(R"({"w":{"dtype":)" + deep + R"(,"shape":[1],"data_offsets":[0,4]}})", 4, "no dtype");
  CheckRefused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":)" + deep + "}}", 4, "data_offsets");
  CheckRefused(R"({"__metadata__":{"k":)" + deep + "}}", 0, "'k', which is not a string");
  CHECK(OpenHeader(R"({"w":{"dtype":"F32","shape":[1],"later":)" + deep + R"(,"data_offsets":[0,4]}})", 4).ok());
  CheckRefused("{\"w\":" + std::string(1'000'000, '['), 0, "'w': its entry");
  CheckRefused("{\"w\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}", 0, "'w'");
}

TEST_CASE("The writer refuses what a file can't hold and leaves the folder as it was") {
  const Folder folder;
  const std::string path = folder / "f";
  SetBytes(path, "old");
  const std::vector<float> two = {1, 2};
  const auto code = [&](const std::vector<SafetensorsTensor>& tensors,
                        const std::map<std::string, std::string>& metadata = {}) {
    return WriteSafetensors(path, tensors, metadata).code();
  };
  CHECK(code({{"w", {3}, two}}) == absl::StatusCode::kInvalidArgument);
  CHECK(code({{"w", {-2}, two}}) == absl::StatusCode::kInvalidArgument);
  CHECK(code({{"w", {2}, two}, {"w", {2}, two}}) == absl::StatusCode::kInvalidArgument);
  CHECK(code({{"__metadata__", {2}, two}}) == absl::StatusCode::kInvalidArgument);
  CHECK(code({{"\xff", {2}, two}}) == absl::StatusCode::kInvalidArgument);
  CHECK(code({{"w", {2}, two}}, {{"k", "\xc3"}}) == absl::StatusCode::kInvalidArgument);
  CHECK(Bytes(path) == "old");
  CHECK(folder.files() == 1);
  CHECK(WriteSafetensors(folder / "absent/f", {}).code() == absl::StatusCode::kNotFound);
  CHECK(WriteSafetensors(folder / ".", {}).code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("The writer replaces a file, follows a link to it, and writes into a device") {
  const Folder folder;
  SetBytes(folder / "real", "old");
  std::filesystem::create_symlink(folder / "real", folder / "link");
  const std::vector<float> two = {1, 2};
  REQUIRE(WriteSafetensors(folder / "link", {{"w", {2}, two}}).ok());
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(SafetensorsFile::Open(folder / "real").ok());
  CHECK(folder.files() == 2);
  CHECK(WriteSafetensors("/dev/null", {{"w", {2}, two}}).ok());
  CHECK(std::filesystem::is_character_file("/dev/null"));
  CHECK(WriteSafetensors("/dev/full", {{"w", {2}, two}}).code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("A file that became shorter after it was opened is an error") {
  const Folder folder;
  const std::vector<float> values(1000, 1.0f);
  REQUIRE(WriteSafetensors(folder / "f", {{"w", {1000}, values}}).ok());
  const auto file = SafetensorsFile::Open(folder / "f");
  REQUIRE(file.ok());
  std::filesystem::resize_file(folder / "f", 500);
  std::vector<float> read(1000);
  CHECK(file->Read(file->tensors()[0], absl::MakeSpan(read)).code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("A tensor over 2 GiB can be read from its end") {
  const Folder folder;
  constexpr int64_t kFloats = (int64_t{1} << 29) + 2;
  const std::string header = R"({"big":{"dtype":"F32","shape":[)" + std::to_string(kFloats) +
                             R"(],"data_offsets":[0,)" + std::to_string(4 * kFloats) +
                             R"(]},"last":{"dtype":"F32","shape":[1],"data_offsets":[)" + std::to_string(4 * kFloats) +
                             "," + std::to_string(4 * kFloats + 4) + "]}}";
  SetBytes(folder / "f", FileOf(header, ""));
  const auto begin = std::filesystem::file_size(folder / "f");
  std::filesystem::resize_file(folder / "f", begin + 4 * kFloats + 4);  // sparse
  std::fstream file_bytes(folder / "f", std::ios::in | std::ios::out | std::ios::binary);
  file_bytes.seekp(static_cast<std::streamoff>(begin + 4 * kFloats));
  const float mark = 42;
  file_bytes.write(reinterpret_cast<const char*>(&mark), 4);
  file_bytes.close();

  const auto file = SafetensorsFile::Open(folder / "f");
  REQUIRE(file.ok());
  float value = 0;
  REQUIRE(file->Read(file->tensors()[1], absl::MakeSpan(&value, 1)).ok());
  CHECK(value == 42.0f);
}

TEST_CASE("No mutation of a file makes the reader crash or read outside of it") {
  const Folder folder;
  const std::string path = folder / "f";
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7};
  // Without checksums, which would notice every change first.
  const std::string original =
      FileOf(R"({"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
             R"("b":{"dtype":"F32","shape":[],"data_offsets":[24,28]}})",
             {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  const std::string alphabet = "{}[]\",:0123456789-eF \\u\xff\0";
  std::mt19937 random(20240607);
  const auto below = [&](size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random); };
  int opened = 0;
  for (int round = 0; round < 2'000; ++round) {
    std::string bytes = original;
    for (size_t change = 0, changes = 1 + below(3); change < changes && !bytes.empty(); ++change) {
      const size_t at = below(4) == 0 ? below(std::min<size_t>(8, bytes.size())) : below(bytes.size());
      switch (below(5)) {
        case 0:
          bytes[at] = static_cast<char>(below(256));
          break;
        case 1:
          bytes[at] = alphabet[below(alphabet.size())];
          break;
        case 2:
          bytes.erase(at, 1 + below(4));
          break;
        case 3:
          bytes.insert(at, 1, alphabet[below(alphabet.size())]);
          break;
        default:
          bytes.resize(at);
          break;
      }
    }
    SetBytes(path, bytes);
    const auto file = SafetensorsFile::Open(path);
    if (!file.ok()) continue;
    ++opened;
    for (const SafetensorsEntry& tensor : file->tensors()) {
      if (tensor.end > bytes.size()) FAIL("round " << round << ": a tensor outside of the file");
      std::vector<float> read((tensor.end - tensor.begin) / sizeof(float));
      if (tensor.dtype == "F32" && !file->Read(tensor, absl::MakeSpan(read)).ok()) FAIL("round " << round);
    }
  }
  CHECK(opened > 10);
  CHECK(opened < 2'000);
}

}  // namespace
}  // namespace paramd
