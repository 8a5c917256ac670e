from gorun.absent import data
