package paramd;

/** What went wrong, the likely cause and the next step. Branch on the code, never on the text. */
public final class ParamdException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** gRPC's status codes, in their order. */
  public enum Code {
    OK,
    CANCELLED,
    UNKNOWN,
    INVALID_ARGUMENT,
    DEADLINE_EXCEEDED,
    NOT_FOUND,
    ALREADY_EXISTS,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    FAILED_PRECONDITION,
    ABORTED,
    OUT_OF_RANGE,
    UNIMPLEMENTED,
    INTERNAL,
    UNAVAILABLE,
    DATA_LOSS,
    UNAUTHENTICATED;

    private static final Code[] VALUES = values();

    static Code of(int number) {
      return number > 0 && number < VALUES.length ? VALUES[number] : UNKNOWN;
    }
  }

  private final Code code;
  private final TrainSummary summary;

  public ParamdException(Code code, String message) {
    this(code, message, null);
  }

  public ParamdException(Code code, String message, Throwable cause) {
    this(code, message, cause, null);
  }

  ParamdException(Code code, String message, Throwable cause, TrainSummary summary) {
    super(message, cause);
    this.code = code;
    this.summary = summary;
  }

  /** Called by native code; {@code message} is UTF-8. */
  ParamdException(int code, byte[] message) {
    this(Code.of(code), Arguments.text(message));
  }

  public Code code() {
    return code;
  }

  /** How far a training came that failed or was cancelled; null if it was none. */
  public TrainSummary summary() {
    return summary;
  }

  @Override
  public String toString() {
    return getClass().getName() + ": " + code + ": " + getMessage();
  }
}
