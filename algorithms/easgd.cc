// Elastic averaging in rounds: Zhang, Choromanska, LeCun, "Deep learning with Elastic Averaging SGD", NIPS 2015
// (arXiv 1412.6651), equations 5 and 6.
//
//   worker  as aeasgd: sends W, receives θ as it was; W −= α(W − θ)
//   server  θ += Σ over the round of α(Wᵢ − θ), all against the same θ
//
// It is aeasgd with consistency `sync`; both halves are that one's. Invariants: with n workers, θ + ΣWᵢ stays what it
// was, and the distance between θ and the workers' mean is multiplied by 1 − (n + 1)α.
#include "algorithms/algorithm.h"
#include "algorithms/registry.h"

namespace paramd {
namespace {

const Algorithm& Elastic() { return *FindAlgorithm("aeasgd").value(); }

REGISTER_ALGORITHM({.name = "easgd",
                    .description = "elastic averaging in rounds of all workers",
                    .default_consistency = "sync",
                    .default_communication_window = 5,
                    .default_learning_rate = 0.5,
                    .hyperparameters = {{.name = "rho",
                                         .default_value = 0.4,
                                         .min = 1e-12,
                                         .max = 1e12,
                                         .description = "elastic force; alpha = rho * learning_rate must be < 1"}},
                    .validate = [](const Hyperparameters& h) { return Elastic().validate(h); },
                    .make_server = [](const Hyperparameters& h) { return Elastic().make_server(h); },
                    .make_worker = [](const Hyperparameters& h) { return Elastic().make_worker(h); }});

}  // namespace
}  // namespace paramd
