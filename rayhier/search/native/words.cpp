// BM25 over postings: the exact best rows of a query. `search/words/postings.py` has the same in numpy, and is its oracle.
//
// A query's words are ordered by weight, the rarest first. Rows are searched window by window. If the words from one on
// cannot bring a row among the best, they are looked up only for the rows that other words found (MaxScore: Turtle and
// Flood, 1995, by windows as in Lucene). A row's sum always adds its words in the same order, so that equal rows tie.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "threads.h"

namespace py = pybind11;
namespace {

template <class T> using Array = py::array_t<T, py::array::c_style>;  // no forcecast: another type is an error

constexpr int LINE = 64, WINDOW = 64 * LINE;  // rows that a mark tells of, and whose sums are in memory together
constexpr int NARROW = 256;                   // rows of the first window, until there is a least score
constexpr int LOOKED_UP = 8;                  // postings that are added while one row is looked up
constexpr float SPARE = 1 + 1e-5f;            // more than sums are rounded by

struct Scored {
    float score;
    std::int64_t row;
    bool operator<(const Scored &other) const {  // better first, ties by row
        return score > other.score || (score == other.score && row < other.row);
    }
};

// The best k of the rows that are pushed, and those that tie with the last, `most` in all.
class Best {
  public:
    void reset(std::int64_t k, std::int64_t most) {
        k_ = k, most_ = most, cut_at_ = 2 * k + 16;
        least = 0;
        rows.clear();
    }
    void push(float score, std::int64_t row) {
        if (!(score > 0 && score >= least)) return;  // NaN too
        rows.push_back({score, row});
        if (static_cast<std::int64_t>(rows.size()) >= cut_at_) {
            cut();
            cut_at_ = rows.size() + k_ + 16;
        }
    }
    void finish() {
        cut();
        std::sort(rows.begin(), rows.end());
    }
    float least = 0;  // the k-th best score, 0 if there are fewer
    std::vector<Scored> rows;

  private:
    void cut() {
        if (static_cast<std::int64_t>(rows.size()) < k_) return;
        std::nth_element(rows.begin(), rows.begin() + (k_ - 1), rows.end());
        least = rows[k_ - 1].score;
        const auto tied = std::partition(rows.begin() + k_, rows.end(), [&](const Scored &one) { return one.score == least; });
        const auto end = rows.begin() + std::min<std::int64_t>(most_, tied - rows.begin());
        if (end < tied) std::nth_element(rows.begin() + k_, end, tied);
        rows.erase(end, rows.end());
    }
    std::int64_t k_ = 0, most_ = 0, cut_at_ = 0;
};

// Words, ascending by their hashes, and how many documents have each.
using Counted = std::tuple<Array<std::uint64_t>, Array<std::int32_t>>;
// The same, then of each word the place of its first posting, and the most that a posting's part is before it is
// multiplied. Of each posting the row, ascending within a word, and the kind, of 16 or 32 bits. Of each kind the part
// f / (f + ...). Then by what the most is multiplied, the number of rows, the first that is searched, and the end.
using Searched = std::tuple<Array<std::uint64_t>, Array<std::int32_t>, Array<std::int64_t>, Array<float>,
                            Array<std::int32_t>, py::array, Array<float>, double, std::int32_t, std::int32_t, std::int32_t>;

struct File {
    const std::uint64_t *word;
    const std::int32_t *frequency;
    std::int64_t words, postings = 0;
    const std::int64_t *begin = nullptr;
    const float *most = nullptr, *part = nullptr;
    const std::int32_t *row = nullptr;
    const void *kind = nullptr;
    bool wide = false;  // kinds of 32 bits
    double higher = 1;
    std::uint32_t kinds = 0;
    std::int64_t first = 0;  // number of the file's first row
    std::int32_t rows = 0, from = 0, to = 0;

    float part_of(std::uint32_t kind) const { return part[kind < kinds ? kind : 0]; }
};

struct Word {
    std::uint64_t hash;
    std::int64_t frequency;  // documents that have it
    std::int64_t times;      // how often the query has it
    float weight;
    std::size_t places;  // where its places in the files begin
};

// Postings of a word in a file that are still to be read.
struct Cursor {
    float weight;
    double left;  // most that this word and all after it add
    std::int64_t next, end;
};

// What one thread needs for a query.
struct Scratch {
    std::vector<Word> words;
    std::vector<std::int64_t> places;  // -1 if no document of a file has the word
    std::vector<Cursor> cursors;
    std::vector<Scored> found;
    float sum[WINDOW] = {};    // zero between windows
    std::uint64_t marked = 0;  // lines that have sums
    Best best;
};

class WordLists {
  public:
    // Files to search, and others that count for how rare words are. All files together have some documents.
    WordLists(std::vector<Searched> searched, std::vector<Counted> others, double documents)
        : documents_(documents), searched_(std::move(searched)), others_(std::move(others)) {
        for (const auto &[words, frequencies, begins, most, rows, kinds, parts, higher, count, from, to] : searched_) {
            File file = counted(words, frequencies);
            file.wide = py::isinstance<Array<std::uint32_t>>(kinds);
            if (!file.wide && !py::isinstance<Array<std::uint16_t>>(kinds))
                throw py::type_error("kinds: allowed: numbers of 16 or 32 bits, one after another");
            if (begins.size() != file.words || most.size() != file.words || kinds.size() != rows.size())
                throw std::invalid_argument("searched: got another number of values for words or for postings");
            if (from < 0 || from > to || to > count) throw std::invalid_argument("searched: got a range beyond the rows");
            if (rows.size() && !parts.size()) throw std::invalid_argument("searched: got postings without parts");
            file.begin = begins.data(), file.most = most.data(), file.part = parts.data();
            file.row = rows.data(), file.kind = kinds.data(), file.postings = rows.size(), file.kinds = parts.size();
            file.higher = higher, file.first = rows_, file.rows = count, file.from = from, file.to = to;
            rows_ += count;
            files_.push_back(file);
        }
        for (const auto &[words, frequencies] : others_) files_.push_back(counted(words, frequencies));
    }

    // Scores and rows [q, t] of the best k rows of each query, and of those that tie with the last: k * ties at most.
    // `hashes` has the words of all queries, of which `counts` belong to each. `further` documents have a word so often.
    py::tuple best(const Array<std::uint64_t> &hashes, const std::vector<std::int64_t> &counts, std::int64_t k,
                   std::int64_t ties, const std::optional<Array<bool>> &keep,
                   const std::optional<Array<std::int64_t>> &further, double further_documents, int threads) const {
        if (k < 0 || ties < 1 || threads < 1) throw std::invalid_argument("k: allowed: from 0; ties, threads: from 1");
        if (keep && keep->size() != rows_) throw std::invalid_argument("keep: allowed: one value for each row");
        if (further && further->size() != hashes.size()) throw std::invalid_argument("further: allowed: one for each hash");
        const std::int64_t q = counts.size();
        std::vector<std::int64_t> begin(q + 1);
        for (std::int64_t number = 0; number < q; ++number) {
            if (counts[number] < 0 || counts[number] > hashes.size() - begin[number])
                throw std::invalid_argument("counts: got more words than hashes");
            begin[number + 1] = begin[number] + counts[number];
        }
        const auto *hash = hashes.data();
        const auto *kept = keep ? keep->data() : nullptr;
        const auto *more = further ? further->data() : nullptr;
        k = std::min(k, rows_);
        ties = std::min(ties, rows_);
        std::vector<std::vector<Scored>> found(q);
        if (k)
            on_threads<Scratch>(q, threads, [&](std::int64_t number, Scratch &scratch) {
                weigh(hash, more, begin[number], begin[number + 1], documents_ + further_documents, scratch);
                scratch.best.reset(k, std::min(k * ties, rows_));
                for (std::size_t file = 0; file < searched_.size(); ++file)
                    files_[file].wide ? search<std::uint32_t>(files_[file], file, kept, scratch)
                                      : search<std::uint16_t>(files_[file], file, kept, scratch);
                scratch.best.finish();
                found[number].assign(scratch.best.rows.begin(), scratch.best.rows.end());
            });
        std::size_t most = 0;
        for (const auto &rows : found) most = std::max(most, rows.size());
        Array<float> scores({static_cast<std::size_t>(q), most});
        Array<std::int64_t> rows({static_cast<std::size_t>(q), most});
        auto *score = scores.mutable_data();
        auto *row = rows.mutable_data();
        for (const auto &of_query : found)
            for (std::size_t place = 0; place < most; ++place) {
                const bool any = place < of_query.size();
                *score++ = any ? of_query[place].score : -std::numeric_limits<float>::infinity();
                *row++ = any ? of_query[place].row : -1;
            }
        return py::make_tuple(scores, rows);
    }

  private:
    static File counted(const Array<std::uint64_t> &words, const Array<std::int32_t> &frequencies) {
        if (words.size() != frequencies.size()) throw std::invalid_argument("frequencies: allowed: one for each word");
        return {words.data(), frequencies.data(), words.size()};
    }

    // Lists a query's words that documents have, the rarest first, each with its weight and places in the files.
    void weigh(const std::uint64_t *hash, const std::int64_t *further, std::int64_t begin, std::int64_t end,
               double documents, Scratch &scratch) const {
        auto &words = scratch.words;
        words.clear();
        scratch.places.clear();
        for (auto at = begin; at < end; ++at) words.push_back({hash[at], further ? further[at] : 0, 1, 0, 0});
        std::sort(words.begin(), words.end(), [](const Word &one, const Word &other) { return one.hash < other.hash; });
        std::size_t distinct = 0;
        for (const auto &word : words)
            if (distinct && words[distinct - 1].hash == word.hash)
                ++words[distinct - 1].times;
            else
                words[distinct++] = word;
        words.resize(distinct);
        for (auto &word : words) {
            word.places = scratch.places.size();
            for (const auto &file : files_) {
                const auto *end_ = file.word + file.words, *place = std::lower_bound(file.word, end_, word.hash);
                const bool has = place < end_ && *place == word.hash;
                scratch.places.push_back(has ? place - file.word : -1);
                if (has) word.frequency += file.frequency[place - file.word];
            }
            const double n = double(word.frequency);
            if (n > 0) word.weight = float(double(word.times) * std::log(1 + (documents - n + 0.5) / (n + 0.5)));
        }
        words.erase(std::remove_if(words.begin(), words.end(), [](const Word &word) { return !(word.weight > 0); }),
                    words.end());
        std::stable_sort(words.begin(), words.end(),
                         [](const Word &one, const Word &other) { return one.weight > other.weight; });
    }

    template <class Kind> void search(const File &file, std::size_t number, const bool *kept, Scratch &scratch) const {
        const auto *kind = static_cast<const Kind *>(file.kind);
        auto &cursors = scratch.cursors;
        cursors.clear();
        for (const auto &word : scratch.words) {
            const auto place = scratch.places[word.places + number];
            if (place < 0) continue;
            const std::int64_t has = file.frequency[place];
            std::int64_t begin = file.begin[place];
            if (begin < 0 || has < 0 || begin > file.postings - has)
                throw std::invalid_argument("begins: got postings beyond the last");
            auto end = begin + has;
            if (file.from > 0) begin = seek(file.row, begin, end, file.from);
            if (file.to < file.rows) end = seek(file.row, begin, end, file.to);
            if (begin < end) cursors.push_back({word.weight, word.weight * file.higher * file.most[place], begin, end});
        }
        for (std::size_t at = cursors.size(); at-- > 1;) cursors[at - 1].left += cursors[at].left;
        std::size_t needed = cursors.size();  // words of which a row must have one to be among the best
        for (int width = scratch.best.least > 0 ? WINDOW : NARROW;; width = std::min(2 * width, WINDOW)) {
            while (needed && cursors[needed - 1].left * SPARE < scratch.best.least) --needed;
            std::int32_t base = file.to;
            std::int64_t postings = 0;
            for (std::size_t at = 0; at < needed; ++at) {
                postings += cursors[at].end - cursors[at].next;
                if (cursors[at].next < cursors[at].end) base = std::min(base, file.row[cursors[at].next]);
            }
            if (base >= file.to) return;
            // Other words are looked up for the rows found, unless they are so rare that adding them takes less.
            std::size_t added = needed;
            for (; added < cursors.size(); ++added) {
                cursors[added].next = seek(file.row, cursors[added].next, cursors[added].end, base);
                const auto more = cursors[added].end - cursors[added].next;
                if (more > LOOKED_UP * postings) break;
                postings += more;
            }
            for (std::size_t at = 0; at < added; ++at) add(file, kind, cursors[at], base, width, scratch);
            take(file, base, added < cursors.size() ? cursors[added].left : 0, kept, scratch);
            for (std::size_t at = added; at < cursors.size(); ++at) look_up(file, kind, cursors[at], scratch);
            for (const auto &found : scratch.found) scratch.best.push(found.score, file.first + found.row);
        }
    }

    // Adds a word to the sums of the rows from `base` on. Rows that do not ascend end the loop.
    template <class Kind>
    static void add(const File &file, const Kind *kind, Cursor &cursor, std::int32_t base, int width, Scratch &scratch) {
        const File in = file;  // variables of its own, which stores to sums cannot change
        Cursor at = cursor;
        auto marked = scratch.marked;
        for (; at.next < at.end; ++at.next) {
            const std::uint32_t slot = std::uint32_t(in.row[at.next]) - std::uint32_t(base);
            if (slot >= std::uint32_t(width)) break;
            scratch.sum[slot] += at.weight * in.part_of(kind[at.next]);
            marked |= std::uint64_t(1) << slot / LINE;
        }
        cursor.next = at.next;
        scratch.marked = marked;
    }

    // Lists the rows that may be among the best if words add `left` to them. Makes all sums zero again.
    static void take(const File &file, std::int32_t base, double left, const bool *kept, Scratch &scratch) {
        scratch.found.clear();
        const float least = std::max(float(scratch.best.least / SPARE - left), std::numeric_limits<float>::min());
        for (; scratch.marked; scratch.marked &= scratch.marked - 1) {
            const int first = __builtin_ctzll(scratch.marked) * LINE;
            float *sum = scratch.sum + first, line[LINE];
            int any = 0;
            for (int slot = 0; slot < LINE; ++slot) {
                line[slot] = sum[slot];
                sum[slot] = 0;
                any |= line[slot] >= least;
            }
            std::uint64_t able = 0;
            for (int slot = 0; any && slot < LINE; ++slot) able |= std::uint64_t(line[slot] >= least) << slot;
            for (; able; able &= able - 1) {
                const int slot = __builtin_ctzll(able);
                const std::int64_t row = std::int64_t(base) + first + slot;
                if (row >= file.from && row < file.to && (!kept || kept[file.first + row]))
                    scratch.found.push_back({line[slot], row});
            }
        }
    }

    // Adds a word to the sums of the rows found, without those that can no longer be among the best.
    template <class Kind> static void look_up(const File &file, const Kind *kind, Cursor &cursor, Scratch &scratch) {
        std::size_t able = 0;
        for (auto found : scratch.found) {
            if ((found.score + cursor.left) * SPARE < scratch.best.least) continue;
            cursor.next = seek(file.row, cursor.next, cursor.end, found.row);
            if (cursor.next < cursor.end && file.row[cursor.next] == found.row)
                found.score += cursor.weight * file.part_of(kind[cursor.next]);
            scratch.found[able++] = found;
        }
        scratch.found.resize(able);
    }

    // Returns the first place from `next` on with the wanted row or a later one, by steps that double.
    static std::int64_t seek(const std::int32_t *row, std::int64_t next, std::int64_t end, std::int64_t wanted) {
        std::int64_t step = 1;
        for (; next + step < end && row[next + step] < wanted; step *= 2) next += step;
        return std::lower_bound(row + next, row + std::min(next + step, end), wanted) - row;
    }

    double documents_;
    std::int64_t rows_ = 0;
    std::vector<Searched> searched_;
    std::vector<Counted> others_;
    std::vector<File> files_;  // those that are searched come first
};

}  // namespace

void add_words(py::module_ &module) {
    py::class_<WordLists>(module, "WordLists")
        .def(py::init<std::vector<Searched>, std::vector<Counted>, double>(), py::arg("searched"), py::arg("others"),
             py::arg("documents"))
        .def("best", &WordLists::best, py::arg("hashes"), py::arg("counts"), py::arg("k"), py::arg("ties"),
             py::arg("keep"), py::arg("further"), py::arg("further_documents") = 0, py::arg("threads") = 1);
}
