"""The runtime's C structures and constants, for ctypes; runtime/msim.h is the original."""

from __future__ import annotations

import ctypes
from enum import IntEnum

MAX_THREADS = 1024
SIMD_WIDTH = 32
NO_INDEX = 0xFFFFFFFF
ARRAY_INDEX_BASE = 1000
THREADGROUP_ARGUMENTS = 31
RANDOM_BYTES = 0x100
MAX_THREADGROUP_ARGUMENT_BYTES = 65536


class Role(IntEnum):
    """What a buffer is to the kernel."""

    INPUT = 0
    OUTPUT = 1
    INITIALIZED_OUTPUT = 2
    CONSTANT = 3


class EventKind(IntEnum):
    """What the runtime noticed."""

    THREADGROUP_RACE = 0
    DEVICE_RACE = 1
    OUT_OF_RANGE = 2
    UNINITIALIZED_READ = 3
    READONLY_WRITE = 4
    BARRIER_MISMATCH = 5
    ENDED_BEFORE_BARRIER = 6
    INACTIVE_LANE = 7
    WILD_ACCESS = 8
    ARRAY_INDEX = 9
    UNWRITTEN_OUTPUT = 10
    FAULT = 11
    SIMD_BARRIER_MISMATCH = 12
    TOO_MANY_ARRAYS = 13
    NAN_BORN = 14
    HANG = 15
    UNINITIALIZED_VALUE = 16


class BufferSpec(ctypes.Structure):
    """msim_buffer_spec."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("element_bytes", ctypes.c_uint32),
        ("role", ctypes.c_uint32),
    )


class Event(ctypes.Structure):
    """msim_event."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("access", ctypes.c_uint32),
        ("site", ctypes.c_uint32),
        ("other_site", ctypes.c_uint32),
        ("region", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("offset", ctypes.c_int64),
        ("count", ctypes.c_uint64),
        ("thread", ctypes.c_uint32),
        ("other_thread", ctypes.c_uint32),
        ("group", ctypes.c_uint64),
        ("other_group", ctypes.c_uint64),
        ("line", ctypes.c_uint32),
        ("other_access", ctypes.c_uint32),
        ("region_bytes", ctypes.c_uint64),
        ("region_element_bytes", ctypes.c_uint32),
        ("operand_count", ctypes.c_uint32),
        ("operands", ctypes.c_double * 3),
        ("place", ctypes.c_char * 64),
        ("text", ctypes.c_char * 80),
    )


class Launch(ctypes.Structure):
    """msim_launch."""

    _fields_ = (
        ("buffers", ctypes.POINTER(BufferSpec)),
        ("groups", ctypes.c_void_p),
        ("group_count", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("stack_bytes", ctypes.c_uint64),
        ("block_counts", ctypes.c_void_p),
        ("sites", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
        ("events", ctypes.POINTER(Event)),
        ("site_buffers", ctypes.c_void_p),
        ("threadgroup_bytes", ctypes.c_uint64),
        ("buffer_count", ctypes.c_uint32),
        ("site_count", ctypes.c_uint32),
        ("block_count", ctypes.c_uint32),
        ("event_capacity", ctypes.c_uint32),
        ("event_count", ctypes.c_uint32),
        ("stopped", ctypes.c_uint32),
        ("checked", ctypes.c_uint32),
        ("counted", ctypes.c_uint32),
        ("grid", ctypes.c_uint32 * 3),
        ("threadgroup", ctypes.c_uint32 * 3),
        ("threadgroup_lengths", ctypes.c_uint32 * THREADGROUP_ARGUMENTS),
        ("traced", ctypes.c_uint32),
        ("unwritten_byte", ctypes.c_uint32),
    )
