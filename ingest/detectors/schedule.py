"""Barriers, clusters, persistence, launches and other choices of when work runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest import patterns
from ingest.queries import assembled, called, definitions, first, line_at, mentions, origins
from ingest.registry import Finding, detector
from ingest.syntax import Loop, Span, SyntaxView, names_in


@detector("block-barrier")
def block_barrier(view: SyntaxView) -> Iterator[Finding]:
    """All threads of a block wait for each other."""
    blocks = set(patterns.findall(r"\bthread_block\s+(\w+)\s*=", view.code)) | set(
        patterns.findall(r"\bauto\s+(\w+)\s*=\s*(?:cg|cooperative_groups)::this_thread_block", view.code)
    )
    yield from first(
        called(view, r"__syncthreads(?:_and|_or|_count)?", "calls {0}", 0.97),
        assembled(view, r"bar\.sync|barrier\.sync", "PTX {0}", 0.4),
    )
    for name in sorted(blocks):
        yield from mentions(
            view,
            rf"\b(?:cg|cooperative_groups)::sync\s*\(\s*{name}\s*\)|\b{name}\s*\.\s*sync\s*\(",
            "{0} on the thread block",
            0.95,
        )
    for statement in view.assembly:
        if patterns.search(r"bar(?:rier)?\.(?:cta\.)?sync\S*\s+0\s*;", statement.text):
            yield Finding(statement.span, "PTX barrier 0", 0.9)


@detector("named-barrier")
def named_barrier(view: SyntaxView) -> Iterator[Finding]:
    """Barriers with an id, for a part of the block."""
    for statement in view.assembly:
        if patterns.search(r"\bbar(?:rier)?\.(?:cta\.)?(?:sync|arrive|red)\S*\s+(?!0\s*;)\S", statement.text):
            yield Finding(
                statement.span, f"PTX {statement.mnemonics[0] if statement.mnemonics else 'bar'} with an id", 0.9
            )
    yield from first(
        mentions(view, r"\b(?:\w+::)*NamedBarriers?::\w+", "{0}", 0.92),
        called(
            view,
            r"named_barrier_(?:sync|arrive)\w*|bar_sync\w*|__barrier_sync(?:_count)?|barrier_sync",
            "calls {0}",
            0.88,
        ),
        mentions(
            view, r"\b(?:warpgroup|group\s*<[^>]*>|consumer|producer)\s*::\s*(?:sync|arrive)\s*\(", "calls {0}", 0.88
        ),
    )


@detector("warp-synchronous")
def warp_synchronous(view: SyntaxView) -> Iterator[Finding]:
    """Lanes of a warp ordered without a block barrier."""
    yield from called(view, r"__syncwarp", "calls {0}", 0.95)
    yield from assembled(view, r"bar\.warp\.sync", "PTX {0}", 0.9)
    for match in view.search(
        r"\b(?:thread_block_tile\s*<\s*(?:\d+|\w*(?:WARP|warp)\w*)[^>]*>|coalesced_group)\s+(\w+)"
    ):
        yield from mentions(
            view,
            rf"\b{match.group(1)}\s*\.\s*sync\s*\(|\bcg::sync\s*\(\s*{match.group(1)}\s*\)",
            "{0} on a tile of a warp",
            0.85,
        )


@detector("grid-stride-loop")
def grid_stride_loop(view: SyntaxView) -> Iterator[Finding]:
    """A loop that advances by the grid: its stride involves gridDim."""
    yield from (Finding(_head(loop), f"advances by {why}", 0.92) for loop, why in grid_strides(view))
    yield from mentions(
        view,
        r"\b(?:CUDA_1D_KERNEL_LOOP\w*|CUDA_KERNEL_LOOP\w*|GRID_STRIDE_LOOP\w*)\s*\(",
        "{0}: the macro's loop strides by the grid",
        0.85,
    )


def _head(loop: Loop) -> Span:
    return Span(loop.span.start, max(loop.body.start, loop.span.start + 1))


def grid_strides(view: SyntaxView) -> Iterator[tuple[Loop, str]]:
    """Loops whose step depends on gridDim, with the step."""
    for loop in view.loops:
        owner = view.function_at(loop.span.start)
        if owner is None:
            continue
        step = loop.update
        if loop.kind != "for" or not step:
            variable = names_in(loop.condition)
            inner = [a for a in view.inside(loop.body, view.assignments) if a.name in variable and a.feeds_itself]
            step = " ".join(f"{a.name} {a.operator} {a.value}" for a in inner)
        if patterns.search(r"\bgridDim\b|\bnum_blocks_in_grid\b|\bgrid_size\s*\(|\bgrid\.(?:size|num_threads)", step):
            yield loop, " ".join(step.split())
            continue
        for name in names_in(step) - {loop.variable}:
            if any(
                patterns.search(r"\bgridDim\b|\bgrid\.(?:size|num_threads)", a.value)
                for a in definitions(view, name, owner)
            ):
                yield loop, f"{' '.join(step.split())} where {name} involves gridDim"


_HEAVY = re.compile(
    r"__syncthreads|__shared__|\b\w*mma\w*\s*[<(]|tma::|tma_|gemm\w*\s*[<(]|barrier|cp_async", re.IGNORECASE
)


@detector("persistent-kernel")
def persistent_kernel(view: SyntaxView) -> Iterator[Finding]:
    """Blocks that stay and take tile after tile, as many as the chip has room for."""
    for match in view.search(
        r"\b\w*(?:scheduler|Scheduler|sched)\w*\s*(?:\.|->|::)\s*(?:template\s+)?(?:get_next_work|fetch_next_work|advance_to_next_work|get_initial_work|get_next_block|next_tile)\w*"
    ):
        if view.loops_around(match.start()) or any(loop.span.holds(match.start()) for loop in view.loops):
            yield Finding(Span(*match.span()), f"tile loop driven by {match.group()}", 0.9)
    for aggregate in view.aggregates:
        text = view.text(aggregate.span)
        taken = patterns.search(r"tile_idx\s*\+\s*(?:int\s*\(\s*)?gridDim|atomicAdd\s*\([^;]*", text)
        if patterns.search(r"Scheduler", aggregate.name) and "get_next_work" in text and taken:
            start = aggregate.span.start
            yield Finding(
                Span(start, start + text.find("{") + 1), f"{aggregate.name} hands a block tile after tile", 0.85
            )
    yield from _rounds_of_the_grid(view)
    counted = patterns.search(
        r"multiProcessorCount|\bnum_sms?\b|\bsm_count\b|\bnumSMs?\b|\bNUM_SMS?\b|\bkNumSMs?\b|\bSM_COUNT\b|MultiProcessorCount",
        view.code,
    )
    cooperative = patterns.search(r"cudaLaunchCooperativeKernel|grid_group|this_grid", view.code)
    for loop, why in grid_strides(view):
        owner = view.function_at(loop.span.start)
        starts = origins(view, loop.initializer.split("=")[-1], owner, depth=3)
        rows = any(patterns.search(r"(?i)threadIdx|warp|lane|meta_group", name) for name in starts)
        if (
            counted
            and not cooperative
            and not rows
            and owner is not None
            and owner.is_kernel
            and _HEAVY.search(view.text(loop.body))
        ):
            yield Finding(_head(loop), f"one block per SM ({counted.group()}) loops over tiles: {why}", 0.88)
    for loop in view.loops:
        if loop.kind != "for" and patterns.fullmatch(r"\(?\s*(?:true|1)\s*\)?", loop.condition or "true"):
            taken = patterns.search(
                r"atomicAdd\s*\([^;]*(?:tile|work|queue|counter|next)\w*[^;]*\)", view.text(loop.body)
            )
            if taken and _HEAVY.search(view.text(loop.body)):
                yield Finding(_head(loop), f"takes tiles from a queue: {taken.group()[:50]}", 0.85)


def _rounds_of_the_grid(view: SyntaxView) -> Iterator[Finding]:
    """Work numbered by round times grid size plus block, or divided evenly among the blocks that there are."""
    if "gridDim" not in view.code:
        return
    block = r"(?:int\s*\(\s*)?blockIdx\.x"
    for match in view.search(rf"=\s*(?:gridDim\.x\s*\*\s*([\w.]+)|([A-Za-z_][\w.]*)\s*\*\s*gridDim\.x)\s*\+\s*{block}"):
        rounds = match.group(1) or match.group(2)
        if patterns.search(r"(?i)iter|round|step|wave|pass", rounds):
            yield Finding(Span(*match.span()), f"round {rounds} of the grid takes the next task", 0.85)
    divided = r"(?<!\w)\w*(?i:ceil_?div|cdiv|div_?up|div_?ceil)\w*\s*\([^;()]*tiles?[^;()]*,\s*gridDim\.x\s*\)"
    for match in view.search(rf"{divided}|\b\w*tiles?\w*[^;]*\+\s*gridDim\.x\s*-\s*1\s*\)?\s*/\s*gridDim\.x"):
        owner = view.function_at(match.start())
        if owner is not None and owner.on_device and _HEAVY.search(view.text(owner.body)):
            yield Finding(
                line_at(view, match.start()), "the tiles are divided among the blocks, each takes several", 0.8
            )


@detector("warp-specialization")
def warp_specialization(view: SyntaxView) -> Iterator[Finding]:
    """Warps with different roles: some only load, others only compute."""
    yield from first(
        assembled(view, r"setmaxnreg", "PTX {0} moves registers between roles"),
        called(
            view,
            r"warpgroup_reg_(?:alloc|dealloc)\w*|(?:increase|decrease)_registers|producer_registers|consumer_registers",
            "{0} moves registers between roles",
            0.93,
        ),
        mentions(view, r"\b(?:WarpGroupRole|WarpRole|WarpCategory|ProducerWarpRole)::\w+", "role {0}", 0.88),
    )
    yield from _split_pipeline(view)
    yield from _split_warps(view)
    for branch in view.branches:
        if branch.expression or not branch.alternative.end or not branch.alternative.start:
            continue
        role = patterns.search(r"(?i)\b\w*(?:producer|consumer|load_warp|mma_warp|warp_?role)\w*\b", branch.condition)
        if role and patterns.search(r"(?i)warp|thread|group", branch.condition + view.text(branch.span)[:400]):
            yield Finding(
                Span(branch.span.start, branch.consequence.start + 1), f"branches by role: {branch.condition}", 0.82
            )


_LOADS = re.compile(r"\btma::|tma_load|load_async|cp_async|cp\.async|producer_acquire|memcpy_async")
_MULTIPLIES = re.compile(r"\b\w*mma\w*\s*(?:<[^;()]*>)?\s*\(|\bgemm\w*\s*\(|\bmm_\w+\s*\(|tcgen05")


def _split_warps(view: SyntaxView) -> Iterator[Finding]:
    """Branches on the warp's number of which one only loads and the other only multiplies."""
    for branch in view.branches:
        if branch.expression or branch.alternative.start >= branch.alternative.end:
            continue
        if not patterns.search(
            r"(?i)\bw\w*(?:id|idx|rank|group)\w*(?:\(\))?\s*(?:==|<|>=|>|!=)\s*\w+", branch.condition
        ):
            continue
        sides = view.text(branch.consequence), view.text(branch.alternative)
        loads, multiplies = [bool(_LOADS.search(s)) for s in sides], [bool(_MULTIPLIES.search(s)) for s in sides]
        if sorted(loads) == sorted(multiplies) == [False, True] and loads != multiplies:
            span = Span(branch.span.start, branch.consequence.start + 1)
            yield Finding(span, f"where {branch.condition} one side loads, the other multiplies", 0.85)


def _split_pipeline(view: SyntaxView) -> Iterator[Finding]:
    """One function only fills the pipeline, another only drains it."""
    fills = {f.name: f for f in view.functions if "producer_acquire" in view.text(f.body)}
    drains = {f.name: f for f in view.functions if patterns.search(r"consumer_(?:wait|release)", view.text(f.body))}
    for name in sorted(fills.keys() - drains.keys()):
        if drains.keys() - fills.keys():
            span = Span(fills[name].head.start, fills[name].body.start)
            yield Finding(span, f"{name} only produces, {sorted(drains.keys() - fills.keys())[0]} only consumes", 0.75)


@detector("thread-block-cluster")
def thread_block_cluster(view: SyntaxView) -> Iterator[Finding]:
    """Blocks that run together and see each other's shared memory."""
    yield from first(
        mentions(view, r"\b__cluster_dims__\s*\([^)]*\)", "{0}"),
        assembled(
            view,
            r"barrier\.cluster|mapa\.|\S*\.shared::cluster\S*\.multicast|ld\.shared::cluster|st\.(?:async\.)?\S*shared::cluster",
            "PTX {0}",
        ),
        called(
            view,
            r"cluster_(?:sync|arrive\w*|wait)|map_shared_rank|this_cluster|barrier_cluster_\w+|cluster_(?:ctarank|grid_dims|id_in_grid)|block_rank_in_cluster|cudaOccupancyMaxActiveClusters",
            "calls {0}",
            0.9,
        ),
        mentions(view, r"\bcudaLaunchAttributeClusterDimension\b|\bClusterLaunchParams\b", "{0}", 0.92),
        mentions(view, r"\btma::cluster::\w+|\bcluster::(?:sync|arrive|wait)\b", "{0}", 0.9),
        mentions(
            view,
            r"\bClusterShape\w*\s*=\s*(?:cute::)?Shape\s*<\s*(?:cute::)?(?:_?[2-9]|Int<\s*[2-9k])[^;]*",
            "{0}",
            0.85,
        ),
    )


@detector("cooperative-groups")
def cooperative_groups(view: SyntaxView) -> Iterator[Finding]:
    """The cooperative groups interface."""
    yield from first(
        mentions(
            view,
            r"\b(?:cg|cooperative_groups)::(?:this_\w+|tiled_partition|thread_block\w*|grid_group|coalesced\w*|reduce|sync|cluster_group|thread_group)\b",
            "{0}",
            0.93,
        ),
        mentions(view, r"\bcudaLaunchCooperativeKernel\b", "{0}", 0.9),
    )
    if patterns.search(r"\busing\s+namespace\s+cooperative_groups", view.code):
        yield from mentions(view, r"\bthis_(?:thread_block|grid)\s*\(\s*\)|\btiled_partition\s*<", "{0}", 0.92)


@detector("programmatic-dependent-launch")
def programmatic_dependent_launch(view: SyntaxView) -> Iterator[Finding]:
    """A kernel that starts before the one it depends on has ended."""
    yield from first(
        assembled(view, r"griddepcontrol", "PTX {0}"),
        called(
            view,
            r"cudaGridDependencySynchronize|cudaTriggerProgrammaticLaunchCompletion|(?:cutlass::arch::)?(?:wait_on_dependent_grids|launch_dependent_grids)|\w*_pdl_(?:sync|lc|wait|launch)\w*|\w*PDL_?\w*(?:TRIGGER|WAIT|SYNC|LAUNCH)\w*|\w*[pP]dl(?:Trigger|Wait|Sync|Launch)\w*",
            "calls {0}",
            0.95,
        ),
        mentions(
            view,
            r"\bcudaLaunchAttributeProgrammaticStreamSerialization\b|\bprogrammaticStreamSerializationAllowed\b",
            "{0}",
            0.95,
        ),
    )


@detector("inline-ptx")
def inline_ptx(view: SyntaxView) -> Iterator[Finding]:
    """PTX in asm statements, also inside macros."""
    for statement in view.assembly:
        if statement.mnemonics:
            yield Finding(statement.span, f"asm {', '.join(statement.mnemonics[:3])}", 0.97)
        elif statement.text.strip() or '"' in view.text(statement.span):
            yield Finding(statement.span, "asm statement", 0.8)
