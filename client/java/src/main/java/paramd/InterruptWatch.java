package paramd;

import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.spi.AbstractSelectableChannel;
import java.nio.channels.spi.AbstractSelector;
import java.util.Set;

/**
 * Acts when a thread is interrupted, on the interrupting one. Between {@link #enter} and {@link #leave} of a thread, or
 * if it is interrupted already, {@code action} runs; it must not block. A selector is what the class library lets do
 * this; nothing is ever selected. Thread-safe.
 */
final class InterruptWatch extends AbstractSelector {
  private final Runnable action;

  InterruptWatch(Runnable action) {
    super(null);
    this.action = action;
  }

  void enter() {
    begin();
  }

  /** After it, {@code action} does not run for this thread any more. */
  void leave() {
    end();
  }

  @Override
  public Selector wakeup() {
    action.run();
    return this;
  }

  @Override
  protected void implCloseSelector() {}

  @Override
  protected SelectionKey register(AbstractSelectableChannel channel, int operations, Object attachment) {
    throw new UnsupportedOperationException();
  }

  @Override
  public Set<SelectionKey> keys() {
    return Set.of();
  }

  @Override
  public Set<SelectionKey> selectedKeys() {
    return Set.of();
  }

  @Override
  public int selectNow() {
    return 0;
  }

  @Override
  public int select(long timeout) {
    return 0;
  }

  @Override
  public int select() {
    return 0;
  }
}
