// Reads single rows of mapped columns as Python objects.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace py = pybind11;
namespace {

template <class T> using Array = py::array_t<T, py::array::c_style>;

// Texts, as Arrow stores them, or whole numbers.
struct Column {
    const std::int32_t *numbers;  // [n] the numbers, or [n + 1] where each text begins
    const char *bytes = nullptr;
    std::int64_t size = 0;  // of the bytes

};

struct Cell {
    const Column *column;
    std::int64_t row;

    std::string_view text() const {
        if (!column->bytes) throw std::invalid_argument("columns: got numbers; allowed: texts");
        const std::int64_t begin = column->numbers[row], end = column->numbers[row + 1];
        if (begin < 0 || end < begin || end > column->size)
            throw std::invalid_argument("columns: a text lies outside its bytes");
        return {column->bytes + begin, static_cast<std::size_t>(end - begin)};
    }

    py::object value() const {
        if (!column->bytes) return py::int_(column->numbers[row]);
        const std::string_view bytes = text();
        PyObject *decoded = PyUnicode_DecodeUTF8(bytes.data(), bytes.size(), "strict");
        if (!decoded) throw py::error_already_set();
        return py::reinterpret_steal<py::object>(decoded);
    }
};

class Columns {
  public:
    // Files of rows: for each its columns, of numbers [n], or (begins [n + 1], bytes).
    explicit Columns(const std::vector<std::vector<py::object>> &files) {
        for (const auto &columns : files) {
            std::vector<Column> made;
            std::int64_t rows = -1;
            for (const auto &value : columns) {
                const bool is_text = py::isinstance<py::tuple>(value);
                auto numbers = (is_text ? value.cast<py::tuple>()[0].cast<py::object>() : value).cast<Array<std::int32_t>>();
                Column column{numbers.data()};
                keep_.push_back(numbers);
                if (is_text) {
                    auto bytes = value.cast<py::tuple>()[1].cast<Array<std::uint8_t>>();
                    column.bytes = reinterpret_cast<const char *>(bytes.data());
                    column.size = bytes.size();
                    keep_.push_back(bytes);
                }
                const std::int64_t count = numbers.size() - is_text;
                if (count < 0 || (rows >= 0 && count != rows)) throw std::invalid_argument("columns: allowed: equally many rows");
                rows = count;
                made.push_back(column);
            }
            if (!files_.empty() && made.size() != files_[0].size())
                throw std::invalid_argument("columns: allowed: equally many in each file");
            files_.push_back(made);
            first_.push_back(count_);
            count_ += std::max<std::int64_t>(rows, 0);
        }
    }

    // The values of rows [r], which are numbered file after file: a tuple for each row.
    py::list take(const Array<std::int64_t> &rows) const {
        py::list taken(rows.size());
        for (py::ssize_t place = 0; place < rows.size(); ++place) {
            py::tuple values(files_.empty() ? 0 : files_[0].size());
            for (std::size_t column = 0; column < values.size(); ++column)
                values[column] = at(rows.data()[place], column).value();
            taken[place] = std::move(values);
        }
        return taken;
    }

    // The place [r] of each row's text in the first column among the distinct texts, in the order of their bytes.
    Array<std::int64_t> ranks(const Array<std::int64_t> &rows) const {
        const std::size_t count = rows.size();
        std::vector<std::string_view> texts(count);
        for (std::size_t place = 0; place < count; ++place) texts[place] = at(rows.data()[place]).text();
        std::vector<std::uint32_t> order(count);
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return texts[a] < texts[b]; });
        Array<std::int64_t> ranks(count);
        std::int64_t rank = -1;
        for (std::size_t place = 0; place < count; ++place) {
            rank += !place || texts[order[place]] != texts[order[place - 1]];
            ranks.mutable_data()[order[place]] = rank;
        }
        return ranks;
    }

  private:
    Cell at(std::int64_t row, std::size_t column = 0) const {
        if (row < 0 || row >= count_) throw py::index_error("rows: got a row that no file has");
        const std::size_t file = std::upper_bound(first_.begin(), first_.end(), row) - first_.begin() - 1;
        return {&files_[file][column], row - first_[file]};
    }

    std::vector<std::vector<Column>> files_;
    std::vector<std::int64_t> first_;  // number of each file's first row
    std::int64_t count_ = 0;
    std::vector<py::object> keep_;
};

}  // namespace

void add_columns(py::module_ &module) {
    py::class_<Columns>(module, "Columns")
        .def(py::init<const std::vector<std::vector<py::object>> &>(), py::arg("files"))
        .def("ranks", &Columns::ranks, py::arg("rows"))
        .def("take", &Columns::take, py::arg("rows"));
}
