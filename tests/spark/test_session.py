"""The session that the pipeline's tests stand on reads, writes and computes."""

from pathlib import Path

from pyspark.sql import SparkSession


def test_what_is_written_as_parquet_is_read_and_summed_by_sql(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "deliveries.parquet")
    rows = [("orders", 1), ("orders", 2), ("alerts", 40)]
    spark.createDataFrame(rows, "topic string, copies long").write.parquet(path)
    spark.read.parquet(path).createOrReplaceTempView("deliveries")
    summed = spark.sql("SELECT topic, sum(copies) AS copies FROM deliveries GROUP BY topic ORDER BY topic")
    assert [tuple(row) for row in summed.collect()] == [("alerts", 40), ("orders", 3)]


def test_the_driver_listens_on_loopback_only(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
