from gorun.absent import spark
