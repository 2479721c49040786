/* XXH64, XXH3-64 and XXH3-128, without a seed, of bytes that are there at once.

   Written from the published specification of the algorithms (xxHash, doc/xxhash_spec.md). Words are read in
   little-endian order on every machine. A hash of many pieces is left to the package xxhash. */
#ifndef DRIFT_HASH_H
#define DRIFT_HASH_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef struct { u64 low, high; } hash128;

#define P32_1 0x9E3779B1u
#define P32_2 0x85EBCA77u
#define P32_3 0xC2B2AE3Du
#define P64_1 0x9E3779B185EBCA87ull
#define P64_2 0xC2B2AE3D27D4EB4Full
#define P64_3 0x165667B19E3779F9ull
#define P64_4 0x85EBCA77C2B2AE63ull
#define P64_5 0x27D4EB2F165667C5ull
#define MIX_1 0x165667919E3779F9ull
#define MIX_2 0x9FB21C651E98DF25ull

static const u8 SECRET[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static inline u64 swap64(u64 x) { return __builtin_bswap64(x); }
static inline u64 le64(const u8 *p) {
    u64 x;
    memcpy(&x, p, 8);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? x : __builtin_bswap64(x);
}
static inline u32 le32(const u8 *p) {
    u32 x;
    memcpy(&x, p, 4);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? x : __builtin_bswap32(x);
}
static inline u64 secret(size_t at) { return le64(SECRET + at); }
static inline u64 left(u64 x, int by) { return x << by | x >> (64 - by); }

/* The product of two words, as two. */
static inline hash128 product(u64 a, u64 b) {
    hash128 made;
#ifdef __SIZEOF_INT128__
    unsigned __int128 whole = (unsigned __int128)a * b;
    made.low = (u64)whole;
    made.high = (u64)(whole >> 64);
#else
    u64 al = (u32)a, ah = a >> 32, bl = (u32)b, bh = b >> 32;
    u64 middle = ah * bl + (al * bl >> 32), other = al * bh + (u32)middle;
    made.low = a * b;
    made.high = ah * bh + (middle >> 32) + (other >> 32);
#endif
    return made;
}
static inline u64 folded(u64 a, u64 b) {
    hash128 both = product(a, b);
    return both.low ^ both.high;
}

static inline u64 avalanche64(u64 x) {
    x = (x ^ x >> 33) * P64_2;
    x = (x ^ x >> 29) * P64_3;
    return x ^ x >> 32;
}
static inline u64 avalanche3(u64 x) {
    x = (x ^ x >> 37) * MIX_1;
    return x ^ x >> 32;
}

static inline u64 lane64(u64 sum, u64 word) { return left(sum + word * P64_2, 31) * P64_1; }

static u64 drift_xxh64(const u8 *data, size_t size) {
    const u8 *p = data, *end = data + size;
    u64 sum = P64_5;
    if (size >= 32) {
        u64 lanes[4] = {P64_1 + P64_2, P64_2, 0, (u64)0 - P64_1};
        for (; end - p >= 32; p += 32)
            for (int i = 0; i < 4; i++) lanes[i] = lane64(lanes[i], le64(p + 8 * i));
        sum = left(lanes[0], 1) + left(lanes[1], 7) + left(lanes[2], 12) + left(lanes[3], 18);
        for (int i = 0; i < 4; i++) sum = (sum ^ lane64(0, lanes[i])) * P64_1 + P64_4;
    }
    sum += size;
    for (; end - p >= 8; p += 8) sum = left(sum ^ lane64(0, le64(p)), 27) * P64_1 + P64_4;
    if (end - p >= 4) {
        sum = left(sum ^ le32(p) * P64_1, 23) * P64_2 + P64_3;
        p += 4;
    }
    for (; p < end; p++) sum = left(sum ^ *p * P64_5, 11) * P64_1;
    return avalanche64(sum);
}

static inline u64 mixed(const u8 *p, size_t at, u64 seed) {
    return folded(le64(p) ^ (secret(at) + seed), le64(p + 8) ^ (secret(at + 8) - seed));
}
static inline void mix_two(hash128 *sum, const u8 *p, const u8 *q, size_t at, u64 seed) {
    sum->low = (sum->low + mixed(p, at, seed)) ^ (le64(q) + le64(q + 8));
    sum->high = (sum->high + mixed(q, at + 16, seed)) ^ (le64(p) + le64(p + 8));
}

static void accumulate(u64 *restrict sums, const u8 *restrict stripe, const u8 *restrict key) {
    for (int i = 0; i < 8; i++) {
        u64 word = le64(stripe + 8 * i), value = word ^ le64(key + 8 * i);
        sums[i ^ 1] += word;
        sums[i] += (u64)(u32)value * (value >> 32);
    }
}
static u64 merged(const u64 *sums, u64 start, size_t at) {
    for (int i = 0; i < 8; i += 2) start += folded(sums[i] ^ secret(at + 8 * i), sums[i + 1] ^ secret(at + 8 * i + 8));
    return avalanche3(start);
}
/* The eight sums of more than 240 bytes. */
static void summed(u64 *sums, const u8 *data, size_t size) {
    const u64 starts[8] = {P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1};
    const u8 *p = data;
    memcpy(sums, starts, sizeof starts);
    for (; (size_t)(data + size - p) > 1024; p += 1024) {
        for (int n = 0; n < 16; n++) accumulate(sums, p + 64 * n, SECRET + 8 * n);
        for (int i = 0; i < 8; i++) sums[i] = (sums[i] ^ sums[i] >> 47 ^ secret(128 + 8 * i)) * P32_1;
    }
    for (size_t n = 0, full = ((size_t)(data + size - p) - 1) / 64; n < full; n++)
        accumulate(sums, p + 64 * n, SECRET + 8 * n);
    accumulate(sums, data + size - 64, SECRET + 121);
}

static inline u32 few(const u8 *p, size_t size) {
    return p[size - 1] | (u32)size << 8 | (u32)p[0] << 16 | (u32)p[size >> 1] << 24;
}

static u64 drift_xxh3_64(const u8 *p, size_t size) {
    if (size > 240) {
        u64 sums[8];
        summed(sums, p, size);
        return merged(sums, size * P64_1, 11);
    }
    if (size > 16) {
        u64 sum = size * P64_1;
        if (size <= 128) {
            for (int i = (int)((size - 1) >> 5); i >= 0; i--)
                sum += mixed(p + 16 * i, 32 * i, 0) + mixed(p + size - 16 * i - 16, 32 * i + 16, 0);
            return avalanche3(sum);
        }
        for (size_t i = 0; i < 8; i++) sum += mixed(p + 16 * i, 16 * i, 0);
        sum = avalanche3(sum);
        for (size_t i = 8; i < size >> 4; i++) sum += mixed(p + 16 * i, 16 * i - 125, 0);
        return avalanche3(sum + mixed(p + size - 16, 119, 0));
    }
    if (size > 8) {
        u64 low = secret(24) ^ secret(32) ^ le64(p), high = secret(40) ^ secret(48) ^ le64(p + size - 8);
        return avalanche3(size + swap64(low) + high + folded(low, high));
    }
    if (size >= 4) {
        u64 value = secret(8) ^ secret(16) ^ (le32(p + size - 4) | (u64)le32(p) << 32);
        value = (value ^ left(value, 49) ^ left(value, 24)) * MIX_2;
        value = (value ^ ((value >> 35) + size)) * MIX_2;
        return value ^ value >> 28;
    }
    if (size) return avalanche64((u64)(le32(SECRET) ^ le32(SECRET + 4)) ^ few(p, size));
    return avalanche64(secret(56) ^ secret(64));
}

static hash128 drift_xxh3_128(const u8 *p, size_t size) {
    hash128 sum;
    if (size > 240) {
        u64 sums[8];
        summed(sums, p, size);
        sum.low = merged(sums, size * P64_1, 11);
        sum.high = merged(sums, ~(size * P64_2), 117);
        return sum;
    }
    if (size > 16) {
        u64 low;
        sum.low = size * P64_1;
        sum.high = 0;
        if (size <= 128) {
            for (int i = (int)((size - 1) >> 5); i >= 0; i--)
                mix_two(&sum, p + 16 * i, p + size - 16 * i - 16, 32 * i, 0);
        } else {
            for (size_t i = 0; i < 4; i++) mix_two(&sum, p + 32 * i, p + 32 * i + 16, 32 * i, 0);
            sum.low = avalanche3(sum.low);
            sum.high = avalanche3(sum.high);
            for (size_t i = 4; i < size >> 5; i++) mix_two(&sum, p + 32 * i, p + 32 * i + 16, 32 * i - 125, 0);
            mix_two(&sum, p + size - 16, p + size - 32, 103, 0);
        }
        low = sum.low + sum.high;
        sum.high = (u64)0 - avalanche3(sum.low * P64_1 + sum.high * P64_4 + size * P64_2);
        sum.low = avalanche3(low);
        return sum;
    }
    if (size > 8) {
        u64 last = le64(p + size - 8), two = secret(48) ^ secret(56) ^ last;
        sum = product(secret(32) ^ secret(40) ^ le64(p) ^ last, P64_1);
        sum.low += (u64)(size - 1) << 54;
        sum.high += two + (u64)(u32)two * (P32_2 - 1);
        sum.low ^= swap64(sum.high);
        two = sum.high * P64_2;
        sum = product(sum.low, P64_2);
        sum.low = avalanche3(sum.low);
        sum.high = avalanche3(sum.high + two);
        return sum;
    }
    if (size >= 4) {
        u64 value = secret(16) ^ secret(24) ^ (le32(p) | (u64)le32(p + size - 4) << 32);
        sum = product(value, P64_1 + (size << 2));
        sum.high += sum.low << 1;
        sum.low ^= sum.high >> 3;
        sum.low = (sum.low ^ sum.low >> 35) * MIX_2;
        sum.low ^= sum.low >> 28;
        sum.high = avalanche3(sum.high);
        return sum;
    }
    if (size) {
        u32 both = few(p, size), turned = __builtin_bswap32(both);
        sum.low = avalanche64((u64)(le32(SECRET) ^ le32(SECRET + 4)) ^ both);
        sum.high = avalanche64((u64)(le32(SECRET + 8) ^ le32(SECRET + 12)) ^ (u32)(turned << 13 | turned >> 19));
        return sum;
    }
    sum.low = avalanche64(secret(64) ^ secret(72));
    sum.high = avalanche64(secret(80) ^ secret(88));
    return sum;
}

static inline void put_be64(u8 *p, u64 x) {
    x = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap64(x) : x;
    memcpy(p, &x, 8);
}
static inline void put_hash128(u8 *p, const u8 *data, size_t size) {
    hash128 found = drift_xxh3_128(data, size);
    put_be64(p, found.high);
    put_be64(p + 8, found.low);
}
#endif
