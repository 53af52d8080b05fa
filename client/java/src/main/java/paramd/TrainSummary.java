package paramd;

/**
 * How a training went.
 *
 * @param steps minibatches
 * @param samples rows
 * @param epochs completed
 * @param exchangingSeconds that training stood still for exchanges
 * @param lastLoss mean of the last window
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
