package paramd;

/**
 * A model as the server sees it at the moment.
 *
 * @param version commits applied to the center
 * @param parameters floats in the center
 * @param workers that ever joined and are remembered
 * @param commits applied, over all workers
 * @param rejected commits that were refused
 * @param meanStaleness of the applied commits
 */
public record ModelInfo(
    long version,
    long parameters,
    boolean initialized,
    long workers,
    long liveWorkers,
    long commits,
    long rejected,
    double meanStaleness,
    double trainingTimeSeconds) {}
