// Inner loops, one form for each set of a processor's instructions, of which `kernels_named` takes the best at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

using Dot16 = float (*)(const std::uint16_t *, const float *, int);
using Dot32 = float (*)(const float *, const float *, int);
constexpr int BLOCK = 4;

// Two bits for each dimension of rows. They lie in blocks of four rows. A block has 64 bytes for each group of 64
// dimensions: 16 of each row. Byte b has dimensions b, 16 + b, 32 + b and 48 + b of the group, the first in the lowest bits.
struct Coded {
    const std::uint8_t *codes;
    const float *terms;  // [n, 2]: scale and shift
    int groups;

    const std::uint8_t *block_of(std::uint32_t row) const { return codes + std::size_t(row / BLOCK) * groups * 64; }
};

// A query rounded to 8 bits, with the terms that its scores of all rows of a file share.
struct Rounded {
    const std::int8_t *numbers;  // 64 bytes for each 16 dimensions: four times the same. Aligned, since that is faster.
    float base, step, middle;

    float score(const float *terms, std::int32_t product) const {
        return base + terms[1] + terms[0] * step * (float(product) - middle);
    }
};

// Scores of some rows, about, by their codes.
using Scores = void (*)(const Coded &file, const std::uint32_t *rows, std::size_t count, const Rounded &query, float *score);

struct Kernels {
    Dot16 dot16;
    Dot32 dot32;
    Scores scores;
};

namespace portable {

inline float from_half(std::uint16_t half) {
    const std::uint32_t sign = std::uint32_t(half & 0x8000) << 16, rest = half & 0x7fff;
    std::uint32_t bits;
    if (rest >= 0x7c00)
        bits = sign | 0x7f800000 | (rest & 0x3ff) << 13;
    else if (rest >= 0x400)
        bits = sign | ((rest << 13) + (112u << 23));
    else {  // below the least normal number
        const float value = float(rest) * 0x1p-24f;
        std::memcpy(&bits, &value, 4);
        bits |= sign;
    }
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline float dot16(const std::uint16_t *row, const float *query, int m) {
    float sum[8] = {};
    int i = 0;
    for (; i + 8 <= m; i += 8)
        for (int lane = 0; lane < 8; ++lane) sum[lane] += from_half(row[i + lane]) * query[i + lane];
    for (; i < m; ++i) sum[0] += from_half(row[i]) * query[i];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

inline float dot32(const float *row, const float *query, int m) {
    float sum[8] = {};
    int i = 0;
    for (; i + 8 <= m; i += 8)
        for (int lane = 0; lane < 8; ++lane) sum[lane] += row[i + lane] * query[i + lane];
    for (; i < m; ++i) sum[0] += row[i] * query[i];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

// Scores the rows from `place` on that are in the block of the row at `place`. Returns the place of the next row.
inline std::size_t take(const Coded &file, const std::uint32_t *rows, std::size_t place, std::size_t count,
                        const Rounded &query, const std::int32_t *product, float *score) {
    const std::uint32_t block = rows[place] / BLOCK;
    for (; place < count && rows[place] / BLOCK == block; ++place)
        score[place] = query.score(file.terms + 2 * std::size_t(rows[place]), product[rows[place] % BLOCK]);
    return place;
}

inline void scores(const Coded &file, const std::uint32_t *rows, std::size_t count, const Rounded &query, float *score) {
    const std::int8_t *numbers = query.numbers;
    for (std::size_t place = 0; place < count;) {
        const std::uint8_t *code = file.block_of(rows[place]);
        std::int32_t product[BLOCK] = {};
        for (int row = 0; row < BLOCK; ++row)
            for (int group = 0; group < file.groups; ++group)
                for (int slot = 0; slot < 4; ++slot)
                    for (int byte = 0; byte < 16; ++byte)
                        product[row] += (code[group * 64 + row * 16 + byte] >> 2 * slot & 3) *
                                        numbers[(group * 4 + slot) * 64 + byte];
        place = take(file, rows, place, count, query, product, score);
    }
}

}  // namespace portable

#if defined(__x86_64__)

namespace avx2 {
#define AVX2 __attribute__((target("avx2,fma,f16c,popcnt")))

AVX2 inline float sum_of(__m256 sum) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}

AVX2 inline float dot16(const std::uint16_t *row, const float *query, int m) {
    __m256 one = _mm256_setzero_ps(), two = _mm256_setzero_ps();
    int i = 0;
    for (; i + 16 <= m; i += 16) {
        const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(row + i));
        one = _mm256_fmadd_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_loadu_ps(query + i), one);
        two = _mm256_fmadd_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)), _mm256_loadu_ps(query + i + 8), two);
    }
    return sum_of(_mm256_add_ps(one, two)) + portable::dot16(row + i, query + i, m - i);
}

AVX2 inline float dot32(const float *row, const float *query, int m) {
    __m256 one = _mm256_setzero_ps(), two = _mm256_setzero_ps();
    int i = 0;
    for (; i + 16 <= m; i += 16) {
        one = _mm256_fmadd_ps(_mm256_loadu_ps(row + i), _mm256_loadu_ps(query + i), one);
        two = _mm256_fmadd_ps(_mm256_loadu_ps(row + i + 8), _mm256_loadu_ps(query + i + 8), two);
    }
    return sum_of(_mm256_add_ps(one, two)) + portable::dot32(row + i, query + i, m - i);
}

AVX2 inline void scores(const Coded &file, const std::uint32_t *rows, std::size_t count, const Rounded &query, float *score) {
    const __m256i first = _mm256_set1_epi8(3), second = _mm256_set1_epi8(12), ones = _mm256_set1_epi16(1);
    for (std::size_t place = 0; place < count;) {
        const std::uint8_t *code = file.block_of(rows[place]);
        std::int32_t product[BLOCK];
        for (int half = 0; half < 2; ++half) {
            __m256i once = _mm256_setzero_si256(), fourfold = once;  // sums of even slots, and of odd slots times 4
            for (int group = 0; group < file.groups; ++group) {
                const auto *of_query = reinterpret_cast<const __m256i *>(query.numbers + group * 256);
                const auto *of_code = reinterpret_cast<const __m256i *>(code + group * 64 + half * 32);
                const __m256i low = _mm256_loadu_si256(of_code), high = _mm256_srli_epi16(low, 4);
                const auto times = [&](__m256i part, __m256i mask, int slot) AVX2 {
                    return _mm256_maddubs_epi16(_mm256_and_si256(part, mask), _mm256_loadu_si256(of_query + 2 * slot));
                };
                const __m256i even = _mm256_add_epi16(times(low, first, 0), times(high, first, 2));
                const __m256i odd = _mm256_add_epi16(times(low, second, 1), times(high, second, 3));
                once = _mm256_add_epi32(once, _mm256_madd_epi16(even, ones));
                fourfold = _mm256_add_epi32(fourfold, _mm256_madd_epi16(odd, ones));
            }
            __m256i sum = _mm256_add_epi32(once, _mm256_srai_epi32(fourfold, 2));
            sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0x4e));
            sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0xb1));
            product[2 * half] = _mm256_extract_epi32(sum, 0);
            product[2 * half + 1] = _mm256_extract_epi32(sum, 4);
        }
        place = portable::take(file, rows, place, count, query, product, score);
    }
}

}  // namespace avx2

namespace avx512 {
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")))
#define AVX512_INLINE AVX512 __attribute__((always_inline)) inline  // a call would load all constants again

AVX512 inline float dot16(const std::uint16_t *row, const float *query, int m) {
    __m512 one = _mm512_setzero_ps(), two = _mm512_setzero_ps();
    int i = 0;
    for (; i + 32 <= m; i += 32) {
        const __m256i *halves = reinterpret_cast<const __m256i *>(row + i);
        one = _mm512_fmadd_ps(_mm512_cvtph_ps(_mm256_loadu_si256(halves)), _mm512_loadu_ps(query + i), one);
        two = _mm512_fmadd_ps(_mm512_cvtph_ps(_mm256_loadu_si256(halves + 1)), _mm512_loadu_ps(query + i + 16), two);
    }
    for (; i < m; i += 16) {
        const __mmask16 here = m - i >= 16 ? 0xffff : (1u << (m - i)) - 1;
        const __m512 part = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(here, row + i));
        one = _mm512_fmadd_ps(part, _mm512_maskz_loadu_ps(here, query + i), one);
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(one, two));
}

AVX512 inline float dot32(const float *row, const float *query, int m) {
    __m512 one = _mm512_setzero_ps(), two = _mm512_setzero_ps();
    int i = 0;
    for (; i + 32 <= m; i += 32) {
        one = _mm512_fmadd_ps(_mm512_loadu_ps(row + i), _mm512_loadu_ps(query + i), one);
        two = _mm512_fmadd_ps(_mm512_loadu_ps(row + i + 16), _mm512_loadu_ps(query + i + 16), two);
    }
    for (; i < m; i += 16) {
        const __mmask16 here = m - i >= 16 ? 0xffff : (1u << (m - i)) - 1;
        one = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(here, row + i), _mm512_maskz_loadu_ps(here, query + i), one);
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(one, two));
}

// Products of the four rows of each of some blocks, one block after another, which share the query's loads.
template <int BLOCKS>
AVX512_INLINE void products(const std::uint8_t *codes, const Coded &file, const Rounded &query, __m128i *product) {
    const std::ptrdiff_t size = std::ptrdiff_t(file.groups) * 64;
    const std::int8_t *numbers = query.numbers;
    __m512i sum[BLOCKS][4] = {};  // of slot s, times 4 to the power of s
    for (const std::uint8_t *end = codes + size; codes < end; codes += 64, numbers += 256) {
        __m512i part[BLOCKS];
        for (int block = 0; block < BLOCKS; ++block) {
            part[block] = _mm512_loadu_si512(codes + block * size);
            _mm_prefetch(codes + (block + 8) * size, _MM_HINT_T0);
        }
        for (int slot = 0; slot < 4; ++slot) {
            const __m512i two_bits = _mm512_set1_epi8(static_cast<char>(3 << 2 * slot));
            const __m512i of_query = _mm512_loadu_si512(numbers + slot * 64);
            for (int block = 0; block < BLOCKS; ++block)
                sum[block][slot] = _mm512_dpbusd_epi32(sum[block][slot], _mm512_and_si512(part[block], two_bits), of_query);
        }
    }
    for (int block = 0; block < BLOCKS; ++block) {
        __m512i all = _mm512_add_epi32(sum[block][0], _mm512_srai_epi32(sum[block][1], 2));
        all = _mm512_add_epi32(all, _mm512_srai_epi32(sum[block][2], 4));
        all = _mm512_add_epi32(all, _mm512_srai_epi32(sum[block][3], 6));
        all = _mm512_add_epi32(all, _mm512_shuffle_epi32(all, _MM_PERM_BADC));
        all = _mm512_add_epi32(all, _mm512_shuffle_epi32(all, _MM_PERM_CDAB));
        product[block] = _mm512_castsi512_si128(_mm512_maskz_compress_epi32(0x1111, all));
    }
}

AVX512_INLINE void score_block(const float *terms, __m128i product, const Rounded &query, float *score) {
    const __m128 low = _mm_loadu_ps(terms), high = _mm_loadu_ps(terms + 4);
    const __m128 scale = _mm_mul_ps(_mm_shuffle_ps(low, high, 0x88), _mm_set1_ps(query.step));
    const __m128 shift = _mm_add_ps(_mm_shuffle_ps(low, high, 0xdd), _mm_set1_ps(query.base));
    const __m128 centred = _mm_sub_ps(_mm_cvtepi32_ps(product), _mm_set1_ps(query.middle));
    _mm_storeu_ps(score, _mm_add_ps(shift, _mm_mul_ps(scale, centred)));
}

AVX512 inline void scores(const Coded &file, const std::uint32_t *rows, std::size_t count, const Rounded &query,
                          float *score) {
    __m128i product[2];
    const __m256i after = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (std::size_t place = 0; place < count;) {
        const std::uint32_t row = rows[place];
        bool are_two = row % BLOCK == 0 && place + 2 * BLOCK <= count;
        if (are_two) {  // and row after row: leaves come in any order
            const __m256i next = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(rows + place));
            are_two = _mm256_cmpeq_epi32_mask(next, _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(row)), after)) == 0xff;
        }
        if (are_two) {
            products<2>(file.block_of(row), file, query, product);
            for (int block = 0; block < 2; ++block, place += BLOCK)
                score_block(file.terms + 2 * std::size_t(rows[place]), product[block], query, score + place);
        } else {
            if (place + 8 < count)
                for (int group = 0; group < file.groups; ++group)
                    _mm_prefetch(file.block_of(rows[place + 8]) + group * 64, _MM_HINT_T0);
            products<1>(file.block_of(row), file, query, product);
            std::int32_t of_block[BLOCK];
            _mm_storeu_si128(reinterpret_cast<__m128i *>(of_block), product[0]);
            place = portable::take(file, rows, place, count, query, of_block, score);
        }
    }
}

}  // namespace avx512

#endif

inline std::vector<std::string> kernel_names() {
    std::vector<std::string> names;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool two = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
                     __builtin_cpu_supports("popcnt");
    if (two && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni"))
        names.push_back("avx512");
    if (two) names.push_back("avx2");
#endif
    names.push_back("portable");
    return names;
}

inline Kernels kernels_named(const std::string &name) {
    static const std::vector<std::string> names = kernel_names();
    const std::string &used = name == "best" ? names.front() : name;
    for (const auto &each : names) {
        if (each != used) continue;
#if defined(__x86_64__)
        if (used == "avx512") return {avx512::dot16, avx512::dot32, avx512::scores};
        if (used == "avx2") return {avx2::dot16, avx2::dot32, avx2::scores};
#endif
        return {portable::dot16, portable::dot32, portable::scores};
    }
    throw std::invalid_argument("kernel: got " + name + ", which this processor cannot run");
}
