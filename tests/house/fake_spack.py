"""Just enough of spack.package to import a recipe and ask it for its CMake arguments, without Spack."""

import itertools
import sys
import types


class Spec:
    """One combination of variants."""

    def __init__(self, values):
        self.values = values
        self.variants = {name: types.SimpleNamespace(value=value) for name, value in values.items()}

    def satisfies(self, condition):
        return all(self._holds(term) for term in condition.replace("+", " +").replace("~", " ~").split())

    def _holds(self, term):
        if term[0] in "+~":
            return self.values.get(term[1:]) is (term[0] == "+")
        name, value = term.split("=")
        return value in self.values.get(name, ())


class Recorder:
    """Directives as a package's class body calls them: kept, not interpreted."""

    def __init__(self):
        self.variants = {}      # name -> (default, condition or None)
        self.dependencies = []  # (spec, condition or None)
        self.conflicts = []     # (spec, condition or None)
        self.conditions = []    # of the enclosing with when(...)

    def condition(self, own):
        return " ".join(part for part in [*self.conditions, own] if part) or None

    def variant(self, name, default=None, when=None, **_):
        self.variants[name] = (default, self.condition(when))

    def depends_on(self, spec, when=None, type=None):
        self.dependencies.append((spec, self.condition(when)))

    def conflict(self, spec, when=None, msg=None):
        self.conflicts.append((spec, self.condition(when)))

    def when(self, condition):
        recorder = self

        class Scope:
            def __enter__(self):
                recorder.conditions.append(condition)

            def __exit__(self, *_):
                recorder.conditions.pop()

        return Scope()


class CMakePackage:
    run_tests = False

    def __init__(self, spec):
        self.spec = spec

    @staticmethod
    def define(name, value):
        if isinstance(value, bool):
            return f"-D{name}:BOOL={'ON' if value else 'OFF'}"
        if isinstance(value, (list, tuple)):
            value = ";".join(value)
        return f"-D{name}:STRING={value}"

    def define_from_variant(self, name, variant):
        return self.define(name, self.spec.values[variant]) if variant in self.spec.values else ""


class CudaPackage:
    """Brings the variants cuda and cuda_arch, and the dependency on CUDA."""

    cuda_arch_values = ("80", "90", "90a", "100f")


def load(path):
    """The recorder of a recipe's directives and its class."""
    recorder = Recorder()
    package = types.ModuleType("spack.package")
    nothing = lambda *_, **__: None
    for name, value in {"variant": recorder.variant, "depends_on": recorder.depends_on, "conflicts": recorder.conflict,
                        "when": recorder.when, "version": nothing, "license": nothing, "maintainers": nothing,
                        "join_path": lambda *parts: "/".join(parts), "which": nothing}.items():
        setattr(package, name, value)
    modules = {"spack": types.ModuleType("spack"), "spack.package": package}
    systems = "spack_repo.builtin.build_systems"
    for name in ("spack_repo", "spack_repo.builtin", systems):
        modules[name] = types.ModuleType(name)
    modules[f"{systems}.cmake"] = types.SimpleNamespace(CMakePackage=CMakePackage, generator=nothing)
    modules[f"{systems}.cuda"] = types.SimpleNamespace(CudaPackage=CudaPackage)
    sys.modules.update(modules)
    recorder.variant("cuda", default=False)
    recorder.depends_on("cuda", when="+cuda")

    scope = {"__file__": str(path), "__name__": "package"}
    exec(compile(path.read_text(), str(path), "exec"), scope)  # pylint: disable=exec-used
    return recorder, scope["Distattn"]


def combinations(recorder):
    """Every combination of boolean variants that their conditions allow, with each GPU architecture under +cuda."""
    free = [name for name, (_, condition) in recorder.variants.items() if condition is None]
    conditional = [(name, condition) for name, (_, condition) in recorder.variants.items() if condition is not None]
    for values in itertools.product((False, True), repeat=len(free)):
        chosen = dict(zip(free, values))
        open_names = [name for name, condition in conditional if Spec(chosen).satisfies(condition)]
        for more in itertools.product((False, True), repeat=len(open_names)):
            full = {**chosen, **dict(zip(open_names, more))}
            for arch in CudaPackage.cuda_arch_values if full["cuda"] else (None,):
                yield Spec({**full, "cuda_arch": (arch,)} if arch else full)
