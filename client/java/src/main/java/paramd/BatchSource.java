package paramd;

/** Where minibatches come from. {@link #next} and {@link #rewind} are called from one thread, not the trainer's. */
public interface BatchSource {
  /**
   * Gives the next minibatch. May block as long as it likes.
   *
   * @param batch to be filled
   * @return false at the epoch's end; the batch is not looked at then
   * @throws Exception a ParamdException of code OUT_OF_RANGE: there is nothing more to train, and training ends well with
   *     what came before. Whatever else: it ends the training, and is the cause of its exception
   */
  boolean next(Batch batch) throws Exception;

  /**
   * Begins an epoch; called before the first {@link #next}, too.
   *
   * @param epoch counted from 0
   * @throws Exception whatever: it ends the training, and is the cause of its exception
   */
  void rewind(long epoch) throws Exception;

  /**
   * Tells how long an epoch is. Only for the history's position in the data.
   *
   * @return minibatches in one epoch; 0: unknown
   */
  default long batchesPerEpoch() {
    return 0;
  }

  /** Wakes a {@link #next} that blocks. From any thread, also more than once, when training ends early. */
  default void cancel() {}
}
