from gorun.absent import ray_train
