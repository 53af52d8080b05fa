package paramd.spark

import java.util.concurrent.{CountDownLatch, TimeUnit}

import org.slf4j.LoggerFactory

import paramd.{Admin, ParamdException}

import scala.jdk.CollectionConverters._

/**
 * A line of the driver's log each few seconds about how a training goes, until this is closed.
 *
 * @param batchSize rows in a minibatch
 * @param lost told why, on a thread of its own, when the daemon knows the model no more, or was out of reach for as long
 *   as `admin` waits
 */
private[spark] final class Progress(admin: Admin, name: String, epochs: Int, batchSize: Int, lost: String => Unit)
    extends AutoCloseable {
  import Progress._

  private val closed = new CountDownLatch(1)

  {
    val thread = new Thread(() => run(), s"paramd-progress-$name")
    thread.setDaemon(true)
    thread.start()
  }

  /** A question that is under way is not waited for. */
  override def close(): Unit = closed.countDown()

  private def run(): Unit = {
    var pause = PauseNanos
    var steps = 0L
    var begin = System.nanoTime()
    try
      while (!closed.await(pause, TimeUnit.NANOSECONDS)) {
        val asked = System.nanoTime()
        val alive = admin.model(name).liveWorkers
        val records = admin.history(name, true).series.asScala.toSeq.flatMap(_.records.asScala)
        for (last <- records.lastOption) {
          val losses = records.takeRight(Averaged).map(_.loss)
          val rate = (last.step - steps) * batchSize * alive / ((asked - begin) / 1e9)
          Log.info(
            f"$name: epoch ${last.epoch}%.1f of $epochs, loss ${losses.sum / losses.size}%.4f, $rate%.0f samples/s, $alive workers"
          )
          steps = last.step
          begin = asked
        }
        // A long history takes its time.
        pause = math.max(PauseNanos, 20 * (System.nanoTime() - asked))
      }
    catch {
      case e: ParamdException =>
        if (closed.getCount > 0) lost(s"the daemon has lost model $name, or can't be reached any more: ${e.getMessage}")
    }
  }
}

private[spark] object Progress {
  private val Log = LoggerFactory.getLogger("paramd.spark.Progress")
  private val PauseNanos = TimeUnit.SECONDS.toNanos(5)
  private val Averaged = 100
}
