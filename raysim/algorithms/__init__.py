"""The methods, one file each. FedAvg is the empty list of methods."""

METHODS = {
    "fedprox": "raysim.algorithms.fedprox:FedProx",
    "scaffold": "raysim.algorithms.scaffold:Scaffold",
    "fedavgm": "raysim.algorithms.fedavgm:FedAvgM",
    "fedadam": "raysim.algorithms.fedadam:FedAdam",
    "fedyogi": "raysim.algorithms.fedyogi:FedYogi",
    "ewc": "raysim.algorithms.ewc:Ewc",
    "fedcurv": "raysim.algorithms.fedcurv:FedCurv",
    "a_gem": "raysim.algorithms.a_gem:AGem",
    "er": "raysim.algorithms.er:Er",
    "der": "raysim.algorithms.der:Der",
    "fed_a_gem": "raysim.algorithms.fed_a_gem:FedAGem",
    "special": "raysim.algorithms.special:Special",
    "special_c": "raysim.algorithms.special_c:SpecialC",
    "re_fed": "raysim.algorithms.re_fed:ReFed",
    "nccl": "raysim.algorithms.nccl:Nccl",
    "c_flag": "raysim.algorithms.c_flag:CFlag",
    "fedtrack": "raysim.algorithms.fedtrack:FedTrack",
    "lwf": "raysim.algorithms.lwf:LwF",
    "flwf": "raysim.algorithms.flwf:FLwF",
    "cfed": "raysim.algorithms.cfed:CFeD",
    "gpm": "raysim.algorithms.gpm:Gpm",
    "fot": "raysim.algorithms.fot:Fot",
    "joint": "raysim.algorithms.joint:Joint",
    "fixed": "raysim.algorithms.fixed:Fixed",
}
"""Name in YAML -> `module:class`, as text, so that listing the methods imports none of them."""
