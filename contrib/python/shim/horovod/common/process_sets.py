from gorun.process_sets import *
