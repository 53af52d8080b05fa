#include "examples/mnist/idx.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace paramd::mnist {
namespace {

constexpr uint32_t kUnsignedByte = 0x08;  // the type in a header's third byte; the fourth is the rank
// A header may promise anything: memory grows with what is really there.
constexpr size_t kReadBytes = size_t{4} << 20;
constexpr int64_t kMaxValues = int64_t{1} << 36;

struct CloseGzip {
  void operator()(gzFile file) const { gzclose(file); }
};
using GzipFile = std::unique_ptr<std::remove_pointer_t<gzFile>, CloseGzip>;

// Reads up to `size` bytes; fewer only at the end of the file.
absl::StatusOr<size_t> Read(gzFile file, uint8_t* to, size_t size) {
  const int read = gzread(file, to, static_cast<unsigned>(size));
  int code = Z_OK;
  const char* message = gzerror(file, &code);
  // zlib's message begins with the file's path. Z_BUF_ERROR is a gzip stream that ends too early.
  if (code == Z_DATA_ERROR || code == Z_BUF_ERROR) {
    return absl::DataLossError(absl::StrCat("can't read ", message, ": the compressed file is damaged or not whole"));
  }
  if (read < 0) return absl::DataLossError(absl::StrCat("can't read ", message));
  return static_cast<size_t>(read);
}

// Why a file with these first bytes is not what it should be.
absl::Status WrongMagic(const std::string& path, uint32_t magic, int rank) {
  std::string problem = absl::StrFormat("%s is not an IDX file of unsigned bytes with %d dimension(s): ", path, rank);
  if (magic >> 16 != 0) {
    absl::StrAppendFormat(&problem, "it begins with 0x%08x, and an IDX file with two zero bytes", magic);
  } else if (magic >> 8 != kUnsignedByte) {
    absl::StrAppendFormat(&problem, "its values are of type 0x%02x, unsigned bytes of 0x%02x", magic >> 8,
                          kUnsignedByte);
  } else {
    absl::StrAppendFormat(&problem, "it has %d; images have 3 and labels 1", magic & 0xff);
  }
  return absl::InvalidArgumentError(problem);
}

struct FoundFile {
  std::string path;
  std::string data_set;  // what its name begins with, before `train`, `t10k` or `test`
};

// The one file in the folder that holds the part's images (rank 3) or labels (rank 1).
absl::StatusOr<FoundFile> Find(const std::string& directory, Part part, absl::string_view what, int rank) {
  const std::vector<std::string> prefixes =
      part == Part::kTraining ? std::vector<std::string>{"train"} : std::vector<std::string>{"t10k", "test"};
  std::map<std::string, std::string> found;  // the first name of each data set: plain before gzipped
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  for (const auto end = std::filesystem::directory_iterator(); !error && entries != end; entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    absl::string_view rest = name;
    absl::ConsumeSuffix(&rest, ".gz");
    if (!absl::ConsumeSuffix(&rest, absl::StrCat("idx", rank, "-ubyte"))) continue;
    if (!absl::ConsumeSuffix(&rest, "-") && !absl::ConsumeSuffix(&rest, ".")) continue;
    if (!absl::ConsumeSuffix(&rest, absl::StrCat("-", what))) continue;
    const bool matches = std::any_of(prefixes.begin(), prefixes.end(),
                                     [&rest](const std::string& prefix) { return absl::ConsumeSuffix(&rest, prefix); });
    std::error_code unused;
    if (!matches || !(rest.empty() || absl::EndsWith(rest, "-")) || entries->is_directory(unused)) continue;
    const auto [it, is_new] = found.try_emplace(std::string(rest), name);
    if (!is_new) it->second = std::min(it->second, name);
  }
  if (error) {
    return absl::NotFoundError(absl::StrCat("can't read the folder ", directory, ": ", error.message(),
                                            "; point --data at the folder with the IDX files"));
  }
  if (found.empty()) {
    return absl::NotFoundError(absl::StrCat("there is neither ", directory, "/", prefixes.front(), "-", what, "-idx",
                                            rank,
                                            "-ubyte nor that with .gz; point --data at the folder with the IDX files"));
  }
  // The name without a data set's before it comes first.
  if (found.size() > 1 && !found.begin()->first.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(directory, " holds several data sets, ", found.begin()->second,
                                                   " and ", std::next(found.begin())->second,
                                                   "; point --data at a folder with the files of one"));
  }
  const auto& [data_set, name] = *found.begin();
  return FoundFile{.path = absl::StrCat(directory, "/", name), .data_set = data_set};
}

// That two files are of one data set, as far as their names say.
absl::Status CheckSameDataSet(const FoundFile& a, const FoundFile& b) {
  if (a.data_set == b.data_set) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(a.path, " and ", b.path,
                                                 " are not of the same data set, as their names say; point --data at a "
                                                 "folder with the four files of one"));
}

}  // namespace

absl::StatusOr<IdxArray> ReadIdx(const std::string& path, int rank) {
  const GzipFile file(gzopen(path.c_str(), "rb"));
  if (file == nullptr) {
    const std::string message = absl::StrCat(path, " can't be opened: ", strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::PermissionDeniedError(message);
  }

  std::vector<uint8_t> header(4 + 4 * rank);
  const auto header_size = Read(file.get(), header.data(), header.size());
  if (!header_size.ok()) return header_size.status();
  const auto big_endian = [&](int at) {
    return uint32_t{header[at]} << 24 | uint32_t{header[at + 1]} << 16 | uint32_t{header[at + 2]} << 8 | header[at + 3];
  };
  const uint32_t magic = kUnsignedByte << 8 | static_cast<uint32_t>(rank);
  if (*header_size >= 4 && big_endian(0) != magic) return WrongMagic(path, big_endian(0), rank);
  if (*header_size < header.size()) {
    return absl::DataLossError(
        absl::StrCat(path, " is truncated: ", *header_size, " bytes are no whole header of ", header.size()));
  }

  IdxArray array;
  int64_t size = 1;
  for (int i = 0; i < rank; ++i) {
    array.shape.push_back(big_endian(4 + 4 * i));
    const bool fits = array.shape.back() > 0 && array.shape.back() <= kMaxValues / size;
    size = fits ? size * array.shape.back() : 0;
    if (!fits) break;
  }
  if (size == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has impossible dimensions, ", absl::StrJoin(array.shape, " x ")));
  }

  while (static_cast<int64_t>(array.values.size()) < size) {
    const size_t old_size = array.values.size();
    const size_t wanted = std::min(kReadBytes, static_cast<size_t>(size) - old_size);
    array.values.resize(old_size + wanted);
    const auto read = Read(file.get(), &array.values[old_size], wanted);
    if (!read.ok()) return read.status();
    if (*read < wanted) {
      return absl::DataLossError(
          absl::StrCat(path, " is truncated: its header promises ", size, " bytes of data, it has ", old_size + *read));
    }
  }
  uint8_t extra = 0;
  const auto trailing = Read(file.get(), &extra, 1);
  if (!trailing.ok()) return trailing.status();
  if (*trailing > 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has bytes after the ", size, " that its header promises"));
  }
  return array;
}

absl::StatusOr<DataSet> ReadImages(const std::string& directory, Part part) {
  const auto labels_file = Find(directory, part, "labels", 1);
  if (!labels_file.ok()) return labels_file.status();
  const auto images_file = Find(directory, part, "images", 3);
  if (!images_file.ok()) return images_file.status();
  if (auto status = CheckSameDataSet(*images_file, *labels_file); !status.ok()) return status;
  if (part == Part::kTest) {
    // Who tests has trained, unless there is nothing to train with.
    const auto training = Find(directory, Part::kTraining, "labels", 1);
    if (!training.ok() && !absl::IsNotFound(training.status())) return training.status();
    if (training.ok()) {
      if (auto status = CheckSameDataSet(*training, *labels_file); !status.ok()) return status;
    }
  }
  auto labels = ReadIdx(labels_file->path, 1);
  if (!labels.ok()) return labels.status();
  auto images = ReadIdx(images_file->path, 3);
  if (!images.ok()) return images.status();
  if (images->shape[0] != labels->shape[0]) {
    return absl::InvalidArgumentError(absl::StrCat(images_file->path, " has ", images->shape[0], " images, but ",
                                                   labels_file->path, " has ", labels->shape[0],
                                                   " labels; they are not of the same data set"));
  }
  return DataSet{.rows = images->shape[0],
                 .columns = images->shape[1] * images->shape[2],
                 .features = std::move(images->values),
                 .labels = std::move(labels->values)};
}

}  // namespace paramd::mnist
