package paramd.spark

import org.apache.spark.ml.param.{BooleanParam, DoubleParam, IntArrayParam, IntParam, Param, ParamValidators, Params, StringArrayParam}
import org.apache.spark.ml.param.shared._

/** What a fit is told, beside the columns, and thresholds of a classifier. */
private[spark] trait ParamdParams
    extends Params
    with HasElasticNetParam
    with HasHandleInvalid
    with HasMaxIter
    with HasRegParam
    with HasSeed
    with HasSolver
    with HasStandardization
    with HasStepSize
    with HasTol
    with HasValidationIndicatorCol
    with HasWeightCol {

  final val algorithm: Param[String] = new Param[String](
    this,
    "algorithm",
    "how the workers train together, as in the daemon's list, but for single and ensemble",
    (name: String) => name != "single" && name != "ensemble"
  )
  final def getAlgorithm: String = $(algorithm)

  final val consistency: Param[String] =
    new Param[String](this, "consistency", "async, bounded:S or sync; empty: the algorithm's")
  final def getConsistency: String = $(consistency)

  final val hyperparameters: StringArrayParam = new StringArrayParam(
    this,
    "hyperparameters",
    "further hyperparameters of the algorithm, each NAME=NUMBER",
    (entries: Array[String]) => entries.forall(ParamdParams.parse(_).isDefined)
  )
  final def getHyperparameters: Array[String] = $(hyperparameters)

  final val numWorkers: IntParam = new IntParam(
    this,
    "numWorkers",
    "workers that train at the same time; 0: as many as Spark's default parallelism",
    ParamValidators.gtEq(0)
  )
  final def getNumWorkers: Int = $(numWorkers)

  final val parallelismFactor: IntParam = new IntParam(
    this,
    "parallelismFactor",
    "partitions for each of numWorkers: the data is divided into numWorkers times this many",
    ParamValidators.gt(0)
  )
  final def getParallelismFactor: Int = $(parallelismFactor)

  final val communicationWindow: IntParam = new IntParam(
    this,
    "communicationWindow",
    "minibatches between two exchanges; 0: the algorithm's",
    ParamValidators.gtEq(0)
  )
  final def getCommunicationWindow: Int = $(communicationWindow)

  final val shuffle: BooleanParam = new BooleanParam(
    this,
    "shuffle",
    "whether rows change partition before the training, so that no worker sees one class or one day alone"
  )
  final def getShuffle: Boolean = $(shuffle)

  final val batchSize: IntParam = new IntParam(this, "batchSize", "rows in a minibatch", ParamValidators.gt(0))
  final def getBatchSize: Int = $(batchSize)

  final val hiddenLayers: IntArrayParam = new IntArrayParam(
    this,
    "hiddenLayers",
    "units of each hidden layer, from input to output; none: a linear classifier",
    (units: Array[Int]) => units.forall(_ > 0)
  )
  final def getHiddenLayers: Array[Int] = $(hiddenLayers)

  final override val solver: Param[String] = new Param[String](
    this,
    "solver",
    "the workers' own optimizer: sgd, momentum (Nesterov) or adam",
    ParamValidators.inArray(Array("sgd", "momentum", "adam"))
  )

  final val server: Param[String] =
    new Param[String](this, "server", "HOST:PORT of a daemon that already runs; empty: the driver starts one for the fit")
  final def getServer: String = $(server)

  final val connectTimeout: DoubleParam = new DoubleParam(
    this,
    "connectTimeout",
    "seconds within which `server` must be there",
    ParamValidators.gt(0)
  )
  final def getConnectTimeout: Double = $(connectTimeout)

  final val modelName: Param[String] = new Param[String](
    this,
    "modelName",
    "the daemon's name for what is trained, which stays there after the fit and must not be there before; empty: a name " +
      "of its own, which is deleted after the fit"
  )
  final def getModelName: String = $(modelName)

  final val overwrite: BooleanParam =
    new BooleanParam(this, "overwrite", "whether a model that `server` has under `modelName` is deleted first")
  final def getOverwrite: Boolean = $(overwrite)

  final val tlsCa: Param[String] =
    new Param[String](this, "tlsCa", "the driver's PEM file of the authorities of the certificate of `server`; empty: PARAMD_TLS_CA, else no TLS")
  final def getTlsCa: String = $(tlsCa)

  final val tlsCert: Param[String] =
    new Param[String](this, "tlsCert", "the driver's PEM file of a certificate to show to `server`; empty: PARAMD_TLS_CERT")
  final def getTlsCert: String = $(tlsCert)

  final val tlsKey: Param[String] =
    new Param[String](this, "tlsKey", "the driver's PEM file of its key; empty: PARAMD_TLS_KEY")
  final def getTlsKey: String = $(tlsKey)

  final val tokenFile: Param[String] =
    new Param[String](this, "tokenFile", "the driver's file of a token that `server` knows; empty: PARAMD_TOKEN_FILE")
  final def getTokenFile: String = $(tokenFile)

  final val insecure: BooleanParam = new BooleanParam(
    this,
    "insecure",
    "whether the daemon that the driver starts does without TLS and token, so that anyone who reaches its port can train"
  )
  final def getInsecure: Boolean = $(insecure)

  final override val handleInvalid: Param[String] = new Param[String](
    this,
    "handleInvalid",
    "what to do with rows whose features are null, NaN or infinite: error; skip, which leaves them out; or keep, which " +
      "makes their predictions NaN, and is as error for a fit",
    ParamValidators.inArray(Array("error", "skip", "keep"))
  )

  final val patience: IntParam = new IntParam(
    this,
    "patience",
    "epochs without a better validation loss, by more than tol of it, after which a worker stops; without " +
      "validationIndicatorCol it means nothing",
    ParamValidators.gt(0)
  )
  final def getPatience: Int = $(patience)

  setDefault(
    algorithm -> "dynsgd",
    consistency -> "",
    hyperparameters -> Array.empty[String],
    numWorkers -> 0,
    parallelismFactor -> 1,
    communicationWindow -> 0,
    shuffle -> true,
    batchSize -> 32,
    hiddenLayers -> Array(128),
    maxIter -> 0,
    regParam -> 0.0,
    elasticNetParam -> 0.0,
    standardization -> true,
    handleInvalid -> "error",
    tol -> 1e-3,
    patience -> 5,
    solver -> "adam",
    server -> "",
    connectTimeout -> 5,
    modelName -> "",
    overwrite -> false,
    tlsCa -> "",
    tlsCert -> "",
    tlsKey -> "",
    tokenFile -> "",
    insecure -> false
  )
}

private[spark] object ParamdParams {
  private val Assignment = """([a-z_]+)=(\S+)""".r

  /** "rho=0.4" → ("rho", 0.4). */
  def parse(assignment: String): Option[(String, Double)] = assignment match {
    case Assignment(name, value) => value.toDoubleOption.map(name -> _)
    case _ => None
  }
}
