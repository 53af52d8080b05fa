package paramd.spark

import java.time.Duration

import org.apache.spark.{SparkEnv, TaskContext, TaskKilledException}

import paramd.{
  BatchSource,
  ParamdException,
  TrainOptions,
  TrainSummary,
  Trainable,
  Training,
  Worker,
  WorkerOptions
}

/** The worker of the Spark task that runs on the calling thread. */
object TaskWorker {
  private val TurnMillis = 200
  private val FencedTimeout = Duration.ofSeconds(10)

  // Spark does not count killed attempts: without an end there would be thousands of them.
  private[spark] val MaxFencedAttempts = 8

  /**
   * Named after the application, its driver's attempt and the partition, and its incarnation is the task attempt: an
   * attempt fences the earlier ones of its partition, be they failed, lost or slower twins, whose next call then fails
   * with ABORTED.
   */
  def options(server: String, model: String): WorkerOptions = {
    val context = task()
    val conf = SparkEnv.get.conf
    // A second driver of the application counts its tasks from 0 again.
    val application = (conf.getOption("spark.app.id") ++ conf.getOption("spark.app.attempt.id")).mkString("-")
    // Unlike the attempt number, this identifier also grows when a whole stage is attempted again.
    new WorkerOptions(server, model, s"$application-${context.partitionId()}").incarnation(context.taskAttemptId() + 1)
  }

  /**
   * Joins, and leaves at the end of the task, with the task's error if it failed. When Spark kills the task, calls of the
   * worker that wait end with CANCELLED.
   */
  def join(options: WorkerOptions): Worker = {
    val context = task()
    interruptWhenKilled(context)
    val worker = Worker.join(options)
    context.addTaskFailureListener((_, error) => worker.leave(error.toString))
    context.addTaskCompletionListener[Unit](_ => worker.close())
    worker
  }

  /**
   * Does all that a worker does, as [[paramd.Training]]. Ends with CANCELLED when Spark kills the task. If this attempt is
   * fenced by a newer one, which goes on, the task ends as a killed one. That does not count towards
   * spark.task.maxFailures, and so it ends as a failed one from the partition's 8th attempt on.
   */
  def train(options: WorkerOptions, trainOptions: TrainOptions, model: Trainable, source: BatchSource): TrainSummary = {
    val context = task()
    interruptWhenKilled(context)
    try Training.run(options, trainOptions, model, source)
    catch {
      case e: ParamdException if context.attemptNumber() < MaxFencedAttempts && fenced(options, e) =>
        throw new TaskKilledException(e.getMessage)
    }
  }

  /** Whether there is a newer incarnation, which alone refuses this one. */
  private def fenced(options: WorkerOptions, error: ParamdException): Boolean =
    error.code == ParamdException.Code.ABORTED && {
      try {
        Worker.join(options.joinTimeout(FencedTimeout)).close()
        false
      } catch {
        case e: ParamdException => e.code == ParamdException.Code.ABORTED
      }
    }

  /**
   * Waits until no other attempt at this task's partition runs: Spark starts one beside it that it takes for slow. To
   * train the partition anew would take longer than what is left of it.
   */
  private[spark] def awaitTurn(): Unit = {
    val context = task()
    // Which attempt may write a partition's output, in Spark's words: the first one that asks, until it has failed.
    def mayGoOn = SparkEnv.get.outputCommitCoordinator
      .canCommit(context.stageId(), context.stageAttemptNumber(), context.partitionId(), context.attemptNumber())
    while (!mayGoOn) {
      if (context.isInterrupted()) throw new TaskKilledException("another attempt has trained the partition")
      Thread.sleep(TurnMillis)
    }
  }

  /** Spark itself interrupts the threads of killed tasks in some cases only. */
  private def interruptWhenKilled(context: TaskContext): Unit = {
    val thread = Thread.currentThread()
    context.addTaskInterruptListener((_: TaskContext, _: String) => thread.interrupt())
  }

  private def task(): TaskContext = Option(TaskContext.get()).getOrElse(
    throw new IllegalStateException("not on the thread of a Spark task: call this inside mapPartitionsWithIndex or the like")
  )
}
