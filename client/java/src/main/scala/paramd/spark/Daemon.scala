package paramd.spark

import java.net.InetAddress
import java.util.concurrent.CompletableFuture

import org.apache.spark.SparkContext
import org.slf4j.LoggerFactory

import paramd.{JobSecrets, ParamdServer, Security, ServerOptions}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

/** The daemon that a fit talks to, and what opens it, on any host. Thread-safe. */
private[spark] final class Daemon private (
    val address: String,
    val security: Security,
    started: Option[ParamdServer],
    lastLines: Daemon.LastLines
) extends AutoCloseable {

  /** Whether it is this fit's own. */
  def isChild: Boolean = started.isDefined

  /** Completes when it ends, if this object started it; else never does. */
  val ended: CompletableFuture[_] =
    started.map(server => ProcessHandle.of(server.pid).map(_.onExit)) match {
      case Some(process) => process.orElseGet(() => CompletableFuture.completedFuture(null))
      case None => new CompletableFuture[Unit]
    }

  /** Of one that has ended too early. */
  def obituary: String =
    s"the daemon of this fit, process ${started.fold(0L)(_.pid)} on the driver, has ended while it trained. Likely " +
      s"somebody or the system's out-of-memory killer has killed it; its last words: ${lastLines.text}"

  /** Ends it, if this object started it. */
  override def close(): Unit = started.foreach(_.close())
}

private[spark] object Daemon {
  private val Kept = 5
  private val Log = LoggerFactory.getLogger("paramd.spark.Daemon")

  /**
   * @param server one that runs; empty: starts one on this host, where the executors reach the driver. It lets in this
   *   fit and nobody else, and beyond loopback it speaks TLS, unless `insecure`.
   * @param security what opens `server`
   */
  def apply(context: SparkContext, server: String, security: => Security, insecure: Boolean): Daemon = {
    val lines = new LastLines
    if (server.nonEmpty) return new Daemon(server, security.inlined(), None, lines)
    val advertised = if (context.isLocal) "127.0.0.1" else context.getConf.get("spark.driver.host")
    val listen = if (context.isLocal) advertised else context.getConf.get("spark.driver.bindAddress", advertised)
    val options = new ServerOptions().host(listen).advertisedHost(advertised).log(line => lines.add(line))
    if (insecure) {
      val started = ParamdServer.start(options.insecure(true))
      return new Daemon(started.address, Open, Some(started), lines)
    }
    val secrets = JobSecrets.make(List(advertised.stripPrefix("[").stripSuffix("]")).asJava)
    val tls = !List(listen, advertised).forall(InetAddress.getByName(_).isLoopbackAddress)
    val started = ParamdServer.start(options.secrets(secrets, tls))
    new Daemon(started.address, secrets.security(tls), Some(started), lines)
  }

  /** Of a daemon that knows no tokens, whatever the environment says. */
  private def Open = new Security().tlsCa("none").tlsCert("none").tlsKey("none").tokenFile("none")

  /** Of a daemon's log. Thread-safe. */
  private final class LastLines {
    private val lines = mutable.Queue.empty[String]

    def add(line: String): Unit = {
      Log.debug(line)
      synchronized {
        lines += line
        if (lines.size > Kept) lines.dequeue()
      }
    }

    def text: String = synchronized(lines.mkString("\n  ", "\n  ", ""))
  }
}
