package paramd;

/**
 * What an exchange brought.
 *
 * @param version of the pulled center; of the center after the commit if nothing was pulled
 * @param staleness of the commit when it was applied; 0 without one
 */
public record Exchanged(long version, long staleness) {}
