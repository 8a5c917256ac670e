from gorun.basics import *
from gorun.basics import TYPE_CHECKING, HorovodBasics
