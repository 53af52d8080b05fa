package paramd;

/** What native code tells of a worker: waiting for the daemon, reconnects, retries, failed heartbeats. Thread-safe. */
final class Events {
  private final System.Logger logger;
  private final String worker;

  Events(System.Logger logger, String worker) {
    this.logger = logger;
    this.worker = worker;
  }

  /** From any thread. */
  void tell(byte[] message) {
    try {
      logger.log(System.Logger.Level.INFO, () -> worker + ": " + Arguments.text(message));
    } catch (Throwable e) {
      // A logger that fails must not end what it logs.
    }
  }
}
