"""The methods, one file each. FedAvg is the empty list of methods."""

GROUPS = {
    "Stored samples": {
        "er": "raysim.algorithms.er:Er",
        "der": "raysim.algorithms.der:Der",
        "a_gem": "raysim.algorithms.a_gem:AGem",
        "fed_a_gem": "raysim.algorithms.fed_a_gem:FedAGem",
        "nccl": "raysim.algorithms.nccl:Nccl",
        "c_flag": "raysim.algorithms.c_flag:CFlag",
        "re_fed": "raysim.algorithms.re_fed:ReFed",
        "icarl": "raysim.algorithms.icarl:ICarl",
        "glfc": "raysim.algorithms.glfc:Glfc",
        "dann": "raysim.algorithms.dann:Dann",
    },
    "Generators": {
        "mfcl": "raysim.algorithms.mfcl:Mfcl",
        "target": "raysim.algorithms.target:Target",
        "lander": "raysim.algorithms.lander:Lander",
        "fedcil": "raysim.algorithms.fedcil:FedCil",
        "af_fcl": "raysim.algorithms.af_fcl:AfFcl",
    },
    "Penalties and teachers": {
        "ewc": "raysim.algorithms.ewc:Ewc",
        "fedcurv": "raysim.algorithms.fedcurv:FedCurv",
        "special": "raysim.algorithms.special:Special",
        "special_c": "raysim.algorithms.special_c:SpecialC",
        "lwf": "raysim.algorithms.lwf:LwF",
        "flwf": "raysim.algorithms.flwf:FLwF",
        "cfed": "raysim.algorithms.cfed:CFeD",
    },
    "Projections": {
        "gpm": "raysim.algorithms.gpm:Gpm",
        "fot": "raysim.algorithms.fot:Fot",
    },
    "Adapters and prompts": {
        "lora": "raysim.algorithms.lora:FedLora",
        "ffa_lora": "raysim.algorithms.ffa_lora:FfaLora",
        "lorm": "raysim.algorithms.lorm:LoRM",
        "pilora": "raysim.algorithms.pilora:PiLora",
        "fed_l2p": "raysim.algorithms.fed_l2p:FedL2P",
        "fed_dualprompt": "raysim.algorithms.fed_dualprompt:FedDualPrompt",
        "fed_coda_prompt": "raysim.algorithms.fed_coda_prompt:FedCodaPrompt",
        "fed_cprompt": "raysim.algorithms.fed_cprompt:FedCPrompt",
        "hgp": "raysim.algorithms.hgp:Hgp",
    },
    "Closed form": {
        "analytic": "raysim.algorithms.analytic:Analytic",
        "stsa": "raysim.algorithms.stsa:Stsa",
        "stsa_e": "raysim.algorithms.stsa_e:StsaE",
        "ccvr": "raysim.algorithms.ccvr:Ccvr",
    },
    "Personalized models": {
        "fedper": "raysim.algorithms.fedper:FedPer",
        "ditto": "raysim.algorithms.ditto:Ditto",
    },
    "Federated optimization": {
        "fedprox": "raysim.algorithms.fedprox:FedProx",
        "scaffold": "raysim.algorithms.scaffold:Scaffold",
        "fedavgm": "raysim.algorithms.fedavgm:FedAvgM",
        "fedadam": "raysim.algorithms.fedadam:FedAdam",
        "fedyogi": "raysim.algorithms.fedyogi:FedYogi",
        "fedtrack": "raysim.algorithms.fedtrack:FedTrack",
    },
    "Compression": {
        "top_k": "raysim.algorithms.top_k:TopK",
        "quantize": "raysim.algorithms.quantize:Quantize",
    },
    "Bounds": {
        "joint": "raysim.algorithms.joint:Joint",
        "fixed": "raysim.algorithms.fixed:Fixed",
    },
}
"""What a method works with -> name in YAML -> `module:class`, as text, so that listing imports no method.

`raysim list methods`, the methods' pages and the site show the groups in this order.
"""

METHODS = {name: place for group in GROUPS.values() for name, place in group.items()}
