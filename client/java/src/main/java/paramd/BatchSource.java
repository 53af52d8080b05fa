package paramd;

/** Where minibatches come from. {@link #next} and {@link #rewind} are called from one thread, not the trainer's. */
public interface BatchSource {
  /** Fills {@code batch} with the next minibatch; false at the epoch's end. May block as long as it likes. */
  boolean next(Batch batch) throws Exception;

  /** Begins an epoch, counted from 0; called before the first {@link #next}, too. */
  void rewind(long epoch) throws Exception;

  /** Minibatches in one epoch; 0: unknown. Only for the history's position in the data. */
  default long batchesPerEpoch() {
    return 0;
  }

  /** Wakes a {@link #next} that blocks. From any thread, also more than once, when training ends early. */
  default void cancel() {}
}
