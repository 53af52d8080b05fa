package paramd;

/**
 * How a training went.
 *
 * @param steps minibatches
 * @param samples rows
 * @param exchanges with the daemon
 * @param epochs completed
 * @param meanStaleness of its commits
 * @param wallSeconds from the first epoch's begin to the last one's end
 * @param exchangingSeconds that training stood still for exchanges
 * @param lastLoss mean of the last window
 * @param reachedTargetLoss whether {@link TrainOptions#targetLoss} ended it
 */
public record TrainSummary(
    long steps,
    long samples,
    long exchanges,
    long epochs,
    double meanStaleness,
    double wallSeconds,
    double exchangingSeconds,
    double lastLoss,
    boolean reachedTargetLoss) {}
