package paramd.spark

import paramd.{Mlp, MlpOptions, ModelSpec}

/**
 * The data's part in what a fit trains.
 *
 * @param rowsOfWorker in the largest partition
 * @param sparseRow of sparse data, the mean number of a row's features that are not 0
 */
private[spark] final case class DataShape(features: Int, outputs: Int, rowsOfWorker: Long, sparseRow: Option[Double])

/**
 * All that a fit trains with, made of the estimator's parameters and the data's shape alone. What contradicts itself, or
 * what the daemon would refuse, is an IllegalArgumentException.
 *
 * @param algorithm empty: the daemon's; likewise `consistency`
 * @param hyperparameters what the daemon is told
 * @param learningRate of the network until the daemon tells the model's
 */
private[spark] final case class FitSpec(
    layers: Seq[Int],
    loss: String,
    solver: String,
    algorithm: String,
    consistency: String,
    hyperparameters: Map[String, Double],
    learningRate: Double,
    batchSize: Int,
    epochs: Int,
    seed: Long,
    l2: Double
) {

  def classifies: Boolean = loss == FitSpec.Softmax

  def parameters: Int = DenseNetwork.parameters(layers.toArray).toInt

  /** Equal specs give equal parameters. To be closed. */
  def network(): Mlp =
    new Mlp(
      new MlpOptions(layers.map(_.toLong): _*)
        .optimizer(solver)
        .learningRate(learningRate)
        .seed(seed)
        .loss(loss)
        .l2(l2)
        .maxGradientNorm(FitSpec.MaxGradientNorm)
    )

  def modelSpec(name: String): ModelSpec = {
    val spec = new ModelSpec(name).algorithm(algorithm)
    for (((inputs, outputs), i) <- layers.zip(layers.tail).zipWithIndex) {
      spec.tensor(s"dense$i/kernel", inputs, outputs).tensor(s"dense$i/bias", outputs)
    }
    if (consistency.nonEmpty) spec.consistency(consistency)
    for ((key, value) <- hyperparameters) spec.hyperparameter(key, value)
    spec
  }
}

private[spark] object FitSpec {
  val Softmax = "softmax"
  val Squared = "squared"

  // What rows far from the others would do to a deep network at its start.
  private val MaxGradientNorm = 1.0
  // As few steps of a worker leave each solver undertrained, on little data.
  private val FewestSteps = 4000
  private val FewestEpochs = 10
  private val LargestRate = 1e6
  // Of all algorithms whose commits are not divided by it.
  private val ShortestWindow = 5.0
  private val Consistency = """async|sync|bounded:\d{1,9}""".r

  /** Learning rates of the local optimizers where a worker's commit is what it learned. */
  private val Rates = Map("sgd" -> 0.1, "momentum" -> 0.01, "adam" -> 0.002)
  // Of those rates, where the squared error is the loss, which curves the more, the farther off a network is.
  private val OfSquared = Map("sgd" -> 0.1, "momentum" -> 0.1, "adam" -> 1.0)

  /**
   * An algorithm of the daemon's own.
   *
   * @param divides whether its commits are divided by the window's minibatches, and so want a rate that much larger
   * @param momentum whether it adds its own to the solver's, and so wants a smaller rate
   * @param own hyperparameters that no other has, with their ranges
   */
  final case class Algorithm(
      divides: Boolean = false,
      momentum: Boolean = false,
      own: Map[String, (Double, Double)] = Map.empty
  ) {
    def elastic: Boolean = own.contains("rho")

    def rate(solver: String, loss: String): Double =
      Rates(solver) * (if (loss == Squared) OfSquared(solver) else 1) * (if (divides) 5 else if (momentum) 0.2 else 1)
  }

  private val Rho = "rho" -> (1e-12, 1e12)
  private val Adag = Algorithm(divides = true)
  // α = rho × learning_rate
  private val Alpha = 0.2

  val Algorithms: Map[String, Algorithm] = Map(
    "adag" -> Adag,
    "agn" -> Adag,
    "adaptive_adag" -> Adag.copy(own = Map("eta" -> (0.0, 1e12))),
    "aeasgd" -> Algorithm(own = Map(Rho)),
    "averaging" -> Algorithm(),
    "downpour" -> Algorithm(),
    "dynsgd" -> Algorithm(),
    "eamsgd" -> Algorithm(momentum = true, own = Map(Rho, "momentum" -> (0.0, 0.9999))),
    "easgd" -> Algorithm(own = Map(Rho))
  )

  def of(params: ParamdParams, shape: DataShape, loss: String): FitSpec = {
    check(params, loss)
    val layers = shape.features +: params.getHiddenLayers.toSeq :+ shape.outputs
    if (DenseNetwork.parameters(layers.toArray) > Int.MaxValue) {
      refuse(s"layers ${layers.mkString("-")} have more than 2^31 parameters: use fewer features or smaller hiddenLayers")
    }
    val told = window(params, shape).map("communication_window" -> _).toMap ++ hyperparameters(params, loss)
    val rate = told.getOrElse("learning_rate", Algorithms.get(params.getAlgorithm).fold(Rates(params.getSolver))(_.rate(params.getSolver, loss)))
    FitSpec(
      layers,
      loss,
      params.getSolver,
      params.getAlgorithm,
      params.getConsistency,
      if (Algorithms.contains(params.getAlgorithm)) told + ("learning_rate" -> rate) else told,
      rate,
      params.getBatchSize,
      epochs(params, shape.rowsOfWorker),
      params.getSeed,
      params.getRegParam
    )
  }

  /** What needs no data to be told. */
  def check(params: ParamdParams, loss: String): Unit = {
    if (params.getElasticNetParam != 0) {
      refuse(
        s"elasticNetParam is ${params.getElasticNetParam}, but a network's penalty is L2 alone: leave it at 0, with regParam " +
          "as its strength, or use LogisticRegression for L1"
      )
    }
    if (params.getModelName.nonEmpty && params.getServer.isEmpty) {
      refuse(
        s"modelName is ${params.getModelName}, but server is not set, so the model would end with the daemon of this fit: " +
          "set server to a daemon that runs, or leave modelName out"
      )
    }
    if (params.getConsistency.nonEmpty && !Consistency.matches(params.getConsistency)) {
      refuse(s"consistency ${params.getConsistency} is none: give async, sync or bounded:S, as bounded:3")
    }
    Algorithms.get(params.getAlgorithm) match {
      case Some(algorithm) => check(params, loss, algorithm)
      // A plugin's, perhaps: that daemon knows.
      case None if params.getServer.nonEmpty =>
      case None =>
        refuse(s"algorithm ${params.getAlgorithm} is none of ${Algorithms.keys.toSeq.sorted.mkString(", ")}")
    }
    hyperparameters(params, loss)
  }

  private def check(params: ParamdParams, loss: String, algorithm: Algorithm): Unit = {
    val ranges = algorithm.own + ("learning_rate" -> (Double.MinPositiveValue, LargestRate)) + ("communication_window" -> (1.0, Int.MaxValue.toDouble))
    val told = hyperparameters(params, loss)
    for ((name, value) <- told) {
      val (least, most) = ranges.getOrElse(
        name,
        refuse(s"hyperparameter $name is none of algorithm ${params.getAlgorithm}: it has ${ranges.keys.toSeq.sorted.mkString(", ")}")
      )
      if (!(value >= least && value <= most)) refuse(s"hyperparameter $name is $value, but must be from $least to $most")
    }
    if (told.get("communication_window").exists(window => window != window.floor)) {
      refuse(s"communication_window is ${told("communication_window")}, but counts minibatches: give a whole number")
    }
    for (rho <- told.get("rho"); rate = told.getOrElse("learning_rate", algorithm.rate(params.getSolver, loss)) if rho * rate >= 1) {
      refuse(s"rho = $rho times learning_rate = $rate is ${rho * rate}, but must be below 1: lower one of the two")
    }
  }

  /** What the user set, each once; and of the elastic algorithms `rho`, so that a rate of its own leaves α alone. */
  private def hyperparameters(params: ParamdParams, loss: String): Map[String, Double] = {
    val listed = params.getHyperparameters.toSeq.map(entry => ParamdParams.parse(entry).getOrElse(refuse(s"hyperparameter $entry is no NAME=NUMBER")))
    val window = Option.when(params.getCommunicationWindow > 0)("communication_window" -> params.getCommunicationWindow.toDouble)
    val step = params.get(params.stepSize).map("learning_rate" -> _)
    val all = listed ++ window ++ step
    for ((name, values) <- all.groupMap(_._1)(_._2) if values.length > 1) {
      val also = Map("learning_rate" -> "stepSize", "communication_window" -> "communicationWindow").get(name)
      refuse(
        s"$name is given ${values.length} times, as ${values.mkString(" and ")}: set it once, in hyperparameters" +
          also.fold("")(param => s" or as $param")
      )
    }
    val told = all.toMap
    Algorithms.get(params.getAlgorithm) match {
      case Some(algorithm) if algorithm.elastic && !told.contains("rho") =>
        told + ("rho" -> Alpha / told.getOrElse("learning_rate", algorithm.rate(params.getSolver, loss)))
      case _ => told
    }
  }

  private def epochs(params: ParamdParams, rowsOfWorker: Long): Int =
    if (params.getMaxIter > 0) params.getMaxIter
    else {
      val batches = batchesOf(params, rowsOfWorker)
      math.max(FewestEpochs.toLong, (FewestSteps + batches - 1) / batches).toInt
    }

  private def batchesOf(params: ParamdParams, rowsOfWorker: Long): Long =
    math.max(1, (rowsOfWorker + params.getBatchSize - 1) / params.getBatchSize)

  /**
   * Of sparse data, so that a window's minibatches touch about as many parameters as its exchange moves. Not where
   * commits are divided by it, which would hardly move the center.
   */
  private def window(params: ParamdParams, shape: DataShape): Option[Double] =
    for (nonzeros <- shape.sparseRow if Algorithms.get(params.getAlgorithm).exists(!_.divides)) yield {
      val balanced = math.ceil(shape.features / (params.getBatchSize * math.max(1, nonzeros)))
      math.max(ShortestWindow, math.min(balanced, batchesOf(params, shape.rowsOfWorker).toDouble))
    }

  private def refuse(message: String): Nothing = throw new IllegalArgumentException(message)
}
