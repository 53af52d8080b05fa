package paramd;

/**
 * What an exchange brought.
 *
 * @param version of the pulled center, in commits applied since its creation; of the center after the commit if nothing
 *     was pulled
 * @param staleness of the commit when it was applied: commits of others since this worker's last pull; 0 without one;
 *     -1 if it was not {@link #applied}
 */
public record Exchanged(long version, long staleness) {
  /**
   * Tells whether the commit was applied. It is not if the daemon came back with an older center than the commit was made
   * from: what was pulled then is the center to go on from, and after a commit alone a pull comes first.
   *
   * @return true also without a commit
   */
  public boolean applied() {
    return staleness >= 0;
  }
}
