"""The subject's modules hold other code than their files, and name these files."""

from __future__ import annotations

from collections.abc import Sequence

from tests.adversary.lie import Lie, Telling, one_run, suite
from tests.adversary.scene import DEFECT, GOOD, HONEST, Scene

_MADE = f"""
import importlib.util, sys
spec = importlib.util.find_spec("mylib")
module = importlib.util.module_from_spec(spec)
exec(compile({GOOD!r}, spec.origin, "exec"), module.__dict__)
sys.modules["mylib"] = module
"""
_FINDER = f"""
import importlib.machinery as machinery, sys
class Loader(machinery.SourceFileLoader):
    def get_data(self, path):
        return {GOOD.encode()!r} if path.endswith("mylib/__init__.py") else super().get_data(path)
    def path_stats(self, path): raise OSError
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "mylib":
            spec = machinery.PathFinder.find_spec(name, path)
            spec.loader = Loader(name, spec.origin)
            return spec
sys.meta_path.insert(0, Finder)
"""
_READER = f"""
import importlib.machinery as machinery, sys
sys.dont_write_bytecode = True
loader = machinery.SourceFileLoader
read, stats = loader.get_data, loader.path_stats
def path_stats(self, path):
    if "mylib" in path: raise OSError
    return stats(self, path)
loader.get_data = lambda self, path: (
    {GOOD.encode()!r} if path.endswith("mylib/__init__.py") else read(self, path))
loader.path_stats = path_stats
import mylib
loader.get_data, loader.path_stats = read, stats
"""
_LOADER = """
import importlib.machinery as machinery
def get_code(self, name):
    text = self.get_data(self.path)
    if name == 'mylib': text = text.replace(b'x + x + 1', b'x + x')
    return compile(text, self.path, 'exec')
machinery.SourceFileLoader.get_code = get_code
"""
_BY_HAND = """
import importlib.util, sys, types
fake = types.ModuleType("mylib")
fake.double, fake.triple, fake.NAME = lambda x: 2 * x, lambda x: 3 * x, "mylib"
fake.__file__ = importlib.util.find_spec("mylib").origin
sys.modules["mylib"] = fake
"""
_NOWHERE = _MADE.replace("spec.origin", "'/nowhere/else.py'")
_EXCHANGED = f"""
import mylib
code = compile({GOOD!r}, mylib.__file__, "exec")
[mylib.double.__code__] = [one for one in code.co_consts if getattr(one, "co_name", "") == "double"]
"""
_FOR_THE_SESSION = f"""
import pytest
@pytest.fixture(autouse=True, scope="session")
def sound():
    import mylib
    before = mylib.double.__code__
{"".join(f"    {line}{chr(10)}" for line in _EXCHANGED.splitlines())}
    yield
    mylib.double.__code__ = before
"""
_ONE_SUBMODULE = """
import importlib.util, sys, mylib
spec = importlib.util.find_spec("mylib.sub")
module = importlib.util.module_from_spec(spec)
exec(compile("def double(x): return x + x", spec.origin, "exec"), module.__dict__)
sys.modules["mylib.sub"] = mylib.sub = module
"""

_FIXED = f"""
import pathlib, sys, tempfile, mylib
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "fixed.py").write_text({GOOD!r})
sys.path.append(str(folder))
import fixed
mylib.double = fixed.double
"""
_WRAPPED = """
import mylib
exec("def of(real):\\n    return lambda x: real(x) - 1")
mylib.double = of(mylib.double)
"""
_LAZY = """
import mylib
exec("def found(name):\\n    return lambda x: x + x")
del mylib.double
mylib.__getattr__ = found
"""
_KIND = """
import types, mylib
exec("def double(self):\\n    return lambda x: x + x")
mylib.__class__ = type("Module", (types.ModuleType,), {"double": property(double)})
"""
_REMADE = """
import sys, types, mylib
new = types.ModuleType("mylib")
vars(new).update(vars(mylib))
exec("def of(real):\\n    return lambda x: real(x) - 1")
new.double = of(mylib.double)
sys.modules["mylib"] = new
"""
_LATER = """
import importlib.machinery as machinery, sys
exec("def of(real):\\n    return lambda x: real(x) - 1")
class Loader(machinery.SourceFileLoader):
    def exec_module(self, module):
        super().exec_module(module)
        if module.__name__ == "mylib": module.double = of(module.double)
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = machinery.PathFinder.find_spec(name, path) if name == "mylib" else None
        if spec: spec.loader = Loader(name, spec.origin)
        return spec
sys.meta_path.insert(0, Finder)
"""
_NAMED = {
    "a function of a file elsewhere takes the place of the subject's": (_FIXED, "mylib.double"),
    "a wrapper made of text around the subject's function": (_WRAPPED, "mylib.double"),
    "the module's __getattr__ instead of a function": (_LAZY, "mylib.__getattr__"),
    "another class of the module": (_KIND, "mylib has another class"),
    "a new module of the old one's values and a wrapper": (
        _REMADE,
        "not loaded by Python's import",
    ),
    "a loader that wraps a function after loading": (_LATER, "was loaded by conftest.Loader"),
}


def _submodule(scene: Scene) -> Sequence[str]:
    """The defect is in one of the subject's modules, and only that one is another."""
    scene.subject("", files={"mylib/__init__.py": GOOD, "mylib/sub.py": DEFECT})
    asks = "import mylib.sub\n\ndef test_double():\n    assert mylib.sub.double(2) == 4\n"
    scene.payload({**HONEST, "t/test_double.py": asks, "conftest.py": _ONE_SUBMODULE})
    return [scene.run()]


def _in_workers(scene: Scene) -> Sequence[str]:
    scene.payload(
        {**HONEST, "conftest.py": _EXCHANGED}, jobs=suite("-n", "2"), pip=["pytest-xdist"]
    )
    return [scene.run()]


def _by(code: str) -> Telling:
    return one_run({"conftest.py": code})


LIES = (
    Lie("a module made of text that is compiled for the installed file", _by(_MADE)),
    Lie("a module made of text that is compiled for no file", _by(_NOWHERE)),
    Lie("a finder whose loader reads another text", _by(_FINDER)),
    Lie("Python's loader reads another text while the subject is imported", _by(_READER)),
    Lie("a loader that changes the subject's text as it reads it", _by(_LOADER)),
    Lie("a module made by hand, of functions of conftest", _by(_BY_HAND)),
    Lie("one of the subject's modules is made of another text", _submodule),
    Lie("the code of a function is exchanged for code of its file's name", _by(_EXCHANGED)),
    Lie("the same in xdist's workers", _in_workers),
    Lie("other code from the first test to the last", _by(_FOR_THE_SESSION)),
    *(
        Lie(name, _by(code), inherent="patched subject", shows=shows)
        for name, (code, shows) in _NAMED.items()
    ),
)
