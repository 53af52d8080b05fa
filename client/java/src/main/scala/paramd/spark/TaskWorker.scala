package paramd.spark

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

  /**
   * Named after the application and the partition, and its incarnation is the task attempt: an attempt fences the earlier
   * ones of its partition, be they failed, lost or slower twins, whose next call then fails with ABORTED.
   */
  def options(server: String, model: String): WorkerOptions = {
    val context = task()
    val application = SparkEnv.get.conf.get("spark.app.id")
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
   * fenced, the task ends as a killed one, which does not count towards spark.task.maxFailures: the newer attempt goes on.
   */
  def train(options: WorkerOptions, trainOptions: TrainOptions, model: Trainable, source: BatchSource): TrainSummary = {
    interruptWhenKilled(task())
    try Training.run(options, trainOptions, model, source)
    catch {
      case e: ParamdException if e.code == ParamdException.Code.ABORTED => throw new TaskKilledException(e.getMessage)
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
