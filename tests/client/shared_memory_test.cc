// A worker's buffers and the segments they are in, with a daemon that is a function.
#include "client/shared_memory.h"

#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "proto/tensor_codec.h"
#include "tests/client/waiting_clock.h"

namespace paramd {
namespace {

constexpr uint64_t kFloats = 2000;

bool All(absl::Span<const float> floats, float value) {
  return std::all_of(floats.begin(), floats.end(), [value](float f) { return f == value; });
}

class Fixture {
 public:
  SharedMemory Make(bool required) {
    return SharedMemory({.floats = kFloats,
                         .required = required,
                         .find_socket = [this](absl::Time) -> absl::StatusOr<std::string> {
                           ++asked;
                           return std::string("other");
                         },
                         .request_segment = [this](const std::string& socket, uint64_t bytes,
                                                   absl::Duration) { return Grant(socket, bytes); },
                         .on_event = [this](absl::string_view event) { events.emplace_back(event); },
                         .clock = &clock});
  }

  absl::StatusOr<GrantedSegment> Grant(const std::string& socket, uint64_t bytes) {
    socket_asked = socket;
    if (!refusal.ok()) return refusal;
    if (socket == gone) return absl::UnavailableError("nobody there");
    GrantedSegment granted;
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    granted.link = FileDescriptor(ends[0]);
    daemons_end = FileDescriptor(ends[1]);
    auto made = Segment::Create(bytes, &granted.memory, &watch);
    REQUIRE(made.ok());
    daemons = *std::move(made);
    granted.id = ++segments;
    return granted;
  }

  v1::ExchangeHeader CommitHeader(uint64_t sequence) {
    v1::ExchangeHeader header;
    header.mutable_commit()->set_sequence(sequence);
    return header;
  }

  // What the daemon finds where the message says that the commit is.
  absl::Span<float> Commit(const SharedMemory& memory, const v1::ExchangeHeader& header,
                           absl::Span<const float> commit) {
    grpc::ByteBuffer bytes = memory.Put(header, commit);
    v1::ExchangeHeader sent;
    DecodedExchange message;
    REQUIRE(DecodeExchange(&bytes, &sent, &message).ok());
    CHECK(sent.segment() == segments);
    return daemons->Floats(message.shared_begin, message.shared_floats);
  }

  testing::WaitingClock clock;
  absl::Status refusal;
  std::string gone;  // a socket of a daemon that has ended
  std::string socket_asked;
  int asked = 0;
  uint64_t segments = 0;
  std::optional<Segment> daemons;
  FileDescriptor watch;
  FileDescriptor daemons_end;
  std::vector<std::string> events;
  const SegmentLayout layout = LayOutSegment(kFloats);
};

TEST_CASE_METHOD(Fixture, "buffers keep their place and content when they move into a segment, and into another one") {
  SharedMemory memory = Make(false);
  const absl::Span<float> commit = memory.commit_buffer();
  const absl::Span<float> center = memory.center_buffer();
  REQUIRE(commit.size() == kFloats);
  REQUIRE(center.size() == kFloats);
  std::fill(commit.begin(), commit.end(), 1.0f);
  std::fill(center.begin(), center.end(), 2.0f);
  for (int i = 1; i <= 3; ++i) {
    if (i == 1) REQUIRE(memory.Join("first", absl::InfiniteFuture()).ok());
    if (i == 2) memory.Distrust();
    if (i == 3) daemons_end = FileDescriptor();
    v1::ExchangeHeader header = CommitHeader(9);
    REQUIRE(memory.Begin(&header, absl::InfiniteFuture()).ok());
    CHECK(header.segment() == static_cast<uint64_t>(i));
    CHECK(daemons->LoadCommitWord() == 9);
    CHECK(All(daemons->Floats(layout.commit_begin, kFloats), 1));
    CHECK(All(daemons->Floats(layout.center_begin, kFloats), 2));
    CHECK(memory.commit_buffer().data() == commit.data());
    CHECK(All(commit, 1));
    memory.TakeBack();
    CHECK(daemons->LoadCommitWord() == 0);
  }
  CHECK(asked == 2);
  CHECK(socket_asked == "other");
}

TEST_CASE_METHOD(Fixture, "buffers that are taken over keep their place and content, and nothing of the daemon") {
  SharedMemory memory = Make(false);
  const absl::Span<float> center = memory.center_buffer();
  const bool shared = GENERATE(false, true);
  if (shared) REQUIRE(memory.Join("first", absl::InfiniteFuture()).ok());
  std::fill(center.begin(), center.end(), 2.0f);
  std::optional<Segment> taken = memory.Release();
  REQUIRE(taken.has_value());
  CHECK(All(center, 2));
  CHECK(memory.center_buffer().empty());
  if (shared) {
    daemons.reset();
    CHECK(ReleaseUnheld(watch));
  }
  taken->Clear();
  CHECK(All(center, 0));
}

TEST_CASE_METHOD(Fixture, "the commit buffer keeps what the caller wrote, whatever is committed from elsewhere") {
  SharedMemory memory = Make(true);
  REQUIRE(memory.Join("first", absl::InfiniteFuture()).ok());
  const absl::Span<float> commit = memory.commit_buffer();
  std::fill(commit.begin(), commit.end(), 1.0f);
  v1::ExchangeHeader header = CommitHeader(1);
  REQUIRE(memory.Begin(&header, absl::InfiniteFuture()).ok());
  const std::vector<float> other(kFloats, 5);
  CHECK(All(Commit(memory, header, other), 5));
  CHECK(All(commit, 1));
  // In place, without a copy.
  CHECK(Commit(memory, header, commit).data() == daemons->Floats(layout.commit_begin, kFloats).data());
  CHECK(Commit(memory, header, memory.center_buffer()).data() == daemons->Floats(layout.center_begin, kFloats).data());
}

TEST_CASE_METHOD(Fixture, "a center is taken over as it comes, and only where it is due") {
  SharedMemory memory = Make(true);
  REQUIRE(memory.Join("first", absl::InfiniteFuture()).ok());
  const absl::Span<float> written = daemons->Floats(layout.center_begin, kFloats);
  std::fill(written.begin(), written.end(), 3.0f);
  std::vector<float> center(kFloats, 0);
  size_t received = 0;
  DecodedExchange half{.shared_begin = layout.center_begin, .shared_floats = kFloats / 2};
  REQUIRE(memory.Take(half, absl::MakeSpan(center), &received).ok());
  CHECK(received == kFloats / 2);
  CHECK(All(absl::MakeConstSpan(center).subspan(0, received), 3));
  CHECK(All(absl::MakeConstSpan(center).subspan(received), 0));
  for (const DecodedExchange& bad : {
           half,
           DecodedExchange{.offset = received, .shared_begin = layout.center_begin, .shared_floats = kFloats / 2},
           DecodedExchange{.offset = received,
           .shared_begin = layout.center_begin + received * sizeof(float),
           .shared_floats = kFloats},
       }) {
    CHECK(memory.Take(bad, absl::MakeSpan(center), &received).code() == absl::StatusCode::kInternal);
  }
}

TEST_CASE_METHOD(Fixture, "without shared memory exchanges go over gRPC, unless nothing else is wanted") {
  refusal = absl::ResourceExhaustedError("no room");
  SharedMemory any = Make(false);
  REQUIRE(any.Join("first", absl::InfiniteFuture()).ok());
  CHECK_FALSE(any.in_use());
  CHECK(any.commit_buffer().size() == kFloats);
  CHECK(events == std::vector<std::string>{"exchanges go over gRPC: no room"});
  v1::ExchangeHeader header = CommitHeader(1);
  REQUIRE(any.Begin(&header, absl::InfiniteFuture()).ok());
  CHECK(header.segment() == 0);

  SharedMemory shared = Make(true);
  const absl::Status refused = shared.Join("first", absl::InfiniteFuture());
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()), Catch::Contains("no room"));
}

TEST_CASE_METHOD(Fixture, "a daemon that was started again in the middle of the handover is found again") {
  SharedMemory memory = Make(GENERATE(false, true));
  gone = "first";
  REQUIRE(memory.Join("first", absl::InfiniteFuture()).ok());
  CHECK(memory.in_use());
  CHECK(socket_asked == "other");
  CHECK(events.empty());
}

TEST_CASE_METHOD(Fixture, "what a daemon says as it refuses is one printable line") {
  refusal = absl::ResourceExhaustedError("no\x1b[2J\nroom\xe9");
  SharedMemory memory = Make(false);
  CHECK(memory.Join("socket", clock.Now() + absl::Seconds(1)).ok());
  REQUIRE(events.size() == 1);
  CHECK(events[0] == "exchanges go over gRPC: no\\x1b[2J\\nroom?");
}

TEST_CASE_METHOD(Fixture, "a segment that is lost is held no longer when another one is asked for") {
  SharedMemory memory = Make(false);
  REQUIRE(memory.Join("first", absl::InfiniteFuture()).ok());
  const absl::Span<float> commit = memory.commit_buffer();
  std::fill(commit.begin(), commit.end(), 1.0f);
  daemons.reset();
  daemons_end = FileDescriptor();
  CHECK_FALSE(ReleaseUnheld(watch));
  refusal = absl::ResourceExhaustedError("no room");
  v1::ExchangeHeader header = CommitHeader(1);
  REQUIRE(memory.Begin(&header, absl::InfiniteFuture()).ok());
  CHECK(ReleaseUnheld(watch));
  CHECK(memory.commit_buffer().data() == commit.data());
  CHECK(All(commit, 1));
}

TEST_CASE_METHOD(Fixture, "a segment that is lost and can't be had again") {
  const bool required = GENERATE(false, true);
  SharedMemory memory = Make(required);
  REQUIRE(memory.Join("first", absl::InfiniteFuture()).ok());
  daemons_end = FileDescriptor();
  refusal = absl::UnavailableError("shares no memory");
  v1::ExchangeHeader header = CommitHeader(1);
  const absl::Status begun = memory.Begin(&header, absl::InfiniteFuture());
  CHECK(header.segment() == 0);
  if (required) {
    CHECK(begun == refusal);
    // And is tried again by the next attempt.
    refusal = absl::OkStatus();
    REQUIRE(memory.Begin(&header, absl::InfiniteFuture()).ok());
    CHECK(header.segment() == 2);
  } else {
    CHECK(begun.ok());
    CHECK_FALSE(memory.in_use());
    CHECK(events == std::vector<std::string>{"exchanges go over gRPC from now on: shares no memory"});
  }
}

}  // namespace
}  // namespace paramd
