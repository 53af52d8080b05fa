#include "examples/mnist/idx.h"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

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

bool Exists(const std::string& path) {
  struct stat unused;
  return stat(path.c_str(), &unused) == 0;
}

// Reads up to `size` bytes; fewer only at the end of the file.
absl::StatusOr<size_t> Read(gzFile file, uint8_t* to, size_t size) {
  const int read = gzread(file, to, static_cast<unsigned>(size));
  int code = Z_OK;
  const char* message = gzerror(file, &code);
  // Z_BUF_ERROR is a gzip stream that ends too early.
  if (read < 0 || code == Z_BUF_ERROR) {
    // zlib's message begins with the file's path.
    return absl::DataLossError(absl::StrCat("can't read ", message, "; fetch the file again"));
  }
  return static_cast<size_t>(read);
}

absl::Status Truncated(const std::string& path, int64_t wanted, int64_t found) {
  return absl::DataLossError(absl::StrCat(path, " is truncated: its header promises ", wanted,
                                          " bytes of data, it has ", found, "; fetch the file again"));
}

}  // namespace

absl::StatusOr<IdxArray> ReadIdx(const std::string& path, int rank) {
  const std::string found = Exists(path) ? path : absl::StrCat(path, ".gz");
  const GzipFile file(gzopen(found.c_str(), "rb"));
  if (file == nullptr) {
    if (errno == ENOENT) {
      return absl::NotFoundError(
          absl::StrCat("there is neither ", path, " nor ", found, "; point --data at the folder with the IDX files"));
    }
    return absl::PermissionDeniedError(absl::StrCat(found, " can't be opened: ", strerror(errno)));
  }

  std::vector<uint8_t> header(4 + 4 * rank);
  const auto header_size = Read(file.get(), header.data(), header.size());
  if (!header_size.ok()) return header_size.status();
  const auto big_endian = [&](int at) {
    return uint32_t{header[at]} << 24 | uint32_t{header[at + 1]} << 16 | uint32_t{header[at + 2]} << 8 | header[at + 3];
  };
  const uint32_t magic = kUnsignedByte << 8 | static_cast<uint32_t>(rank);
  if (*header_size >= 4 && big_endian(0) != magic) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is not an IDX file of unsigned bytes with %d dimension(s): it begins with 0x%08x, not "
                        "0x%08x; check that images and labels are not swapped",
                        found, rank, big_endian(0), magic));
  }
  if (*header_size < header.size()) {
    return absl::DataLossError(absl::StrCat(found, " is truncated: ", *header_size, " bytes are no whole header of ",
                                            header.size(), "; fetch the file again"));
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
    return absl::InvalidArgumentError(absl::StrCat(found, " has impossible dimensions, ",
                                                   absl::StrJoin(array.shape, " x "), "; fetch the file again"));
  }

  while (static_cast<int64_t>(array.values.size()) < size) {
    const size_t old_size = array.values.size();
    const size_t wanted = std::min(kReadBytes, static_cast<size_t>(size) - old_size);
    array.values.resize(old_size + wanted);
    const auto read = Read(file.get(), &array.values[old_size], wanted);
    if (!read.ok()) return read.status();
    if (*read < wanted) return Truncated(found, size, static_cast<int64_t>(old_size + *read));
  }
  uint8_t extra = 0;
  const auto trailing = Read(file.get(), &extra, 1);
  if (!trailing.ok()) return trailing.status();
  if (*trailing > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(found, " has bytes after the ", size, " that its header promises; fetch the file again"));
  }
  return array;
}

absl::StatusOr<DataSet> ReadMnist(const std::string& directory, const std::string& prefix) {
  const std::string images_path = absl::StrCat(directory, "/", prefix, "-images-idx3-ubyte");
  const std::string labels_path = absl::StrCat(directory, "/", prefix, "-labels-idx1-ubyte");
  auto labels = ReadIdx(labels_path, 1);
  if (!labels.ok()) return labels.status();
  auto images = ReadIdx(images_path, 3);
  if (!images.ok()) return images.status();
  if (images->shape[0] != labels->shape[0]) {
    return absl::InvalidArgumentError(absl::StrCat(images_path, " has ", images->shape[0], " images, but ", labels_path,
                                                   " has ", labels->shape[0],
                                                   " labels; they are not of the same data set"));
  }
  const auto bad = std::find_if(labels->values.begin(), labels->values.end(), [](uint8_t label) { return label > 9; });
  if (bad != labels->values.end()) {
    return absl::InvalidArgumentError(absl::StrCat(labels_path, " has label ", static_cast<int>(*bad), " at row ",
                                                   bad - labels->values.begin(), ", but labels are digits, 0 to 9"));
  }
  return DataSet{.rows = images->shape[0],
                 .columns = images->shape[1] * images->shape[2],
                 .features = std::move(images->values),
                 .labels = std::move(labels->values)};
}

}  // namespace paramd::mnist
