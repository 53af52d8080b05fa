#include "proto/status.h"

#include <catch2/catch.hpp>
#include <string>

namespace paramd {
namespace {

TEST_CASE("every code and message survives the wire") {
  for (int code = 0; code <= 16; ++code) {
    INFO(code);
    const std::string text = code == 0 ? "" : "what happened";
    const absl::Status status(static_cast<absl::StatusCode>(code), text);
    const grpc::Status wire = ToGrpcStatus(status);
    CHECK(static_cast<int>(wire.error_code()) == code);
    CHECK(wire.error_message() == text);
    CHECK(FromGrpcStatus(wire) == status);
    CHECK(FromWireStatus(code, text) == status);
  }
}

TEST_CASE("the codes that matter have the same names on both sides") {
  CHECK(ToGrpcStatus(absl::AbortedError("")).error_code() == grpc::StatusCode::ABORTED);
  CHECK(ToGrpcStatus(absl::NotFoundError("")).error_code() == grpc::StatusCode::NOT_FOUND);
  CHECK(ToGrpcStatus(absl::UnavailableError("")).error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK(ToGrpcStatus(absl::ResourceExhaustedError("")).error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(ToGrpcStatus(absl::DeadlineExceededError("")).error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_CASE("a message on the wire is UTF-8 and short, and keeps its end") {
  const grpc::Status wire = ToGrpcStatus(absl::NotFoundError("no \xe9" + std::string(100'000, 'x') + "; do this"));
  CHECK(wire.error_message().size() <= 2048);
  CHECK_THAT(wire.error_message(), Catch::StartsWith("no ?xxx") && Catch::EndsWith("; do this"));
  CHECK(ToWireMessage(absl::NotFoundError("short")) == "short");
}

TEST_CASE("what a peer says does nothing to a terminal") {
  CHECK(FromWireStatus(5, "a\x1b[2J\nb\xe9").message() == "a\\x1b[2J\\nb?");
  CHECK(FromWireStatus(5, std::string(100'000, '\n')).message().size() < 20'000);
}

TEST_CASE("a code from a peer that there is not is unknown") {
  for (const int code : {17, 1000, -1, -2147483647 - 1, 2147483647}) {
    INFO(code);
    CHECK(FromWireStatus(code, "odd") == absl::UnknownError("odd"));
  }
}

}  // namespace
}  // namespace paramd
