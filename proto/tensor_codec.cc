#include "proto/tensor_codec.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <string>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace paramd {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

// ExchangeRequest and ExchangeReply.
constexpr int kHeaderField = 1;
constexpr int kChunkField = 2;
// Chunk.
constexpr int kOffsetField = 1;
constexpr int kDataField = 2;
constexpr int kSharedBeginField = 3;
constexpr int kSharedFloatsField = 4;

constexpr uint32_t LengthDelimited(int field) {
  return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}
constexpr uint32_t Varint(int field) { return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_VARINT); }

size_t VarintSize(uint64_t value) { return CodedOutputStream::VarintSize64(value); }

void WriteHeader(const google::protobuf::MessageLite* header, CodedOutputStream* out) {
  if (header == nullptr) return;
  out->WriteTag(LengthDelimited(kHeaderField));
  out->WriteVarint64(header->ByteSizeLong());
  header->SerializeToCodedStream(out);
}

absl::Status Malformed() {
  return absl::InvalidArgumentError(
      "a message of the exchange stream is not valid protobuf; the peer speaks another "
      "protocol, or the bytes were damaged on the way");
}

struct Range {
  size_t begin = 0;
  size_t size = 0;
};

bool ParseChunk(CodedInputStream* in, DecodedExchange* decoded, Range* data) {
  uint32_t length;
  if (!in->ReadVarint32(&length)) return false;
  const auto outer = in->PushLimit(static_cast<int>(length));
  while (const uint32_t tag = in->ReadTag()) {
    if (tag == Varint(kOffsetField)) {
      if (!in->ReadVarint64(&decoded->offset)) return false;
    } else if (tag == Varint(kSharedBeginField)) {
      if (!in->ReadVarint64(&decoded->shared_begin)) return false;
    } else if (tag == Varint(kSharedFloatsField)) {
      if (!in->ReadVarint64(&decoded->shared_floats)) return false;
    } else if (tag == LengthDelimited(kDataField)) {
      uint32_t size;
      if (!in->ReadVarint32(&size)) return false;
      data->begin = static_cast<size_t>(in->CurrentPosition());
      data->size = size;
      if (!in->Skip(static_cast<int>(size))) return false;
    } else if (!WireFormatLite::SkipField(in, tag)) {
      return false;
    }
  }
  if (!in->ConsumedEntireMessage() || in->BytesUntilLimit() != 0) return false;
  in->PopLimit(outer);
  return true;
}

// The part of `slices` that is in `range`.
std::vector<std::string_view> Cut(const std::vector<grpc::Slice>& slices, Range range) {
  std::vector<std::string_view> cut;
  size_t begin = 0;
  for (const grpc::Slice& slice : slices) {
    const size_t end = begin + slice.size();
    const size_t from = std::max(begin, range.begin);
    const size_t to = std::min(end, range.begin + range.size);
    if (from < to) cut.emplace_back(reinterpret_cast<const char*>(slice.begin()) + (from - begin), to - from);
    begin = end;
  }
  return cut;
}

}  // namespace

grpc::ByteBuffer EncodeExchange(const google::protobuf::MessageLite* header, uint64_t offset, const grpc::Slice* data) {
  std::string prefix;
  {
    StringOutputStream stream(&prefix);
    CodedOutputStream out(&stream);
    WriteHeader(header, &out);
    if (data != nullptr) {
      const uint64_t chunk_size = 1 + VarintSize(offset) + 1 + VarintSize(data->size()) + data->size();
      out.WriteTag(LengthDelimited(kChunkField));
      out.WriteVarint64(chunk_size);
      out.WriteTag(Varint(kOffsetField));
      out.WriteVarint64(offset);
      out.WriteTag(LengthDelimited(kDataField));
      out.WriteVarint64(data->size());
    }
  }
  const grpc::Slice slices[] = {grpc::Slice(prefix), data != nullptr ? *data : grpc::Slice()};
  return grpc::ByteBuffer(slices, data != nullptr ? 2 : 1);
}

grpc::ByteBuffer EncodeSharedExchange(const google::protobuf::MessageLite* header, uint64_t offset, uint64_t begin,
                                      uint64_t floats) {
  std::string message;
  {
    StringOutputStream stream(&message);
    CodedOutputStream out(&stream);
    WriteHeader(header, &out);
    out.WriteTag(LengthDelimited(kChunkField));
    out.WriteVarint64(1 + VarintSize(offset) + 1 + VarintSize(begin) + 1 + VarintSize(floats));
    out.WriteTag(Varint(kOffsetField));
    out.WriteVarint64(offset);
    out.WriteTag(Varint(kSharedBeginField));
    out.WriteVarint64(begin);
    out.WriteTag(Varint(kSharedFloatsField));
    out.WriteVarint64(floats);
  }
  const grpc::Slice slice(message);
  return grpc::ByteBuffer(&slice, 1);
}

absl::Status DecodeExchange(grpc::ByteBuffer* buffer, google::protobuf::MessageLite* header, DecodedExchange* decoded) {
  Range data;
  std::string header_bytes;
  {
    grpc::ProtoBufferReader reader(buffer);
    if (!reader.status().ok()) return Malformed();
    CodedInputStream in(&reader);
    while (const uint32_t tag = in.ReadTag()) {
      if (tag == LengthDelimited(kHeaderField)) {
        uint32_t length;
        if (!in.ReadVarint32(&length) || !in.ReadString(&header_bytes, static_cast<int>(length)) ||
            !header->MergeFromString(header_bytes)) {
          return Malformed();
        }
        decoded->has_header = true;
      } else if (tag == LengthDelimited(kChunkField)) {
        if (decoded->has_chunk || !ParseChunk(&in, decoded, &data)) return Malformed();
        decoded->has_chunk = true;
      } else if (!WireFormatLite::SkipField(&in, tag)) {
        return Malformed();
      }
    }
    if (!in.ConsumedEntireMessage()) return Malformed();
  }
  if (decoded->has_chunk) {
    auto slices = std::make_shared<std::vector<grpc::Slice>>();
    if (!buffer->Dump(slices.get()).ok()) return Malformed();
    decoded->data = Cut(*slices, data);
    decoded->owner = std::move(slices);
  }
  return absl::OkStatus();
}

}  // namespace paramd
