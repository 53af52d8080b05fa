// What a server answers, as JSON for programs. Times end in _s, sizes in _bytes; integers are numbers, also those of
// 64 bits; values that are not finite are null.
#ifndef PARAMD_CLIENT_CLI_JSON_VIEW_H_
#define PARAMD_CLIENT_CLI_JSON_VIEW_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "client/cli/text_view.h"
#include "proto/paramd.pb.h"

namespace paramd::cli {

using OrderedJson = nlohmann::ordered_json;

OrderedJson ModelJson(const v1::ModelInfo& model);
OrderedJson ModelsJson(const Models& models);  // a list of them
OrderedJson HistoryJson(const std::string& model, const v1::GetHistoryReply& history, int64_t last);
OrderedJson StatusJson(const v1::ServerStatus& status);
OrderedJson AlgorithmsJson(const v1::ListAlgorithmsReply& reply);

// With a line end. Bytes that are not UTF-8 are replaced. `one_line`: as a line of a stream of documents.
std::string JsonText(const OrderedJson& json, bool one_line = false);

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_JSON_VIEW_H_
