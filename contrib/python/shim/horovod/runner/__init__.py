from gorun.launch import _HorovodArgs, run
