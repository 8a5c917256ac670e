from gorun.launch import run
