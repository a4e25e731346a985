"""The messages of an inbox as documents to be searched; `shards` writes them.

All bodies of an inbox are text: what is sealed has another encoding, and no inbox takes that in yet.
"""

from pyspark.sql import DataFrame

from claudemesh.pipeline.jobs.params import Params
from claudemesh.pipeline.jobs.views import Tables
from claudemesh.pipeline.shardfile import Document


def documents(tables: Tables, _: Params) -> DataFrame:
    return tables["inbox"].join(tables["body"], ["seq", "broker_message_id"]).select(*Document._fields)
