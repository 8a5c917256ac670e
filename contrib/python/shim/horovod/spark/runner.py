from gorun.spark.elastic import *
from gorun.spark.runner import *
