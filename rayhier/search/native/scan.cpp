// The scan of rows in lists: see docs/adr/0024-a-native-scan.md. `reference.py` has the same in numpy, and is its oracle.
//
// A row has a code: bit planes of its distance from the center of its file. A query is quantised to four bits. So its
// product with a code is a sum of bit counts. The best `listed` rows by codes are scored again by their vectors.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
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

namespace py = pybind11;
namespace {

template <class T> using Array = py::array_t<T, py::array::c_style>;  // no forcecast: another type is an error

struct File {
    const void *vectors;  // [n, m] of 16 or 32 bits
    bool half;
    const std::uint64_t *codes;           // [n, bits * words]
    const float *scale, *shift;           // [n]
    const float *centers;                 // [2, m]: of the rows, and where queries lie
    const float *bias = nullptr;          // [n], added to each score
    const std::int64_t *lower = nullptr;  // [n], first leaf of the document of a row in a second leaf, else -1
    std::int64_t first, count;             // number of the first row, and of rows
};

struct List {
    std::int32_t file;
    std::int64_t begin, size;  // rows of the file
};

struct Scored {
    float score;
    std::int64_t row;
    bool operator<(const Scored &other) const {  // better first, ties by row
        return score > other.score || (score == other.score && row < other.row);
    }
};

// The best `most` of the rows that are pushed.
class Best {
  public:
    void reset(std::size_t most) {
        most_ = most;
        least_ = -std::numeric_limits<float>::infinity();
        rows.clear();
    }
    void push(float score, std::int64_t row) {
        if (!(score >= least_)) return;  // NaN too
        rows.push_back({score, row});
        if (rows.size() >= 2 * most_ + 16) cut();
    }
    void finish(bool sorted) {
        if (rows.size() > most_) cut();
        if (sorted) std::sort(rows.begin(), rows.end());
    }
    std::vector<Scored> rows;

  private:
    void cut() {
        std::nth_element(rows.begin(), rows.begin() + (most_ - 1), rows.end());
        rows.resize(most_);
        least_ = rows.back().score;
    }
    std::size_t most_ = 0;
    float least_ = 0;
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

// What one thread needs for a query.
struct Scratch {
    std::vector<std::uint64_t> planes;
    std::vector<std::vector<std::uint32_t>> rows;  // of each file
    std::vector<std::uint8_t> visited;             // of each leaf
    std::vector<std::int32_t> product;
    Best listed, best;
};

class CodedRows {
  public:
    // Files: (vectors, codes, scale, shift, centers, bias, leaves, sizes, lower). No query compares the rows of leaf -1.
    CodedRows(int dimension, int bits, std::int64_t leaf_count, const std::vector<py::tuple> &files)
        : m_(dimension), bits_(bits), words_((dimension + 63) / 64) {
        if (m_ < 1 || bits_ < 1 || bits_ > 4) throw std::invalid_argument("rows: dimension from 1, bits from 1 to 4");
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
            if (file.count > std::numeric_limits<std::uint32_t>::max())
                throw std::invalid_argument("vectors: allowed: fewer than 2^32 rows in a file");
            keep_.push_back(vectors);
            file.codes = data<std::uint64_t>(parts[1], file.count * bits_ * words_, "codes");
            file.scale = data<float>(parts[2], file.count, "scale");
            file.shift = data<float>(parts[3], file.count, "shift");
            file.centers = data<float>(parts[4], 2 * m_, "centers");
            if (!parts[5].is_none()) file.bias = data<float>(parts[5], file.count, "bias");
            if (!parts[8].is_none()) file.lower = data<std::int64_t>(parts[8], file.count, "lower");
            auto leaves = parts[6].cast<Array<std::int64_t>>(), sizes = parts[7].cast<Array<std::int64_t>>();
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
            first += file.count;
        }
        count_ = first;
        for (const auto &of_leaf : lists) {
            begin_.push_back(lists_.size());
            lists_.insert(lists_.end(), of_leaf.begin(), of_leaf.end());
        }
        begin_.push_back(lists_.size());
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
        const float *query = queries.data();
        const std::int64_t most = std::max(k, listed);
        const auto one = [&](std::int64_t number, Scratch &scratch) {
            counted[number] = search(kernels, query + number * m_, leaf ? leaf + number * beam : nullptr, beam, k, most,
                                     kept, row + number * k, score + number * k, scratch);
        };
        {
            py::gil_scoped_release release;
            std::atomic<std::int64_t> next{0};
            std::atomic<bool> stopped{false};
            std::vector<std::exception_ptr> failed(threads);
            const auto work = [&](int thread) {
                try {
                    Scratch scratch;
                    int done = 0;
                    for (std::int64_t number; !stopped && (number = next++) < q;) {
                        one(number, scratch);
                        if (!thread && ++done % 64 == 0) {  // Ctrl-C
                            py::gil_scoped_acquire acquire;
                            if (PyErr_CheckSignals()) throw py::error_already_set();
                        }
                    }
                } catch (...) {
                    failed[thread] = std::current_exception();
                    stopped = true;
                }
            };
            std::vector<std::thread> others;
            try {
                for (int thread = 1; thread < std::min<std::int64_t>(threads, q); ++thread)
                    others.emplace_back(work, thread);
            } catch (const std::system_error &) {  // no further threads here: the others do the work
            }
            work(0);
            for (auto &other : others) other.join();
            for (const auto &error : failed)
                if (error) std::rethrow_exception(error);
        }
        return py::make_tuple(rows, scores, compared);
    }

  private:
    template <class T> const T *data(const py::handle &value, std::int64_t size, const char *name) {
        auto array = value.cast<Array<T>>();
        if (array.size() != size) throw std::invalid_argument(std::string(name) + ": got another number of values");
        keep_.push_back(array);
        return array.data();
    }

    std::int64_t search(const Kernels &kernels, const float *query, const std::int64_t *leaves, std::int64_t beam,
                        std::int64_t k, std::int64_t most, const bool *kept, std::int64_t *row, float *score,
                        Scratch &scratch) const {
        const std::int64_t compared = gather(leaves, beam, kept, scratch);
        scratch.best.reset(k);
        if (k && compared > most) {
            by_codes(kernels, query, most, scratch);
            thread_local bool is_on_disk = true;
            if (is_on_disk) read_ahead(scratch.listed);
            const long before = page_reads();
            std::size_t number = 0;
            for (const auto &found : scratch.listed.rows) {
                while (found.row >= files_[number].first + files_[number].count) ++number;
                const File &file = files_[number];
                scratch.best.push(exact(kernels, file, query, found.row - file.first), found.row);
            }
            is_on_disk = page_reads() > before;
        } else if (k) {
            for (std::size_t number = 0; number < files_.size(); ++number)
                for (const auto place : scratch.rows[number])
                    scratch.best.push(exact(kernels, files_[number], query, place), files_[number].first + place);
        }
        scratch.best.finish(true);
        const std::int64_t found = scratch.best.rows.size();
        for (std::int64_t place = 0; place < k; ++place) {
            const bool any = place < found;
            row[place] = any ? scratch.best.rows[place].row : -1;
            score[place] = any ? scratch.best.rows[place].score : -std::numeric_limits<float>::infinity();
        }
        return compared;
    }

    // Lists the rows to compare, file by file: of each document one, where the query visits both of its leaves.
    std::int64_t gather(const std::int64_t *leaves, std::int64_t beam, const bool *kept, Scratch &scratch) const {
        const std::int64_t known = static_cast<std::int64_t>(begin_.size()) - 1;
        scratch.rows.resize(files_.size());
        for (auto &rows : scratch.rows) rows.clear();
        scratch.visited.resize(known);
        std::int64_t total = 0;
        const auto visit = [&](std::int64_t leaf) {
            for (std::size_t number = begin_[leaf]; number < begin_[leaf + 1]; ++number) {
                const List &list = lists_[number];
                const File &file = files_[list.file];
                auto &rows = scratch.rows[list.file];
                if (!kept && !file.lower) {
                    const std::size_t before = rows.size();
                    rows.resize(before + list.size);
                    std::iota(rows.begin() + before, rows.end(), static_cast<std::uint32_t>(list.begin));
                    continue;
                }
                for (std::int64_t place = list.begin; place < list.begin + list.size; ++place) {
                    if (kept && !kept[file.first + place]) continue;
                    if (file.lower && file.lower[place] >= 0 && file.lower[place] < known &&
                        scratch.visited[file.lower[place]])
                        continue;
                    rows.push_back(static_cast<std::uint32_t>(place));
                }
            }
        };
        if (!leaves) {
            std::fill(scratch.visited.begin(), scratch.visited.end(), 1);
            for (std::int64_t leaf = 0; leaf < known; ++leaf) visit(leaf);
            std::fill(scratch.visited.begin(), scratch.visited.end(), 0);
        } else {
            for (std::int64_t place = 0; place < beam; ++place)
                if (leaves[place] >= 0 && leaves[place] < known) scratch.visited[leaves[place]] = 1;
            for (std::int64_t place = 0; place < beam; ++place)
                if (leaves[place] >= 0 && leaves[place] < known) visit(leaves[place]);
            for (std::int64_t place = 0; place < beam; ++place)
                if (leaves[place] >= 0 && leaves[place] < known) scratch.visited[leaves[place]] = 0;
        }
        for (const auto &rows : scratch.rows) total += rows.size();
        return total;
    }

    // Lists the best `most` rows by codes, ascending.
    void by_codes(const Kernels &kernels, const float *query, std::int64_t most, Scratch &scratch) const {
        scratch.listed.reset(most);
        for (std::size_t number = 0; number < files_.size(); ++number) {
            const File &file = files_[number];
            const auto &rows = scratch.rows[number];
            if (rows.empty()) continue;
            const auto [step, sum] = round(query, file.centers + m_, scratch);
            const float base = kernels.dot32(file.centers, query, m_), middle = 0.5f * float((1 << bits_) - 1) * sum;
            scratch.product.resize(rows.size());
            kernels.products(file.codes, rows.data(), rows.size(), scratch.planes.data(), words_, bits_,
                             scratch.product.data());
            for (std::size_t place = 0; place < rows.size(); ++place) {
                const auto row = rows[place];
                float score = base + file.shift[row] + file.scale[row] * step * (float(scratch.product[place]) - middle);
                if (file.bias) score += file.bias[row];
                scratch.listed.push(score, file.first + row);
            }
        }
        scratch.listed.finish(false);
        std::sort(scratch.listed.rows.begin(), scratch.listed.rows.end(),
                  [](const Scored &one, const Scored &other) { return one.row < other.row; });
        each_vector(scratch.listed, [](const char *vector, std::size_t bytes) {
            for (std::size_t byte = 0; byte < std::min<std::size_t>(bytes, 512); byte += 64)
                __builtin_prefetch(vector + byte);
        });
    }

    // Has the system read the vectors from a disk at once: page after page, each would wait for the one before.
    void read_ahead(const Best &listed) const {
#if defined(__linux__)
        static const std::uintptr_t page = sysconf(_SC_PAGESIZE);
        each_vector(listed, [](const char *vector, std::size_t bytes) {
            const auto begin = reinterpret_cast<std::uintptr_t>(vector) / page * page;
            madvise(reinterpret_cast<void *>(begin), reinterpret_cast<std::uintptr_t>(vector) + bytes - begin, MADV_WILLNEED);
        });
#endif
    }

    // Calls `use(first byte, bytes)` for the vectors of rows, which ascend.
    template <class Use> void each_vector(const Best &listed, Use use) const {
        std::size_t number = 0;
        for (const auto &found : listed.rows) {
            while (found.row >= files_[number].first + files_[number].count) ++number;
            const std::size_t bytes = m_ * (files_[number].half ? 2 : 4);
            use(static_cast<const char *>(files_[number].vectors) + (found.row - files_[number].first) * bytes, bytes);
        }
    }

    // Rounds a query's difference from a center to -7 ... 7 steps, as bit planes. Returns the step and the sum.
    std::pair<float, float> round(const float *query, const float *center, Scratch &scratch) const {
        float largest = 0;
        for (int i = 0; i < m_; ++i) largest = std::max(largest, std::fabs(query[i] - center[i]));
        const float step = largest > 0 && std::isfinite(largest) ? largest / 7 : 1;
        scratch.planes.assign(4 * words_, 0);
        int sum = 0;
        for (int i = 0; i < m_; ++i) {
            const float steps = ((query[i] - center[i]) / step + 12582912.0f) - 12582912.0f;  // to the nearest, ties to even
            const int number = std::fabs(steps) <= 7 ? static_cast<int>(steps) : 0;
            sum += number;
            for (int plane = 0; plane < 4; ++plane)
                scratch.planes[plane * words_ + i / 64] |= std::uint64_t(number >> plane & 1) << (i % 64);
        }
        return {step, float(sum)};
    }

    float exact(const Kernels &kernels, const File &file, const float *query, std::int64_t place) const {
        const float product =
            file.half ? kernels.dot16(static_cast<const std::uint16_t *>(file.vectors) + place * m_, query, m_)
                      : kernels.dot32(static_cast<const float *>(file.vectors) + place * m_, query, m_);
        return file.bias ? product + file.bias[place] : product;
    }

    int m_, bits_, words_;
    std::int64_t count_ = 0;
    std::vector<File> files_;
    std::vector<List> lists_;         // leaf after leaf
    std::vector<std::size_t> begin_;  // first list of each leaf
    std::vector<py::object> keep_;
};

}  // namespace

void add_words(py::module_ &module);  // words.cpp

PYBIND11_MODULE(rayhier_native, module) {
    add_words(module);
    module.attr("ABI") = 1;
    module.def("kernels", &kernel_names, "Names of the kernels that this processor can run, best first.");
    py::class_<CodedRows>(module, "CodedRows")
        .def(py::init<int, int, std::int64_t, const std::vector<py::tuple> &>(), py::arg("dimension"), py::arg("bits"),
             py::arg("leaves"), py::arg("files"))
        .def_property_readonly("count", &CodedRows::count)
        .def("scan", &CodedRows::scan, py::arg("queries"), py::arg("leaves").none(true), py::arg("k"), py::arg("listed"),
             py::arg("keep").none(true), py::arg("threads") = 1, py::arg("kernel") = "best");
}
