"""Starts one program of a pypto-lib checkout with its harness calls wrapped.

Usage: entry.py CONFIG.json

The program and the checkout are left as they are. What is wrapped is looked up by name in the checkout's own modules,
and replaced wherever the same object is already bound: the correctness dispatch (`execute_compiled`), the benchmark
dispatch (`benchmark`), the ring fields of `RunConfig`, `prepare` of resident programs, and the options that a program
hands to `run_jit`. So the ring config of the case reaches each of them, whether or not the checkout forwards it. When
one of the names isn't there, nothing is started and the report says `setup-error`: a config that can't be forced must
not be run as if it had been.

Exit status: that of the program; 1 with a report of `setup-error` when it can't be started as declared.
"""

import dataclasses
import functools
import inspect
import io
import json
import os
import re
import runpy
import sys
import time

RESOURCES = {"heap": "ring_heap", "task_window": "ring_task_window", "dep_pool": "ring_dep_pool"}
VARIABLES = {"heap": "PTO2_RING_HEAP", "task_window": "PTO2_RING_TASK_WINDOW", "dep_pool": "PTO2_RING_DEP_POOL"}
FIELDS = set(RESOURCES.values())
SCRUBBED = ("PTO2_", "SIMPLER_", "PYPTO_BENCH")
KNOWN = {"checkout", "program", "argv", "rings", "warmup", "rounds", "seed", "case", "platform", "report", "environment",
         "scope_stats"}
STAGES = {"compile": "compile", "generate inputs": "fixture", "compute golden": "golden", "runtime": "runtime",
          "benchmark": "benchmark", "validate": "validate"}


class Refused(Exception):
    """The program can't be started as declared; the cause is a token of the report."""

    def __init__(self, cause, message):
        super().__init__(message)
        self.cause = cause


class Report:
    """Appends one JSON object a line; each is flushed, so that a killed program leaves what it did."""

    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8")

    def event(self, event, **fields):
        self.file.write(json.dumps({"event": event, **fields}) + "\n")
        self.file.flush()


class StageWatch(io.TextIOBase):
    """Passes standard output on and tells the report about the stages that it announces."""

    LINE = re.compile(r"^\[RUN\] (" + "|".join(STAGES) + r") (\.\.\.|done \()")

    def __init__(self, stream, state):
        self.stream = stream
        self.state = state
        self.rest = ""

    def write(self, text):
        # Announced before it is passed on: whoever reads the line finds the event already there.
        lines = (self.rest + text).split("\n")
        self.rest = lines.pop()[-4096:]
        for line in lines:
            found = self.LINE.match(line)
            if found:
                self.state.stage(STAGES[found.group(1)], found.group(2) == "...")
        return self.stream.write(text)

    def flush(self):
        self.stream.flush()

    def isatty(self):
        return False

    def fileno(self):
        return self.stream.fileno()

    @property
    def encoding(self):
        return self.stream.encoding

    @property
    def buffer(self):
        return self.stream.buffer


class State:
    """What the wrapped calls share."""

    def __init__(self, config, report):
        self.config = config
        self.report = report
        self.rings = config["rings"]
        self.begun = {}
        self.open = None
        self.told = set()
        self.run_config = None
        self.reached = 0
        self.statistics_given = 0

    def stage(self, name, begins):
        if begins:
            self.begun[name] = time.monotonic_ns()
            self.open = name
            self.report.event("stage", stage=name, phase="begin")
        elif name in self.begun:
            elapsed = time.monotonic_ns() - self.begun.pop(name)
            self.open = None
            # The checkout says `done` for a stage that raised as well, so nothing is said of how it went.
            self.report.event("stage", stage=name, phase="end", elapsed_ns=elapsed)

    def reaches(self, kind):
        """Tells that a dispatch is given the ring config: 0 is the correctness dispatch, 1 the benchmark's."""
        self.reached += 1
        dispatch = 1 if kind == "benchmark" or self.open == "benchmark" else 0
        if dispatch not in self.told:
            self.told.add(dispatch)
            self.report.event("rings", dispatch=dispatch, rank=0, asked=self.rings, effective=None, source="entry")

    def forced(self):
        return {RESOURCES[name]: list(values) for name, values in self.rings.items()}

    def statistics(self):
        """What makes a dispatch write scope statistics, whose first line tells the rings in force.

        The runtime names a file by the second, so two dispatches of one second must not share a directory.
        """
        where = self.config["scope_stats"]
        if where is None:
            return {}
        self.statistics_given += 1
        return {"enable_scope_stats": True, "output_prefix": os.path.join(where, str(self.statistics_given))}


def read_config(path):
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    unknown = sorted(set(config) - KNOWN)
    missing = sorted(KNOWN - set(config))
    if unknown or missing:
        raise SystemExit(f"entry.py: unknown keys {unknown}, missing keys {missing} in {path}")
    return config


def scrub(declared):
    """Nothing of the surroundings may set rings, time limits or bench sizes; what the case declares is set again."""
    for name in list(os.environ):
        if name.startswith(SCRUBBED) and name not in declared:
            del os.environ[name]
    os.environ.update(declared)


def everywhere(original, replacement):
    """Binds `replacement` wherever a loaded module of the checkout binds `original`."""
    for module in list(sys.modules.values()):
        name = getattr(module, "__name__", "")
        if name.split(".")[0] in ("golden", "pypto"):
            for attribute, value in list(vars(module).items()):
                if value is original:
                    setattr(module, attribute, replacement)


def find(name):
    """The object called `name`: in the checkout's runner, else in a loaded module of pypto."""
    runner = sys.modules["golden.runner"]
    if hasattr(runner, name):
        return getattr(runner, name)
    for module_name, module in sorted(sys.modules.items()):
        if module_name.split(".")[0] == "pypto" and name in vars(module):
            return vars(module)[name]
    raise Refused("environment", f"the checkout has no `{name}`: this entry can't force the ring config into it")


def parameters(function):
    return inspect.signature(function).parameters


def takes_any(function):
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters(function).values())


def field_names(run_config):
    if dataclasses.is_dataclass(run_config):
        return {field.name for field in dataclasses.fields(run_config)}
    return set(parameters(run_config)) - {"self"}


class environment_rings:
    """The ring config as variables, for the time of one call: the only channel of older releases.

    Four absolute values, never 0, which the variables don't know: they drop all of a list that holds one.
    """

    # How many such calls are open: what makes a config of its own in between must leave the variables alone.
    open = 0

    def __init__(self, rings):
        self.values = {VARIABLES[name]: ",".join(map(str, values)) for name, values in rings.items()}

    def __enter__(self):
        self.before = {name: os.environ.get(name) for name in self.values}
        os.environ.update(self.values)
        environment_rings.open += 1

    def __exit__(self, *exception):
        environment_rings.open -= 1
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        return False


def drop_ring_variables():
    """Programs set ring variables while they are imported; none may stand beside the config that is forced."""
    for name in VARIABLES.values():
        if not environment_rings.open:
            os.environ.pop(name, None)


def wrap_run_config(state, original):
    names = field_names(original)
    missing = sorted(FIELDS - names)
    if missing:
        raise Refused("environment", f"`RunConfig` has no {', '.join(missing)}: L3 dispatches can't be told their rings")
    init = original.__init__

    @functools.wraps(init)
    def forced(self, *args, **kwargs):
        bound = inspect.signature(init).bind_partial(self, *args, **kwargs)
        for field, values in state.forced().items():
            bound.arguments[field] = values
        for field, value in state.statistics().items():
            if field in names:
                bound.arguments[field] = value
        drop_ring_variables()
        if state.open in ("runtime", "benchmark"):
            state.reaches("config")
        return init(*bound.args, **bound.kwargs)

    # The class stays the class: programs may test for it or extend it.
    original.__init__ = forced
    # Copies with other fields (`dataclasses.replace`) pass through `__init__` and are forced again.
    state.run_config = original
    return names


def dispatching(state, kind, original):
    """`original`, which dispatches: rings through a parameter of its own, through its config, else through variables."""
    takes = parameters(original)

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        own = {}
        for field, values in state.forced().items():
            kwargs.pop(field, None)
            if field in takes:
                own[field] = values
        for field, value in state.statistics().items():
            if field in takes:
                kwargs.pop(field, None)
                own[field] = value
        config = next((name for name in ("config", "run_config") if name in takes), None)
        if config is not None:
            bound = inspect.signature(original).bind_partial(*args, **kwargs)
            if bound.arguments.get(config) is None:
                own[config] = state.run_config()
        state.reaches(kind)
        drop_ring_variables()
        kwargs.update(own)
        # A call that takes a config has its rings in there.
        if config is not None or FIELDS <= set(takes):
            return original(*args, **kwargs)
        with environment_rings(state.rings):
            return original(*args, **kwargs)

    return wrapped


def wrap_prepare(state):
    """Resident programs size their rings when they are prepared, which the checkout does without a config at times."""
    for module_name, module in sorted(sys.modules.items()):
        if module_name.split(".")[0] != "pypto":
            continue
        for owner in list(vars(module).values()):
            prepare = vars(owner).get("prepare") if inspect.isclass(owner) else None
            if inspect.isfunction(prepare) and not hasattr(prepare, "__wrapped__"):
                name = next((name for name in ("run_config", "config") if name in parameters(prepare)), None)
                if name is None:
                    raise Refused("environment", f"`{owner.__name__}.prepare` takes no config: rings can't reach it")
                owner.prepare = with_config(state, prepare, name)


def with_config(state, prepare, name):
    @functools.wraps(prepare)
    def wrapped(self, *args, **kwargs):
        bound = inspect.signature(prepare).bind_partial(self, *args, **kwargs)
        if bound.arguments.get(name) is None:
            bound.arguments[name] = state.run_config()
        state.reaches("prepare")
        return prepare(*bound.args, **bound.kwargs)

    return wrapped


def wrap_run_jit(state, original, allowed, any_key):
    """L3 drops an unknown option silently and L2 raises on it; here it is refused on both, before anything runs."""

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        bound = inspect.signature(original).bind_partial(*args, **kwargs)
        options = bound.arguments.get("runtime_cfg") or bound.arguments.get("kwargs", {}).get("runtime_cfg") or {}
        unknown = sorted(set(options) - allowed)
        if unknown and not any_key:
            raise Refused("configuration", f"runtime_cfg has unknown keys: {', '.join(unknown)}; "
                                           f"allowed keys: {', '.join(sorted(allowed))}")
        return original(*args, **kwargs)

    return wrapped


def wrap(state):
    try:
        import golden.runner  # noqa: F401
    except ImportError as error:
        raise Refused("environment", f"the checkout's harness can't be imported: {error}") from error
    execute, benchmark, run_config, run_jit = map(find, ("execute_compiled", "benchmark", "RunConfig", "run_jit"))
    fields = wrap_run_config(state, run_config)
    wanted = set(state.statistics())
    if wanted - fields and wanted - set(parameters(execute)):
        raise Refused("environment", "scope statistics were asked for, and neither `RunConfig` nor `execute_compiled` "
                                     f"takes all of {', '.join(sorted(wanted))}")
    wrap_prepare(state)
    everywhere(execute, dispatching(state, "correctness", execute))
    everywhere(benchmark, dispatching(state, "benchmark", benchmark))
    allowed = fields | set(parameters(execute)) | FIELDS
    everywhere(run_jit, wrap_run_jit(state, run_jit, allowed, takes_any(run_config)))


def start(state):
    config = state.config
    program = os.path.join(config["checkout"], config["program"])
    if not os.path.isfile(program):
        raise Refused("environment", f"the checkout has no program `{config['program']}`")
    os.chdir(config["checkout"])
    sys.path.insert(0, config["checkout"])
    sys.path.insert(0, os.path.dirname(program))
    scrub(config["environment"])
    if config["rounds"] > 0:
        os.environ.update(PYPTO_BENCH="1", PYPTO_BENCH_ROUNDS=str(config["rounds"]),
                          PYPTO_BENCH_WARMUP=str(config["warmup"]), PYPTO_BENCH_RAW="1")
    wrap(state)
    sys.argv = [program] + config["argv"]
    sys.stdout = StageWatch(sys.stdout, state)
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        sys.stdout.flush()
        sys.stdout = sys.stdout.stream


def peak_bytes():
    try:
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    except (ImportError, OSError):
        return None


def main():
    config = read_config(sys.argv[1])
    report = Report(config["report"])
    report.event("hello", protocol={"major": 1, "minor": 0}, program=config["program"], pid=os.getpid(),
                 case=config["case"], kernel_hash=None, seed=config["seed"], platform=config["platform"], params={})
    state = State(config, report)
    try:
        start(state)
    except Refused as refused:
        report.event("verdict", verdict="setup-error", cause=refused.cause, message=str(refused))
        print(f"ringsweep: {refused}", file=sys.stderr)
        raise SystemExit(1) from None
    finally:
        peak = peak_bytes()
        if peak is not None:
            report.event("memory", peak_rss_bytes=peak)
    if state.reached == 0:
        message = "the program ended without a dispatch through the harness: the ring config reached nothing"
        report.event("verdict", verdict="config-not-applied", cause="ring-ignored", message=message)
        print(f"ringsweep: {message}", file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
