"""Evaluates CEL: the part of it, and of Kubernetes' functions, that carve's policies use, and an error for anything else.

An expression is compiled to a function of an environment: {name: value}. A variable of a policy is evaluated when it is first used."""
import re
from fractions import Fraction

TOKEN = re.compile(r"""\s*(?:(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<double>\d+\.\d+(?:e[+-]?\d+)?)|(?P<int>\d+)|"""
                   r"""(?P<name>[A-Za-z_]\w*)|(?P<sign>\|\||&&|[<>=!]=|[-+*/%!<>?:.,()\[\]{}]))""")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(n|u|m|k|M|G|T|Ki|Mi|Gi|Ti|)")
SUFFIXES = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)} | \
    {s: Fraction(1000**n) for n, s in enumerate("kMGT", 1)} | {s + "i": Fraction(1024**n) for n, s in enumerate("KMGT", 1)}


class CelError(Exception):
    """Of an expression: it cannot be compiled, or its evaluation failed."""


class Quantity(Fraction):
    """Of Kubernetes."""

    def __new__(cls, text):
        found = QUANTITY.fullmatch(text)
        if not found:
            raise CelError(f"{text!r} is no quantity")
        return super().__new__(cls, Fraction(found[1]) * SUFFIXES[found[2]])

    def __str__(self):
        """As the API server writes it, without binary suffixes."""
        suffix = next(s for s in ("T", "G", "M", "k", "", "m", "u", "n") if (self / SUFFIXES[s]).denominator == 1)
        return f"{self / SUFFIXES[suffix]}{suffix if self else ''}"


def kind(value):
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value)


def same(a, b):
    return kind(a) == kind(b) and a == b


def text_of(value):
    """string(): of a double as Go's format %g has it."""
    if isinstance(value, float):
        text = repr(value)
        digits, _, exponent = f"{value:e}".partition("e")
        if not -4 <= int(exponent) < 21:
            raise CelError(f"string({value}) is not needed by any policy")
        return text.removesuffix(".0") if "e" not in text else f"{value:f}".rstrip("0")
    if kind(value) == "number" or isinstance(value, str):
        return str(value)
    raise CelError(f"no string of {value!r}")


def to_double(value):
    if isinstance(value, str) and not NUMBER.fullmatch(value):
        raise CelError(f"no double of {value!r}")
    return float(value)


def to_int(value):
    if kind(value) != "number":
        raise CelError(f"no int of {value!r}")
    return int(value)


def matches(text, pattern):
    """RE2's `$` is the end of the text; Python's is also before a line's end there."""
    return re.search(re.sub(r"\$$", r"\\Z", pattern), text) is not None


def index_of(value, wanted):
    return next((i for i, v in enumerate(value) if same(v, wanted)), -1) if isinstance(value, list) else value.find(wanted)


FUNCTIONS = {"string": text_of, "double": to_double, "int": to_int, "size": len, "quantity": lambda text: Quantity(text)}
METHODS = {"startsWith": (str, str.startswith), "lowerAscii": (str, str.lower), "matches": (str, matches), "split": (str, str.split), "indexOf": ((list, str), index_of),
           "replace": (str, str.replace), "contains": (str, str.__contains__), "compareTo": (Quantity, lambda a, b: (a > b) - (a < b)), "size": ((list, dict, str), len), "asApproximateFloat": (Quantity, float)}
MACROS = ("exists", "all", "filter", "map")


def arithmetic(sign, a, b):
    if sign == "+" and type(a) is type(b) and isinstance(a, (str, list, int, float)):
        return a + b
    if type(a) is not type(b) or kind(a) != "number":
        raise CelError(f"{a!r} {sign} {b!r}: no such overload")
    if sign == "/":
        if b == 0 and isinstance(b, int):
            raise CelError("division by zero")
        return a / b if isinstance(a, float) else int(Fraction(a, b))
    return a - b if sign == "-" else a * b


def compare(sign, a, b):
    if sign in ("==", "!="):
        return same(a, b) == (sign == "==")
    if sign == "in":
        return b.__contains__(a) if isinstance(b, dict) else any(same(a, v) for v in b)
    if kind(a) != kind(b) or kind(a) not in ("number", str):
        raise CelError(f"{a!r} {sign} {b!r}: no such overload")
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[sign]


def member(value, name):
    if not isinstance(value, (dict, Variables)) or name not in value:
        raise CelError(f"no such key: {name}")
    return value[name]


def element(value, at):
    if isinstance(value, list) and isinstance(at, int) and 0 <= at < len(value):
        return value[at]
    if isinstance(value, dict):
        return member(value, at)
    raise CelError(f"no element {at!r}")


def decide(decisive, parts):
    """|| and &&: a part that decides counts also where another one fails."""
    failure = None
    for part in parts:
        try:
            value = part()
            if value is decisive:
                return decisive
            if not isinstance(value, bool):
                raise CelError(f"{value!r} is no bool")
        except CelError as error:
            failure = error
    if failure:
        raise failure
    return not decisive


class Variables:
    """`variables.` of a policy: {name: compiled expression}."""

    def __init__(self, compiled, env):
        self.compiled, self.env, self.values = compiled, {**env, "variables": self}, {}

    def __contains__(self, name):
        return name in self.compiled

    def __getitem__(self, name):
        if name not in self.values:
            self.values[name] = self.compiled[name](self.env)
        return self.values[name]


class Parser:
    def __init__(self, text, names, variables):
        self.tokens, self.at, self.names, self.variables = [], 0, set(names), variables
        at, text = 0, text.strip()
        while at < len(text):
            token = TOKEN.match(text, at)
            if not token:
                raise CelError(f"no token: {text[at:at + 20]}")
            self.tokens.append((token.lastgroup, token[token.lastgroup]))
            at = token.end()
        self.tokens.append(("end", ""))

    def is_next(self, *words):
        return self.tokens[self.at][1] in words and self.tokens[self.at][0] in ("sign", "name")

    def take(self):
        self.at += 1
        return self.tokens[self.at - 1][1]

    def skip(self, word):
        if not self.is_next(word):
            raise CelError(f"{word} expected at {self.tokens[self.at][1]!r}")
        self.at += 1

    def whole(self):
        value = self.expression()
        if self.tokens[self.at][0] != "end":
            raise CelError(f"{self.tokens[self.at][1]!r} is too much")
        return value

    def expression(self):
        condition = self.either()
        if not self.is_next("?"):
            return condition
        self.take()
        yes = self.either()
        self.skip(":")
        no = self.expression()

        def choose(env):
            value = condition(env)
            if not isinstance(value, bool):
                raise CelError(f"{value!r} is no bool")
            return (yes if value else no)(env)
        return choose

    def joined(self, sign, decisive, operand):
        parts = [operand()]
        while self.is_next(sign):
            self.take()
            parts.append(operand())
        return parts[0] if len(parts) == 1 else lambda env: decide(decisive, [lambda part=part: part(env) for part in parts])

    def either(self):
        return self.joined("||", True, lambda: self.joined("&&", False, self.relation))

    def binary(self, signs, operand, function):
        left = operand()
        while self.is_next(*signs):
            sign, a, b = self.take(), left, operand()
            left = lambda env, sign=sign, a=a, b=b: function(sign, a(env), b(env))
        return left

    def relation(self):
        return self.binary(("==", "!=", "<", "<=", ">", ">=", "in"), self.sum, compare)

    def sum(self):
        return self.binary("+-", lambda: self.binary("*/", self.unary, arithmetic), arithmetic)

    def unary(self):
        if self.is_next("!"):
            self.take()
            operand = self.unary()
            return lambda env: decide(False, [lambda: operand(env)]) is False
        if self.is_next("-"):
            self.take()
            number = self.unary()
            return lambda env: arithmetic("-", 0 if isinstance(number(env), int) else 0.0, number(env))
        value = self.primary()
        while self.is_next(".", "["):
            if self.take() == "[":
                at = self.expression()
                self.skip("]")
                value = lambda env, value=value, at=at: element(value(env), at(env))
            else:
                name = self.take()
                value = self.method(value, name) if self.is_next("(") else self.selection(value, name)
        return value

    def selection(self, value, name):
        if getattr(value, "root", None) == "variables" and name not in self.variables:
            raise CelError(f"undeclared: variables.{name}")
        select = lambda env: member(value(env), name)
        select.has = lambda env: name in value(env)
        return select

    def list(self, end):
        values = []
        while not self.is_next(end):
            values.append(self.expression())
            if not self.is_next(end):
                self.skip(",")
        self.skip(end)
        return values

    def macro(self, value, name):
        own = self.take()
        self.skip(",")
        hidden, self.names = self.names, self.names | {own}
        body = self.expression()
        self.names = hidden
        self.skip(")")

        def each(env):
            return [(item, lambda item=item: body({**env, own: item})) for item in value(env)]
        return {"exists": lambda env: decide(True, [result for _, result in each(env)]),
                "all": lambda env: decide(False, [result for _, result in each(env)]),
                "filter": lambda env: [item for item, result in each(env) if result()],
                "map": lambda env: [result() for _, result in each(env)]}[name]

    def method(self, value, name):
        self.skip("(")
        if name in MACROS:
            return self.macro(value, name)
        if name not in METHODS:
            raise CelError(f"unknown: {name}()")
        of, function = METHODS[name]
        arguments = self.list(")")

        def call(env):
            target = value(env)
            if not isinstance(target, of):
                raise CelError(f"{target!r}.{name}(): no such overload")
            return function(target, *(a(env) for a in arguments))
        return call

    def primary(self):
        form, word = self.tokens[self.at][0], self.take()
        if form == "string":
            text = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), word[1:-1])
            return lambda env: text
        if form in ("int", "double"):
            number = int(word) if form == "int" else float(word)
            return lambda env: number
        if word == "(":
            value = self.expression()
            self.skip(")")
            return value
        if word == "[":
            values = self.list("]")
            return lambda env: [v(env) for v in values]
        if word == "{" or word == "JSONPatch" and self.is_next("{"):
            return self.map(named=word != "{")
        if form == "name" and self.is_next("("):
            return self.function(word)
        if word in ("true", "false"):
            return lambda env: word == "true"
        if form != "name" or word not in self.names:
            raise CelError(f"undeclared: {word}")
        name = lambda env: env[word]
        name.root = word
        return name

    def map(self, named):
        if named:
            self.skip("{")
        entries = []
        while not self.is_next("}"):
            key = (lambda env, name=self.take(): name) if named else self.expression()
            self.skip(":")
            entries.append((key, self.expression()))
            if not self.is_next("}"):
                self.skip(",")
        self.skip("}")
        return lambda env: {key(env): value(env) for key, value in entries}

    def function(self, name):
        self.skip("(")
        arguments = self.list(")")
        if name == "has":
            return arguments[0].has
        if name not in FUNCTIONS:
            raise CelError(f"unknown: {name}()")
        return lambda env: FUNCTIONS[name](*(a(env) for a in arguments))


def compile(text, names, variables=()):
    return Parser(text, names, variables).whole()
