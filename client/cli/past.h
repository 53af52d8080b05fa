// What a file says of a model's past: who trained it, what they reported, how far it was.
#ifndef PARAMD_CLIENT_CLI_PAST_H_
#define PARAMD_CLIENT_CLI_PAST_H_

#include <string>
#include <vector>

#include "client/admin.h"
#include "proto/paramd.pb.h"
#include "state/state.pb.h"

namespace paramd::cli {

// Of a model whose center is `at`.
state::Checkpoint PastOf(const v1::ModelInfo& model, const v1::GetHistoryReply& history, const Admin::Point& at);

// The same in pieces that go into a message each: AddPastRequest::past.
std::vector<std::string> PiecesOfPast(const state::Checkpoint& past);

}  // namespace paramd::cli

#endif  // PARAMD_CLIENT_CLI_PAST_H_
