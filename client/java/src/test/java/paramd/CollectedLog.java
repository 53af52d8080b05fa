package paramd;

import java.util.List;
import java.util.ResourceBundle;
import java.util.concurrent.CopyOnWriteArrayList;

/** A logger that keeps what it is told. Thread-safe. */
final class CollectedLog implements System.Logger {
  private final List<String> lines = new CopyOnWriteArrayList<>();

  /** LEVEL and message of each. */
  List<String> lines() {
    return lines;
  }

  @Override
  public String getName() {
    return "test";
  }

  @Override
  public boolean isLoggable(Level level) {
    return true;
  }

  @Override
  public void log(Level level, ResourceBundle bundle, String message, Throwable thrown) {
    lines.add(level + " " + message);
  }

  @Override
  public void log(Level level, ResourceBundle bundle, String format, Object... parameters) {
    lines.add(level + " " + format);
  }
}
