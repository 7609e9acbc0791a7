// The scan of rows in lists: see docs/adr/0024-a-native-scan.md. `reference.py` has the same in numpy, and is its oracle.
//
// A row has a code: two bits for each dimension of its distance from the center of its file. A query is rounded to 8 bits.
// The best `listed` rows by codes are scored again by their vectors.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "kernels.h"
#include "threads.h"

namespace py = pybind11;
namespace {

constexpr std::int64_t TOGETHER = 64;  // most queries that go from leaf to leaf together

template <class T> using Array = py::array_t<T, py::array::c_style>;  // no forcecast: another type is an error

struct File {
    const void *vectors;  // [n, m] of 16 or 32 bits
    bool half;
    Coded coded;
    const float *centers;                 // [2, m]: of the rows, and where queries lie
    const float *bias = nullptr;          // [n], added to each score
    const std::int64_t *lower = nullptr;  // [n], first leaf of the document of a row in a second leaf, else -1
    std::int64_t first, count;             // number of the first row, and of rows
};

struct List {
    std::int32_t file;
    std::int64_t begin, size;  // rows of the file
};

// A row with its score: of two, the better one is the larger. Ties are in the order of rows. 0 has a score that is NaN.
using Scored = std::uint64_t;

Scored scored(float score, std::uint32_t row) {
    std::uint32_t bits;
    std::memcpy(&bits, &score, 4);
    bits = bits >> 31 ? ~bits : bits | 0x80000000;
    return score == score ? Scored(bits) << 32 | ~row : 0;
}

std::uint32_t row_of(Scored scored) { return ~static_cast<std::uint32_t>(scored); }

float score_of(Scored scored) {
    std::uint32_t bits = scored >> 32;
    bits = bits >> 31 ? bits & 0x7fffffff : ~bits;
    float score;
    std::memcpy(&score, &bits, 4);
    return score;
}

// The best `most` of the rows that are pushed.
class Best {
  public:
    void reset(std::size_t most) {
        most_ = most;
        least_ = 1;
        size_ = 0;
        rows_.resize(4 * most + 64);
    }
    // Pushes some rows, numbered from `first` on, with their scores.
    void push(const float *scores, const std::uint32_t *rows, std::size_t count, std::uint32_t first) {
        for (std::size_t place = 0; place < count;) {
            const float least = least_ > 1 ? score_of(least_) : -std::numeric_limits<float>::infinity();
            bool any = place + 16 > count || size_ < most_;
            if (!any)
                for (std::size_t next = place; next < place + 16; ++next) any |= scores[next] >= least;
            if (!any) {
                place += 16;
                continue;
            }
            Scored *end = rows_.data() + size_;
            const std::size_t most = std::min(std::min(count, place + 16), place + rows_.size() - size_);
            for (; place < most; ++place) {  // without a branch, which a processor would often predict wrongly
                *end = scored(scores[place], first + rows[place]);
                end += *end >= least_;
            }
            size_ = end - rows_.data();
            if (size_ == rows_.size()) cut();
        }
    }
    void finish(bool in_order) {
        if (size_ > most_) cut();
        if (in_order) std::sort(begin(), end(), std::greater<Scored>());
    }
    Scored *begin() { return rows_.data(); }
    Scored *end() { return rows_.data() + size_; }
    std::size_t size() const { return size_; }

  private:
    // Drops all but the best, by quickselect without branches.
    void cut() {
        Scored *first = begin(), *last = end(), *const cut = first + most_;  // the rows before `first` stay
        while (first < cut && cut < last) {
            Scored *const three[] = {first, first + (last - first) / 2, last - 1};
            const Scored low = std::min(*three[0], *three[1]), high = std::max(*three[0], *three[1]);
            const Scored median = std::max(low, std::min(high, *three[2]));
            for (Scored *const one : three)
                if (*one == median) std::swap(*first, *one);
            Scored *end = first + 1;
            for (Scored *next = end; next < last; ++next) {
                const Scored value = *next;
                *next = *end;
                *end = value;
                end += value > *first;
            }
            std::swap(*first, end[-1]);
            if (end > cut)
                last = std::max(end - 1, cut);
            else
                first = end;
        }
        size_ = most_;
        if (most_) least_ = *std::min_element(begin(), end());
    }
    std::vector<Scored> rows_;
    std::size_t most_ = 0, size_ = 0;
    Scored least_ = 1;
};

// How often this thread waited for a disk.
long page_reads() {
#if defined(__linux__)
    rusage used;
    return getrusage(RUSAGE_THREAD, &used) ? 0 : used.ru_majflt;
#else
    return 0;
#endif
}

// A call of `scan`: queries [q, m], leaves [q, beam] or null for all, and its results.
struct Call {
    Kernels kernels;
    const float *queries;
    const std::int64_t *leaves;
    std::int64_t beam, k, most;
    const bool *kept;
    std::int64_t *rows, *compared;
    float *scores;
};

// What one thread needs for a query.
struct Query {
    const float *numbers;
    bool by_codes, is_rounded;  // the latter: for the file that is compared
    std::int64_t compared;
    std::vector<std::uint64_t> visited;  // a bit for each leaf
    std::vector<std::int8_t> steps, copies;
    Rounded rounded;
    Best listed, best;

    bool visits(std::int64_t leaf) const { return visited[leaf / 64] >> leaf % 64 & 1; }
};

// A query's visit to a leaf, of which the lists from `list` on were not compared yet.
struct Visit {
    std::int64_t leaf;
    std::uint32_t query;
    std::size_t list;
    bool operator<(const Visit &other) const { return std::tie(leaf, query) < std::tie(other.leaf, other.query); }
};

// What one thread needs for a group of queries.
struct Scratch {
    std::vector<Query> queries;
    std::vector<Visit> visits;
    std::vector<std::uint32_t> rows;
    std::vector<float> score;
};

class CodedRows {
  public:
    // Files: (vectors, codes, terms, centers, bias, leaves, sizes, lower). No query compares the rows of leaf -1.
    CodedRows(int dimension, std::int64_t leaf_count, const std::vector<py::tuple> &files)
        : m_(dimension), groups_((dimension + 63) / 64) {
        if (m_ < 1) throw std::invalid_argument("dimension: allowed: from 1");
        if (leaf_count < 0) throw std::invalid_argument("leaves: allowed: from 0");
        std::vector<std::vector<List>> lists(leaf_count);
        std::int64_t first = 0;
        for (const auto &parts : files) {
            File file{};
            auto vectors = parts[0].cast<py::array>();
            if (vectors.ndim() != 2 || vectors.shape(1) != m_ || !(vectors.flags() & py::array::c_style))
                throw std::invalid_argument("vectors: allowed: rows of the dimension, one after another");
            file.half = vectors.dtype().kind() == 'f' && vectors.itemsize() == 2;
            if (!file.half && !py::isinstance<py::array_t<float>>(vectors))
                throw std::invalid_argument("vectors: allowed: numbers of 16 or 32 bits");
            file.vectors = vectors.data();
            file.first = first;
            file.count = vectors.shape(0);
            if (first + file.count > std::numeric_limits<std::uint32_t>::max())
                throw std::invalid_argument("vectors: allowed: fewer than 2^32 rows");
            keep_.push_back(vectors);
            file.coded.codes = data<std::uint8_t>(parts[1], (file.count + BLOCK - 1) / BLOCK * groups_ * 64, "codes");
            file.coded.terms = data<float>(parts[2], 2 * file.count, "terms");
            file.coded.groups = groups_;
            file.centers = data<float>(parts[3], 2 * m_, "centers");
            if (!parts[4].is_none()) file.bias = data<float>(parts[4], file.count, "bias");
            if (!parts[7].is_none()) file.lower = data<std::int64_t>(parts[7], file.count, "lower");
            auto leaves = parts[5].cast<Array<std::int64_t>>(), sizes = parts[6].cast<Array<std::int64_t>>();
            if (leaves.size() != sizes.size()) throw std::invalid_argument("sizes: allowed: one for each leaf");
            std::int64_t begin = 0;
            for (py::ssize_t number = 0; number < leaves.size(); ++number) {
                const std::int64_t leaf = leaves.data()[number], size = sizes.data()[number];
                if (leaf >= leaf_count || size < 0 || size > file.count - begin)
                    throw std::invalid_argument("sizes: got more rows than the file has, or an unknown leaf");
                if (size && leaf >= 0) lists[leaf].push_back({static_cast<std::int32_t>(files_.size()), begin, size});
                begin += size;
            }
            files_.push_back(file);
            first_.push_back(first);
            first += file.count;
        }
        count_ = first;
        for (const auto &of_leaf : lists) {
            begin_.push_back(lists_.size());
            lists_.insert(lists_.end(), of_leaf.begin(), of_leaf.end());
        }
        begin_.push_back(lists_.size());
        runs_ = lists_;
        std::sort(runs_.begin(), runs_.end(), [](const List &a, const List &b) { return std::tie(a.file, a.begin) < std::tie(b.file, b.begin); });
        std::size_t last = 0;
        for (std::size_t next = 1; next < runs_.size(); ++next)
            if (runs_[next].file == runs_[last].file && runs_[next].begin == runs_[last].begin + runs_[last].size)
                runs_[last].size += runs_[next].size;
            else
                runs_[++last] = runs_[next];
        if (!runs_.empty()) runs_.resize(last + 1);
        for (const List &run : runs_) in_leaves_ += run.size;
    }

    std::int64_t count() const { return count_; }

    // Rows and scores [q, k] of the best rows, and how many rows were compared [q].
    py::tuple scan(const Array<float> &queries, const py::object &leaves, std::int64_t k, std::int64_t listed,
                   const py::object &keep, int threads, const std::string &kernel) const {
        if (queries.ndim() != 2 || queries.shape(1) != m_) throw std::invalid_argument("queries: allowed: [q, m]");
        if (k < 0 || threads < 1) throw std::invalid_argument("k: allowed: from 0; threads: from 1");
        const Kernels kernels = kernels_named(kernel);
        const std::int64_t q = queries.shape(0), *leaf = nullptr;
        std::int64_t beam = 0;
        Array<std::int64_t> given;
        if (!leaves.is_none()) {
            given = leaves.cast<Array<std::int64_t>>();
            if (given.ndim() != 2 || given.shape(0) != q) throw std::invalid_argument("leaves: allowed: [q, b]");
            leaf = given.data();
            beam = given.shape(1);
        }
        Array<bool> mask;
        const bool *kept = keep.is_none() ? nullptr : (mask = keep.cast<Array<bool>>()).data();
        if (kept && mask.size() != count_) throw std::invalid_argument("keep: allowed: one value for each row");
        Array<std::int64_t> rows({q, k}), compared(q);
        Array<float> scores({q, k});
        auto *row = rows.mutable_data(), *counted = compared.mutable_data();
        auto *score = scores.mutable_data();
        const Call call{kernels, queries.data(), leaf, beam, k, std::max(k, listed), kept, row, counted, score};
        const std::int64_t group = group_of(call, std::max<std::int64_t>(1, q / threads));
        on_threads<Scratch>((q + group - 1) / group, threads, [&](std::int64_t number, Scratch &scratch) {
            search(call, number * group, std::min(q, (number + 1) * group), scratch);
        });
        return py::make_tuple(rows, scores, compared);
    }

    // Inner products [q, t] of queries and the vectors of rows [q, t]. Row -1 gets -inf.
    Array<float> products(const Array<float> &queries, const Array<std::int64_t> &rows) const {
        if (queries.ndim() != 2 || queries.shape(1) != m_) throw std::invalid_argument("queries: allowed: [q, m]");
        if (rows.ndim() != 2 || rows.shape(0) != queries.shape(0)) throw std::invalid_argument("rows: allowed: [q, t]");
        const Kernels kernels = kernels_named("best");
        Array<float> products({rows.shape(0), rows.shape(1)});
        float *product = products.mutable_data();
        const std::int64_t *row = rows.data(), t = rows.shape(1);
        if (std::any_of(row, row + rows.size(), [&](std::int64_t each) { return each < -1 || each >= count_; }))
            throw std::invalid_argument("rows: got a row that no file has");
        py::gil_scoped_release release;
        for (std::int64_t place = 0; place < rows.size(); ++place) {
            product[place] = -std::numeric_limits<float>::infinity();
            if (row[place] < 0) continue;
            const File &file = file_of(row[place]);
            product[place] = exact(kernels, file, queries.data() + place / t * m_, row[place] - file.first);
        }
        return products;
    }

  private:
    template <class T> const T *data(const py::handle &value, std::int64_t size, const char *name) {
        auto array = value.cast<Array<T>>();
        if (array.size() != size) throw std::invalid_argument(std::string(name) + ": got another number of values");
        keep_.push_back(array);
        return array.data();
    }

    // How many queries go from leaf to leaf together. Then a leaf's codes are read once for all, which pays if they are many.
    std::int64_t group_of(const Call &call, std::int64_t most) const {
        const bool pays = call.leaves && count_ >= TOGETHER * known();
        return pays ? std::max<std::int64_t>(1, std::min({most, TOGETHER, 4096 / std::max<std::int64_t>(1, call.most)})) : 1;
    }

    // Searches for the queries from `first` to before `last`.
    void search(const Call &call, std::int64_t first, std::int64_t last, Scratch &scratch) const {
        scratch.visits.clear();
        scratch.queries.resize(std::max<std::size_t>(scratch.queries.size(), last - first));
        for (std::int64_t number = first; number < last; ++number) {
            Query &query = scratch.queries[number - first];
            query.numbers = call.queries + number * m_;
            query.compared = 0;
            query.visited.assign((known() + 63) / 64, call.leaves ? 0 : ~std::uint64_t(0));
            std::int64_t most = call.leaves ? 0 : in_leaves_;
            const auto visit = [&](std::int64_t leaf) {
                if (leaf < 0 || leaf >= known() || query.visits(leaf)) return;
                query.visited[leaf / 64] |= std::uint64_t(1) << leaf % 64;
                for (std::size_t list = begin_[leaf]; list < begin_[leaf + 1]; ++list) most += lists_[list].size;
                scratch.visits.push_back({leaf, static_cast<std::uint32_t>(number - first), begin_[leaf]});
            };
            for (std::int64_t place = 0; call.leaves && place < call.beam; ++place)
                visit(call.leaves[number * call.beam + place]);
            query.by_codes = most > call.most;
            query.best.reset(call.k);
            if (query.by_codes) query.listed.reset(call.most);
        }
        if (last - first > 1) std::sort(scratch.visits.begin(), scratch.visits.end());
        for (std::size_t file = 0; file < files_.size(); ++file) compare(call, file, last - first, scratch);
        for (std::int64_t number = first; number < last; ++number) {
            Query &query = scratch.queries[number - first];
            if (query.by_codes) compare_listed(call.kernels, query, scratch);
            query.best.finish(true);
            call.compared[number] = query.compared;
            std::int64_t *row = call.rows + number * call.k, *const end = row + call.k;
            float *score = call.scores + number * call.k;
            for (const auto found : query.best) *row++ = row_of(found), *score++ = score_of(found);
            std::fill(score, score + (end - row), -std::numeric_limits<float>::infinity());
            std::fill(row, end, -1);
        }
    }

    // Compares the rows of a file in the visited leaves: by codes, or by vectors if these are few.
    void compare(const Call &call, std::size_t number, std::int64_t queries, Scratch &scratch) const {
        const File &file = files_[number];
        for (std::int64_t place = 0; place < queries; ++place) scratch.queries[place].is_rounded = false;
        auto &rows = scratch.rows;
        rows.clear();
        for (std::int64_t place = 0; !call.leaves && place < queries; ++place) {
            for (const List &run : runs_)
                if (run.file == static_cast<std::int32_t>(number)) gather(file, run, call.kept, scratch.queries[place], rows);
            score_rows(call, file, scratch.queries[place], scratch);
        }
        for (std::size_t place = 0; place < scratch.visits.size(); ++place) {
            Visit &visit = scratch.visits[place];
            Query &query = scratch.queries[visit.query];
            for (; visit.list < begin_[visit.leaf + 1] && lists_[visit.list].file == static_cast<std::int32_t>(number); ++visit.list)
                gather(file, lists_[visit.list], call.kept, query, rows);
            if (place + 1 < scratch.visits.size() && scratch.visits[place + 1].query == visit.query) continue;
            score_rows(call, file, query, scratch);
        }
    }

    // Scores the gathered rows of a file for a query, and keeps the best.
    void score_rows(const Call &call, const File &file, Query &query, Scratch &scratch) const {
        auto &rows = scratch.rows;
        if (rows.empty()) return;
        query.compared += rows.size();
        if (query.by_codes && !query.is_rounded) round(call.kernels, file, query);
        scratch.score.resize(rows.size());
        if (query.by_codes) {
            call.kernels.scores(file.coded, rows.data(), rows.size(), query.rounded, scratch.score.data());
            if (file.bias)
                for (std::size_t row = 0; row < rows.size(); ++row) scratch.score[row] += file.bias[rows[row]];
        } else {
            for (std::size_t row = 0; row < rows.size(); ++row)
                scratch.score[row] = exact(call.kernels, file, query.numbers, rows[row]);
        }
        (query.by_codes ? query.listed : query.best).push(scratch.score.data(), rows.data(), rows.size(), file.first);
        rows.clear();
    }

    // Lists the rows of a list to compare: of each document one, where the query visits both of its leaves.
    void gather(const File &file, const List &list, const bool *kept, const Query &query,
                std::vector<std::uint32_t> &rows) const {
        if (!kept && !file.lower) {
            const std::size_t before = rows.size();
            rows.resize(before + list.size);
            std::iota(rows.begin() + before, rows.end(), static_cast<std::uint32_t>(list.begin));
            return;
        }
        for (std::int64_t place = list.begin, end = list.begin + list.size; place < end; ++place) {
            for (std::uint64_t eight; kept && place + 8 <= end; place += 8) {  // a filter may keep few rows
                std::memcpy(&eight, kept + file.first + place, 8);
                if (eight) break;
            }
            if (place == end || (kept && !kept[file.first + place])) continue;
            const std::int64_t lower = file.lower ? file.lower[place] : -1;
            if (lower >= 0 && lower < known() && query.visits(lower)) continue;
            rows.push_back(static_cast<std::uint32_t>(place));
        }
    }

    // Scores the rows that codes listed by their vectors.
    void compare_listed(const Kernels &kernels, Query &query, Scratch &scratch) const {
        query.listed.finish(false);
        each_vector(query.listed, [](const char *vector, std::size_t bytes) {
            for (std::size_t byte = 0; byte < std::min<std::size_t>(bytes, 512); byte += 64)
                __builtin_prefetch(vector + byte);
        });
        thread_local bool is_on_disk = true;
        if (is_on_disk) read_ahead(query.listed);
        const long before = page_reads();
        scratch.rows.clear();
        scratch.score.clear();
        for (const auto found : query.listed) {
            const File &file = file_of(row_of(found));
            scratch.rows.push_back(row_of(found));
            scratch.score.push_back(exact(kernels, file, query.numbers, row_of(found) - file.first));
        }
        query.best.push(scratch.score.data(), scratch.rows.data(), scratch.rows.size(), 0);
        scratch.rows.clear();
        is_on_disk = page_reads() > before;
    }

    std::int64_t known() const { return static_cast<std::int64_t>(begin_.size()) - 1; }

    // Has the system read the vectors from a disk at once: page after page, each would wait for the one before.
    void read_ahead(Best &listed) const {
#if defined(__linux__)
        static const std::uintptr_t page = sysconf(_SC_PAGESIZE);
        each_vector(listed, [](const char *vector, std::size_t bytes) {
            const auto begin = reinterpret_cast<std::uintptr_t>(vector) / page * page;
            madvise(reinterpret_cast<void *>(begin), reinterpret_cast<std::uintptr_t>(vector) + bytes - begin, MADV_WILLNEED);
        });
#endif
    }

    // Calls `use(first byte, bytes)` for the vectors of rows.
    template <class Use> void each_vector(Best &listed, Use use) const {
        for (const auto found : listed) {
            const File &file = file_of(row_of(found));
            const std::size_t bytes = m_ * (file.half ? 2 : 4);
            use(static_cast<const char *>(file.vectors) + (row_of(found) - file.first) * bytes, bytes);
        }
    }

    const File &file_of(std::int64_t row) const {
        std::size_t number = 0;
        if (files_.size() > 1)
            number = std::upper_bound(first_.begin(), first_.end(), row) - first_.begin() - 1;
        return files_[number];
    }

    // Rounds a query's difference from the center of a file's queries to -127 ... 127 steps.
    void round(const Kernels &kernels, const File &file, Query &query) const {
        query.is_rounded = true;
        const float *center = file.centers + m_;
        float largest = 0;
        for (int i = 0; i < m_; ++i) largest = std::max(largest, std::fabs(query.numbers[i] - center[i]));
        const float step = largest > 0 && std::isfinite(largest) ? largest / 127 : 1, per_step = 1 / step;
        query.steps.assign(groups_ * 64, 0);
        int sum = 0;
        for (int i = 0; i < m_; ++i) {
            const float steps = ((query.numbers[i] - center[i]) * per_step + 12582912.0f) - 12582912.0f;  // to the nearest
            const int number = std::fabs(steps) <= 127 ? static_cast<int>(steps) : 0;
            sum += number;
            query.steps[i] = static_cast<std::int8_t>(number);
        }
        query.copies.resize(groups_ * 256 + 64);
        std::int8_t *aligned = query.copies.data() + 63;
        aligned -= reinterpret_cast<std::uintptr_t>(aligned) % 64;
        for (int i = 0; i < groups_ * 256; i += 16) std::memcpy(aligned + i, &query.steps[i / 64 * 16], 16);
        query.rounded = {aligned, kernels.dot32(file.centers, query.numbers, m_), step, 1.5f * float(sum)};
    }

    float exact(const Kernels &kernels, const File &file, const float *query, std::int64_t place) const {
        const float product =
            file.half ? kernels.dot16(static_cast<const std::uint16_t *>(file.vectors) + place * m_, query, m_)
                      : kernels.dot32(static_cast<const float *>(file.vectors) + place * m_, query, m_);
        return file.bias ? product + file.bias[place] : product;
    }

    int m_, groups_;
    std::int64_t count_ = 0;
    std::vector<File> files_;
    std::vector<std::int64_t> first_;  // number of each file's first row
    std::vector<List> lists_;         // leaf after leaf
    std::vector<std::size_t> begin_;  // first list of each leaf
    std::vector<List> runs_;          // all lists, with adjacent lists of a file joined
    std::int64_t in_leaves_ = 0;      // rows of all lists
    std::vector<py::object> keep_;
};

}  // namespace

void add_columns(py::module_ &module);  // columns.cpp
void add_words(py::module_ &module);    // words.cpp

PYBIND11_MODULE(rayhier_native, module) {
    add_columns(module);
    add_words(module);
    module.attr("ABI") = 2;
    module.def("kernels", &kernel_names, "Names of the kernels that this processor can run, best first.");
    py::class_<CodedRows>(module, "CodedRows")
        .def(py::init<int, std::int64_t, const std::vector<py::tuple> &>(), py::arg("dimension"), py::arg("leaves"),
             py::arg("files"))
        .def_property_readonly("count", &CodedRows::count)
        .def("products", &CodedRows::products, py::arg("queries"), py::arg("rows"))
        .def("scan", &CodedRows::scan, py::arg("queries"), py::arg("leaves").none(true), py::arg("k"), py::arg("listed"),
             py::arg("keep").none(true), py::arg("threads") = 1, py::arg("kernel") = "best");
}
