import os
import pathlib
import shutil
import sys

import paramd.spark
import pyspark
import pytest
from pyspark.sql import SparkSession

REPOSITORY = pathlib.Path(__file__).parents[3]
EXAMPLES = REPOSITORY / "examples" / "spark"
MNIST = REPOSITORY / "data" / "mnist"

os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["PYSPARK_PYTHON"] = sys.executable

sys.path.insert(0, str(EXAMPLES))
import mnist  # noqa: E402


@pytest.fixture(scope="session")
def spark():
    """Two executor JVMs of one core each."""
    session = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.jars", paramd.spark.jar_path())
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.cores.max", "2")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    # Spark does not remove what the executors leave behind.
    shutil.rmtree(pathlib.Path(pyspark.__file__).with_name("work"), ignore_errors=True)


def read_mnist(spark, name, rows):
    data = mnist.read(spark, MNIST, name, rows).repartition(2).cache()
    assert data.count() == rows
    return data


@pytest.fixture(scope="session")
def train(spark):
    return read_mnist(spark, "train", 30000)


@pytest.fixture(scope="session")
def test(spark):
    return read_mnist(spark, "t10k", 10000)
