package paramd;

import java.nio.Buffer;
import java.nio.ByteBuffer;

/**
 * The functions of client/c/paramd.h, by their names. Objects and memory are addresses; strings are UTF-8 without NUL;
 * timeouts are in seconds. What fails throws {@link ParamdException}. Nothing here checks that an address is alive:
 * {@link NativeObject} does. Whoever makes the first object calls {@link NativeLibrary#load} before.
 */
final class Native {
  private Native() {}

  /** Of what this class expects of the library; 0 is never given. */
  static final int VERSION = 3;

  static native int version();

  /** Of byte 0, whatever the position; 0 for a heap buffer. */
  static native long address(Buffer buffer);

  /** Direct memory at an address; nothing is freed with it. */
  static native ByteBuffer view(long address, long bytes);

  static native long allocate(long bytes);

  static native void free(long address);

  static native void copy(long from, long to, long bytes);

  static native long cancellerNew();

  static native void cancellerCancel(long canceller);

  static native void cancellerFree(long canceller);

  static native long specNew(byte[] name);

  static native void specFree(long spec);

  static native void specAddTensor(long spec, byte[] name, long[] shape);

  static native void specSetAlgorithm(long spec, byte[] algorithm);

  static native void specSetConsistency(long spec, byte[] consistency);

  static native void specSetHyperparameter(long spec, byte[] name, double value);

  static native long optionsNew();

  static native void optionsFree(long options);

  static native void optionsSet(long options, byte[] key, byte[] value);

  static native void optionsSetSpec(long options, long spec);

  static native void optionsSetCanceller(long options, long canceller);

  /** Its {@code tell(byte[])} is called from any thread, until the listener is freed. */
  static native long listenerNew(Events events);

  /** After whatever was told to tell it. */
  static native void listenerFree(long listener);

  static native void optionsSetListener(long options, long listener);

  static native long workerJoin(long options);

  /** Before workerFree; the memory of the worker's buffers, 0 if there is none. */
  static native long workerTakeMemory(long worker);

  static native void memoryClear(long memory);

  static native void memoryFree(long memory);

  static native void workerFree(long worker);

  static native long workerParameters(long worker);

  static native long workerIncarnation(long worker);

  static native byte[] workerModel(long worker);

  static native byte[] workerTransport(long worker);

  static native byte[] workerWire(long worker);

  static native byte[] workerAlgorithm(long worker);

  static native byte[] workerConsistency(long worker);

  static native long workerHyperparameters(long worker);

  static native byte[] workerHyperparameterName(long worker, long index);

  static native double workerHyperparameterValue(long worker, long index);

  static native long workerTensors(long worker);

  static native byte[] workerTensorName(long worker, long index);

  static native long[] workerTensorShape(long worker, long index);

  static native void workerInitialize(long worker, long center, long floats, double timeout);

  /** Sets {@code exchanged} to version and staleness, as the next two do. */
  static native void workerPull(long worker, long center, long floats, double timeout, long[] exchanged);

  static native void workerCommit(long worker, long update, long floats, double timeout, long[] exchanged);

  static native void workerExchange(
      long worker, long update, long center, long floats, double timeout, long[] exchanged);

  /** A paramd_commit_state. */
  static native int workerCommitState(long worker);

  /** 0 if there is none. */
  static native long workerCommitBuffer(long worker);

  /** 0 if there is none. */
  static native long workerCenterBuffer(long worker);

  static native void workerCancel(long worker);

  /** Takes back a cancel; while no call is under way. */
  static native void workerResume(long worker);

  /** {@code error} may be null. */
  static native void workerLeave(long worker, byte[] error, double timeout);

  /**
   * Trains {@code mlp}, or if that is 0 the model behind {@code calls}. {@code trainOptions} and {@code summary} hold
   * the fields of their structures in order; {@code summary} is set also if it fails.
   *
   * @param parameters of the model behind {@code calls}, 0 for an mlp
   */
  static native void train(
      long options,
      double[] trainOptions,
      long mlp,
      TrainingCalls calls,
      long parameters,
      long floats,
      byte[][] metricNames,
      double[] summary);

  /** The parameters are in memory at these addresses, of these lengths in floats. */
  static native long windowNew(
      long worker,
      long[] addresses,
      long[] lengths,
      long communicationWindow,
      boolean overlap,
      double exchangeTimeout,
      byte[][] metricNames);

  /** Waits for an exchange under way. */
  static native void windowFree(long window);

  static native void windowBegin(long window);

  static native void windowBeforeStep(long window);

  /** Returns whether the window is full. */
  static native boolean windowAfterStep(long window, double epoch, double[] results);

  static native boolean windowByEpoch(long window);

  static native void windowEnd(long window);

  static native void windowFinish(long window);

  static native void windowAbandon(long window);

  /** The fields of paramd_window_statistics in order. */
  static native double[] windowStatistics(long window);

  static native long mlpNew(
      long[] layers, byte[] optimizer, double learningRate, long seed, byte[] loss, double l2, double maxGradientNorm);

  static native void mlpFree(long mlp);

  static native long mlpParameters(long mlp);

  static native long mlpFloats(long mlp);

  /** Sets {@code results} to loss and accuracy. */
  static native void mlpTrainOnBatch(
      long mlp, long rows, long features, long featureFloats, long labels, long labelFloats, double[] results);

  static native double mlpLearningRate(long mlp);

  static native void mlpSetLearningRate(long mlp, double learningRate);

  static native void mlpPredict(long mlp, long features, long rows, long probabilities);

  /** tls_ca, tls_cert, tls_key, token, token_file. */
  static native byte[][] secretsMake(byte[][] hosts);

  static native long adminConnect(long options, double timeout);

  static native void adminFree(long admin);

  static native void adminCreateModel(long admin, long spec);

  static native void adminDeleteModel(long admin, byte[] model);

  /** Models; all if {@code model} is null. */
  static native long adminDescribe(long admin, byte[] model);

  static native void modelsFree(long models);

  static native long modelsCount(long models);

  /** Name, algorithm, consistency, problem; then the names of hyperparameters, then those of tensors. */
  static native byte[][] modelsTexts(long models, long index);

  /** The first nine fields of paramd_model_info in order; then the values of hyperparameters. */
  static native double[] modelsNumbers(long models, long index);

  static native long[] modelsTensorShape(long models, long model, long tensor);

  static native void fileWrite(byte[] path, long spec, long version, long center, long floats);

  /** Models: one. */
  static native long fileDescribe(byte[] path);

  static native void fileRead(byte[] path, long center, long floats);

  static native long[] adminStaleness(long admin, byte[] model);

  static native long adminPull(long admin, byte[] model, long center, long floats);

  static native void adminInitialize(long admin, byte[] model, long center, long floats);

  static native long adminHistory(long admin, byte[] model, boolean averaged);

  static native void historyFree(long history);

  static native long historySeries(long history);

  static native byte[] historyWorker(long history, long series);

  /** [records, 4]: step, epoch, time, loss. */
  static native double[] historyRecords(long history, long series);

  static native long historyDropped(long history, long series);

  static native long historyMetrics(long history, long series);

  static native byte[] historyMetricName(long history, long series, long metric);

  /** [records, metrics]. */
  static native double[] historyMetricValues(long history, long series);
}
