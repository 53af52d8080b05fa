package paramd;

/** What became of a commit, whatever its call came to. */
public enum CommitState {
  /** There was none. */
  NONE,
  /** The center has it, or will when its round is over. */
  APPLIED,
  /** The center does not have it, and never will. */
  NOT_APPLIED,
  /** Its answer did not arrive: the worker's next call finds out, before it does anything else. */
  UNKNOWN;

  private static final CommitState[] VALUES = values();

  static CommitState of(int number) {
    return number >= 0 && number < VALUES.length ? VALUES[number] : UNKNOWN;
  }
}
