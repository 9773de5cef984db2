from __future__ import annotations

import pytest

from kgraph.graph import KnowledgeGraph
from kgraph.lookup import normalized


def best(curated: KnowledgeGraph, term: str):
    return curated.lookup(term).mappings[0]


@pytest.mark.parametrize(
    ("term", "target", "relation"),
    [
        ("__shared__", "threadgroup array", "exact"),
        ("__syncthreads", "threadgroup_barrier(mem_flags::mem_threadgroup)", "close"),
        ("__shfl_xor_sync", "simd_shuffle_xor", "exact"),
        ("__shfl_up_sync", "simd_shuffle_up", "exact"),
        ("mma.sync", "simdgroup_multiply_accumulate", "narrower"),
        ("ldmatrix", "simdgroup_load", "close"),
        ("warp_reduce", "simd_sum, simd_max, simd_min, simd_product", "exact"),
        ("cp.async", "prefetch into registers", "none"),
        ("exp2f", "fast::exp2", "exact"),
        ("float4", "float4, uint4, vec<T, 4>", "exact"),
        ("blockIdx", "threadgroup_position_in_grid", "exact"),
        ("cub::BlockScan", "scan in the thread, across lanes, across SIMD-groups", "close"),
    ],
)
def test_the_first_answer_is_an_experts(curated, term, target, relation):
    mapping = best(curated, term)
    assert mapping.target is not None
    assert (mapping.target.label, mapping.relation) == (target, relation)
    assert mapping.sources
    assert mapping.status != "claimed"


@pytest.mark.parametrize(
    ("term", "canonical"),
    [
        ("__SHFL_XOR_SYNC", "__shfl_xor_sync"),
        ("__shfl_xor_sync(0xffffffff, v, 1)", "__shfl_xor_sync"),
        ("__syncthreads();", "__syncthreads"),
        ("BlockScan<float, 128>", "BlockScan"),
        ("  `__ldg`  ", "__ldg"),
        ("__launch_bounds__(128, 2)", "__launch_bounds__"),
        ("extern __shared__ float smem[]", "extern __shared__"),
        ("__shared__ float tile[32][33]", "__shared__"),
        ("cp.async.cg.shared.global", "cp.async"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma.sync"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "ldmatrix"),
        ("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "ldmatrix.trans"),
        ("shared memory", "__shared__"),
        ("Warp-Reduce", "warp_reduce"),
        ("<<<grid, block>>>", "<<<"),
    ],
)
def test_a_token_is_known_in_every_dress(curated, term, canonical):
    assert best(curated, term).origin.iri == best(curated, canonical).origin.iri


@pytest.mark.parametrize(
    ("term", "canonical"),
    [
        ("nvcuda::wmma::mma_sync", "wmma::mma_sync"),
        ("cub::WarpReduce<float>", "WarpReduce"),
        ("cooperative_groups::this_grid()", "grid.sync"),
        ("cg::this_thread_block", "this_thread_block"),
        ("cuda::std::atomic<int>", "cuda::atomic"),
    ],
)
def test_a_qualified_name_is_known_whatever_its_namespaces(curated, term, canonical):
    assert best(curated, term).origin.iri == best(curated, canonical).origin.iri


@pytest.mark.parametrize(("term", "canonical"), [("tensor cores", "tensor core"), ("bank conflicts", "bank conflict")])
def test_a_plural_is_the_same_words(curated, term, canonical):
    assert best(curated, term).origin.iri == best(curated, canonical).origin.iri


@pytest.mark.parametrize("term", ["cutlass", "cute", "cuda::"])
def test_a_namespace_is_not_what_stands_in_it(curated, term):
    assert "::" not in "".join(mapping.origin.label for mapping in curated.lookup(term).mappings)


@pytest.mark.parametrize(
    ("term", "canonical"),
    [
        ("#include <cuda_fp16.h>", "__half"),
        ("#include <cub/cub.cuh>", "BlockScan"),
        ('# include "mma.h"', "wmma"),
        ("cuda_bf16.h", "__nv_bfloat16"),
        ("cuda_runtime.h", "<<<"),
        ("<<<>>>", "<<<"),
        ("kernel<<<grid, block, 0, stream>>>(x)", "<<<"),
        ("dim3 grid(4)", "<<<"),
        ("cudaHostAlloc", "cudaMallocManaged"),
        ("cudaEvent_t", "cudaEventRecord"),
        ("make_float4(0, 0, 0, 0)", "float4"),
        ("gemm", "cublasGemmEx"),
        ("warp divergence", "Volta scheduling"),
    ],
)
def test_headers_launches_and_host_names_are_known(curated, term, canonical):
    assert best(curated, term).origin.iri == best(curated, canonical).origin.iri


@pytest.mark.parametrize("verb", ["load", "store"])
def test_moving_a_wmma_fragment_is_no_product(curated, verb):
    target = best(curated, f"nvcuda::wmma::{verb}_matrix_sync").target
    assert target is not None
    assert target.label == f"simdgroup_{verb}"


def test_the_transposing_load_is_not_the_plain_one(curated):
    assert best(curated, "ldmatrix.trans").origin.iri != best(curated, "ldmatrix").origin.iri


def test_a_wildcard_finds_the_whole_family(curated):
    origins = {mapping.origin.label for mapping in curated.lookup("__shfl_*").mappings}
    assert {"__shfl_xor_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_sync"} <= origins


def test_a_misspelt_token_gets_its_neighbours(curated):
    answer = curated.lookup("__shfl_xor_snyc")
    assert not answer.mappings
    assert answer.did_you_mean[0] == "__shfl_xor_sync"


def test_nonsense_gets_nothing(curated):
    answer = curated.lookup("qqqqzzzz")
    assert (answer.mappings, answer.did_you_mean) == ((), ())


@pytest.mark.parametrize("term", ["", "   ", "*", "(((", "<", "a.b.c"])
def test_odd_input_is_answered(curated, term):
    assert curated.lookup(term).query == term


@pytest.mark.parametrize("term", ["__shared__", "warp_reduce", "__syncthreads", "HBM3"])
def test_a_corrected_claim_stays_beside_its_correction(curated, term):
    mappings = curated.lookup(term).mappings
    claims = [mapping for mapping in mappings if mapping.status == "claimed"]
    assert len(claims) == 1
    correction = {mapping.iri: mapping for mapping in mappings}[claims[0].corrected_by]
    assert correction.status == "corrected"
    assert mappings.index(correction) < mappings.index(claims[0]) == len(mappings) - 1


def test_warp_reduce_is_no_matrix_product(curated):
    mapping = best(curated, "warp_reduce")
    assert "simd_sum" in mapping.advice
    assert {source.iri for source in mapping.sources} >= {"urn:kx:source:metal-benchmarks"}
    assert any(constraint.quantity == "simd-width" for constraint in mapping.constraints)


def test_shared_memory_carries_the_hard_cap(curated):
    caps = [c for c in best(curated, "__shared__").constraints if c.quantity == "threadgroup-memory-bytes"]
    assert [(cap.comparison, cap.value, cap.unit) for cap in caps] == [("<=", 32768, "B")]
    assert caps[0].holds(32768)
    assert not caps[0].holds(32769)


def test_a_concept_slug_gives_the_mappings_of_its_primitives(curated):
    mappings = curated.lookup("tensor-core-mma").mappings
    assert mappings
    assert all("tensor-core-mma" in mapping.origin.concepts for mapping in mappings)


def test_a_metal_name_leads_back_to_cuda(curated):
    assert best(curated, "simd_shuffle_xor").origin.label == "__shfl_xor_sync"


def test_primitive_tokens_name_cuda_primitives_only(curated):
    tokens = curated.primitive_tokens()
    assert {"__shfl_xor_sync", "cp.async", "__syncthreads", "mma.sync", "ldmatrix", "__shared__"} <= set(tokens)
    assert all(iri.startswith("urn:kx:primitive:cuda:") for iri in tokens.values())


def test_primitive_of_reads_full_mnemonics(curated):
    assert curated.primitive_of("cp.async.wait_group.sync") == "urn:kx:primitive:cuda:cp-async-group"
    assert curated.primitive_of("cp.async.bulk.tensor.2d.shared") == "urn:kx:primitive:cuda:tma"
    assert curated.primitive_of("add.f32") == ""


def test_normalized_keeps_the_chevrons():
    assert normalized("<<<grid, block>>>") == "<<<grid, block>>>"
    assert normalized("atomicAdd(&x, 1)") == "atomicadd"


@pytest.mark.parametrize(
    ("term", "target"),
    [
        ("curand_uniform", "counter-based random numbers in the kernel"),
        ("cudnn", "mx.conv_general, mx.conv2d"),
        ("ncclAllReduce", "mx.distributed"),
        ("triton", "mx.fast.metal_kernel"),
        ("tl.dot", "simdgroup_multiply_accumulate"),
        ("__noinline__", "__attribute__((noinline))"),
        ("cute", "tiles by index functions of your own"),
        ("cute::make_layout", "tiles by index functions of your own"),
        ("__activemask()", "simd_active_threads_mask"),
        ("__reduce_xor_sync", "simd_and, simd_or, simd_xor"),
        ("cg::tiled_partition<4>", "quad_sum, quad_shuffle_xor"),
    ],
)
def test_libraries_and_rarer_words_are_known(curated, term, target):
    found = best(curated, term).target
    assert found is not None
    assert found.label == target


@pytest.mark.parametrize(
    "term", ["__nanosleep", "L2 cache", "persisting", "distributed shared memory", "setmaxnreg.inc"]
)
def test_what_metal_lacks_is_said_with_what_to_do(curated, term):
    mapping = best(curated, term)
    assert mapping.relation == "none"
    assert mapping.advice


def test_cute_is_no_bulk_copy(curated):
    """It was found by the prefix of cuTensorMapEncodeTiled."""
    assert {mapping.origin.label for mapping in curated.lookup("cute").mappings} == {"CuTe layouts, tensors and copies"}


@pytest.mark.parametrize(
    ("term", "origin"),
    [
        ("__hsub2", "half2 arithmetic"),
        ("__low2float", "packing and unpacking of half2"),
        ("__float2int_rn", "rounding conversions to integers"),
        ("__frcp_rn", "correctly rounded division and roots"),
        ("__byte_perm", "__byte_perm"),
        ("__CUDA_ARCH__", "__CUDA_ARCH__ and version macros"),
        ("cudaGetLastError", "CUDA error handling"),
        ("cudaDevAttrL2CacheSize", "device queries"),
        ("cublasSetMathMode", "cuBLAS"),
        ("cudaGraphAddMemcpyNode1D", "CUDA graphs"),
        ("cudaTriggerProgrammaticLaunchCompletion", "programmatic dependent launch"),
        ("cute::elect_one_sync", "lane 0 leader, elect.sync"),
        ("cutlass::arch::NamedBarrier::sync", "bar.sync with an id"),
        ("SM90_U32x4_STSM_N", "stmatrix"),
        ("SM100_TMEM_LOAD_32dp32b32x", "tcgen05, tensor memory"),
        ("SM80_16x8x32_S32S8S8S32_TN", "integer MMA"),
        ("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16", "fp8 matrix product"),
        ("@p cp.async.cg.shared.global", "cp.async"),
        ("st.shared.v4.b32", "plain PTX loads and stores"),
        ("selp.b32", "plain PTX arithmetic"),
        ("multimem.ld_reduce.weak.global.add.s32", "multimem, NVLink SHARP"),
        ("thrust::device_vector<float>", "Thrust"),
        ("cg::thread_block_tile<32>", "groups of cooperative groups"),
    ],
)
def test_words_of_public_cuda_files_are_known(curated, term, origin):
    answer = curated.lookup(term)
    assert (answer.role, answer.mappings[0].origin.label) == ("origin", origin)


def test_an_answer_of_a_whole_library_says_so(curated):
    assert curated.lookup("cublasSetPointerMode").family == "cublas*"
    assert curated.lookup("cublasSgemm").family == ""


@pytest.mark.parametrize("term", ["__func__", "__dist", "__tile__", "__clang__", "cutlass_device", "__gfx90a__"])
def test_a_word_is_not_taken_for_one_that_begins_alike(curated, term):
    """__dist was taken for distributed shared memory, __func__ for function attributes."""
    answer = curated.lookup(term)
    assert not answer.mappings or answer.family


def test_a_namespace_of_cuda_holds_no_word_of_metal(curated):
    """cutlass::gemm::device was taken for Metal's device address space."""
    assert curated.lookup("cutlass::gemm::device").role == "origin"


@pytest.mark.parametrize(
    ("term", "origin"),
    [
        ("simd_shuffle_xor", "__shfl_xor_sync"),
        ("threadgroup_barrier", "__syncthreads"),
        ("simdgroup_matrix", "wmma::fragment"),
        ("mx.fast.metal_kernel", "<<<grid, block>>>"),
        ("simd_ballot", "__ballot_sync"),
        ("dispatchThreads", "<<<grid, block>>>"),
    ],
)
def test_a_word_of_metal_leads_back_to_cuda(curated, term, origin):
    answer = curated.lookup(term)
    assert answer.role == "target"
    assert all(primitive.platform in {"metal", "mlx"} for primitive in answer.subjects)
    assert origin in {mapping.origin.label for mapping in answer.mappings}


def test_a_word_of_both_languages_is_cudas_unless_asked_back(curated):
    assert curated.lookup("half").role == "origin"
    back = curated.lookup("half", reverse=True)
    assert back.role == "target"
    assert "__half" in {mapping.origin.label for mapping in back.mappings}


def test_a_concept_is_known_by_its_label_too(curated):
    by_label, by_slug = curated.lookup("Software pipelining"), curated.lookup("software-pipelining")
    assert by_label.role == by_slug.role == "concept"
    assert by_label.mappings == by_slug.mappings
