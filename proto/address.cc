#include "proto/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sys/un.h>

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/text.h"

namespace paramd {
namespace {

constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
constexpr size_t kMaxHost = 253;
constexpr size_t kMaxLabel = 63;
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

bool IsDigits(absl::string_view text) { return std::all_of(text.begin(), text.end(), absl::ascii_isdigit); }

// As the parts of IPv4 addresses are written, in any of the ways that there were.
bool IsNumber(absl::string_view label) {
  if (absl::ConsumePrefix(&label, "0x") || absl::ConsumePrefix(&label, "0X")) {
    return std::all_of(label.begin(), label.end(), absl::ascii_isxdigit);
  }
  return IsDigits(label);
}

// These and the following are empty if it is good.
std::string ProblemOfIpv6(const std::string& host) {
  in6_addr v6{};
  if (!ParseIpv6(host, &v6)) return "is no IPv6 address";
  const size_t percent = host.find('%');
  if (percent == std::string::npos) return "";
  const std::string scope = host.substr(percent + 1);
  if (scope.empty()) return "has an empty scope";
  return IsDigits(scope) || if_nametoindex(scope.c_str()) != 0 ? "" : "has a scope that is no interface of this host";
}

std::string ProblemOfHost(const std::string& host, bool brackets) {
  in_addr v4{};
  if (brackets) return ProblemOfIpv6(host);
  if (host.empty()) return "is empty";
  if (absl::StrContains(host, "://")) return "begins with a scheme, which has no place here";
  if (absl::StrContains(host, ':')) return "has more than one colon; write IPv6 addresses in brackets";
  if (host.size() > kMaxHost) return "is longer than names of hosts can be";
  const bool good = std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
  if (!good) return "has characters that no name of a host has";
  const std::vector<absl::string_view> labels = absl::StrSplit(absl::StripSuffix(host, "."), '.');
  for (const absl::string_view label : labels) {
    if (label.empty()) return "has an empty part between its dots";
    if (label.size() > kMaxLabel) return absl::StrCat("has a part of more than ", kMaxLabel, " characters");
  }
  return IsNumber(labels.back()) && !ParseIpv4(host, &v4) ? "is no IPv4 address" : "";
}

std::string ProblemOfPort(const std::string& port, int min, int* parsed) {
  if (port.empty()) return "is missing";
  if (!IsDigits(port)) return "is no number";
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
    if (absl::StrContains(rest, ',')) return error("the path", rest, "has a comma, where gRPC would divide it");
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
  if (unix_socket) {
    // gRPC takes what follows two slashes for an authority.
    absl::string_view path = host;
    while (absl::StartsWith(path, "//")) path.remove_prefix(1);
    return absl::StrCat("unix:", UriEscaped(path));
  }
  return absl::StrContains(host, ':') ? absl::StrCat("dns:///[", absl::StrReplaceAll(host, {{"%", "%25"}}), "]:", port)
                                      : absl::StrCat("dns:///", host, ":", port);
}

absl::StatusOr<Address> ParseListenAddress(const std::string& text) { return Parse(text, 0); }
absl::StatusOr<Address> ParseServerAddress(const std::string& text) { return Parse(text, 1); }

}  // namespace paramd
