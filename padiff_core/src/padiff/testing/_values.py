"""Specify how values cross between the framework and numpy."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

from padiff.adapter import extent_of
from padiff.errors import InputError
from padiff.numerics import Array
from padiff.testing._harness import Harness, needs, randoms

_PLAIN = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
_SMALL = [name for name in dir(ml_dtypes) if name.startswith(("bfloat16", "float8_"))]
DTYPES = (*_PLAIN.split(), *_SMALL, "datetime64[D]")
"""Every dtype that numpy or ml_dtypes has and a framework may hold, and one that none does."""

_AWKWARD = {
    "0-d": np.array(3.5, "float32"),
    "empty": np.zeros((0, 4), "float32"),
    "big-endian": np.arange(4, dtype=">f4"),
    "transposed": np.arange(6, dtype="float32").reshape(2, 3).T,
    "reversed": np.arange(4, dtype="float32")[::-1],
    "read-only": np.frombuffer(np.arange(4, dtype="float32").tobytes(), "float32"),
}


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the dtype of that name, of numpy's or of ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, name, name))


class ValueTests(Harness):
    """Carry values bit for bit, in their own dtype."""

    feature: ClassVar[str] = "values"

    def ranges(self) -> dict[str, list[Any]]:
        """Run over the framework's dtypes, and over all others."""
        held = self.held_dtypes()
        return {**super().ranges(), "held_dtype": held, "other_dtype": [name for name in DTYPES if name not in held]}

    @pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
    def test_every_dtype_crosses_bit_for_bit(self, held_dtype: str, shape: tuple[int, ...]) -> None:
        """An array becomes a tensor of the same dtype and comes back with the same bits: bfloat16 is never widened."""
        array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype_of(held_dtype))
        tensor = self.tensor(array)
        assert (tensor.dtype, tensor.shape, tensor.device) == (held_dtype, shape, "cpu")
        for back in (tensor.numpy(), tensor.view()):
            assert (back.dtype, back.shape) == (array.dtype, shape), f"came back as {back.dtype}{back.shape}"
            assert back.tobytes() == array.tobytes(), "the bits changed on the way"

    def test_other_dtypes_are_refused_by_name(self, other_dtype: str) -> None:
        """A dtype that the framework does not hold is an InputError that names it; only integers may be widened."""
        dtype = dtype_of(other_dtype)
        if dtype.kind in "iu" and (held := self._wider(dtype)) is not None:
            assert held.astype(dtype).tolist() == [np.iinfo(dtype).min, np.iinfo(dtype).max]
            return
        trouble = f"from_numpy takes {other_dtype}: add it to the test class's dtypes, or raise InputError"
        with pytest.raises(InputError, match=re.escape(other_dtype)):
            assert self.native(np.zeros(2, dtype)) is None, trouble

    def _wider(self, dtype: np.dtype[Any]) -> Array | None:
        """Return the limits of an integer dtype as they come back in a wider one, or None where it is refused."""
        limits = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
        try:
            back = self.values(self.native(limits))
        except InputError:
            return None
        return back if back.dtype != dtype and np.can_cast(dtype, back.dtype) else None

    @pytest.mark.parametrize("array", _AWKWARD.values(), ids=_AWKWARD)
    def test_awkward_arrays_become_tensors(self, array: Any) -> None:
        """Memory order, byte order and writability of an array do not matter."""
        np.testing.assert_array_equal(self.values(self.native(array)), array)

    def test_special_values_keep_their_bits(self) -> None:
        """NaN payloads, infinities, negative zero and denormals come back as they were."""
        bits = np.array([0x7FC12345, 0xFFC00001, 0x7F800000, 0x80000000, 0x00000001], np.uint32)
        assert self.values(self.native(bits.view(np.float32))).view(np.uint32).tolist() == bits.tolist()

    def test_a_tensor_made_of_an_array_does_not_share_it(self) -> None:
        """The array may change afterwards; the tensor does not."""
        array = np.zeros(3, np.float32)
        native = self.native(array)
        array[:] = 1
        assert not self.values(native).any(), "from_numpy shares the array's memory: copy it"

    def test_a_snapshot_is_the_readers_own(self) -> None:
        """What numpy() returns can be written to, and the tensor does not notice."""
        tensor = self.tensor(np.zeros((2, 3), np.float32))
        tensor.numpy()[:] = 1
        assert not tensor.view().any(), "numpy() hands out the tensor's memory: copy it"

    @needs("in-place")
    def test_a_snapshot_outlives_changes(self) -> None:
        """An in-place change is seen by a later numpy(), not by an earlier one, and raises the version."""
        tensor = self.tensor(np.zeros(3, np.float32))
        before, version = tensor.numpy(), tensor.version
        self.add_in_place(tensor.native, 1.0)
        assert not before.any(), "numpy() shares memory with the tensor: copy it"
        assert (tensor.numpy() == 1).all()
        assert (tensor.view() == 1).all()
        assert tensor.version > version, "version must grow with every in-place change"

    @needs("in-place")
    def test_what_is_writable_is_the_tensors_own_memory(self, held_dtype: str) -> None:
        """Writing to writable() changes the tensor, and the version does not tell."""
        tensor = self.tensor(np.zeros((2, 3), dtype_of(held_dtype)))
        memory, version = tensor.writable(), tensor.version
        assert memory is not None, "tensors on the host are writable where they change in place"
        assert tensor.extent() == extent_of(memory), "extent() is where that memory lies"
        assert (memory.dtype, memory.shape) == (dtype_of(held_dtype), (2, 3))
        expected = tensor.numpy()
        memory[1, 2] = expected[1, 2] = 1
        assert tensor.numpy().tobytes() == expected.tobytes()
        assert tensor.version == version

    def test_inputs_are_converted_where_they_are_arrays(self) -> None:
        """Arrays and numpy scalars become tensors; all else is passed on as it is."""
        for value in (randoms(2), np.float32(3), np.int32(3)):
            native = self.adapter.convert(value, device="cpu")
            assert self.adapter.is_tensor(native)
            assert self.values(native).dtype == value.dtype
        for other in ("text", 3, 2.5, None, True):
            assert self.adapter.convert(other, device="cpu") is other

    def test_swapped_has_exactly_the_arrays_bits(self) -> None:
        """A swapped tensor holds the bits it was given, in the old tensor's dtype and shape."""
        values = np.array([np.nan, -0.0, 1e-45], np.float32)
        swapped = self.adapter.tensor(self.tensor(randoms(3)).swapped(values))
        assert (swapped.dtype, swapped.shape) == ("float32", (3,))
        assert swapped.numpy().tobytes() == values.tobytes()

    def test_swapped_converts_to_the_tensors_dtype(self) -> None:
        """A float64 value that stands in for a float32 tensor becomes float32."""
        swapped = self.adapter.tensor(self.tensor(randoms(3)).swapped(np.array([0.1, 0.2, 0.3])))
        assert swapped.dtype == "float32"
        assert swapped.numpy().tolist() == np.array([0.1, 0.2, 0.3], np.float32).tolist()

    def test_swapped_copies(self) -> None:
        """The array that was put in may change afterwards; the model's tensor does not, nor the other way round."""
        values = np.zeros(3, np.float32)
        swapped = self.tensor(randoms(3)).swapped(values)
        values[:] = 1
        assert not self.values(swapped).any(), "swapped() shares the array's memory: copy it"

    def test_swapped_refuses_another_shape(self) -> None:
        """Nothing is broadcast: a value of another shape is a ValueError that names both."""
        with pytest.raises(ValueError, match=r"(?s)\(1,\).*\(3,\)|\(3,\).*\(1,\)"):
            self.tensor(randoms(3)).swapped(np.ones(1, np.float32))

    @needs("in-place")
    def test_a_change_in_place_does_not_reach_what_was_swapped_in(self) -> None:
        """The recorded value that was put in stays what it is when the model changes its tensor."""
        values = np.zeros(3, np.float32)
        self.add_in_place(self.tensor(randoms(3)).swapped(values), 1.0)
        assert not values.any()

    @needs("devices")
    def test_tensors_live_on_accelerators(self) -> None:
        """Values cross to and from an accelerator bit for bit, and a tensor says where it lies."""
        assert self.accelerator is not None
        values = randoms(3, 4)
        tensor = self.adapter.tensor(self.adapter.from_numpy(values, device=self.accelerator))
        assert tensor.device == self.accelerator
        assert tensor.numpy().tobytes() == tensor.view().tobytes() == values.tobytes()
        swapped = self.adapter.tensor(tensor.swapped(values + 1))
        assert swapped.device == self.accelerator
        assert swapped.numpy().tobytes() == (values + 1).tobytes()
