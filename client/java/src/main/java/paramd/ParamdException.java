package paramd;

/**
 * What went wrong, the likely cause and the next step. Branch on the code, never on the text. Immutable, but for what
 * every exception can be given.
 *
 * @serial exclude
 */
public final class ParamdException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** gRPC's status codes, in their order. */
  public enum Code {
    /** Nothing; no exception has it. */
    OK,
    /** The call was cancelled, or its thread interrupted. */
    CANCELLED,
    /** Whatever has no code of its own. */
    UNKNOWN,
    /** An argument is wrong: a length, a name, NaN or infinity in floats. Nothing was changed. */
    INVALID_ARGUMENT,
    /** No answer within the timeout. A commit may have been applied, but never will be twice. */
    DEADLINE_EXCEEDED,
    /** There is no such model or algorithm. */
    NOT_FOUND,
    /** The model, or its first center, exists and differs. Nothing was changed. */
    ALREADY_EXISTS,
    /** The token's role, or its models, do not allow the call. */
    PERMISSION_DENIED,
    /** A limit of the daemon, or no memory there or here. */
    RESOURCE_EXHAUSTED,
    /** The worker has left, the model has no center or a problem, or a window has the worker. */
    FAILED_PRECONDITION,
    /** A newer incarnation of this worker has joined, or model or daemon are others now: stop, or join again. */
    ABORTED,
    /** A number is out of its range. */
    OUT_OF_RANGE,
    /** The daemon is older than this library and lacks what the call needs. */
    UNIMPLEMENTED,
    /** A fault of paramd's, or what a model or source threw. */
    INTERNAL,
    /** The daemon can't be reached, or was silent for too long; or native code can't be loaded. */
    UNAVAILABLE,
    /** A file has changed since it was written. */
    DATA_LOSS,
    /** The daemon's certificate is not trusted, or the daemon does not know the token. */
    UNAUTHENTICATED;

    private static final Code[] VALUES = values();

    static Code of(int number) {
      return number > 0 && number < VALUES.length ? VALUES[number] : UNKNOWN;
    }
  }

  private final Code code;
  private final TrainSummary summary;

  /**
   * One without a cause.
   *
   * @param code what kind of error it is
   * @param message what happened, the likely cause and the next step
   */
  public ParamdException(Code code, String message) {
    this(code, message, null);
  }

  /**
   * One with a cause.
   *
   * @param code what kind of error it is
   * @param message what happened, the likely cause and the next step
   * @param cause null if there is none
   */
  public ParamdException(Code code, String message, Throwable cause) {
    this(code, message, cause, null);
  }

  ParamdException(Code code, String message, Throwable cause, TrainSummary summary) {
    super(message, cause);
    this.code = Arguments.given(code, "code");
    this.summary = summary;
  }

  /** Called by native code; {@code message} is UTF-8. */
  ParamdException(int code, byte[] message) {
    this(Code.of(code), Arguments.text(message));
  }

  /**
   * Tells what kind of error it is.
   *
   * @return never OK
   */
  public Code code() {
    return code;
  }

  /**
   * Tells how far a training came that failed or was cancelled.
   *
   * @return null if it was none
   */
  public TrainSummary summary() {
    return summary;
  }

  @Override
  public String toString() {
    return getClass().getName() + ": " + code + ": " + getMessage();
  }
}
