#include "proto/address.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "proto/text.h"

namespace paramd {
namespace {

constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
constexpr size_t kMaxHost = 253;
constexpr int kMaxPort = 65535;

// Everything but what every URI takes as it is.
std::string UriEscaped(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = absl::ascii_isalnum(byte) || absl::StrContains("/-._~", absl::string_view(&c, 1));
    plain ? escaped += c : escaped += absl::StrCat("%", absl::Hex(byte, absl::kZeroPad2));
  }
  return escaped;
}

bool ParseIpv4(const std::string& host, in_addr* parsed) { return inet_pton(AF_INET, host.c_str(), parsed) == 1; }

// Of an address with or without a scope, as in fe80::1%eth0.
bool ParseIpv6(const std::string& host, in6_addr* parsed) {
  return inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), parsed) == 1;
}

// Empty if it is good.
std::string ProblemOfHost(const std::string& host, bool brackets) {
  in_addr v4{};
  in6_addr v6{};
  if (brackets) return ParseIpv6(host, &v6) ? "" : "is no IPv6 address";
  if (host.empty()) return "is empty";
  if (absl::StrContains(host, "://")) return "begins with a scheme, which has no place here";
  if (absl::StrContains(host, ':')) return "has more than one colon; write IPv6 addresses in brackets";
  if (host.size() > kMaxHost) return "is longer than names of hosts can be";
  const bool good = std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
  if (!good) return "has characters that no name of a host has";
  const bool digits =
      std::all_of(host.begin(), host.end(), [](unsigned char c) { return absl::ascii_isdigit(c) || c == '.'; });
  if (digits && !ParseIpv4(host, &v4)) return "is no IPv4 address";
  return "";
}

std::string ProblemOfPort(const std::string& port, int min, int* parsed) {
  const bool digits = !port.empty() && std::all_of(port.begin(), port.end(), absl::ascii_isdigit);
  if (!digits) return port.empty() ? "is missing" : "is no number";
  if (!absl::SimpleAtoi(port, parsed) || *parsed > kMaxPort) return absl::StrCat("is above ", kMaxPort);
  return *parsed < min ? "is none that a server can have" : "";
}

absl::StatusOr<Address> Parse(const std::string& text, int min_port) {
  const auto error = [&](absl::string_view part, absl::string_view value, absl::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address '", Quoted(text), "': ", part, value.empty() ? "" : absl::StrCat(" '", Quoted(value), "'"), " ",
        problem, "; use HOST:PORT, [IPV6]:PORT or unix:PATH, with a port of ", min_port, " to ", kMaxPort));
  };
  Address address;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    address.unix_socket = true;
    address.host = std::string(rest);
    if (address.host.empty()) return error("the path", "", "is empty");
    if (absl::StrContains(rest, absl::string_view("\0", 1))) return error("the path", rest, "has a zero byte");
    if (address.host.size() > kMaxPath) {
      return error("the path", "", absl::StrCat("is longer than the system's ", kMaxPath, " characters"));
    }
    return address;
  }
  const size_t bracket = absl::StartsWith(text, "[") ? text.find(']') : std::string::npos;
  const bool brackets = bracket != std::string::npos;
  const size_t colon = brackets ? bracket + 1 : text.rfind(':');
  if (colon == std::string::npos || colon >= text.size() || text[colon] != ':') {
    return error("the port", "", "is missing");
  }
  address.host = brackets ? text.substr(1, bracket - 1) : text.substr(0, colon);
  if (const std::string problem = ProblemOfHost(address.host, brackets); !problem.empty()) {
    return error("the host", address.host, problem);
  }
  const std::string port = text.substr(colon + 1);
  if (const std::string problem = ProblemOfPort(port, min_port, &address.port); !problem.empty()) {
    return error("the port", port, problem);
  }
  return address;
}

}  // namespace

bool Address::loopback() const {
  if (unix_socket || absl::EqualsIgnoreCase(host, "localhost")) return true;
  in_addr v4{};
  if (ParseIpv4(host, &v4)) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return ParseIpv6(host, &v6) && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string Address::ToString() const {
  if (unix_socket) return absl::StrCat("unix:", host);
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

std::string Address::Target() const {
  if (unix_socket) return absl::StrCat("unix:", UriEscaped(host));
  return absl::StrContains(host, ':') ? absl::StrCat("dns:///[", absl::StrReplaceAll(host, {{"%", "%25"}}), "]:", port)
                                      : absl::StrCat("dns:///", host, ":", port);
}

absl::StatusOr<Address> ParseListenAddress(const std::string& text) { return Parse(text, 0); }
absl::StatusOr<Address> ParseServerAddress(const std::string& text) { return Parse(text, 1); }

}  // namespace paramd
