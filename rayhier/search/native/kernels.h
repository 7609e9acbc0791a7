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
// Products of the codes of some rows and a query of four bit planes, of which the last counts -8.
using Products = void (*)(const std::uint64_t *codes, const std::uint32_t *rows, std::size_t count,
                          const std::uint64_t *planes, int words, int bits, std::int32_t *product);

struct Kernels {
    Dot16 dot16;
    Dot32 dot32;
    Products products;
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

inline void products(const std::uint64_t *codes, const std::uint32_t *rows, std::size_t count,
                     const std::uint64_t *planes, int words, int bits, std::int32_t *product) {
    for (std::size_t place = 0; place < count; ++place) {
        const std::uint64_t *code = codes + std::size_t(rows[place]) * bits * words;
        std::int32_t sum = 0;
        for (int bit = 0; bit < bits; ++bit, code += words)
            for (int plane = 0; plane < 4; ++plane) {
                std::int32_t both = 0;
                for (int i = 0; i < words; ++i) both += __builtin_popcountll(code[i] & planes[plane * words + i]);
                sum += (plane == 3 ? -8 : 1 << plane) * both * (1 << bit);
            }
        product[place] = sum;
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

AVX2 inline void products(const std::uint64_t *codes, const std::uint32_t *rows, std::size_t count,
                          const std::uint64_t *planes, int words, int bits, std::int32_t *product) {
    for (std::size_t place = 0; place < count; ++place) {
        const std::uint64_t *code = codes + std::size_t(rows[place]) * bits * words;
        std::int64_t sum = 0;
        for (int bit = 0; bit < bits; ++bit, code += words) {
            std::int64_t both[4] = {};
            for (int i = 0; i < words; ++i)
                for (int plane = 0; plane < 4; ++plane)
                    both[plane] += _mm_popcnt_u64(code[i] & planes[plane * words + i]);
            sum += (both[0] + 2 * both[1] + 4 * both[2] - 8 * both[3]) << bit;
        }
        product[place] = static_cast<std::int32_t>(sum);
    }
}

}  // namespace avx2

namespace avx512 {
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq,fma,f16c")))

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

AVX512 inline void products(const std::uint64_t *codes, const std::uint32_t *rows, std::size_t count,
                            const std::uint64_t *planes, int words, int bits, std::int32_t *product) {
    for (std::size_t place = 0; place < count; ++place) {
        const std::uint64_t *code = codes + std::size_t(rows[place]) * bits * words;
        if (place + 8 < count) _mm_prefetch(codes + std::size_t(rows[place + 8]) * bits * words, _MM_HINT_T0);
        __m512i sum = _mm512_setzero_si512();
        for (int i = 0; i < words; i += 8) {
            const __mmask8 here = words - i >= 8 ? 0xff : (1u << (words - i)) - 1;
            __m512i plane[4];
            for (int j = 0; j < 4; ++j) plane[j] = _mm512_maskz_loadu_epi64(here, planes + j * words + i);
            for (int bit = 0; bit < bits; ++bit) {
                const __m512i part = _mm512_maskz_loadu_epi64(here, code + bit * words + i);
                const auto both = [&](int j) AVX512 { return _mm512_popcnt_epi64(_mm512_and_si512(part, plane[j])); };
                const __m512i low = _mm512_add_epi64(both(0), _mm512_slli_epi64(both(1), 1));
                const __m512i high = _mm512_sub_epi64(_mm512_slli_epi64(both(2), 2), _mm512_slli_epi64(both(3), 3));
                sum = _mm512_add_epi64(sum, _mm512_slli_epi64(_mm512_add_epi64(low, high), bit));
            }
        }
        product[place] = static_cast<std::int32_t>(_mm512_reduce_add_epi64(sum));
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
        __builtin_cpu_supports("avx512vpopcntdq"))
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
        if (used == "avx512") return {avx512::dot16, avx512::dot32, avx512::products};
        if (used == "avx2") return {avx2::dot16, avx2::dot32, avx2::products};
#endif
        return {portable::dot16, portable::dot32, portable::products};
    }
    throw std::invalid_argument("kernel: got " + name + ", which this processor cannot run");
}
