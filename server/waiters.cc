#include "server/waiters.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace paramd {
namespace {

// Removes the one of `key` that stands for `entry`.
template <typename Index, typename Key, typename Iterator>
void EraseFrom(Index* index, const Key& key, Iterator entry) {
  const auto [begin, end] = index->equal_range(key);
  const auto it = std::find_if(begin, end, [entry](const auto& pair) { return pair.second == entry; });
  if (it != end) index->erase(it);
}

template <typename Index, typename Key>
auto AllOf(const Index& index, const Key& key) {
  std::vector<typename Index::mapped_type> entries;
  const auto [begin, end] = index.equal_range(key);
  for (auto it = begin; it != end; ++it) entries.push_back(it->second);
  return entries;
}

}  // namespace

Waiters::Entries::iterator Waiters::Add(Waiter waiter) {
  const auto entry = entries_.insert(entries_.end(), Entry{.waiter = std::move(waiter)});
  const ExchangeCall& call = entry->waiter.call;
  if (call.deadline != absl::InfiniteFuture()) entry->deadline = by_deadline_.emplace(call.deadline, entry);
  if (call.tag != nullptr) by_tag_.emplace(call.tag, entry);
  if (const Member* member = entry->waiter.member.get(); member != nullptr) {
    if (!IsWaiting(member)) ++waiting_members_;
    by_member_.emplace(member, entry);
  }
  return entry;
}

void Waiters::Take(Entries::iterator entry, List* taken) {
  if (entry->progress.has_value()) by_progress_.erase(*entry->progress);
  if (entry->ticket.has_value()) by_ticket_.erase(*entry->ticket);
  if (entry->deadline.has_value()) by_deadline_.erase(*entry->deadline);
  const Waiter& waiter = entry->waiter;
  if (waiter.call.tag != nullptr) EraseFrom(&by_tag_, waiter.call.tag, entry);
  if (waiter.member != nullptr) {
    EraseFrom(&by_member_, waiter.member.get(), entry);
    if (!IsWaiting(waiter.member.get())) --waiting_members_;
  }
  taken->push_back(std::move(entry->waiter));
  entries_.erase(entry);
}

void Waiters::AwaitProgress(uint64_t progress, Waiter waiter) {
  const auto entry = Add(std::move(waiter));
  entry->progress = by_progress_.emplace(progress, entry);
}

void Waiters::AwaitDisk(uint64_t ticket, Waiter waiter) {
  const auto entry = Add(std::move(waiter));
  entry->ticket = by_ticket_.emplace(ticket, entry);
}

void Waiters::AwaitCenter(Waiter waiter) { Add(std::move(waiter)); }

Waiters::List Waiters::TakeUpTo(uint64_t progress) {
  List taken;
  while (!by_progress_.empty() && by_progress_.begin()->first <= progress) Take(by_progress_.begin()->second, &taken);
  return taken;
}

Waiters::List Waiters::TakeOnDisk(uint64_t ticket) {
  List taken;
  while (!by_ticket_.empty() && by_ticket_.begin()->first <= ticket) Take(by_ticket_.begin()->second, &taken);
  return taken;
}

Waiters::List Waiters::TakeForCenter() {
  List taken;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto entry = it++;
    if (!entry->progress.has_value() && !entry->ticket.has_value()) Take(entry, &taken);
  }
  return taken;
}

Waiters::List Waiters::TakeDue(absl::Time now) {
  List taken;
  while (!by_deadline_.empty() && by_deadline_.begin()->first <= now) Take(by_deadline_.begin()->second, &taken);
  return taken;
}

Waiters::List Waiters::TakeOf(const Member* member) {
  List taken;
  for (const auto& entry : AllOf(by_member_, member)) Take(entry, &taken);
  return taken;
}

Waiters::List Waiters::TakeTagged(const void* tag) {
  List taken;
  for (const auto& entry : AllOf(by_tag_, tag)) Take(entry, &taken);
  return taken;
}

Waiters::List Waiters::TakeAll() {
  List taken;
  while (!entries_.empty()) Take(entries_.begin(), &taken);
  return taken;
}

}  // namespace paramd
