// Workers that do to their shared memory, and say of it, what no good worker would.
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "shm/handshake.h"
#include "shm/segment.h"
#include "tests/integration/fixtures.h"
#include "tests/integration/stub_session.h"
#include "tests/support/await.h"

namespace paramd {
namespace {

constexpr size_t kFloats = 3000;

// A worker by stubs alone, with a segment of its own.
class Hostile {
 public:
  explicit Hostile(const std::string& consistency = "async", size_t floats = kFloats)
      : layout_(LayOutSegment(floats)),
        floats_(floats),
        server_(StartServer()),
        stub_(OpenChannel(server_->address())),
        session_(&stub_) {
    CreateModel(server_->address(), Spec("m", "downpour", floats, consistency), std::vector<float>(floats, 5));
    socket_ = JoinReplyByStub(&stub_, "m", "a", 1).shared_memory_socket();
    participant_ = JoinByStub(&stub_, "m", "a");
    auto granted = RequestSegment(socket_, layout_.bytes, kCallTimeout);
    INFO(granted.status());
    REQUIRE(granted.ok());
    granted_ = *std::move(granted);
    auto segment = Segment::Map(granted_.memory, layout_.bytes);
    REQUIRE(segment.ok());
    segment_ = std::make_unique<Segment>(*std::move(segment));
    std::fill(commit().begin(), commit().end(), 1.0f);
  }

  const Segment& segment() const { return *segment_; }
  const SegmentLayout& layout() const { return layout_; }
  const std::string& socket() const { return socket_; }
  const GrantedSegment& granted() const { return granted_; }
  Server& server() { return *server_; }
  StubSession& session() { return session_; }
  absl::Span<float> commit() const { return segment_->Floats(layout_.commit_begin, floats_); }
  absl::Span<float> center() const { return segment_->Floats(layout_.center_begin, floats_); }

  // A good commit of the next sequence, for `change` to spoil.
  v1::ExchangeRequest Request(const std::function<void(v1::ExchangeRequest*)>& change = nullptr) {
    v1::ExchangeRequest request;
    *request.mutable_header() = CommitHeader(participant_, ++sequence_, floats_);
    request.mutable_header()->set_segment(granted_.id);
    request.mutable_chunk()->set_shared_begin(layout_.commit_begin);
    request.mutable_chunk()->set_shared_floats(floats_);
    segment_->StoreCommitWord(sequence_);
    if (change != nullptr) change(&request);
    return request;
  }
  uint64_t sequence() const { return sequence_; }

  // Nothing that needs the memory may follow.
  void LetGo() {
    segment_.reset();
    granted_.memory = FileDescriptor();
  }

  v1::ReplyHeader Answer(const v1::ExchangeRequest& request) {
    REQUIRE(session_.Send(request));
    const auto reply = session_.ReceiveMessage();
    REQUIRE(reply.has_value());
    return reply->header();
  }

  void CheckRefused(const v1::ReplyHeader& reply, absl::StatusCode code, const std::string& why) {
    CHECK(reply.code() == static_cast<int>(code));
    CHECK_THAT(reply.message(), Catch::Contains(why));
    CHECK_FALSE(reply.committed());
    CheckCenter(5);
  }
  void CheckCenter(float value) {
    CHECK(ReadCenter(server_->address(), "m").first == std::vector<float>(floats_, value));
  }

 private:
  const SegmentLayout layout_;
  const size_t floats_;
  const std::unique_ptr<Server> server_;
  v1::ParameterServer::Stub stub_;
  StubSession session_;
  std::string socket_;
  v1::Participant participant_;
  GrantedSegment granted_;
  std::unique_ptr<Segment> segment_;
  uint64_t sequence_ = 0;
};

TEST_CASE("what is wrong about a commit in shared memory is refused, changes nothing and ends no session") {
  const std::string consistency = GENERATE(as<std::string>(), "async", "sync", "bounded:1");
  Hostile worker(consistency);
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const auto small = RequestSegment(worker.socket(), 8192, kCallTimeout);
  REQUIRE(small.ok());
  const auto begin = [](uint64_t byte) { return [=](auto* r) { r->mutable_chunk()->set_shared_begin(byte); }; };
  const auto floats = [](uint64_t n) { return [=](auto* r) { r->mutable_chunk()->set_shared_floats(n); }; };
  const std::string range = "floats from byte";
  const struct {
    std::function<void(v1::ExchangeRequest*)> change;
    absl::StatusCode code;
    std::string why;
  } cases[] = {
      {[](auto* r) { r->mutable_header()->set_segment(r->header().segment() ^ 1); }, absl::StatusCode::kUnavailable,
       "does not know that shared memory"},
      {[&](auto* r) { r->mutable_header()->set_segment(small->id); }, absl::StatusCode::kInvalidArgument,
       "8192 bytes is too small for the 3000 floats"},
      {begin(0), absl::StatusCode::kInvalidArgument, range},
      {begin(4092), absl::StatusCode::kInvalidArgument, range},
      {begin(4098), absl::StatusCode::kInvalidArgument, range},
      {begin(worker.layout().bytes - 4 * kFloats + 4), absl::StatusCode::kInvalidArgument, range},
      {begin(worker.layout().bytes), absl::StatusCode::kInvalidArgument, range},
      {begin(kMost - 3), absl::StatusCode::kInvalidArgument, range},
      {floats(kMost), absl::StatusCode::kInvalidArgument, range},
      {floats(kMost / 4 + 2), absl::StatusCode::kInvalidArgument, range},
      {floats(kFloats + 1), absl::StatusCode::kInvalidArgument, "one chunk"},
      {floats(kFloats - 1), absl::StatusCode::kInvalidArgument, "one chunk"},
      {[](auto* r) { r->mutable_header()->mutable_commit()->set_floats(kFloats + 1); },
       absl::StatusCode::kInvalidArgument, "3001 floats where model 'm' has 3000"},
      {[](auto* r) { r->mutable_chunk()->set_offset(1); }, absl::StatusCode::kInvalidArgument, "float 0 was due"},
      {[](auto* r) { r->mutable_chunk()->set_offset(kMost); }, absl::StatusCode::kInvalidArgument, "float 0 was due"},
      {[](auto* r) {
         r->mutable_chunk()->clear_shared_floats();
         r->mutable_chunk()->set_data(std::string(4 * kFloats, '\0'));
       },
       absl::StatusCode::kInvalidArgument, "and nothing else"},
      {[](auto* r) { r->mutable_header()->clear_segment(); }, absl::StatusCode::kInvalidArgument,
       "shared memory that its header names"},
      {[](auto* r) { r->mutable_header()->set_encoding(v1::FLOAT16); }, absl::StatusCode::kInvalidArgument, "narrowed"},
      {[](auto* r) { r->mutable_header()->mutable_initialize()->set_floats(kFloats); },
       absl::StatusCode::kInvalidArgument, "an initial center"},
  };
  for (const auto& c : cases) {
    const v1::ExchangeRequest request = worker.Request(c.change);
    INFO(request.ShortDebugString());
    worker.CheckRefused(worker.Answer(request), c.code, c.why);
  }
  const v1::ReplyHeader good = worker.Answer(worker.Request());
  INFO(good.message());
  CHECK(good.code() == 0);
  worker.CheckCenter(6);
}

TEST_CASE("a commit that is taken back while the daemon reads it is not applied, and may be sent again") {
  const std::string consistency = GENERATE(as<std::string>(), "async", "sync", "bounded:1");
  Hostile worker(consistency);
  v1::ExchangeRequest request = worker.Request();
  for (const uint64_t word : {uint64_t{0}, worker.sequence() + 1, ~uint64_t{0}}) {
    worker.segment().StoreCommitWord(word);
    worker.CheckRefused(worker.Answer(request), absl::StatusCode::kUnavailable, "changed");
  }
  worker.segment().StoreCommitWord(worker.sequence());
  CHECK(worker.Answer(request).code() == 0);
  worker.CheckCenter(6);
  // Once it is applied, a retry is answered without a look at the memory.
  worker.segment().StoreCommitWord(0);
  std::fill(worker.commit().begin(), worker.commit().end(), 100.0f);
  const v1::ReplyHeader again = worker.Answer(request);
  CHECK(again.code() == 0);
  CHECK(again.committed());
  worker.CheckCenter(6);
}

TEST_CASE("a commit in shared memory that is not finite is refused") {
  const std::string consistency = GENERATE(as<std::string>(), "async", "sync", "bounded:1");
  Hostile worker(consistency);
  worker.commit()[kFloats - 1] = std::nanf("");
  worker.CheckRefused(worker.Answer(worker.Request()), absl::StatusCode::kInvalidArgument, "[2999]");
  worker.commit()[kFloats - 1] = std::numeric_limits<float>::infinity();
  worker.CheckRefused(worker.Answer(worker.Request()), absl::StatusCode::kInvalidArgument, "[2999]");
  worker.commit()[kFloats - 1] = 1;
  CHECK(worker.Answer(worker.Request()).code() == 0);
  worker.CheckCenter(6);
}

TEST_CASE("memory that changes all the time makes no center that is not finite, and disturbs no other worker") {
  constexpr size_t kLarge = 3 * (size_t{256} << 10) + 7;
  const std::string consistency = GENERATE(as<std::string>(), "async", "bounded:1000");
  Hostile worker(consistency, kLarge);
  const auto other =
      Join({.server = worker.server().address(), .model = "m", .worker = "b", .transport = Transport::kShm});
  std::vector<float> pulled(kLarge);
  int refused = 0;
  int applied = 0;
  bool finite = true;
  {
    std::atomic<bool> stop = false;
    const Thread scribbler([&] {
      const float values[] = {1, std::nanf(""), -1e30f, std::numeric_limits<float>::infinity(), 0};
      for (size_t i = 0; !stop; ++i) worker.commit()[(i * 7919) % kLarge] = values[i % 5];
    });
    const struct Stop {
      std::atomic<bool>* stop;
      ~Stop() { *stop = true; }
    } stopper{&stop};
    for (int i = 0; i < 60; ++i) {
      if (i % 20 == 0) {
        // The word is good for some commits and changes under others.
        std::fill(worker.commit().begin(), worker.commit().end(), 1.0f);
      }
      (worker.Answer(worker.Request()).code() == 0 ? applied : refused) += 1;
      const auto exchanged = other->Exchange(std::vector<float>(kLarge, 0), absl::MakeSpan(pulled), kCallTimeout);
      INFO(exchanged.status());
      REQUIRE(exchanged.ok());
      finite = finite && std::all_of(pulled.begin(), pulled.end(), [](float f) { return std::isfinite(f); });
    }
  }
  CHECK(finite);
  CHECK(refused + applied == 60);
  CHECK(worker.server().GetStatus().models(0).version() == applied + 60);
}

TEST_CASE("a hole punched into the segment reads as zero") {
  Hostile worker;
  REQUIRE(fallocate(worker.granted().memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096,
                    static_cast<off_t>(worker.layout().bytes - 4096)) == 0);
  CHECK(worker.Answer(worker.Request()).code() == 0);
  worker.CheckCenter(5);
}

TEST_CASE("the center is put where the protocol says, and never read back") {
  Hostile worker("async", (6 << 20) + 5);
  v1::ExchangeRequest request = worker.Request();
  request.mutable_header()->mutable_commit()->set_pull(true);
  REQUIRE(worker.session().Send(request));
  uint64_t received = 0;
  const uint64_t floats = worker.center().size();
  int messages = 0;
  while (received < floats) {
    const auto reply = worker.session().ReceiveMessage();
    REQUIRE(reply.has_value());
    if (messages++ == 0) CHECK(reply->header().pull_floats() == floats);
    CHECK(reply->header().code() == 0);
    CHECK(reply->chunk().offset() == received);
    CHECK(reply->chunk().shared_begin() == worker.layout().center_begin + 4 * received);
    CHECK(reply->chunk().data().empty());
    const uint64_t n = reply->chunk().shared_floats();
    REQUIRE(n > 0);
    REQUIRE(n <= floats - received);
    const auto part = worker.center().subspan(received, n);
    CHECK(std::all_of(part.begin(), part.end(), [](float f) { return f == 6; }));
    std::fill(part.begin(), part.end(), 1e9f);
    received += n;
  }
  CHECK(messages > 1);
  worker.CheckCenter(6);
}

TEST_CASE("an exchange that is under way when the worker's connection to the segment ends goes on") {
  Hostile worker;
  v1::ExchangeRequest header = worker.Request();
  v1::ExchangeRequest chunk;
  *chunk.mutable_chunk() = header.chunk();
  header.clear_chunk();
  REQUIRE(worker.session().Send(header));
  CHECK(Await([&] { return worker.server().GetStatus().sessions() == 1; }));
  REQUIRE(SendMessage(worker.granted().link.get(), "not a request", -1));
  CHECK(Await([&] { return worker.server().GetStatus().segments() == 0; }));
  REQUIRE(worker.session().Send(chunk));
  const auto reply = worker.session().ReceiveMessage();
  REQUIRE(reply.has_value());
  // It had found the segment before, or had not.
  if (reply->header().code() == 0) {
    worker.CheckCenter(6);
  } else {
    worker.CheckRefused(reply->header(), absl::StatusCode::kUnavailable, "does not know that shared memory");
  }
  CHECK(worker.Answer(worker.Request()).code() == static_cast<int>(absl::StatusCode::kUnavailable));
  // It counts for as long as the worker holds it.
  CHECK(worker.server().GetStatus().shared_bytes() == worker.layout().bytes);
  worker.LetGo();
  CHECK(Await([&] { return worker.server().GetStatus().shared_bytes() == 0; }));
}

}  // namespace
}  // namespace paramd
