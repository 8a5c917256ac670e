from gorun.arguments import parse_args
from gorun.console import check_build
from gorun.console import horovodrun as run_commandline
from gorun.launch import _run
