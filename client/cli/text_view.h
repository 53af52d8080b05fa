// What a server answers, as pages for people.
#ifndef PARAMD_CLIENT_CLI_TEXT_VIEW_H_
#define PARAMD_CLIENT_CLI_TEXT_VIEW_H_

#include <cstdint>
#include <string>

#include "google/protobuf/repeated_ptr_field.h"
#include "proto/paramd.pb.h"

namespace paramd::cli {

using Models = google::protobuf::RepeatedPtrField<v1::ModelInfo>;

// One line a model.
std::string ModelsText(const Models& models);

// One model in full: tensors, hyperparameters, workers.
std::string ModelText(const v1::ModelInfo& model);

// At most the last `last` records of each series; 0: all.
std::string HistoryText(const v1::GetHistoryReply& history, int64_t last);

// The same records, one a line, with the columns worker, step, epoch, time_s, loss and one for each metric that any
// worker has. RFC 4180.
std::string HistoryCsv(const v1::GetHistoryReply& history, int64_t last);

std::string StatusText(const v1::ServerStatus& status);

std::string AlgorithmsText(const v1::ListAlgorithmsReply& reply);

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_TEXT_VIEW_H_
