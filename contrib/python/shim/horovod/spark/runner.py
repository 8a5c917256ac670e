from gorun.spark.runner import *
