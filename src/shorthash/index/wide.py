"""Places of the bits of a word in one instruction, where the processor has it (AVX-512 VBMI2)."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, codegen, config, types
from numba.extending import intrinsic

GROUP = 4  # places written at once: one store of 32 bytes

_i8, _i32, _i64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_bytes, _bools, _group = ir.VectorType(_i8, 64), ir.VectorType(ir.IntType(1), 64), ir.VectorType(_i64, GROUP)


def has_compress() -> bool:
    """Whether code is compiled for a processor that can gather chosen bytes of a register."""
    chosen, of_host = getattr(config, "CPU_FEATURES", None), codegen.get_host_cpu_features  # NUMBA_CPU_FEATURES
    features: str = of_host() if chosen is None else chosen  # type: ignore[no-untyped-call]
    return "+avx512vbmi2" in features.split(",")


@intrinsic
def put_places(_typing: Any, word: Any, base: Any, values: Any, at: Any, most: Any) -> Any:  # noqa: ARG001 - types
    """Write ``base`` plus the places of the bits set in ``word``, ascending, to ``values[at:]``.

    At least ``most`` places are written, in whole groups of GROUP: what follows the places that are set is overwritten.
    ``most`` must not be less than the number of bits set. Needs ``has_compress()``.
    """
    signature = types.void(types.uint64, types.int64, values, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, base, values, at, most = arguments
        start = builder.gep(context.make_array(signature.args[2])(context, builder, values).data, [at])
        places = _compressed(builder, word)
        first = builder.insert_element(ir.Constant(_group, ir.Undefined), base, ir.Constant(_i32, 0))
        bases = builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_i32, GROUP), None))
        done = builder.append_basic_block("done")
        for g in range(0, 64, GROUP):
            chosen = ir.Constant(ir.VectorType(_i32, GROUP), list(range(g, g + GROUP)))
            group = builder.zext(builder.shuffle_vector(places, places, chosen), _group)
            target = builder.bitcast(builder.gep(start, [ir.Constant(_i64, g)]), _group.as_pointer())
            builder.store(builder.add(group, bases), target, align=8)
            following = builder.append_basic_block(f"from {g + GROUP}")
            builder.cbranch(builder.icmp_signed(">", most, ir.Constant(_i64, g + GROUP)), following, done)
            builder.position_at_end(following)
        builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, generate


def _compressed(builder: Any, word: Any) -> Any:
    """64 bytes: the places of the bits set, then zeros."""
    kind = ir.FunctionType(_bytes, [_bytes, _bytes, _bools])
    compress: Any = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, kind, "llvm.x86.avx512.mask.compress.v64i8"
    )
    every_place = ir.Constant(_bytes, list(range(64)))
    return builder.call(compress, [every_place, ir.Constant(_bytes, None), builder.bitcast(word, _bools)])
