"""Compare's figures against a plain float64 implementation, and the faults that other tools let pass."""

from __future__ import annotations

import math
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from padiff.numerics import _dtypes, close, difference, same_numbers, sample
from padiff.numerics._tally import tallied

FLOATS = [
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
INTEGERS = ["bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"]
LAYOUTS = ["plain", "transposed", "strided", "reversed"]
MIB = 1 << 20


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def laid_out(array, layout):
    """Return equal values that lie otherwise in memory."""
    if layout == "transposed" and array.ndim:
        return np.ascontiguousarray(array.T).T
    if layout == "strided" and array.ndim:
        wide = np.zeros((*array.shape[:-1], array.shape[-1] * 2), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    if layout == "reversed" and array.ndim:
        return np.ascontiguousarray(array[::-1])[::-1]
    return array


def naive(reference, candidate):
    """Return (max |e|, relative L2, mismatch), for integers in Python's own."""
    if reference.dtype.kind in "biu" and candidate.dtype.kind in "biu":
        pairs = list(zip(map(int, reference.ravel()), map(int, candidate.ravel()), strict=True))
        top = max(abs(c - r) for r, c in pairs)
        below = sum(r * r for r, _ in pairs)
        above = sum((c - r) ** 2 for r, c in pairs)
        return float(top), divide(math.sqrt(above), math.sqrt(below)), False
    r, c = reference.astype(np.complex128).ravel(), candidate.astype(np.complex128).ravel()
    mismatch, errors, sizes = False, [], []
    for x, y in zip(r, c, strict=True):
        if np.isfinite(x) and np.isfinite(y):
            errors.append(abs(y - x))
            sizes.append(abs(x))
        else:
            parts = ((x.real, y.real), (x.imag, y.imag))
            mismatch |= any(a != b and not (math.isnan(a) and math.isnan(b)) for a, b in parts)
    if mismatch:
        return math.inf, math.inf, True
    return max(errors, default=0.0), divide(math.hypot(*errors), math.hypot(*sizes)), False


def divide(above, below):
    return above / below if below else (math.inf if above else 0.0)


@st.composite
def shapes(draw):
    return tuple(draw(st.lists(st.integers(1, 7), max_size=3)))


@st.composite
def float_pairs(draw):
    dtypes = [dtype_of(draw(st.sampled_from(FLOATS))) for _ in range(2)]
    if draw(st.booleans()):
        dtypes[1] = dtypes[0]
    shape = draw(shapes())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    exponent = draw(st.sampled_from([-300, -160, -42, -30, -19, -3, 0, 0, 3, 19, 30, 38, 160, 300]))
    with np.errstate(all="ignore"):
        r = rng.standard_normal(shape) * 10.0**exponent
        c = r * (1 + draw(st.sampled_from([0.0, 1e-9, 1e-6, 1e-3, 1.0, -3.0])) * rng.standard_normal(shape))
        arrays = [np.array(r).astype(dtypes[0]), np.array(c).astype(dtypes[1])]
        for _ in range(draw(st.integers(0, 3))):
            place = tuple(int(rng.integers(n)) for n in shape)
            special = draw(st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0]))
            for which in draw(st.sampled_from([(0,), (1,), (0, 1), (0, 1)])):
                arrays[which][place] = special
    return [laid_out(a, draw(st.sampled_from(LAYOUTS))) for a in arrays]


@st.composite
def integer_pairs(draw):
    shape = draw(shapes())
    arrays = []
    for _ in range(2):
        dtype = np.dtype(draw(st.sampled_from(INTEGERS)))
        low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
        numbers = st.one_of(st.integers(low, high), st.integers(max(low, -3), min(high, 3)))
        values = draw(st.lists(numbers, min_size=math.prod(shape), max_size=math.prod(shape)))
        arrays.append(laid_out(np.array(values, dtype).reshape(shape), draw(st.sampled_from(LAYOUTS))))
    return arrays


def test_what_a_mask_drowns_is_seen():
    ours = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    theirs = ours * np.float32(1.01)
    seen = difference(ours, theirs)
    masks = (np.float32(-1e4), np.float32(-1e9), np.finfo(np.float32).min)
    for mask in masks:
        masked = [np.concatenate([array, np.full((4, 3), mask) + 0 * array[:, :3]], 1) for array in (ours, theirs)]
        assert difference(*masked).rel_l2 == pytest.approx(seen.rel_l2, rel=1e-3)
        assert difference(*masked).max_abs == pytest.approx(seen.max_abs, rel=1e-3)
    other = [
        np.concatenate([array, np.full((4, 3), mask)], 1) for array, mask in ((ours, masks[0]), (theirs, masks[1]))
    ]
    assert difference(*other).rel_l2 > 1e4  # another mask is a difference of its own


class TestAgainstTheNaive:
    @settings(max_examples=400, deadline=None)
    @given(float_pairs())
    def test_floats(self, pair):
        r, c = pair
        with np.errstate(all="ignore"):
            max_abs, rel_l2, mismatch = naive(r, c)
        light, full = difference(r, c), tallied(r, c)
        assume(not light.scale * light.count**0.5 * 10 < full.norm)  # large negative numbers beside zeros are a mask
        for seen in (light, full):
            assert seen.max_abs == pytest.approx(max_abs, rel=1e-3, abs=0)
            assert seen.rel_l2 == pytest.approx(rel_l2, rel=1e-3, abs=1e-300)
        assert light.nan_mismatch == full.mismatched == mismatch
        assert light.equal == (max_abs == 0.0)

    @settings(max_examples=200, deadline=None)
    @given(integer_pairs())
    def test_integers(self, pair):
        r, c = pair
        max_abs, rel_l2, _ = naive(r, c)
        seen = difference(r, c)
        assert seen.max_abs == pytest.approx(max_abs, rel=1e-15, abs=0)
        assert seen.rel_l2 == pytest.approx(rel_l2, rel=1e-12)
        assert seen.equal == (max_abs == 0.0)
        assert close(r, c, atol=0.0, rtol=0.0) == seen.equal

    @settings(max_examples=200, deadline=None)
    @given(float_pairs(), st.sampled_from([0.0, 1e-8, 1e-2]), st.sampled_from([0.0, 1e-4, 1.0]))
    def test_close(self, pair, atol, rtol):
        r, c = (np.asarray(a).astype(np.complex128) for a in pair)
        with np.errstate(all="ignore"):
            parts = ((r.real, c.real), (r.imag, c.imag))
            same = np.all([(a == b) | (np.isnan(a) & np.isnan(b)) for a, b in parts], axis=0)
            finite = np.isfinite(r) & np.isfinite(c)
            error, size = np.abs(c - r)[finite], np.abs(r)[finite]
            apart = not (finite | same).all()
            strict = not apart and bool((error <= atol + rtol * size).all())
        assert close(*pair, atol=atol, rtol=rtol) == strict
        if apart or not error.size:
            assert close(*pair, atol=atol, rtol=rtol, mode="mean") != apart
            return
        slack = error.mean() - (atol + rtol * size.mean())
        if abs(slack) > 1e-9 * (error.mean() + atol + rtol * size.mean()):
            assert close(*pair, atol=atol, rtol=rtol, mode="mean") == (slack < 0)

    @settings(max_examples=100, deadline=None)
    @given(float_pairs())
    def test_the_symmetric_is_symmetric(self, pair):
        r, c = pair
        there, back = difference(r, c), difference(c, r)
        assert there.max_abs == pytest.approx(back.max_abs, rel=1e-12, abs=0)
        same = ("equal", "shape_equal", "dtype_equal", "nan_mismatch", "count")
        assert [getattr(there, name) for name in same] == [getattr(back, name) for name in same]

    @settings(max_examples=100, deadline=None)
    @given(float_pairs(), st.sampled_from(LAYOUTS))
    def test_an_array_equals_itself_in_any_layout(self, pair, layout):
        seen = difference(pair[0], laid_out(pair[0], layout))
        assert (seen.equal, seen.rel_l2, seen.max_abs, seen.nan_mismatch) == (True, 0.0, 0.0, False)
        assert close(pair[0], laid_out(pair[0], layout), atol=0.0, rtol=0.0)

    @pytest.mark.parametrize("layouts", [("plain", "plain"), ("plain", "transposed"), ("strided", "plain")])
    @pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e5m2", "float32", "float64", "complex64", "int32"])
    def test_arrays_of_many_chunks(self, name, layouts):
        rng = np.random.default_rng(7)
        r = (rng.standard_normal((613, 1201)) * 20).astype(dtype_of(name))
        c = (r.astype(np.complex64 if name == "complex64" else np.float32) * 1.5).astype(r.dtype)
        c[600, 1190] = 99
        wide = np.complex128 if name == "complex64" else np.float64
        error = np.abs(c.astype(wide) - r.astype(wide))
        norm = np.linalg.norm(r.astype(wide))
        pair = laid_out(r, layouts[0]), laid_out(c, layouts[1])
        light, full = difference(*pair), tallied(*pair)
        for seen in (light, full):
            assert seen.max_abs == pytest.approx(error.max(), rel=1e-6)
            assert seen.rel_l2 == pytest.approx(np.linalg.norm(error) / norm, rel=1e-5)
        assert light.scale == pytest.approx(norm / math.sqrt(r.size), rel=1e-5)
        assert full.norm == pytest.approx(norm)


class TestWhatOthersLetPass:
    def test_flipped_features_fail_the_mean_rule(self):
        r = np.random.default_rng(0).standard_normal((16, 256)).astype(np.float32)
        flipped = r[:, ::-1]
        assert r.mean() == pytest.approx(flipped.mean())
        assert not close(r, flipped, atol=1e-3, rtol=1e-3, mode="mean")
        assert close(r, r + np.float32(1e-5), atol=1e-3, rtol=1e-3, mode="mean")

    @pytest.mark.parametrize("mode", ["strict", "mean"])
    def test_transposed_shapes_are_never_close(self, mode):
        r = np.ones((4, 6), np.float32)
        assert not close(r, r.T, atol=10.0, rtol=10.0, mode=mode)
        seen = difference(r, r.T)
        assert (seen.equal, seen.shape_equal, seen.rel_l2, seen.max_abs) == (False, False, math.inf, math.inf)

    @pytest.mark.parametrize(("one", "other"), [((4,), (1, 4)), ((1,), (4,)), ((), (1,)), ((0, 3), (3, 0))])
    def test_nothing_is_broadcast(self, one, other):
        seen = difference(np.ones(one), np.ones(other))
        assert not seen.equal
        assert not seen.shape_equal
        assert not close(np.ones(one), np.ones(other), atol=1.0, rtol=1.0)

    def test_one_of_131072_elements_off_by_five(self):
        r = np.random.default_rng(0).standard_normal((4, 64, 512)).astype(np.float32)
        c = r.copy()
        c[2, 31, 77] += 5
        seen = difference(r, c)
        assert not seen.equal
        assert seen.max_abs == pytest.approx(5, rel=1e-6)
        assert seen.rel_l2 == pytest.approx(5 / np.linalg.norm(r), rel=1e-4)
        assert not close(r, c, atol=1e-3, rtol=1e-3)

    @pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
    def test_nan_and_infinities_at_other_positions(self, special):
        r = np.ones((3, 5), np.float32)
        c = r.copy()
        r[0, 1], c[2, 3] = special, special
        seen = difference(r, c)
        assert seen.nan_mismatch
        assert not seen.equal
        assert seen.rel_l2 == seen.max_abs == math.inf
        for mode in ("strict", "mean"):
            assert not close(r, c, atol=math.inf, rtol=1.0, mode=mode)

    def test_infinities_of_two_signs(self):
        r, c = np.array([1, math.inf]), np.array([1, -math.inf])
        assert difference(r, c).nan_mismatch
        assert not close(r, c, atol=1.0, rtol=1.0)

    def test_the_same_infinities_are_left_out(self):
        r = np.array([1.0, 2, -math.inf, math.nan], np.float32)
        c = np.array([1.0, 3, -math.inf, math.nan], np.float32)
        seen = difference(r, c)
        assert (seen.equal, seen.nan_mismatch, seen.max_abs) == (False, False, 1.0)
        assert seen.rel_l2 == pytest.approx(1 / math.sqrt(5))
        assert close(r, c, atol=0.5, rtol=0.0, mode="mean")
        assert not close(r, c, atol=0.49, rtol=0.0, mode="mean")

    def test_permuted_integers(self):
        r = np.arange(1000)
        c = np.random.default_rng(0).permutation(r)
        seen = difference(r, c)
        assert not seen.equal
        assert seen.rel_l2 > 0.5
        assert not close(r, c, atol=1.0, rtol=1e-3, mode="mean")


class TestTheEdges:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64, "bfloat16"])
    @pytest.mark.parametrize("exponent", [-40, -38, -30, -19, 18, 25, 38])
    def test_tiny_and_huge_differences_do_not_vanish(self, dtype, exponent):
        dtype = dtype_of(dtype) if isinstance(dtype, str) else np.dtype(dtype)
        r = np.full(1000, 10.0**exponent).astype(dtype)
        with np.errstate(over="ignore"):
            c = (r.astype(np.float64) * 1.5).astype(dtype)
        seen = difference(r, c)
        exact = abs(float(c[0]) / float(r[0]) - 1)
        assert seen.rel_l2 == pytest.approx(exact, rel=1e-3)
        assert not seen.equal

    @pytest.mark.parametrize("value", [5e-324, 1e-310, 1e-200, 1e200, 1.7e308])
    def test_the_ends_of_float64(self, value):
        r = np.full(100, value)
        assert difference(r, -r).rel_l2 == pytest.approx(2)
        assert difference(r, r * 0).rel_l2 == pytest.approx(1)
        assert tallied(r, -r).max_abs == pytest.approx(2 * value)
        pair = np.full(100, complex(value, value)), np.full(100, complex(value, -value))
        assert difference(*pair).rel_l2 == pytest.approx(math.sqrt(2))

    def test_a_bulk_of_tiny_values_under_one_large_one(self):
        r = np.full(100000, 1e-21, np.float32)
        c = r * np.float32(2)
        r[5] = c[5] = 1.0
        assert difference(r, c).rel_l2 == pytest.approx(1e-21 * math.sqrt(99999), rel=1e-3)

    def test_integers_beyond_the_floats(self):
        r = np.array([2**63 - 1, -(2**63)])
        assert difference(r, r[::-1]).max_abs == 2.0**64
        assert difference(np.array([2**60]), np.array([2**60 + 1])).max_abs == 1.0
        seen = difference(np.array([2**60 + 1, 5]), np.array([2**60 + 1, 5], np.uint64))
        assert (seen.equal, seen.dtype_equal) == (True, False)
        assert difference(np.array([-(2**63)]), np.array([2**64 - 1], np.uint64)).max_abs == 2.0**63 + 2.0**64

    def test_values_count_not_dtypes(self):
        r = np.arange(8)
        for dtype in (np.int8, np.uint16, np.float16, np.float64, np.complex64, ml_dtypes.bfloat16, ">f4"):
            seen = difference(r, r.astype(dtype))
            assert (seen.equal, seen.dtype_equal, seen.rel_l2) == (True, False, 0.0)
        assert difference(np.array([True, False]), np.array([1, 0])).equal
        assert not difference(np.float32(0.1), np.float64(0.1)).equal

    def test_zeros(self):
        zero = np.zeros(3, np.float32)
        assert difference(zero, -zero).equal
        assert difference(zero, zero + 1).rel_l2 == math.inf
        assert difference(zero + 1, zero).rel_l2 == 1.0
        assert tallied(zero, zero + 1).rel_l2 == math.inf

    @pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
    def test_scalars_and_empty_arrays(self, shape):
        r = np.ones(shape, np.float32)
        assert difference(r, r.copy()).equal
        assert close(r, r.astype(np.float64), atol=0.0, rtol=0.0, mode="mean")
        assert sample(r).size == r.size

    def test_without_memcmp_the_figures_are_the_same(self, monkeypatch):
        monkeypatch.setattr(_dtypes, "_memcmp", lambda: None)
        r = np.arange(6, dtype=np.float32)
        assert difference(r, r.copy()).equal
        assert close(r, r.copy(), atol=0.0, rtol=0.0)

    def test_misaligned_and_read_only_arrays(self):
        raw = np.frombuffer(b"x" + np.arange(9, dtype=np.float32).tobytes(), np.float32, offset=1)
        assert difference(raw, np.arange(9, dtype=np.float32)).equal
        assert difference(raw, raw + 1).max_abs == 1.0

    def test_a_modulus_is_the_error_of_complex_numbers(self):
        seen = difference(np.array([1 + 1j], np.complex64), np.array([4 + 5j], np.complex64))
        assert seen.max_abs == pytest.approx(5)
        assert seen.rel_l2 == pytest.approx(5 / math.sqrt(2))

    @pytest.mark.parametrize("count", [65_537, 3_000_000])
    @pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64", "int64", "complex64"])
    def test_memory_stays_in_chunks(self, name, count):
        r = (np.arange(count, dtype=np.float32) % 1000).astype(dtype_of(name))
        c = -r
        difference(r, c)
        tracemalloc.start()
        difference(r, c)
        tallied(r, c)
        close(r, c, atol=1e38, rtol=0.0)
        difference(r[::2], c[::2])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2.5 * MIB


class TestWrongInput:
    def test_an_unknown_mode_names_the_choices(self):
        with pytest.raises(ValueError, match="'median', expected one of 'strict', 'mean'"):
            close([1.0], [1.0], atol=0.0, rtol=0.0, mode="median")

    @pytest.mark.parametrize("atol", [-1.0, math.nan])
    def test_a_tolerance_below_zero(self, atol):
        with pytest.raises(ValueError, match="expected both to be 0 or more"):
            close([1.0], [1.0], atol=atol, rtol=0.0)

    @pytest.mark.parametrize("dtype", ["U3", "O", "V4", "M8[s]", [("a", "f4")]])
    def test_what_is_no_number(self, dtype):
        with pytest.raises(TypeError, match=r"candidate has dtype .*, expected numbers"):
            difference(np.ones(3), np.zeros(3, dtype))


class TestSample:
    @pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
    def test_it_is_a_few_float64(self, name):
        array = np.ones((30, 40), dtype_of(name))
        assert sample(array).dtype == np.float64
        assert sample(array, 16).size == (32 if array.dtype.kind == "c" else 16)

    @given(st.integers(65, 5000), st.integers(1, 64))
    def test_places_are_spread_and_fixed(self, size, count):
        places = sample(np.arange(size), count)
        assert places.size == count
        assert np.array_equal(places, sample(np.arange(size), count))
        assert np.abs(places * count / size - np.arange(count)).max() <= 1
        assert places.max() < size

    def test_layout_does_not_matter(self):
        array = np.random.default_rng(0).standard_normal((50, 60))
        for layout in LAYOUTS:
            assert np.array_equal(sample(array), sample(laid_out(array, layout)))

    def test_it_does_not_look_at_one_column(self):
        columns = np.tile(np.arange(64), (64, 1))
        assert np.unique(sample(columns)).size > 32


@pytest.mark.filterwarnings("error")
def test_the_same_numbers_may_be_complex_or_infinite() -> None:
    mask = np.triu(np.full((4, 4), -np.inf, np.float32), 1) + np.float32(0.5)
    mask[3, 0] = np.inf
    turned = np.arange(16).reshape(4, 4) + 1j * np.arange(16)[::-1].reshape(4, 4)
    for one, other in ((mask, mask[1:, 1:]), (turned, turned.conj())):
        assert same_numbers(one, one[None])
        assert not same_numbers(one, other)
    assert not same_numbers(mask, np.where(mask == np.inf, np.float32(0), mask))
