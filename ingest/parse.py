"""CUDA text to a ``SyntaxView``, through tree-sitter.

The grammar does not know every macro and attribute that CUDA code puts into declarations. Those
are blanked in the text that the parser gets (never in the text that detectors see), which keeps
its error nodes few and local.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser, Query, QueryCursor

from ingest import patterns
from ingest.syntax import (
    Aggregate,
    Assembly,
    Assignment,
    Branch,
    Define,
    Function,
    Loop,
    Parameter,
    Span,
    SyntaxView,
    split_top,
    target_path,
)
from ingest.text import blank, clean, closing

_ATTRIBUTE = re.compile(
    r"\b(?:__align__|alignas|__launch_bounds__|__cluster_dims__|__block_size__|__maxnreg__|__attribute__)\s*\("
)
_NOISE = re.compile(
    r"\b(?:__forceinline__|__noinline__|__inline__|__grid_constant__|__volatile__)\b"
    r"|\b_?[A-Z][A-Z0-9_]*(?:DEVICE|HOST|API|INLINE|KERNEL|UNROLL)\b(?!\s*\()"
    r"|^[ \t]*[A-Z_][A-Z0-9_]{3,}[ \t]*$",
    re.MULTILINE,
)
_WANTED = (
    "function_definition", "for_statement", "while_statement", "do_statement", "for_range_loop",
    "if_statement", "conditional_expression", "assignment_expression", "init_declarator",
    "declaration", "field_declaration", "parameter_declaration", "struct_specifier",
    "class_specifier", "union_specifier",
)  # fmt: skip
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)\n]*\))?((?:\\\n|[^\n])*)", re.MULTILINE)
_STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
_MNEMONIC = re.compile(r"(?:@!?%?\w+\s+)?(?:\{\s*)?([a-z][a-z0-9]*(?:(?:\.|::)[A-Za-z0-9_]+)*)\b")
_KERNEL_HEAD = re.compile(r"\b__global__\b[^;{}]*?\b([A-Za-z_]\w*)\s*\(", re.DOTALL)


@lru_cache(maxsize=1)
def _language() -> Language:
    return Language(tree_sitter_cuda.language())


@lru_cache(maxsize=1)
def _query() -> Query:
    return Query(_language(), "\n".join(f"({kind}) @{kind}" for kind in _WANTED))


def parse(text: str) -> SyntaxView:
    """Analyse a file's text.

    Args:
        text: decoded source with ``\\n`` line breaks (``ingest.text.decode``).
    """
    cleaned = clean(text)
    code = cleaned.code
    root, captures = _parse_tree(code)
    never = [span for node in captures.get("if_statement", []) if (span := _never_taken(node)) is not None]
    if never:
        for span in never:
            code = blank(code, span.start, span.end)
        root, captures = _parse_tree(code)
    macros = tuple(_defines(code))
    functions = _functions(code, captures.get("function_definition", []), macros)
    return SyntaxView(
        code=code,
        functions=functions,
        loops=tuple(_loops(code, captures)),
        assignments=tuple(_assignments(code, captures)),
        variables=tuple(_variables(code, captures)),
        branches=tuple(_branches(code, captures)),
        aggregates=tuple(_aggregates(code, captures)),
        assembly=tuple(_assembly(code, start, end) for start, end in cleaned.assembly if code[start] != " "),
        defines=macros,
        error_count=_count_errors(root),
    )


def _parse_tree(code: str) -> tuple[Node, dict[str, list[Node]]]:
    parsed = _for_grammar(code).encode("ascii")
    root = Parser(_language()).parse(parsed).root_node
    captures = QueryCursor(_query()).captures(root)
    return root, {kind: sorted(nodes, key=lambda n: n.start_byte) for kind, nodes in captures.items()}


def _for_grammar(code: str) -> str:
    pieces, cursor = [], 0
    for match in _ATTRIBUTE.finditer(code):
        if match.start() < cursor:
            continue
        end = closing(code, match.end() - 1)
        pieces += [code[cursor : match.start()], patterns.sub(r"[^\n]", " ", code[match.start() : end])]
        cursor = end
    pieces.append(code[cursor:])
    return _NOISE.sub(lambda m: patterns.sub(r"[^\n]", " ", m.group()), "".join(pieces))


def _span(node: Node | None) -> Span:
    return Span(node.start_byte, node.end_byte) if node else Span(0, 0)


def _slice(code: str, node: Node | None) -> str:
    return code[node.start_byte : node.end_byte] if node else ""


def _never_taken(node: Node) -> Span | None:
    """Branch of an ``if (false)`` or ``if constexpr (0)``; None when it can be taken."""
    condition = node.child_by_field_name("condition")
    value = condition.child_by_field_name("value") if condition else None
    if value is None or value.text not in (b"false", b"0"):
        return None
    return _span(node.child_by_field_name("consequence"))


def _count_errors(root: Node) -> int:
    count, pending = 0, [root]
    while pending:
        node = pending.pop()
        count += node.is_error or node.is_missing
        if node.has_error:
            pending.extend(node.children)
    return count


def _functions(code: str, nodes: list[Node], macros: tuple[Define, ...]) -> tuple[Function, ...]:
    found: dict[int, Function] = {}
    for node in nodes:
        declarator = node.child_by_field_name("declarator")
        while declarator is not None and declarator.type != "function_declarator":
            declarator = declarator.child_by_field_name("declarator") or _first_named(declarator)
        body = node.child_by_field_name("body")
        if declarator is None or body is None:
            continue
        name = declarator.child_by_field_name("declarator")
        parameters = declarator.child_by_field_name("parameters")
        if name is None or parameters is None:
            continue
        while name.type in ("qualified_identifier", "template_function") and name.child_by_field_name("name"):
            name = name.child_by_field_name("name") or name
        function = _function(code, _slice(code, name), name.start_byte, _span(parameters), _span(body))
        found[function.body.start] = function
    for match in _KERNEL_HEAD.finditer(code):
        _add_missed_kernel(code, match, macros, found)
    spelled = {m.name: patterns.findall(r"\b__\w+__\b", m.body) for m in macros if m.parameters is None}
    return tuple(_with_macros(f, spelled) for f in sorted(found.values(), key=lambda f: f.name_start))


def _with_macros(function: Function, spelled: dict[str, list[str]]) -> Function:
    """The function with the attributes that its macros stand for (``#define INLINE __device__ ...``)."""
    meant = {word for qualifier in function.qualifiers for word in spelled.get(qualifier, ())}
    return replace(function, qualifiers=function.qualifiers | meant) if meant else function


def _add_missed_kernel(code: str, match: re.Match[str], macros: tuple[Define, ...], found: dict[int, Function]) -> None:
    """A kernel whose definition lies in an error node, recovered from its head."""
    if any(macro.span.holds(match.start()) for macro in macros):
        return
    end = match.end()
    name, name_start = match.group(1), match.start(1)
    if name == "__launch_bounds__" or name.endswith("__"):
        behind = closing(code, end - 1)
        again = re.compile(r"[^;{}()]*?\b([A-Za-z_]\w*)\s*\(", re.DOTALL).match(code, behind)
        if not again:
            return
        name, name_start, end = again.group(1), again.start(1), again.end()
    parameters = Span(end - 1, closing(code, end - 1))
    opening = re.compile(r"\s*\{").match(code, parameters.end)
    for _ in range(2):  # the head repeated in another branch of a directive, one body after them
        again = None if opening else re.compile(r"[^;{}()]*?\b([A-Za-z_]\w*)\s*\(").match(code, parameters.end)
        if again:
            name, name_start = again.group(1), again.start(1)
            parameters = Span(again.end() - 1, closing(code, again.end() - 1))
            opening = re.compile(r"\s*(?:#[^\n]*\s*)*\{").match(code, parameters.end)
    if not opening or any(f.name_start == name_start for f in found.values()):
        return
    body = Span(opening.end() - 1, closing(code, opening.end() - 1))
    found.setdefault(body.start, _function(code, name, name_start, parameters, body))


def _first_named(node: Node) -> Node | None:
    return node.named_children[0] if node.named_children else None


def _function(code: str, name: str, name_start: int, parameters: Span, body: Span) -> Function:
    # The head goes back to the end of the previous statement: attributes blanked for the grammar count.
    start = max(code.rfind(char, 0, name_start) for char in ";{}") + 1
    directives = list(patterns.finditer(r"^[ \t]*#(?:\\\n|[^\n])*\n", code[start:name_start], re.MULTILINE))
    head = code[start:name_start]
    for directive in directives:
        head = blank(head, directive.start(), directive.end())
    bounds = patterns.search(r"__launch_bounds__\s*\(", head)
    template = patterns.search(r"\btemplate\s*<", head)
    template_text = ""
    if template:
        depth, offset = 1, template.end()
        while depth and offset < len(head):
            depth += {"<": 1, ">": -1}.get(head[offset], 0)
            offset += 1
        template_text = head[template.end() : offset - 1]
        qualifying = head[offset:]
    else:
        qualifying = head
    return Function(
        name=name.strip(),
        name_start=name_start,
        head=Span(start + len(head) - len(head.lstrip()), parameters.end),
        body=body,
        qualifiers=frozenset(patterns.findall(r"[A-Za-z_]\w*", qualifying)),
        template_parameters=split_top(template_text),
        parameters=split_top(code[parameters.start + 1 : parameters.end - 1]),
        launch_bounds=head[bounds.end() : closing(head, bounds.end() - 1) - 1].strip() if bounds else "",
    )


def _loops(code: str, captures: dict[str, list[Node]]) -> list[Loop]:
    loops = []
    for kind in ("for_statement", "while_statement", "do_statement", "for_range_loop"):
        for node in captures.get(kind, []):
            part = {n: _slice(code, node.child_by_field_name(n)) for n in ("initializer", "condition", "update")}
            body = node.child_by_field_name("body")
            loops.append(
                Loop(
                    kind.split("_")[0], part["initializer"], part["condition"], part["update"],
                    _span(node), _span(body),
                )
            )  # fmt: skip
    return sorted(loops, key=lambda loop: loop.span.start)


def _assignments(code: str, captures: dict[str, list[Node]]) -> list[Assignment]:
    found = []
    for node in captures.get("assignment_expression", []):
        target = _slice(code, node.child_by_field_name("left"))
        operator = _slice(code, node.child_by_field_name("operator")) or "="
        value = _slice(code, node.child_by_field_name("right"))
        found.append(Assignment(target_path(target), target, operator, value, _span(node)))
    for node in captures.get("init_declarator", []):
        target = _slice(code, node.child_by_field_name("declarator"))
        value = _slice(code, node.child_by_field_name("value"))
        found.append(Assignment(target_path(target), target, "=", value, _span(node), declares=True))
    return sorted(found, key=lambda a: a.span.start)


def _variables(code: str, captures: dict[str, list[Node]]) -> list[Parameter]:
    found = []
    for kind in ("declaration", "field_declaration", "parameter_declaration"):
        for node in captures.get(kind, []):
            found += _declared(code, node)
    return sorted(found, key=lambda v: v.start)


def _declared(code: str, node: Node) -> list[Parameter]:
    kind = node.child_by_field_name("type")
    if kind is None:
        return []
    prefix = code[node.start_byte : kind.end_byte]
    found = []
    for declarator in node.children_by_field_name("declarator"):
        marks, dimensions = "", []
        qualified = code[node.start_byte : declarator.end_byte]
        inner: Node | None = declarator
        while inner is not None and inner.type not in ("identifier", "field_identifier", "qualified_identifier"):
            if inner.type == "pointer_declarator":
                marks += "*"
                marks += " __restrict__" if "__restrict" in _slice(code, inner) else ""
            elif inner.type == "reference_declarator":
                marks += "&"
            elif inner.type == "array_declarator":
                dimensions.append(_slice(code, inner.child_by_field_name("size")))
            elif inner.type == "function_declarator":
                break
            inner = inner.child_by_field_name("declarator") or _first_named(inner)
        if inner is None or inner.type == "function_declarator":
            continue
        found.append(
            Parameter(
                name=_slice(code, inner),
                type=" ".join(f"{prefix} {marks}".split()),
                start=node.start_byte,
                end=declarator.end_byte,
                dimensions=tuple(reversed(dimensions)),
                shared="__shared__" in qualified,
                constant="__constant__" in qualified,
            )
        )
    return found


def _branches(code: str, captures: dict[str, list[Node]]) -> list[Branch]:
    found = []
    for kind in ("if_statement", "conditional_expression"):
        for node in captures.get(kind, []):
            condition = _slice(code, node.child_by_field_name("condition")).strip()
            if kind == "if_statement" and condition.startswith("("):
                condition = condition[1:-1]
            consequence = node.child_by_field_name("consequence")
            head = code[node.start_byte : consequence.start_byte if consequence else node.end_byte]
            found.append(
                Branch(
                    condition.strip(), _span(node), _span(consequence),
                    _span(node.child_by_field_name("alternative")),
                    constexpr=bool(patterns.match(r"if\s+constexpr\b", head)),
                    expression=kind == "conditional_expression",
                )
            )  # fmt: skip
    return sorted(found, key=lambda b: b.span.start)


def _aggregates(code: str, captures: dict[str, list[Node]]) -> list[Aggregate]:
    found = []
    for kind in ("struct_specifier", "class_specifier", "union_specifier"):
        for node in captures.get(kind, []):
            body = node.child_by_field_name("body")
            if body is not None:
                name = _slice(code, node.child_by_field_name("name"))
                found.append(Aggregate(kind.split("_")[0], name, Span(node.start_byte, body.end_byte)))
    return sorted(found, key=lambda a: a.span.start)


def _assembly(code: str, start: int, end: int) -> Assembly:
    """Strings before the first operand list, joined as the compiler joins them."""
    quoted: list[str] = []
    cursor = code.index("(", start) + 1
    for match in _STRING.finditer(code, cursor, end):
        between = code[cursor : match.start()]
        if patterns.search(r"[:)]", between):
            break
        quoted.append(match.group(1))
        cursor = match.end()
    text = "".join(quoted).replace("\\n", "\n").replace("\\t", " ").replace("\\r", "")
    mnemonics = []
    for statement in patterns.split(r"[;\n{}]", patterns.sub(r"\{[^{};]*\}", " ", text)):
        instruction = _MNEMONIC.match(statement.strip())
        if instruction:
            mnemonics.append(instruction.group(1))
    return Assembly(text, tuple(mnemonics), Span(start, end))


def _defines(code: str) -> list[Define]:
    found = []
    for match in _DEFINE.finditer(code):
        parameters = split_top(match.group(2)[1:-1]) if match.group(2) else None
        body = match.group(3).replace("\\\n", " \n").strip()
        found.append(Define(match.group(1), parameters, body, Span(*match.span())))
    return found
