from gorun.absent import ray
