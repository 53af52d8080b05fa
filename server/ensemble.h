// A model whose workers train a center each, published as NAME/0 ... NAME/n-1.
#ifndef PARAMD_SERVER_ENSEMBLE_H_
#define PARAMD_SERVER_ENSEMBLE_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/model.h"

namespace paramd {

// Which worker has which member; each member is a plain model. Externally synchronized, by the table of models.
class Ensemble {
 public:
  // `whole`: the model that was asked for, whose center is what new members begin with.
  // `workers`: that have places already, in the order of these.
  explicit Ensemble(std::shared_ptr<Model> whole, const std::vector<std::string>& workers = {});

  const std::shared_ptr<Model>& whole() const { return whole_; }

  struct Place {
    std::string name;               // of the member
    std::shared_ptr<Model> member;  // null: to be made
  };
  // Always the same for the same worker, once it was taken.
  Place Find(const std::string& worker) const;
  void Take(const std::string& worker, std::shared_ptr<Model> member);
  // The member was deleted; its worker keeps the place.
  void Forget(const Model* member);
  // The same at a place that is known. False: another worker has it.
  bool TakePlace(const std::string& worker, size_t index, std::shared_ptr<Model> member);
  // In the order of their places; empty where none is known.
  std::vector<std::string> workers() const;

  // In the order of their numbers.
  std::vector<std::shared_ptr<Model>> members() const;

 private:
  const std::shared_ptr<Model> whole_;
  std::map<std::string, size_t> indices_;        // by worker
  std::vector<std::shared_ptr<Model>> members_;  // null: deleted
};

}  // namespace paramd

#endif  // PARAMD_SERVER_ENSEMBLE_H_
