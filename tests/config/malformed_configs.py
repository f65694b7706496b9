"""Configs that are wrong, and the one line that each of them gets."""

from pathlib import Path

from raysim.system.version import VERSION

TOP = (
    "name, seed, dataset, scenario, partition, clients, model, objective, training, memory, methods, participation, "
    "aggregation, schedule, resources, evaluation, checkpoint, logging, callbacks"
)
OWN = "or your own as package.module:name"
WINDOWS = "scenario.boundaries={asynchronous: {window: 5}}"
FOLDER = "a name for a folder: letters, digits, spaces and _ - . + = @ , between them"
SCENARIOS = "domain_incremental, class_incremental or by_column"

IN_THE_FILE = [
    ("name: demo\n", "", "run.yaml: name: this key is required and missing, allowed: " + FOLDER),
    ("name: demo", "name: ../up", f"run.yaml:1: name: found '../up', allowed: {FOLDER}"),
    ("name: demo", "name: ''", f"run.yaml:1: name: found '', allowed: {FOLDER}"),
    ("name: demo", "name: 2024", f"run.yaml:1: name: found 2024, allowed: {FOLDER}"),
    ("name: demo", "name: " + "x" * 300, f"run.yaml:1: name: found '{'x' * 55}...', allowed: {FOLDER}"),
    ("name: demo", 'name: "a\\nb"', rf"run.yaml:1: name: found 'a\nb', allowed: {FOLDER}"),
    ("name: demo", "name: demo\nmemory.capacity: 5", ("run.yaml:2: memory.capacity: found a key with a dot, allowed in "
                                                     "YAML: memory: {capacity: ...}")),
    ("name: demo", "name: demo\ntraining.optimizer.lr: 5", ("run.yaml:2: training.optimizer.lr: found a key with a "
     "dot, allowed in YAML: training: {optimizer: {lr: ...}}")),
    ("name: demo", "name: demo\nmethods.my.code:It.rate: 5", ("run.yaml:2: methods.my.code:It.rate: found a key with "
     "a dot, allowed in YAML: methods: {my.code:It: {rate: ...}}")),
    ("name: demo", "nmae: demo", "run.yaml:1: nmae: unknown key 'nmae'; did you mean 'name'? (and 1 more)"),
    ("clients:", "cleints:", ("run.yaml:6: cleints: unknown key 'cleints'; did you mean 'clients'? "
     "(and 1 more)")),
    ("clients: {count: 4}", "clients: {}", ("run.yaml:6: clients.count: this key is required and missing, allowed: a "
     "whole number >= 1 and <= 1000000")),
    ("clients: {count: 4}", "clients: 4", ("run.yaml:6: clients: found 4, allowed: a block with the keys count, "
     "arrive, leave, forget, dropout; did you mean 'clients.count=4'?")),
    ("clients: {count: 4}", "clients:", ("run.yaml:6: clients: found null, allowed: a block with the keys count, "
     "arrive, leave, forget, dropout")),
    ("rounds_per_task", "rouds_per_task", ("run.yaml:9: training.rouds_per_task: unknown key 'rouds_per_task'; did you "
     "mean 'rounds_per_task'?")),
    ("lr: 0.1", "lr: -1", "run.yaml:10: training.optimizer.lr: found -1, allowed: a number > 0"),
    ("lr: 0.1", "lr: fast", "run.yaml:10: training.optimizer.lr: found 'fast', allowed: a number > 0"),
    ("lr: 0.1", "lr: .nan", "run.yaml:10: training.optimizer.lr: found .nan, allowed: a finite number"),
    ("lr: 0.1", "lr: 1e999", "run.yaml:10: training.optimizer.lr: found .inf, allowed: a finite number"),
    ("lr: 0.1", "lr: {a: [1, 2]}", "run.yaml:10: training.optimizer.lr: found {a: [1, 2]}, allowed: a number > 0"),
    ("lr: 0.1", "momentun: 0.1", ("run.yaml:10: training.optimizer.momentun: unknown key 'momentun' of 'sgd'; did "
     "you mean 'momentum'? allowed: name, lr, momentum, nesterov, weight_decay")),
    ("name: sgd", "name: adma", ("run.yaml:10: training.optimizer.name: unknown optimizer 'adma'; did you mean 'adam'? "
     f"allowed: sgd, adam, adamw, {OWN}")),
    ("name: sgd", "name: [sgd]", ("run.yaml:10: training.optimizer.name: found ['sgd'], allowed: a name that raysim "
     f"knows, {OWN}")),
    ("kind: domain_incremental", "kind: domain-incremental", ("run.yaml:4: scenario.kind: found 'domain-incremental', "
     f"allowed: {SCENARIOS}; did you mean 'domain_incremental'?")),
    ("  kind: domain_incremental\n", "", ("run.yaml:3: scenario.kind: this key is required and missing, allowed: "
     f"{SCENARIOS}")),
    ("tasks: 3", "tasks: 3\n  class_order: seeded", ("run.yaml:6: scenario.class_order: unknown key 'class_order' of "
     "domain_incremental; this is a key of scenario.kind=class_incremental, which this config does not choose")),
    ("tasks: 3", "tasks: 3\n  tasks: 4", "run.yaml:6: the key 'tasks' is given twice, first in line 5"),
    ("tasks: 3", "tasks: 0\n  shift: rotaton", ("run.yaml:5: scenario.tasks: found 0, allowed: a whole number >= 1 "
     "and <= 1000 (and 1 more)")),
    ("tasks: 3", "tasks: '3'", "run.yaml:5: scenario.tasks: found '3', allowed: a whole number >= 1 and <= 1000"),
    ("tasks: 3", "tasks: 3.0", "run.yaml:5: scenario.tasks: found 3.0, allowed: a whole number >= 1 and <= 1000"),
    ("tasks: 3", "tasks: 1_000", "run.yaml:5: scenario.tasks: found '1_000', allowed: a whole number >= 1 and <= 1000"),
    ("tasks: 3", "tasks: true", "run.yaml:5: scenario.tasks: found true, allowed: a whole number >= 1 and <= 1000"),
    ("tasks: 3", "<<: {tasks: 3}", ("run.yaml:5: scenario.<<: unknown key '<<' of domain_incremental "
     f"in raysim {VERSION}; allowed: kind, tasks, order, online, blur, boundaries, shift (and 1 more)")),
    ("tasks: 3", "tasks: !fast 3", "run.yaml:5: unknown tag '!fast'; tags are not needed here"),
    ("tasks: 3", "tasks: !!python/name:os.system x", ("run.yaml:5: unknown tag '!!python/name:os.system'; tags are not "
     "needed here")),
    ("tasks: 3", "tasks: !!int three", "run.yaml:5: found 'three' with the tag !!int, which it is not"),
    ("tasks: 3", "3: 3", "run.yaml:5: found the key 3, allowed: keys that are strings (quote it)"),
    ("tasks: 3", "? [a]\n  : 3", "run.yaml:5: found a list or a block as a key, allowed: keys that are strings"),
    ("tasks: 3", "tasks: [3", "run.yaml:6: broken YAML: expected ',' or ']', but got ':'"),
    ("tasks: 3", "tasks: " + "9" * 5000, "run.yaml:5: found a number of 5000 characters, which is too long"),
    ("tasks: 3", "tasks: *t", "run.yaml:5: broken YAML: found undefined alias 't'"),
    ("  tasks: 3", "\ttasks: 3", "run.yaml:5: broken YAML: found character '\\t' that cannot start any token"),
    ("clients: {count: 4}", "clients: &c {count: *c}", "run.yaml:6: nested more than 50 deep"),
    ("clients: {count: 4}", "clients: {count: 4}\n---\na: 1", ("run.yaml:7: broken YAML: a second document begins here "
     "(---), allowed: one document")),
    ("{name: digits}", "{name: digist}", ("run.yaml:2: dataset.name: unknown dataset 'digist'; did you mean 'digits'? "
     f"allowed: digits, archive, gone, broken, {OWN}")),
    ("{name: digits}", "{name: 3}", f"run.yaml:2: dataset.name: found 3, allowed: a name that raysim knows, {OWN}"),
    ("{name: digits}", "{root: x}", ("run.yaml:2: dataset.name: this key is required and missing, allowed: a name that "
     f"raysim knows, {OWN}")),
    ("{name: digits}", "[digits]", ("run.yaml:2: dataset: found ['digits'], allowed: a name, or a block with the keys "
     "name, root, download, train_samples, normalize, input_scale, augment, unlabelled, label_rate and its own")),
    ("{name: digits}", "digist", ("run.yaml:2: dataset: unknown dataset 'digist'; did you mean 'digits'? allowed: "
     f"digits, archive, gone, broken, {OWN}")),
    ("{name: digits}", "archive", "run.yaml:2: dataset.path: this key is required and missing, allowed: a string"),
    ("{name: digits}", "{name: archive}", ("run.yaml:2: dataset.path: this key is required and missing, allowed: a "
     "string")),
    ("{name: digits}", "{name: archive, path: x, scale: 5}", ("run.yaml:2: dataset.scale: found 5, allowed: a number "
     "> 0 and <= 4")),
    ("{name: digits}", "{name: archive, path: x, scael: 5}", ("run.yaml:2: dataset.scael: unknown key 'scael' of "
     "'archive'; did you mean 'scale'? allowed: name, root, download, train_samples, normalize, "
     "input_scale, augment, unlabelled, label_rate, path, scale")),
    ("{name: digits}", "{name: digits, input_scale: 0}", ("run.yaml:2: dataset.input_scale: found 0, allowed: "
     "a number > 0")),
    ("{name: digits}", "{name: digits, normalize: no}", ("run.yaml:2: dataset.normalize: found 'no', allowed: none, "
     "standard or {mean: [...], std: [...]}; did you mean 'none'?")),
    ("{name: digits}", "{name: digits, normalize: {mean: [0.5], std: [0]}}", ("run.yaml:2: dataset.normalize.std: "
     "found [0], allowed: a list of numbers > 0, at least 1")),
    ("{name: digits}", "{name: digits, normalize: {mean: [0.5], std: [1, 1]}}", ("run.yaml:2: dataset.normalize.std: "
     "found 2 values, allowed: as many as in mean (1)")),
    ("{name: digits}", "{name: digits, normalize: {mean: [], std: []}}", ("run.yaml:2: dataset.normalize.mean: found "
     "[], allowed: a list of numbers, at least 1 (and 1 more)")),
    ("{name: digits}", "{name: digits, normalize: {men: [1], std: [1]}}", ("run.yaml:2: dataset.normalize.men: unknown "
     "key 'men'; did you mean 'mean'? allowed: mean, std (and 1 more)")),
    ("{name: digits}", "{name: digits, augment: [crop, flpi]}", ("run.yaml:2: dataset.augment.1: unknown augmentation "
     f"'flpi'; did you mean 'flip'? allowed: crop, flip, {OWN}")),
    ("{name: digits}", "{name: digits, augment: crop}", ("run.yaml:2: dataset.augment: found 'crop', allowed: a list "
     "of crop, flip or your own as package.module:name")),
    ("{name: net}", "{name: net, hidden: [8, 0]}", ("run.yaml:7: model.hidden: found [8, 0], allowed: a list of whole "
     "numbers >= 1")),
    ("{name: net}", "{name: net, kernel: [3]}", ("run.yaml:7: model.kernel: found [3], allowed: a list of 2: a whole "
     "number, a number")),
    ("{name: net}", "{name: net, colour: green}", "run.yaml:7: model.colour: found 'green', allowed: red or blue"),
    ("{name: net}", "{name: net, file: 3}", "run.yaml:7: model.file: found 3, allowed: a path or null"),
    ("{name: net}", "{name: net, copy: yes}", "run.yaml:7: model.copy: found 'yes', allowed: true or false"),
    ("{name: net}", "{name: net, model_kind: wid}", ("run.yaml:7: model.model_kind: found 'wid', allowed: wide or "
     "deep; did you mean 'wide'?")),
    ("{name: net}", "{name: net, anything: [.inf]}", ("run.yaml:7: model.anything.0: found .inf, allowed: a finite "
     "number")),
    ("{name: net}", "{name: greedy}", ("run.yaml:7: model.name: model 'greedy' has a keyword-only parameter 'weights', "
     "which is a key of every model")),
    ("{name: net}", "{name: vague}", ("run.yaml:7: model.name: the keys of vague cannot be read from its signature: "
     "name 'NoSuchType' is not defined")),
]  # fmt: skip

CLASSES = ["scenario={kind: class_incremental, tasks: 2}"]

ON_THE_COMMAND_LINE = [
    (["seed"], "seed: found no '=', allowed: KEY=VALUE, such as seed=1"),
    (["der"], "der: found no '=', allowed: KEY=VALUE, such as seed=1; did you mean 'methods=der'?"),
    (["=3"], "=3: found the key '', allowed: a dotted key such as seed=1"),
    (["a..b=3"], "a..b=3: found the key 'a..b', allowed: a dotted key such as seed=1"),
    (["seed =3"], "seed =3: found the key 'seed ', allowed: a dotted key such as seed=1"),
    (["nosuch.key=1"], f"nosuch.key=1: nosuch: unknown key 'nosuch' in raysim {VERSION}; allowed: {TOP}"),
    (["seed=abc"], "seed=abc: found 'abc', allowed: a whole number from 0 to 2^63 - 1"),
    (["seed=9223372036854775808"], ("seed=9223372036854775808: found 9223372036854775808, allowed: a whole number from "
     "0 to 2^63 - 1")),
    (["seed=0x" + "f" * 300], (f"seed=0x{'f' * 90}...: found a whole number of 1200 bits, allowed: a whole number from "
     "0 to 2^63 - 1")),
    (["seed="], "seed=: found null, allowed: a whole number from 0 to 2^63 - 1"),
    (["seed=[1"], "seed=[1: broken YAML: expected ',' or ']', but got '<stream end>'"),
    (["seed=a\nb: c"], "seed=a\\nb: c: broken YAML: mapping values are not allowed here"),
    (["seed.x=1", "seed=1"], None),
    (["name.x=1"], "name.x=1: name is 'demo', which has no keys; replace it whole: name=VALUE"),
    (["dataset.augment=[flip]", "dataset.augment.0=crop"], ("dataset.augment.0=crop: dataset.augment is a list, which "
     "has no keys; replace it whole: dataset.augment=VALUE")),
    (["training.optimizer.lr=-1"], "training.optimizer.lr=-1: found -1, allowed: a number > 0"),
    (["training.optimizer={lr: -1}"], ("training.optimizer={lr: -1}: training.optimizer.lr: found -1, allowed: a "
     "number > 0")),
    (["training.rouds_per_task=3"], ("training.rouds_per_task=3: unknown key 'rouds_per_task'; did you mean "
     "'rounds_per_task'?")),
    (["methods={fedprx: {}}"], ("methods={fedprx: {}}: methods.fedprx: unknown method 'fedprx'; did you mean "
     f"'fedprox'? allowed: fedprox, der, picky, plain, {OWN}")),
    (["methods={fedprox: {mu: -1}, der: {alpha: 1}}"], ("methods={fedprox: {mu: -1}, der: {alpha: 1}}: "
     "methods.fedprox.mu: found -1, allowed: a number >= 0 (and 1 more)")),
    (["methods.der.share=0"], "methods.der.share=0: found 0, allowed: a number > 0 and <= 1"),
    (["methods.der.beta=0"], "methods.der.beta=0: unknown key 'beta' of 'der'; allowed: alpha, sizes, share"),
    (["methods.der.mu=0"], "methods.der.mu=0: unknown key 'mu' of 'der'; allowed: alpha, sizes, share"),
    (["methods={der: {mu: 0}, fedprox: {mu: 1}}"], ("methods={der: {mu: 0}, fedprox: {mu: 1}}: methods.der.mu: unknown "
     "key 'mu' of 'der'; allowed: alpha, sizes, share")),
    (["methods.der.shards_per_client=0"], ("methods.der.shards_per_client=0: unknown key 'shards_per_client' of 'der'; "
     "allowed: alpha, sizes, share")),
    (["clients.partition=iid"], ("clients.partition=iid: unknown key 'partition'; did you mean 'partition' at the top "
     "level?")),
    (["methods.der.lr=0"], "methods.der.lr=0: unknown key 'lr' of 'der'; did you mean 'training.optimizer.lr'?"),
    (["methods.picky.pairs=3"], "methods.picky.pairs=3: found 3: it must be\\neven"),
    (["methods=[der]"], ("methods=[der]: found ['der'], allowed: a block of method names, each with its keys, such as "
     "{fedprox: {mu: 0.1}}; did you mean 'methods={der: {}}'?")),
    (["methods.der=0.5"], ("methods.der=0.5: found 0.5, allowed: a block of the method's keys; "
        "did you mean 'methods.der.alpha=0.5' or 'methods.der.share=0.5'?")),
    (["methods.my.own:Thing.mu=1"], ("methods.my.own:Thing.mu=1: methods.my.own:Thing: method 'my.own:Thing': the "
     "module my.own cannot be imported: ModuleNotFoundError: No module named 'my'")),
    (["model.name=named_components:nett"], ("model.name=named_components:nett: model 'named_components:nett': the "
     "module named_components has no attribute 'nett'; did you mean 'net'?")),
    (["model.name=named_components:not_a_function"], ("model.name=named_components:not_a_function: model "
     "'named_components:not_a_function': found 3, allowed: a function or a class")),
    (["model.name=a b:c"], "model.name=a b:c: found 'a b:c', allowed: a model of your own as package.module:name"),
    (["dataset.name=gone"], ("dataset.name=gone: dataset 'gone': the module module_that_is_not_there cannot be "
     "imported: ModuleNotFoundError: No module named 'module_that_is_not_there'")),
    (["dataset.name=broken"], ("dataset.name=broken: dataset 'broken': the module named_broken cannot be imported: "
     f"RuntimeError: two, lines (<module>, {Path(__file__).with_name('named_broken.py')}:3)")),
    (["scenario={kind: class_incremental, tasks: 2, classes: [[0, 1], [2], [3]]}"], ("scenario={kind: "
     "class_incremental, tasks: 2, classes: [[0, 1], [2], [3]]}: scenario.tasks: found 2, allowed: 3, one for each "
     "list of scenario.classes")),
    ([*CLASSES, "scenario.classes=[[0], [1]]", "scenario.first_task_classes=1"], ("scenario.first_task_classes=1: "
     "found 1, allowed: null with scenario.classes, which lists the first")),
    ([*CLASSES, "scenario.classes=[[0], [1]]", "scenario.class_order=seeded"], ("scenario.class_order=seeded: found "
     "'seeded', allowed: natural with scenario.classes, which has an order")),
    ([*CLASSES, "scenario.tasks=1", "scenario.first_task_classes=2"], ("scenario.first_task_classes=2: found 2, "
     "allowed: null with scenario.tasks=1, a task of all classes")),
    ([*CLASSES, "scenario.first_task_classes=0"], ("scenario.first_task_classes=0: found 0, allowed: a whole number "
     ">= 1 or null")),
    ([*CLASSES, "scenario.classes=[[0], []]"], ("scenario.classes=[[0], []]: found [[0], []], allowed: null or a list "
     "with a list of classes for each task, each by its number, from 0, or its name")),
    ([*CLASSES, "scenario.classes=[[0], [-1]]"], ("scenario.classes=[[0], [-1]]: found [[0], [-1]], allowed: null or "
     "a list with a list of classes for each task, each by its number, from 0, or its name")),
    ([*CLASSES, "scenario.class_order=sedeed"], ("scenario.class_order=sedeed: found 'sedeed', allowed: natural, "
     "seeded or a list of all classes, each by its number, from 0, or its name; did you mean 'seeded'?")),
    ([*CLASSES, "scenario.class_order=[true]"], ("scenario.class_order=[true]: found [true], allowed: natural, "
     "seeded or a list of all classes, each by its number, from 0, or its name")),
    (["evaluation.top_k=0"], "evaluation.top_k=0: found 0, allowed: a whole number >= 1"),
    (["participation.count=5"], "participation.count=5: found 5, allowed: at most clients.count (4)"),
    (["participation={fraction: 0.5, count: 2}"], ("participation={fraction: 0.5, count: 2}: participation.count: "
     "found both fraction and count, allowed: one of the two, as in {count: 5}")),
    (["participation.fraction=null"], ("participation.fraction=null: participation.count: found neither fraction nor "
     "count, allowed: one of the two, as in {count: 5}")),
    (["participation.fraction=1.5"], "participation.fraction=1.5: found 1.5, allowed: a number > 0 and <= 1 or null"),
    (["participation.sampler=roundrobin"], (f"participation.sampler=roundrobin: unknown sampler 'roundrobin'; did "
     f"you mean 'round_robin'? allowed: uniform, by_size, round_robin, {OWN}")),
    (["evaluation.every=5"], ("evaluation.every=5: unknown key 'every'; did you mean 'every_rounds'? allowed: "
     "every_rounds, split, validation_fraction, model, per_client, top_k")),
    (["evaluation={every: round, every_rounds: 5}"], ("evaluation={every: round, every_rounds: 5}: evaluation.every: "
     "unknown key 'every'; did you mean 'every_rounds'? allowed: every_rounds, split, validation_fraction, model, "
     "per_client, top_k")),
    (["partition.alpha=0.3"], ("partition.alpha=0.3: unknown key 'alpha' of 'iid'; this is a key of "
     "partition.kind=dirichlet or partition.kind=quantity, which this config does not choose")),
    (["partition.kind=dirichlt"], ("partition.kind=dirichlt: unknown partition 'dirichlt'; did you mean 'dirichlet'? "
     f"allowed: iid, shards, dirichlet, pathological, quantity, natural, {OWN}")),
    (["partition=null"],
     "partition=null: found null, allowed: a name, or a block with the keys kind, per, by and its own"),
    (["partition=dirichlt"], ("partition=dirichlt: unknown partition 'dirichlt'; did you mean 'dirichlet'? allowed: "
     f"iid, shards, dirichlet, pathological, quantity, natural, {OWN}")),
    (["memory.policy=resevoir"], ("memory.policy=resevoir: unknown memory policy 'resevoir'; did you mean 'reservoir'? "
     f"allowed: reservoir, class_balanced, class_ring, task_ring, sliding_window, random, importance, {OWN}")),
    (["training.lr_decay={name: cosin}"], ("training.lr_decay={name: cosin}: training.lr_decay.name: unknown rate "
     f"schedule 'cosin'; did you mean 'cosine'? allowed: factors, cosine, warmup, {OWN}")),
    (["training.lr_decay={name: cosine, per_round: 0.9}"], ("training.lr_decay={name: cosine, per_round: 0.9}: "
     "training.lr_decay.per_round: unknown key 'per_round' of 'cosine'; this is a "
     "key of training.lr_decay.name=factors, which this config does not choose")),
    (["training.optimizer=named_components:no_rate"], ("training.optimizer=named_components:no_rate: optimizer "
     "'named_components:no_rate': found no number default_lr, allowed: default_lr = 0.01, the default of the key lr")),
    (["training.optimizer=named_components:OwnRate"], ("training.optimizer=named_components:OwnRate: optimizer "
     "'named_components:OwnRate': found the parameter lr, allowed: the attribute default_lr; each step receives the "
     "round's rate")),
    (["memory.policy=named_components:net"], ("memory.policy=named_components:net: memory policy "
     "'named_components:net': found a Python function, allowed: a subclass of raysim.memory.Policy")),
    (["scenario.kind=named_components:net"], ("scenario.kind=named_components:net: task scenario "
     "'named_components:net': found the parameters (shape, classes), allowed: (dataset, tasks, generator) and its "
     "keys, which are keyword-only")),
    (["lr=0.1"], "lr=0.1: unknown key 'lr'; did you mean 'training.optimizer.lr'?"),
    (["training.lr=0.1"], "training.lr=0.1: unknown key 'lr'; did you mean 'training.optimizer.lr'?"),
    (["model.random_features=0"], "model.random_features=0: found 0, allowed: a whole number >= 1 or null"),
    (["model.lr=0.1"], "model.lr=0.1: unknown key 'lr' of 'net'; did you mean 'training.optimizer.lr'?"),
    (["epochs=3"], "epochs=3: unknown key 'epochs'; did you mean 'training.local_epochs'?"),
    (["training.seed=3"], "training.seed=3: unknown key 'seed'; did you mean 'seed' at the top level?"),
    (["count=3"], "count=3: unknown key 'count'; did you mean 'clients.count' or 'participation.count'?"),
    (["mu=0.1"], "mu=0.1: unknown key 'mu'; this is a key of methods.fedprox, which this config does not choose"),
    (["shards_per_client=3"], ("shards_per_client=3: unknown key 'shards_per_client'; this is a key of "
     "partition.kind=shards, which this config does not choose")),
    (["base=quickstart", "grid={seed: [0]}"], ("run.yaml: found a sweep, allowed: a run's config; did you mean "
     "`raysim sweep run.yaml`? With --list, it checks the runs and starts none")),
    (["shards_per_client=3", "partition=shards"], ("shards_per_client=3: unknown key 'shards_per_client'; did you mean "
     "'partition.shards_per_client'?")),
    (["methods={fedbuff: {}}"], ("methods={fedbuff: {}}: methods.fedbuff: found a schedule, allowed: methods; it is "
     "schedule={kind: asynchronous, mixing: deltas}")),
    (["methods=FedAsync"], ("methods=FedAsync: methods.FedAsync: found a schedule, allowed: methods; it is "
     "schedule={kind: asynchronous, mixing: models, buffer_size: 1}")),
    (["partition.per=Run"], "partition.per=Run: found 'Run', allowed: run, task or null; did you mean 'run'?"),
    (["schedule.kind=asynchronus"], ("schedule.kind=asynchronus: found 'asynchronus', allowed: synchronous or "
     "asynchronous; did you mean 'asynchronous'?")),
    (["schedule={kind: asynchronous, bufer_size: 2}"], ("schedule={kind: asynchronous, bufer_size: 2}: "
     "schedule.bufer_size: unknown key 'bufer_size' of asynchronous; did you mean 'buffer_size'? allowed: kind, "
     "speeds, bandwidth, concurrency, buffer_size, mixing, rate, staleness, max_staleness")),
    (["schedule.buffer_size=3"], ("schedule.buffer_size=3: unknown key 'buffer_size' of synchronous; this is a key of "
     "schedule.kind=asynchronous, which this config does not choose")),
    (["schedule.speeds.sigma=2"], ("schedule.speeds.sigma=2: unknown key 'sigma' of constant; this is a key of "
     "schedule.speeds.kind=log_normal, which this config does not choose")),
    (["schedule={kind: asynchronous}", "participation.fraction=0.5"], ("participation.fraction=0.5: participation: "
     "found a choice of clients per round, allowed: none under schedule.kind=asynchronous; use concurrency")),
    (["schedule={kind: asynchronous, mixing: models}"], ("schedule={kind: asynchronous, mixing: models}: "
     "schedule.buffer_size: found 5, allowed: 1 with mixing=models, which takes one model at a time")),
    (["schedule={kind: asynchronous, mixing: models, buffer_size: 1, rate: 2}"], ("schedule={kind: asynchronous, "
     "mixing: models, buffer_size: 1, rate: 2}: schedule.rate: found 2.0, allowed: at most 1 with mixing=models")),
    (["schedule.speeds={kind: pareto, shape: 0}"], ("schedule.speeds={kind: pareto, shape: 0}: schedule.speeds.shape: "
     "found 0, allowed: a number >= 0.1")),
    (["schedule={kind: asynchronous, buffer_size: 1000000000}"], ("schedule={kind: asynchronous, buffer_size: "
     "1000000000}: schedule.buffer_size: found 1000000000, allowed: at most 5 (clients.count is 4)")),
    (["schedule={kind: asynchronous, buffer_size: 7}", "clients.count=6"], ("schedule={kind: asynchronous, "
     "buffer_size: 7}: schedule.buffer_size: found 7, allowed: at most 6 (clients.count is 6)")),
    (["scenario.boundaries={asynchronous: {window: 5, windows: 2, stream: 'named_components:stream'}}",
      "scenario.shift=permutation",
      "training.rounds_per_task=null"], ("scenario.shift=permutation: found 'permutation', allowed: {domains: [...]} "
     "with a custom stream, whose samples it would not change; or scenario.kind=class_incremental")),
    (["methods={FedAvg: {mu: 1}}"], ("methods={FedAvg: {mu: 1}}: methods.FedAvg: found {mu: 1}, allowed: {}, as FedAvg "
     "is what runs without methods")),
    (["scenario.boundaries={asynchronous: {}}"], ("scenario.boundaries={asynchronous: {}}: "
     "scenario.boundaries.asynchronous.window: this key is required and missing, allowed: a whole number >= 1")),
    (["scenario.boundaries={}"], ("scenario.boundaries={}: scenario.boundaries.jittered: found neither asynchronous "
     "nor jittered, allowed: one of the two, as in {jittered: {rounds: 2}}")),
    (["scenario.boundaries={asynchronous: {window: 5}}"], ("run.yaml:9: training.rounds_per_task: found 2, allowed: "
     "null under asynchronous boundaries, where rounds_per_window says it")),
    ([WINDOWS, "training.rounds_per_task=null", "training.logits=seen"], ("training.logits=seen: found 'seen', "
     "allowed: all under asynchronous boundaries, where nobody is told the task")),
    ([WINDOWS, "training.rounds_per_task=null", "memory.per=task"], ("memory.per=task: found 'task', allowed: client "
     "under asynchronous boundaries, where nobody is told the task")),
    ([WINDOWS, "training.rounds_per_task=null", "training.lr_decay.per_round=0.9"], (""
     "training.lr_decay.per_round=0.9: training.lr_decay.restart: found true, allowed: false under asynchronous "
     "boundaries, where nobody is told the task")),
    (["scenario.boundaries={jittered: {rounds: 1}}"], ("scenario.boundaries={jittered: {rounds: 1}}: "
     "scenario.boundaries.jittered.rounds: found 1, allowed: less than half of training.rounds_per_task (2)")),
    (["scenario.online=true", "training.local_epochs=2"], ("training.local_epochs=2: found 2, allowed: 1 with "
     "scenario.online, where each sample is trained on once")),
    (["clients.arrive={first: 1}"], ("clients.arrive={first: 1}: clients.arrive.at: found neither per_task nor at, "
     "allowed: one of the two, as in {first: 30, per_task: 10}")),
    (["clients.arrive={first: 1, per_task: 1}"], ("run.yaml:6: clients.count: found 4, allowed: 3, which is "
     "clients.arrive's first and per_task together")),
    (["clients.arrive={at: [{round: 2, clients: [4]}]}"], ("clients.arrive={at: [{round: 2, clients: [4]}]}: "
     "clients.arrive.at: found client 4, allowed: 0 to 3 (clients.count is 4)")),
    (["clients.leave=[{round: 2, clients: [9]}]"], ("clients.leave=[{round: 2, clients: [9]}]: found client 9, "
     "allowed: 0 to 3 (clients.count is 4)")),
    (["clients.dropout=1"], "clients.dropout=1: found 1, allowed: a number >= 0 and < 1"),
    (["memory.capacity=0"], "memory.capacity=0: found 0, allowed: a whole number >= 1"),
    (["resources.gpus_per_actor=1.5"], ("resources.gpus_per_actor=1.5: found 1.5, allowed: a number from 0 to 1, or a "
     "whole number")),
    (["resources.server_gpus=1.5"], ("resources.server_gpus=1.5: found 1.5, allowed: a number from 0 to 1, or a whole "
     "number")),
    (["resources.server_cpus=0.5"], "resources.server_cpus=0.5: found 0.5, allowed: a whole number >= 0"),
    (["resources.cpus_per_actor=atuo"], ("resources.cpus_per_actor=atuo: found 'atuo', allowed: auto or a number > 0; "
     "did you mean 'auto'?")),
    (["resources.clients_per_actor=0"], "resources.clients_per_actor=0: found 0, allowed: auto or a whole number >= 1"),
    (["resources.placement=sprad"], ("resources.placement=sprad: found 'sprad', allowed: spread or pack; did you mean "
     "'spread'?")),
    (["resources.custom={CPU: 1}"], ("resources.custom={CPU: 1}: found {CPU: 1}, allowed: a block of names that "
     "`ray start --resources` gave, each with a number > 0")),
    (["resources.custom={fast: 0}"], ("resources.custom={fast: 0}: found {fast: 0}, allowed: a block of names that "
     "`ray start --resources` gave, each with a number > 0")),
    ([f"training.batch_size={2**63}"], (f"training.batch_size={2**63}: found {2**63}, allowed: a whole number >= 1 and "
     "<= 2147483647")),
    (["resources.address=local"], ("resources.address=local: found 'local': omit the key, and raysim starts a cluster "
     "on this machine that others cannot reach")),
    (["resources.address=ray://10.0.0.1:10001"], ("resources.address=ray://10.0.0.1:10001: found "
     "'ray://10.0.0.1:10001': raysim does not use Ray's client; on a machine of the cluster, give HOST:PORT as `ray "
     "start --head` printed it, with the port 6379 by default, or use `ray job submit` with the address auto")),
    (["resources.address=http://10.0.0.1:8265"], ("resources.address=http://10.0.0.1:8265: found "
     "'http://10.0.0.1:8265': give HOST:PORT as `ray start --head` printed it, auto or null")),
    (["resources={dashboard: true, address: auto}"], ("resources={dashboard: true, address: auto}: "
     "resources.dashboard: found true, allowed: false with resources.address, whose cluster has its own or none")),
    (["resources.cuda_graphs=true"], ("resources.cuda_graphs=true: found true, allowed: false without "
     "resources.gpus_per_actor: CPUs have no graphs")),
    (["training.logits=task", "training.keep_optimizer=true"], ("training.keep_optimizer=true: found true, "
     "allowed: false with training.logits=task, as kept momentum would move the weights of other tasks' "
     "outputs")),
    (["logging.tensorboard=no"], "logging.tensorboard=no: found 'no', allowed: true or false"),
    (["training.optimizer={name: adam, betas: [0.9, 1]}"], ("training.optimizer={name: adam, betas: [0.9, 1]}: "
     "training.optimizer.betas: found [0.9, 1], allowed: a list of 2: each a number >= 0 and < 1")),
    (["training.precision=bf16", "resources={cuda_graphs: true, gpus_per_actor: 1}"], ("training.precision=bf16: found "
     "'bf16', allowed: full with resources.cuda_graphs")),
    (["model.precision=bfloat16", "training.precision=bf16"], ("training.precision=bf16: found 'bf16', allowed: full "
     "with model.precision=bfloat16, which is for all passes")),
    (["model.precision=bf16"], ("model.precision=bf16: found 'bf16', allowed: float32 or bfloat16; did you mean "
     "'bfloat16'?")),
    (["model.precision=bfloat16", "resources={cuda_graphs: true, gpus_per_actor: 1}"], ("model.precision=bfloat16: "
     "found 'bfloat16', allowed: float32 with resources.cuda_graphs")),
    (["model.checkpointing=true", "resources={cuda_graphs: true, gpus_per_actor: 1}"], ("model.checkpointing=true: "
     "found true, allowed: false with resources.cuda_graphs, which keep all activations")),
    (["model.checkpointing=true", "training.vectorise=2"], ("model.checkpointing=true: found true, allowed: false with "
     "training.vectorise")),
    (["model.precision=bfloat16", "training.vectorise=2"], ("model.precision=bfloat16: found 'bfloat16', allowed: "
     "float32 with training.vectorise")),
    (["training.accumulate=0"], "training.accumulate=0: found 0, allowed: a whole number >= 1 and <= 2147483647"),
    (["training.accumulate=33"], ("training.accumulate=33: found 33, allowed: at most training.batch_size (32), as a "
     "part has at least one sample")),
    (["training.accumulate=2", "training.vectorise=2"], ("training.accumulate=2: found 2, allowed: 1 with "
     "training.vectorise")),
    (["training.local_steps=3", "training.local_epochs=2"], ("training.local_steps=3: found both local_epochs and "
     "local_steps, allowed: one of the two, as in {local_steps: 10}")),
    (["training.local_steps=3", "scenario.online=true"], ("training.local_steps=3: found 3, allowed: null and "
     "local_epochs 1 with scenario.online, where each sample is trained on once")),
    (["objective={name: next_token, metric: bleu}"], ("objective={name: next_token, metric: bleu}: "
     "objective.metric: found 'bleu', allowed: perplexity, exact_match, rouge_l or choices")),
    (["objective={name: next_token, choices: [1]}"], ("objective={name: next_token, choices: [1]}: objective.choices: "
     "found [1], allowed: a list of strings or a list of a list of whole numbers >= 0")),
    (["evaluation.split=train"], "evaluation.split=train: found 'train', allowed: test or validation"),
    (["evaluation={split: validation, validation_fraction: 0}"], ("evaluation={split: validation, validation_fraction: "
     "0}: evaluation.validation_fraction: found 0, allowed: a number > 0 and < 1 or null")),
    (["scenario.tasks=1001"], "scenario.tasks=1001: found 1001, allowed: a whole number >= 1 and <= 1000"),
    (["clients.count=1e6"], "clients.count=1e6: found 1000000.0, allowed: a whole number >= 1 and <= 1000000"),
    (["training.rounds_per_task=333334"], ("training.rounds_per_task=333334: found 333334, allowed: at most 333333, "
     "which are 1000000 in all")),
    (["training.optimizer.lr=1e300"], ("training.optimizer.lr=1e300: found 1e+300, allowed: numbers up to 3.4e+38, the "
     "largest in single precision")),
    (["methods={fedprox: {mu: 1" + "0" * 39 + "}}"], ("methods={fedprox: {mu: 1" + "0" * 39 + "}}: "
     "methods.fedprox.mu: found 1e+39, allowed: numbers up to 3.4e+38, the largest in single precision")),
    (["model.adapters={where: ['*'], rank: 0, head: false}"], ("model.adapters={where: ['*'], rank: 0, head: false}: "
     "model.adapters.head: found false with rank 0, which leaves nothing to train, allowed: true")),
    (["schedule.bandwidth=0.5"], "schedule.bandwidth=0.5: found 0.5, allowed: a number >= 1 or null"),
    (["schedule.speeds={kind: log_normal, sigma: 11}"], ("schedule.speeds={kind: log_normal, sigma: 11}: "
     "schedule.speeds.sigma: found 11, allowed: a number > 0 and <= 10")),
    (["seed=x", "clients.count=0"], "seed=x: found 'x', allowed: a whole number from 0 to 2^63 - 1 (and 1 more)"),
]  # fmt: skip

WHOLE_FILES = [
    (b"", "run.yaml: the file is empty, allowed: a block of keys, such as name: my-run"),
    (b"# nothing\n", "run.yaml: the file is empty, allowed: a block of keys, such as name: my-run"),
    (b"--- \n", "run.yaml: the file is empty, allowed: a block of keys, such as name: my-run"),
    (b"- a\n", "run.yaml:1: the top level is no block of keys, allowed: lines such as name: my-run"),
    (b"name: a\nseed: \xff\n", "run.yaml:2: byte 0xff is no UTF-8; the file must be a text file in UTF-8"),
    (b"name: a\nseed: \x00\n", "run.yaml:2: broken YAML: the character '\\x00' is not allowed"),
    (b'name: "\\UFFFFFFFF"\n', "run.yaml:1: broken YAML: an escape such as \\UFFFFFFFF stands for no character"),
    (b"[" * 3000, "run.yaml:1: nested more than 50 deep"),
    (b"a: " + b"[" * 60 + b"]" * 60, "run.yaml:1: nested more than 50 deep"),
    (b"a: &a [1,1,1,1,1,1,1,1,1,1]\n" + b"".join(
        b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 10)) for n in range(9)),
     "run.yaml:1: found more than 100000 values, those of aliases included"),
    (b"%YAML 2.0\n---\nname: a\n",
     "run.yaml:1: broken YAML: found incompatible YAML document (version 1.* is required)"),
]  # fmt: skip
