from gorun.discovery import *
