from gorun.jax.elastic import *
