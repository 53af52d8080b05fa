package paramd;

/**
 * A model as the server sees it at the moment.
 *
 * @param spec its name, tensors, algorithm, consistency and every hyperparameter, defaults included
 * @param version commits applied to the center
 * @param parameters floats in the center
 * @param initialized whether it has a first center
 * @param workers that ever joined and are remembered
 * @param liveWorkers that joined, and neither left nor are silent for longer than their lease
 * @param commits applied, over all workers
 * @param rejected commits that were refused
 * @param meanStaleness of the applied commits
 * @param trainingTimeSeconds since the first commit
 * @param problem why it can't be trained any further (its center is not finite, its algorithm failed); empty if it can
 */
public record ModelInfo(
    ModelSpec spec,
    long version,
    long parameters,
    boolean initialized,
    long workers,
    long liveWorkers,
    long commits,
    long rejected,
    double meanStaleness,
    double trainingTimeSeconds,
    String problem) {}
