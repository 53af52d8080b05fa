package paramd.spark

import java.time.Duration
import java.util.UUID

import org.apache.spark.{SparkContext, SparkException}
import org.apache.spark.rdd.RDD
import org.slf4j.LoggerFactory

import paramd.{Admin, ModelSpec, ParamdException, Security}

import scala.annotation.tailrec
import scala.util.Using
import scala.util.control.NonFatal

/**
 * The jobs of one fit, and its model on a daemon. Whatever ends it, its jobs and its daemon end too, and no model stays
 * that is not whole. It fails with what has failed first. Externally synchronized.
 */
private[spark] final class Fit(context: SparkContext, params: ParamdParams, description: String) {
  import Fit._
  import params._

  private val tag = s"paramd-${UUID.randomUUID()}"
  @volatile private var cause: Option[String] = None // of the jobs' being cancelled

  /**
   * What `jobs` give, which Spark's UI shows under the description. Waits for none of its tasks if that fails.
   */
  def run[T](jobs: => T): T = {
    val before = context.getLocalProperty(JobDescription)
    context.addJobTag(tag)
    context.setJobDescription(description)
    try jobs
    catch {
      case e: Throwable =>
        // Those that an interrupted thread no longer waits for, too.
        context.cancelJobsWithTag(tag, "their fit has failed")
        throw (e match {
          case e: SparkException => badRow(e).getOrElse(e)
          case other => other
        })
    } finally {
      context.removeJobTag(tag)
      context.setJobDescription(before)
    }
  }

  /** Trains a model on `rows`, from `initial` on if it is given, and pulls its center. */
  def train(plan: TrainingPlan, initial: Option[Array[Float]], rows: RDD[TrainingRow]): (Array[Float], ParamdTrainingSummary) =
    Using.resource(Daemon(context, getServer, security, getInsecure)) { daemon =>
      daemon.ended.thenRun(() => cancel(daemon.obituary))
      try
        Using.resource(connect(daemon)) { admin =>
          val name = if (getModelName.isEmpty) s"$uid-${UUID.randomUUID()}" else getModelName
          create(admin, plan.spec.modelSpec(name), name)
          var trained = false
          try {
            initial.foreach(admin.initialize(name, _))
            val task = new TrainingTask(daemon.address, daemon.security, name, plan)
            val told = new Progress(admin, name, plan.spec.epochs, plan.spec.batchSize, cancel)
            val partitions = Using.resource(told)(_ => rows.mapPartitionsWithIndex(task).collect())
            val result = fetch(admin, name, plan.spec.parameters, partitions)
            trained = true
            result
          } finally {
            // One's own daemon goes with its models.
            if (!daemon.isChild && !(trained && getModelName.nonEmpty)) delete(daemon, name)
          }
        }
      catch {
        case NonFatal(e) if daemon.ended.isDone || cause.isDefined =>
          throw new ParamdException(ParamdException.Code.UNAVAILABLE, cause.getOrElse(daemon.obituary), e)
      }
    }

  /** Ends the jobs that run, for that reason. */
  private def cancel(reason: String): Unit = {
    cause = cause.orElse(Some(reason))
    context.cancelJobsWithTag(tag, reason)
  }

  private def connect(daemon: Daemon): Admin = {
    // The timeout of a connection is that of its calls, which may take longer.
    if (!daemon.isChild) connectSoon(daemon).close()
    Admin.connect(daemon.address, CallTimeout, daemon.security)
  }

  private def connectSoon(daemon: Daemon): Admin =
    Admin.connect(daemon.address, Duration.ofMillis((getConnectTimeout * 1000).toLong), daemon.security)

  private def create(admin: Admin, spec: ModelSpec, name: String): Unit = {
    if (getModelName.nonEmpty && exists(admin, name)) {
      if (!getOverwrite) {
        throw new IllegalArgumentException(
          s"the daemon already has a model $name: set overwrite, choose another modelName, or delete it with " +
            s"paramctl delete $name"
        )
      }
      admin.deleteModel(name)
    }
    admin.createModel(spec)
  }

  private def exists(admin: Admin, name: String): Boolean =
    try {
      admin.model(name)
      true
    } catch {
      case e: ParamdException if e.code == ParamdException.Code.NOT_FOUND => false
    }

  /** Says if it can't: what the fit itself failed with, or has trained, is more. */
  private def delete(daemon: Daemon, name: String): Unit =
    try Using.resource(connectSoon(daemon))(_.deleteModel(name))
    catch {
      case NonFatal(e) => Log.warn("model {} stays on the daemon, delete it with paramctl: {}", name: Any, e: Any)
    }

  private def fetch(admin: Admin, name: String, floats: Int, partitions: Array[TrainedPartition]): (Array[Float], ParamdTrainingSummary) = {
    val info = admin.model(name)
    val rows = partitions.map(_.rows).sum
    if (info.version == 0) {
      throw new IllegalStateException(
        s"no worker of model $name committed anything ($rows rows in ${partitions.length} partitions): is the data empty?"
      )
    }
    val center = new Array[Float](floats)
    admin.pull(name, center)
    val reported = ParamdTrainingSummary.Reported(admin.history(name, false), admin.history(name, true))
    val summary = new ParamdTrainingSummary(
      partitions.count(_.rows > 0),
      rows,
      info.version,
      info.trainingTimeSeconds,
      info.meanStaleness,
      admin.stalenessHistogram(name),
      reported.byEpoch(record => Some(record.loss)),
      reported.byEpoch(_.metrics.headOption),
      TrainedPartition.validationHistory(partitions),
      Some(reported)
    )
    (center, summary)
  }

  private def security: Security = {
    val security = new Security()
    if (getTlsCa.nonEmpty) security.tlsCa(getTlsCa)
    if (getTlsCert.nonEmpty) security.tlsCert(getTlsCert)
    if (getTlsKey.nonEmpty) security.tlsKey(getTlsKey)
    if (getTokenFile.nonEmpty) security.tokenFile(getTokenFile)
    security
  }
}

private[spark] object Fit {
  private val Log = LoggerFactory.getLogger("paramd.spark.Fit")
  private val CallTimeout = Duration.ofSeconds(60)
  private val JobDescription = "spark.job.description"

  @tailrec
  private def badRow(error: Throwable): Option[BadRowException] = error match {
    case null => None
    case e: BadRowException => Some(e)
    case other => badRow(other.getCause)
  }
}
