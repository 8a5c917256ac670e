from gorun.absent import spark_estimators
